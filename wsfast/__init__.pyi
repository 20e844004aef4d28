from . import generalization, nn, text
from ._config import show_config
from ._random import random_weights
from ._version import __version__
from .feature_maps.raf import raf_features
from .feature_maps.rf import drf_features, drf_weights, rf_features, rf_weights
from .perturbation.deltas import perturb, raf_delta_norms, raf_deltas
from .scaling_laws.result import ScalingResult
from .scaling_laws.study import scaling
from .sensitivity.generic import word_sensitivity
from .sensitivity.raf import raf_sensitivity
from .sensitivity.random_features import drf_sensitivity, rf_sensitivity
from .sensitivity.result import SensitivityResult
from .substitution.result import SubstitutionResult
from .substitution.search import self_scores, substitution_sensitivity
from .text.compare import compare
from .text.embed import embed
from .text.substitute import substitute

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
    "text",
    "word_sensitivity",
]
