"""Models of evolving processes: `model(times, inputs, initial, key=None) -> outputs`."""

from langenode.models.generic import generic_model
from langenode.models.networks import MLP, num_parameters
from langenode.models.ode import Adaptive, Heun, NeuralODE, OnConcatenation, make_solver, neural_ode
from langenode.models.sde import NeuralSDE, PositiveOnConcatenation, has_own_noise

__all__ = [
    "MLP",
    "Adaptive",
    "Heun",
    "NeuralODE",
    "NeuralSDE",
    "OnConcatenation",
    "PositiveOnConcatenation",
    "generic_model",
    "has_own_noise",
    "make_solver",
    "neural_ode",
    "num_parameters",
]
