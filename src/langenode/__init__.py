"""Langenode: neural models of evolving processes, with uncertainty by a learned Langevin sampler."""

from langenode._version import __version__
from langenode.data import DataError, Dataset, Scaling, load_data, save_data
from langenode.inference import FitError, TrainSettings, fit, log_weights
from langenode.likelihood import Likelihood, given_noise, inferred_noise, noise_from_replicates
from langenode.mle import fit_mle, laplace_reference, population_reference
from langenode.models import MLP, Adaptive, Heun, NeuralODE, neural_ode
from langenode.partition import Partition
from langenode.posteriors import (
    AbstractPosterior,
    Empirical,
    Reference,
    bottleneck,
    gaussian,
    langevin,
    paper_langevin,
)
from langenode.priors import GaussianPrior
from langenode.problem import Problem, predict, view
from langenode.targets import Population, Posterior, Tempered

__all__ = [
    "MLP",
    "AbstractPosterior",
    "Adaptive",
    "DataError",
    "Dataset",
    "Empirical",
    "FitError",
    "GaussianPrior",
    "Heun",
    "Likelihood",
    "NeuralODE",
    "Partition",
    "Population",
    "Posterior",
    "Problem",
    "Reference",
    "Scaling",
    "Tempered",
    "TrainSettings",
    "__version__",
    "bottleneck",
    "fit",
    "fit_mle",
    "gaussian",
    "given_noise",
    "inferred_noise",
    "langevin",
    "laplace_reference",
    "load_data",
    "log_weights",
    "neural_ode",
    "noise_from_replicates",
    "paper_langevin",
    "population_reference",
    "predict",
    "save_data",
    "view",
]
