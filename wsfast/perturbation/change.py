"""Changes of some words of a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from wsfast._values import either


@dataclass(frozen=True, eq=False)
class Sites:
    """P places of a text, of m words each."""

    at: Tensor  # (P, m) int64, ascending, counted among the words of the text

    @classmethod
    def of_words(cls, index: Tensor) -> Sites:
        """The places of single words, `index` (P,)."""
        return cls(index[:, None])

    @property
    def index(self) -> Tensor:
        """The words (P,) of places of one word each."""
        return self.at[:, 0]

    @property
    def words(self) -> int:
        """m."""
        return self.at.shape[1]

    def __len__(self) -> int:
        return len(self.at)


class Change(NamedTuple):
    """An edit for each of P places, s of them; with neither field the words are hidden.

    A hidden word is attended to by nobody; its own row stays, as a query.
    """

    add: Tensor | None = None  # (P, s, m, d): x + add
    put: Tensor | None = (
        None  # (P, s, m, d): in place of x, not x + (put - x): ReLU sees directions
    )

    @property
    def points(self) -> int:
        """s."""
        by = self.add if self.add is not None else self.put
        return 1 if by is None else by.shape[1]

    def select(self, keep: Tensor) -> Change:
        """The changes of the places numbered `keep`."""
        return Change(*(None if by is None else by[keep] for by in self))


Kind: TypeAlias = Callable[[Tensor, Tensor], Change]
"""From a text X (n, d) and places (P, m) to a change of each of them."""


def edit(X: Tensor, sites: Sites, change: Change) -> tuple[Tensor, Tensor | None]:
    """The edited texts (P·s, n, d), and which words are hidden, (P·s, n), or None."""
    P, s = len(sites.at), change.points
    if change.add is None and change.put is None:
        hidden = torch.zeros(P, len(X), dtype=torch.bool, device=X.device)
        return X.expand(P, -1, -1), hidden.scatter(1, sites.at, True)
    by = change.add if change.add is not None else change.put
    assert by is not None
    rows = sites.at.repeat_interleave(s, 0)
    each = torch.arange(P * s, device=X.device)[:, None]
    add = change.add is not None
    values = by.flatten(0, 1).to(X.dtype)
    return X.expand(P * s, -1, -1).index_put((each, rows), values, accumulate=add), None


def resize(X: Tensor, at: Tensor, put: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Texts of another length: words `put` (C, m', d) in place of those at `at` (m,), ascending.

    They come where the first of those was. Also the rows of the other words, before in X (n, d) and
    after in the texts (C, n - m + m', d).
    """
    before = torch.arange(len(X), device=X.device)
    before = before[(before[:, None] != at).all(1)]
    start, more = int(at[0]), put.shape[1]
    others = X[before].expand(len(put), -1, -1)
    texts = torch.cat([others[:, :start], put.to(X.dtype), others[:, start:]], 1)
    after = torch.arange(len(before), device=X.device)
    return texts, before, torch.where(after < start, after, after + more)


def hide(X: Tensor, at: Tensor) -> Change:
    """Hide the words."""
    return Change()


def zero(X: Tensor, at: Tensor) -> Change:
    """Put 0 in their place."""
    return Change(put=X.new_zeros(()).expand(len(at), 1, at.shape[1], X.shape[1]))


def mean(X: Tensor, at: Tensor) -> Change:
    """Put the mean of all words of the text in their place."""
    return Change(put=X.mean(0).expand(len(at), 1, at.shape[1], -1))


BALL = "ball"
"""The name of the perturbation that is searched: every Δ of a ball."""

KINDS: dict[str, Kind] = {"mask": hide, "zero": zero, "mean": mean}
"""The others by their names."""


def kind_of(perturbation: Any, radius: Any, name: str = "radius") -> Kind | None:
    """The kind that a user names, or gives as a function; None for the ball.

    `name` is what the argument of the radius is called.

    Raises
    ------
    ValueError
        For another name, or a radius where there is no ball.
    """
    if perturbation == BALL:
        return None
    if radius is not None:
        raise ValueError(
            f"{name} must be left out with perturbation={perturbation!r}: it is of the ball"
        )
    if callable(perturbation):
        given: Kind = perturbation
        return given
    if not isinstance(perturbation, str) or perturbation not in KINDS:
        known = either((BALL, *KINDS), "a function")
        raise ValueError(f"perturbation must be {known}, got {perturbation!r}")
    return KINDS[perturbation]
