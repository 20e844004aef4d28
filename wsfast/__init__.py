"""How much does an attention layer react when one word changes?"""

from wsfast import nn
from wsfast._config import show_config
from wsfast._random import random_weights
from wsfast._version import __version__
from wsfast.feature_maps.raf import raf_features
from wsfast.perturbation.deltas import perturb, raf_delta_norms, raf_deltas
from wsfast.sensitivity.generic import word_sensitivity
from wsfast.sensitivity.raf import raf_sensitivity
from wsfast.sensitivity.result import SensitivityResult
from wsfast.text.embed import embed

__all__ = [
    "SensitivityResult",
    "__version__",
    "embed",
    "nn",
    "perturb",
    "raf_delta_norms",
    "raf_deltas",
    "raf_features",
    "raf_sensitivity",
    "random_weights",
    "show_config",
    "word_sensitivity",
]
