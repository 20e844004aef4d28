"""How one more sample is learnt by min-norm least squares, and forgotten as one word changes."""

from wsfast.results.generalization import GeneralizationResult
from wsfast.studies.generalization.experiment import experiment

__all__ = ["GeneralizationResult", "experiment"]
