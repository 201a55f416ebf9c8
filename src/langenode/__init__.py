"""Langenode: neural models of evolving processes, with uncertainty by a learned Langevin sampler.

The public names are loaded when first used: `import langenode` alone costs nothing. `__init__.pyi` lists them for type
checkers and editors.
"""

import importlib
from typing import Any

from langenode._version import __version__ as __version__

_ROOMS = {
    "fitting.facade": (
        "Fit",
        "fit",
        "load_fit",
    ),
    "data": (
        "DataError",
        "Dataset",
        "Scaling",
        "load_data",
        "save_data",
        "with_observed_start",
    ),
    "inference.importance": ("log_weights",),
    "inference.likelihood": (
        "Likelihood",
        "given_noise",
        "inferred_noise",
        "noise_from_replicates",
    ),
    "inference.point_fit": ("fit_mle",),
    "inference.references": (
        "laplace_reference",
        "population_reference",
    ),
    "models": (
        "MLP",
        "Adaptive",
        "Heun",
        "NeuralODE",
        "NeuralSDE",
        "hyperelastic_potential",
        "internal_variable_law",
        "neural_ode",
        "tensor_law",
    ),
    "inference.partition": ("Partition",),
    "posteriors": (
        "AbstractPosterior",
        "Empirical",
        "Reference",
        "bottleneck",
        "gaussian",
        "langevin",
        "paper_langevin",
    ),
    "inference.predictions": ("predict",),
    "inference.priors": ("GaussianPrior",),
    "inference.objectives": ("objective",),
    "inference.problem": ("Problem",),
    "inference.targets": (
        "Population",
        "Posterior",
        "Tempered",
    ),
    "inference.training": (
        "FitError",
        "TrainSettings",
        "train",
    ),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'langenode' has no attribute {name!r}")
    return getattr(importlib.import_module(f"langenode.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])
