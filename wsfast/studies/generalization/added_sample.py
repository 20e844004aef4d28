"""One more sample (X, y), what is learnt of it, and what of that is left when X changes."""

from __future__ import annotations

from torch import Tensor

from wsfast.studies.generalization.minimise import Loss


class AddedSample:
    """φ(X), y, and the min-norm solution θ* on the texts before.

    Parameters
    ----------
    phi, away, theta : Tensor, shape (D,)
        φ(X), P⊥φ(X) and θ*, float64. `away` is not looked at where only fine-tuning is asked for
        and no alignment.
    y : float
        1 or -1.
    """

    def __init__(self, phi: Tensor, away: Tensor, y: float, theta: Tensor) -> None:
        self.phi, self.away, self.y, self.theta = phi, away, y, theta
        self.before = float(phi @ theta)

    def along(self, training: str) -> Tensor:
        """The direction in which θ* moves."""
        return self.phi if training == "fine_tuning" else self.away

    def learnt(self, training: str) -> Tensor:
        """θ after training on the sample too."""
        v = self.along(training)
        return self.theta + v * ((self.y - self.before) / (v @ v))

    def loss(self, name: str, training: str) -> Loss:
        if name == "error":
            theta, target = self.learnt(training), -self.y
        else:
            v = self.phi if name == "feature" else self.away
            theta, target = v / (v @ v), -1.0
        return Loss(theta, float(self.phi @ theta), target)

    def figures(self, changed: Tensor, loss: Loss, training: str) -> dict[str, float]:
        """Every figure at the features `changed` (D,)."""
        v, after = self.along(training), self.learnt(training)
        changed_before, changed_after = float(changed @ self.theta), float(changed @ after)
        gamma = abs(changed_before - self.before)
        return {
            "output_before": self.before,
            "output_after": float(self.phi @ after),
            "changed_before": changed_before,
            "changed_after": changed_after,
            "loss": loss.value(changed),
            "error": (changed_after + self.y) ** 2,
            "alignment": float(changed @ v) / float(self.phi @ v),
            "gamma": gamma,
            "lower_bound": max(0.0, 2 - gamma) ** 2,
        }
