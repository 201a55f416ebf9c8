"""The effects of a unit by guided Langevin paths, for units whose importance weights about one mode degenerate.

A posterior with several modes, or far from normal, has few importance points of weight. Guided paths begin about modes
found from many draws, and bend with the data on their way. Units and families are arguments of the program of the
paths, so that it is compiled once for all units of a size.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float, PRNGKeyArray
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import Weighted
from langenode.inference.hierarchical.modes import best_mode
from langenode.inference.hierarchical.units import Units
from langenode.samplers.guided.bridges import Target, make_levels
from langenode.samplers.guided.paths import Sizes, run_paths

# Paths of all families of a unit together, and the fewest of each family.
NUM_PATHS, FEWEST_PATHS = 1024, 64
NUM_STEPS, NUM_START_ITERATIONS, CHUNK = 24, 20, 256
# A short horizon keeps modes apart from the start; the data are softened far from a path's end.
HORIZON, ETA = 0.05, 3.0


class UnitDensity(eqx.Module):
    """The posterior of one unit's effects, in the form that guided paths take.

    Residuals steer; they are in units of the noise at the most probable effects, since the square of a residual
    alone would be least where noise in proportion to the level is largest.
    """

    family: Family
    unit: Units
    noise: Float[Array, "traj time out"]

    def log_likelihood(self, xi: Float[Array, " effect"]) -> Float[Array, ""]:
        """The log density of the readings; it weighs the paths."""
        return self.family.log_likelihood(xi, self.unit)

    def residual(self, xi: Float[Array, " effect"]) -> Float[Array, " cell"]:
        """Standardised residuals; a reading that is only known to be below a limit pulls where the model exceeds it."""
        difference = (self.unit.outputs - self.family.respond(xi, self.unit).outputs) / self.noise
        difference = jnp.where(self.unit.below, jnp.minimum(difference, 0.0), difference)
        return jnp.ravel(jnp.where(self.unit.mask, difference, 0.0))


def steered_points(families: Family, num_families: int, unit: Units, *, key: PRNGKeyArray) -> Weighted:
    """Weighted points of one unit's effects, those of every family of a stack after the other's.

    The mean of `exp(log_weights)` estimates the evidence, as that of importance points does.
    """
    num_paths = max(FEWEST_PATHS, NUM_PATHS // num_families)
    arrays, static = eqx.partition(families, eqx.is_array)
    dim = _num_effects(families, unit)
    sizes = Sizes(dim, num_paths, 0.0, NUM_START_ITERATIONS, min(CHUNK, num_paths))
    levels, eta = make_levels(NUM_STEPS, HORIZON, unit.times.dtype), jnp.asarray(ETA, unit.times.dtype)
    found = []
    for number in range(num_families):
        family = eqx.combine(jax.tree.map(lambda leaf, number=number: leaf[number], arrays), static)
        density = UnitDensity(family, unit, _noise_at_mode(family, unit))
        target = Target(density.residual, density.log_likelihood, "weights")
        paths = run_paths(target, sizes, levels, eta, key=jax.random.fold_in(key, number)).paths
        log_weights = np.asarray(paths.log_weight)
        found.append((np.asarray(paths.w), np.where(np.isnan(log_weights), -np.inf, log_weights)))
    xi, log_weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Weighted(jnp.asarray(xi), jnp.asarray(log_weights))


def _num_effects(families: Family, unit: Units) -> int:
    arrays, static = eqx.partition(families, eqx.is_array)
    first: Any = eqx.combine(jax.tree.map(lambda leaf: leaf[0], arrays), static)
    return first.num_effects(unit.times.shape[0])


@quick_jit
def _noise_at_mode(family: Family, unit: Units) -> Float[Array, "traj time out"]:
    """The standard deviation of readings at a unit's most probable effects."""
    start = jnp.zeros(family.num_effects(unit.times.shape[0]), unit.times.dtype)
    return jnp.exp(0.5 * family.respond(best_mode(family, start, unit), unit).log_variance)
