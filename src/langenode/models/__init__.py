"""Models of evolving processes: `model(times, inputs, initial, key=None) -> outputs`.

Belongs here: networks, neural ODEs and SDEs, material laws with their mechanics, derivatives of trajectories. Does not
belong here: what is believed about the weights (`inference`) or how they are distributed (`posteriors`).
"""

from langenode.models.effects import Effect, Effects, Fixed, LogitNormal, LogNormal, Normal
from langenode.models.generic import generic_model
from langenode.models.latent_curve import LatentCurve, latent_curve
from langenode.models.linearised import Linearised
from langenode.models.material import (
    InternalVariableLaw,
    PotentialStress,
    hyperelastic_potential,
    internal_variable_law,
)
from langenode.models.networks import MLP, ConvexMLP, num_parameters
from langenode.models.ode import Adaptive, Heun, NeuralODE, OnConcatenation, RungeKutta, make_solver, neural_ode
from langenode.models.sde import NeuralSDE, PositiveOnConcatenation, has_own_noise
from langenode.models.sensitivities import Forwards
from langenode.models.smooth_curve import SmoothCurve, smooth_curve
from langenode.models.tensor_law import TensorLaw, tensor_law
from langenode.models.unit_models import LatentODE, UnitModel, latent_ode

__all__ = [
    "MLP",
    "Adaptive",
    "ConvexMLP",
    "Effect",
    "Effects",
    "Fixed",
    "Forwards",
    "Heun",
    "InternalVariableLaw",
    "LatentCurve",
    "LatentODE",
    "Linearised",
    "LogNormal",
    "LogitNormal",
    "NeuralODE",
    "NeuralSDE",
    "Normal",
    "OnConcatenation",
    "PositiveOnConcatenation",
    "PotentialStress",
    "RungeKutta",
    "SmoothCurve",
    "TensorLaw",
    "UnitModel",
    "generic_model",
    "has_own_noise",
    "hyperelastic_potential",
    "internal_variable_law",
    "latent_curve",
    "latent_ode",
    "make_solver",
    "neural_ode",
    "num_parameters",
    "smooth_curve",
    "tensor_law",
]
