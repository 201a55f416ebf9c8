"""What all units have in common, and the likelihood of one unit's readings given its effects."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from langenode._types import Array, Float
from langenode.inference.hierarchical.units import Units
from langenode.inference.noise import Levels, noise_scale
from langenode.inference.partition import Partition
from langenode.posteriors import AbstractVariational
from langenode.posteriors.base import log_normal

# A reading below its limit has a curvature between 0 and 1 in units of the noise; this keeps its logarithm a number.
SMALLEST_CURVATURE = 1e-6


class Family(eqx.Module):
    """The distribution of the units' weights as a map of white noise, and the model with the shared weights.

    The stochastic leaves of `model`, which `partition` names, are replaced by a unit's own. With `occasion_scale` (log
    standard deviations) every trajectory of a unit deviates from the unit's weights.
    """

    effects: AbstractVariational
    model: Any
    partition: Partition
    levels: Levels | None
    occasion_scale: Float[Array, " dim"] | None = None

    def num_effects(self, num_trajectories: int) -> int:
        """The length of xi: the unit's own noise, then that of its occasions."""
        occasions = 0 if self.occasion_scale is None else num_trajectories * self.effects.dim
        return self.effects.num_noise + occasions

    def weights(self, xi: Float[Array, " effect"], num_trajectories: int) -> Float[Array, "traj dim"]:
        """The weights of every trajectory of a unit."""
        own = self.effects.from_noise(xi[: self.effects.num_noise])
        if self.occasion_scale is None:
            return jnp.broadcast_to(own, (num_trajectories, own.shape[0]))
        deviations = xi[self.effects.num_noise :].reshape(num_trajectories, -1)
        return own + jnp.exp(self.occasion_scale) * deviations

    def respond(self, xi: Float[Array, " effect"], unit: Units) -> "Response":
        """Outputs and log noise variances of one unit (`unit` has no axis of units)."""

        def one(weights, times, inputs, initial):
            model = self.partition.combine(self.model, weights)
            outputs = model(times, inputs, initial)
            scale = noise_scale(model.log_noise[None], outputs[None, None], self.levels)[0, 0]
            return outputs, jnp.broadcast_to(2.0 * jnp.log(scale), outputs.shape)

        weights = self.weights(xi, unit.times.shape[0])
        return Response(*jax.vmap(one)(weights, unit.times, unit.inputs, unit.initial))

    def log_likelihood(self, xi: Float[Array, " effect"], unit: Units) -> Float[Array, ""]:
        """Log density of one unit's readings given its effects; the probability of those below a limit."""
        outputs, log_variance = self.respond(xi, unit)
        scale = jnp.exp(0.5 * log_variance)
        cells = jnp.where(unit.mask, log_normal(unit.outputs, outputs, scale), 0.0)
        below: Array = log_ndtr((unit.outputs - outputs) / scale)
        return jnp.sum(jnp.where(unit.below, below, cells))

    def log_joint(self, xi: Float[Array, " effect"], unit: Units) -> Float[Array, ""]:
        """The same plus the log density of the effects."""
        return self.log_likelihood(xi, unit) + jnp.sum(log_normal(xi, 0.0, 1.0))


class Response(NamedTuple):
    """A unit's outputs, and the logarithms of the noise's variance there."""

    outputs: Float[Array, "traj time out"]
    log_variance: Float[Array, "traj time out"]


class Expansion(NamedTuple):
    """The log joint density about some effects: its gradient, and the expected information with the prior's."""

    gradient: Float[Array, " effect"]
    information: Float[Array, "effect effect"]


def expand(family: Family, xi: Float[Array, " effect"], unit: Units) -> Expansion:
    """Gradient (exact) and Fisher information of one unit's log joint density.

    A reading with residual r and variance v has the score `r/v df + (r^2/v - 1)/2 d log v` and the expected information
    `df df'/v + 1/2 (d log v)(d log v)'`; the second parts are those of noise that depends on the level.
    """

    def twice(point):
        found = family.respond(point, unit)
        return found, found

    (by_outputs, by_variance), found = jax.jacfwd(twice, has_aux=True)(xi)
    outputs, log_variance = Response(*found)
    scale = jnp.exp(0.5 * log_variance)
    standard = jnp.where(unit.mask, (unit.outputs - outputs) / scale, 0.0)
    # Below a limit: the derivatives of log Phi(z), with the ratio phi / Phi.
    ratio = jnp.exp(log_normal(standard, 0.0, 1.0) - log_ndtr(standard))
    slope = jnp.where(unit.below, -ratio, standard) * unit.mask
    spread = jnp.where(unit.below, -ratio * standard, standard**2 - 1.0) * unit.mask
    bend = jnp.where(unit.below, jnp.maximum(ratio * (ratio + standard), SMALLEST_CURVATURE), 1.0) * unit.mask
    curvature = jnp.where(unit.below, 0.0, 0.5) * unit.mask
    gradient = jnp.tensordot(slope / scale, by_outputs, 3) + 0.5 * jnp.tensordot(spread, by_variance, 3) - xi
    flat = lambda jacobian: jacobian.reshape(-1, xi.shape[0])  # noqa: E731
    root_f = flat((jnp.sqrt(bend) / scale)[..., None] * by_outputs)
    root_v = flat(jnp.sqrt(curvature)[..., None] * by_variance)
    information = jnp.eye(xi.shape[0], dtype=xi.dtype) + root_f.T @ root_f + root_v.T @ root_v
    return Expansion(gradient, information)
