"""An inference problem and its solution.

Belongs here: the problem and its parts (which weights are stochastic, prior, likelihood, target), Algorithm 1, the
point fit and the reference distributions about it, the posterior density as samplers see it, predictions and their
calibration. Does not belong here: configuration, files, anything printed.
"""

from langenode.inference import targets
from langenode.inference.errors import FitError
from langenode.inference.importance import log_weights
from langenode.inference.likelihood import Likelihood, given_noise, inferred_noise, noise_from_replicates
from langenode.inference.objectives import objective
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle
from langenode.inference.predictions import predict
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.references import laplace_reference, population_reference
from langenode.inference.training import TrainSettings, train

__all__ = [
    "FitError",
    "GaussianPrior",
    "Likelihood",
    "Partition",
    "Problem",
    "TrainSettings",
    "fit_mle",
    "given_noise",
    "inferred_noise",
    "laplace_reference",
    "log_weights",
    "noise_from_replicates",
    "objective",
    "population_reference",
    "predict",
    "targets",
    "train",
]
