"""What pushes the chain away from its reference: controls `u(z, step)` with a network of one's choice."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from langenode._arrays import zeros
from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.many_paths import Matrices, Rows
from langenode.posteriors.networks import NetworkFactory, NetworkName, Perceptron, make_network, width_of

# Above this many weights a full matrix per step costs more than it explains; then it is diagonal.
LARGEST_FULL_MATRIX = 32


class StepControl(eqx.Module):
    """A time-dependent control: `u(z, k) = gain_k z + shift_k + net(z, features of k)`, zero at the start of training.

    A control that cannot see the pseudo-time does not target the posterior: its path KL grows with the horizon, and the
    optimum slides to the prior. The affine part is what a linear-Gaussian problem needs; the net does the rest.
    """

    gain: Float[Array, "step dim dim"] | Float[Array, "step dim"]
    shift: Float[Array, "step dim"]
    network: Any

    def __init__(
        self,
        dim: int,
        num_steps: int,
        layers: Sequence[int] = (32, 32),
        *,
        network: NetworkName | NetworkFactory = "mlp",
        key: PRNGKeyArray,
    ):
        self.gain = zeros((num_steps, dim, dim) if dim <= LARGEST_FULL_MATRIX else (num_steps, dim))
        self.shift = zeros((num_steps, dim))
        self.network = make_network(network, dim + 3, layers, dim, last_scale=0.0, key=key)

    @property
    def width(self) -> int:
        """The numbers that one evaluation of the net makes, kept for back-propagation."""
        return width_of(self.network)

    def __call__(self, z: Float[Array, " dim"], step: Int[Array, ""]) -> Float[Array, " dim"]:
        """The control at state `z` before step number `step`."""
        gain = self.gain[step]
        linear = gain @ z if gain.ndim == 2 else gain * z
        return linear + self.shift[step] + self.network(jnp.concatenate([z, self._features(step, z.dtype)]))

    def _features(self, step: Int[Array, "*step"], dtype: Any) -> Float[Array, "*step 3"]:
        """What the net sees of the pseudo-time."""
        progress = step.astype(dtype) / self.shift.shape[0]
        return jnp.stack([progress, jnp.cos(jnp.pi * progress), jnp.cos(2.0 * jnp.pi * progress)], -1)

    def for_many(self) -> tuple[Matrices, Rows] | None:
        """The control as `run_paths` takes it; None where its net is no perceptron or its gain is a matrix."""
        if not isinstance(self.network, Perceptron) or self.gain.ndim == 3:
            return None
        matrices, biases = self.network.affine_maps()
        # What the first layer makes of the pseudo-time is a bias that changes from step to step.
        features = self._features(jnp.arange(self.shift.shape[0]), self.shift.dtype)
        biases = (biases[0] + features @ matrices[0][-3:], *biases[1:])
        rows = Rows(biases[:-1], biases[-1] + self.shift, self.gain, jnp.ones((1, 1), self.shift.dtype))
        return (matrices[0][:-3], *matrices[1:]), rows


class AutonomousDrift(eqx.Module):
    """The paper's drift net of the weights alone, as a control: `u = net(z) - (contraction - 1) z`.

    The whole drift is `u - z = net(z) - contraction z`; the paper's has no contraction, and starts from a net of
    ordinary size (`last_scale` 1). Before training such a drift does not contract the noise, and the weights spread to
    about `sqrt(2 tau_f)` whatever the data say.
    """

    network: Any
    contraction: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        layers: Sequence[int],
        contraction: float,
        *,
        last_scale: float = 1.0,
        network: NetworkName | NetworkFactory = "mlp",
        key: PRNGKeyArray,
    ):
        self.network = make_network(network, dim, layers, dim, last_scale=last_scale, key=key)
        self.contraction = contraction

    @property
    def width(self) -> int:
        """The numbers that one evaluation of the net makes, kept for back-propagation."""
        return width_of(self.network)

    def __call__(self, z: Float[Array, " dim"], step: Int[Array, ""]) -> Float[Array, " dim"]:
        """The control at state `z`; the step is ignored."""
        del step
        return self.network(z) - (self.contraction - 1.0) * z

    def for_many(self) -> tuple[Matrices, Rows] | None:
        """The control as `run_paths` takes it; None where its net is no perceptron."""
        if not isinstance(self.network, Perceptron):
            return None
        matrices, biases = self.network.affine_maps()
        gain = jnp.full((1, 1), 1.0 - self.contraction, biases[-1].dtype)
        return matrices, Rows(biases[:-1], biases[-1], gain, jnp.ones_like(gain))
