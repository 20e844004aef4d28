"""How much does an attention layer react when one word changes?"""

from typing import TYPE_CHECKING, Any

from wsfast import nn
from wsfast._config import show_config
from wsfast._random import random_weights
from wsfast._version import __version__
from wsfast.feature_maps.raf import raf_features
from wsfast.feature_maps.rf import drf_features, drf_weights, rf_features, rf_weights
from wsfast.perturbation.deltas import perturb, raf_delta_norms, raf_deltas
from wsfast.sensitivity.generic import word_sensitivity
from wsfast.sensitivity.raf import raf_sensitivity
from wsfast.sensitivity.random_features import drf_sensitivity, rf_sensitivity
from wsfast.sensitivity.result import SensitivityResult
from wsfast.substitution.result import SubstitutionResult
from wsfast.substitution.search import self_scores, substitution_sensitivity
from wsfast.text.compare import compare
from wsfast.text.embed import embed
from wsfast.text.substitute import substitute

if TYPE_CHECKING:
    from wsfast import generalization
    from wsfast.scaling_laws.result import ScalingResult
    from wsfast.scaling_laws.study import scaling

__all__ = [
    "ScalingResult",
    "SensitivityResult",
    "SubstitutionResult",
    "__version__",
    "compare",
    "drf_features",
    "drf_sensitivity",
    "drf_weights",
    "embed",
    "generalization",
    "nn",
    "perturb",
    "raf_delta_norms",
    "raf_deltas",
    "raf_features",
    "raf_sensitivity",
    "random_weights",
    "rf_features",
    "rf_sensitivity",
    "rf_weights",
    "scaling",
    "self_scores",
    "show_config",
    "substitute",
    "substitution_sensitivity",
    "word_sensitivity",
]

# Loaded when first asked for: studies of many texts, which most programs do without.
_LATE = {
    "ScalingResult": "wsfast.scaling_laws.result",
    "generalization": "wsfast.generalization",
    "scaling": "wsfast.scaling_laws.study",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_LATE[name])
        return getattr(module, name, module)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
