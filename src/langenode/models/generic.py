"""Generic models for data without a known law, built from the numbers of inputs and outputs.

Three kinds, the simplest first; `h` is the hidden state, `x` the inputs, `y` the outputs, `s` their known start:

    state        h = y:                    dy/dt = R(y, x),       y(0) = s
    hidden       h = (y, z):               dh/dt = R(h, x),       h(0) = (s, A s + B x(0) + c)
    observation  y = Z(h, x):              dh/dt = R(h, x),       h(0) = A s + B x(0) + c
"""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.networks import MLP, scale_last_layer
from langenode.models.ode import Adaptive, Heun, NeuralODE, OnConcatenation

Kind = Literal["state", "hidden", "observation"]


class FirstComponents(eqx.Module):
    """Observes the first `num` components of the hidden state."""

    num: int = eqx.field(static=True)

    def __call__(self, hidden: Float[Array, " state"], inputs: Float[Array, " in"]) -> Float[Array, " out"]:
        """The first components."""
        del inputs
        return hidden[: self.num]


class AffineStart(eqx.Module):
    """A hidden start that is affine in the known start and first inputs; `keeps_known` puts the known start first."""

    map: eqx.nn.Linear
    keeps_known: bool = eqx.field(static=True)

    def __call__(self, known: Float[Array, " known"], inputs: Float[Array, " in"]) -> Float[Array, " state"]:
        """The hidden state at the first time."""
        rest = self.map(jnp.concatenate([known, inputs]))
        return jnp.concatenate([known, rest]) if self.keeps_known else rest


def generic_model(
    kind: Kind,
    *,
    num_inputs: int,
    num_outputs: int,
    num_known: int,
    num_hidden: int,
    layers: Sequence[int],
    activation: str,
    solver: Heun | Adaptive,
    has_noise: bool,
    is_proportional: bool = False,
    key: PRNGKeyArray,
) -> NeuralODE:
    """Build a model of a kind; `num_known` numbers of the start are known, `num_hidden` components are hidden."""
    key_dynamics, key_observation, key_start = jax.random.split(key, 3)
    size = {"state": num_outputs, "hidden": num_outputs + num_hidden, "observation": num_hidden}[kind]
    if kind != "observation" and num_known != num_outputs:
        raise ValueError(
            f"where outputs are states their start must be known; found {num_known} known numbers for {num_outputs} "
            "outputs; use kind 'observation'"
        )
    network = MLP((size + num_inputs, *layers, size), activation, skip=True, key=key_dynamics)
    # Small initial rates: an untrained right-hand side must not leave the range of the data.
    dynamics = OnConcatenation(scale_last_layer(network, 0.1))
    observation, start = None, None
    if kind == "hidden":
        observation = FirstComponents(num_outputs)
        start = AffineStart(_small_linear(num_known + num_inputs, num_hidden, key_start), keeps_known=True)
    if kind == "observation":
        sizes = (size + num_inputs, *layers, num_outputs)
        observation = OnConcatenation(MLP(sizes, activation, skip=True, key=key_observation))
        start = AffineStart(_small_linear(num_known + num_inputs, num_hidden, key_start), keeps_known=False)
    shape = (2, num_outputs) if is_proportional else (num_outputs,)
    log_noise = jnp.log(jnp.full(shape, 0.1)) if has_noise else None
    return NeuralODE(dynamics, observation, num_hidden=size, log_noise=log_noise, start=start, solver=solver)


def _small_linear(num_in: int, num_out: int, key: PRNGKeyArray) -> eqx.nn.Linear:
    linear = eqx.nn.Linear(num_in, num_out, key=key)
    return eqx.tree_at(lambda part: part.bias, linear, jnp.zeros(num_out))
