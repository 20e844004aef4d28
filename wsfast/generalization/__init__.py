"""How one more sample is learnt by min-norm least squares, and forgotten as one word changes."""

from wsfast.generalization.result import GeneralizationResult
from wsfast.generalization.run import experiment

__all__ = ["GeneralizationResult", "experiment"]
