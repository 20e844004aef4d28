from . import corpus, generalization, nn, text
from ._config import show_config
from ._random import random_weights
from ._version import __version__
from .maps.attention_features import raf_features
from .maps.feature_map import FeatureMap
from .maps.random_features import drf_features, drf_weights, rf_features, rf_weights
from .perturbation.change import Change
from .results.layers import LayerSensitivityResult
from .results.scaling import ScalingResult
from .results.sensitivity import SensitivityResult
from .results.substitution import SubstitutionResult
from .studies.attention_deltas import attention_deltas
from .studies.deltas import perturb, raf_delta_norms, raf_deltas
from .studies.scaling.study import scaling
from .studies.sensitivity import (
    drf_sensitivity,
    raf_sensitivity,
    rf_sensitivity,
    word_sensitivity,
)
from .studies.substitution.search import self_scores, substitution_sensitivity
from .studies.worst_words import worst_words
from .text.attention_layers import attention_layers
from .text.compare import compare
from .text.embed import embed
from .text.layer_sensitivity import layer_sensitivity
from .text.score import score
from .text.substitute import substitute

__all__ = [
    "Change",
    "FeatureMap",
    "LayerSensitivityResult",
    "ScalingResult",
    "SensitivityResult",
    "SubstitutionResult",
    "__version__",
    "attention_deltas",
    "attention_layers",
    "compare",
    "corpus",
    "drf_features",
    "drf_sensitivity",
    "drf_weights",
    "embed",
    "generalization",
    "layer_sensitivity",
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
    "score",
    "self_scores",
    "show_config",
    "substitute",
    "substitution_sensitivity",
    "text",
    "word_sensitivity",
    "worst_words",
]
