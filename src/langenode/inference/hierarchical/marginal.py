"""The marginal likelihood of a unit: Laplace's method, or importance sampling about the mode.

Importance sampling takes points `mode + 1.2 C^(1/2) u` with C the inverse of the expected information (with the
interaction of noise and level), and points of the law of the effects itself, all weighted by one mixture density. The
latter bound the weights. The u are Sobol points with a random shift for every unit: with common points the errors of
units would add up, and the optimiser would fit them.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.inference.hierarchical.family import Expansion, Family, expand
from langenode.inference.hierarchical.modes import best_mode, moving_mode
from langenode.inference.hierarchical.units import Units
from langenode.posteriors.base import log_normal, without_gradients

WIDENING = 1.2
# Where a model is linear in the effects, and its noise does not depend on the level, the law about the mode is exact.
NO_WIDENING = 1.0
# One point in this many is of the distribution of the effects.
DEFENSIVE_EVERY = 8
# Sobol points are kept this far from 0 and 1, where normal quantiles are infinite.
SMALLEST_LEVEL = 1e-7

# A log-likelihood this much below the best one of a unit's points gives a weight of zero.
NO_WEIGHT = 1e4

Rule = Literal["laplace", "importance"]


class Points(NamedTuple):
    """Sobol points in the unit cube, common to all units, and the shift of each unit."""

    base: Float[Array, "point effect"]
    shift: Float[Array, "unit effect"]

    @property
    def num(self) -> int:
        """How many points a unit has."""
        return self.base.shape[0]


def make_points(num: int, num_effects: int, num_units: int, *, seed: int) -> Points:
    """`num` points, a power of two at best, of which the first eighth will be of the law of the effects.

    They stay in Sobol's order: aligned parts of the sequence are even by themselves, random parts of it are not, and
    both the points of the law and those about the mode must be.
    """
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    sobol = qmc.Sobol(max(num_effects, 1), rng=rng)
    base = sobol.random_base2(math.ceil(math.log2(num)))[:num, :num_effects]
    return Points(jnp.asarray(base), jnp.asarray(rng.random((num_units, num_effects))))


def white_points(base: Float[Array, "point effect"], shift: Float[Array, " effect"]) -> Float[Array, "point effect"]:
    """Standard normal points of one unit."""
    return ndtri(jnp.clip((base + shift) % 1.0, SMALLEST_LEVEL, 1.0 - SMALLEST_LEVEL))


class Weighted(NamedTuple):
    """Points of a unit's effects, with log weights whose mean's logarithm is the log-likelihood."""

    xi: Float[Array, "point effect"]
    log_weights: Float[Array, " point"]


def weighted_points(
    family: Family,
    mode: Float[Array, " effect"],
    information: Float[Array, "effect effect"],
    white: Array,
    unit: Units,
    *,
    is_differentiated: bool = False,
) -> Weighted:
    """Importance points about a mode, and of the law of the effects, under their mixture density.

    Points at which the model is not finite have no weight; where the weights are differentiated, this must be said.
    """
    num, dim = white.shape
    num_law = max(1, num // DEFENSIVE_EVERY)
    root = jnp.linalg.cholesky(information)  # C = root^-T root^-1
    widening = NO_WIDENING if getattr(family.model, "is_linear_in_unit", False) else WIDENING
    about = mode + widening * jax.scipy.linalg.solve_triangular(root.T, white[num_law:].T, lower=False).T
    xi = jnp.concatenate([white[:num_law], about])
    standard = (xi - mode) @ root / widening
    log_about = jnp.sum(log_normal(standard, 0.0, 1.0), axis=1)
    log_about = log_about + jnp.sum(jnp.log(jnp.diag(root))) - dim * jnp.log(widening)
    log_law = jnp.sum(log_normal(xi, 0.0, 1.0), axis=1)
    share = num_law / num
    log_mixture = jnp.logaddexp(jnp.log(share) + log_law, jnp.log1p(-share) + log_about)
    log_likelihood = _of_weight(family, mode, xi, unit) if is_differentiated else _log_likelihoods(family, xi, unit)
    return Weighted(xi, log_likelihood + log_law - log_mixture)


def _of_weight(family: Family, mode: Array, xi: Float[Array, "point effect"], unit: Units) -> Float[Array, " point"]:
    """Log-likelihoods whose derivatives are numbers; minus infinity at points that have no weight.

    Zero times a derivative that is not finite would not be a number: the mode is differentiated in their place.
    """
    mode, fixed = without_gradients(mode), without_gradients(xi)
    tried = _log_likelihoods(without_gradients(family), fixed, unit)
    has_weight = tried > jnp.max(tried) - NO_WEIGHT
    values = _log_likelihoods(family, jnp.where(has_weight[:, None], xi, mode), unit)
    return jnp.where(has_weight, values, -jnp.inf)


def _log_likelihoods(family: Family, xi: Float[Array, "point effect"], unit: Units) -> Float[Array, " point"]:
    """Of every point; minus infinity where the model is not finite."""
    values = jax.vmap(lambda point: family.log_likelihood(point, unit))(xi)
    return jnp.where(jnp.isfinite(values), values, -jnp.inf)


def laplace_value(family: Family, mode: Array, expansion: Expansion, unit: Units) -> Float[Array, ""]:
    """Laplace's approximation with the expected information (FOCE with interaction, in its Laplace form)."""
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diag(jnp.linalg.cholesky(expansion.information))))
    dim = mode.shape[0]
    return family.log_joint(mode, unit) + 0.5 * dim * jnp.log(2.0 * jnp.pi) - 0.5 * log_det


def unit_value(
    family: Family,
    start: Array,
    unit: Units,
    base: Array,
    shift: Array,
    rule: Rule,
    *,
    moves: bool = True,
    from_zero: bool | Array = True,
) -> tuple[Float[Array, ""], Float[Array, " effect"]]:
    """The log-likelihood of one unit, differentiable in the family, and its mode.

    Without `moves` the mode is held while the gradient is taken, which is wrong: for tests.
    """
    mode = best_mode(family, start, unit, from_zero)
    moved = moving_mode(family, mode, unit) if moves else mode
    expansion = expand(family, moved, unit)
    if rule == "laplace":
        return laplace_value(family, moved, expansion, unit), mode
    white = white_points(base, shift)
    found = weighted_points(family, moved, expansion.information, white, unit, is_differentiated=True)
    return jax.nn.logsumexp(found.log_weights) - jnp.log(base.shape[0]), mode


class Marginal(NamedTuple):
    """Log-likelihoods of the units, and their modes."""

    values: Float[Array, " unit"]
    modes: Float[Array, "unit effect"]


def marginal(
    family: Family,
    units: Units,
    modes: Array,
    points: Points,
    rule: Rule,
    *,
    moves: bool = True,
    from_zero: bool | Array = True,
) -> Marginal:
    """The log-likelihood of every unit; searches for modes begin at `modes`, and at zero where asked for."""

    def one(start, unit, shift):
        return unit_value(family, start, unit, points.base, shift, rule, moves=moves, from_zero=from_zero)

    return Marginal(*jax.vmap(one)(modes, units, points.shift))


compiled_marginal = quick_jit(marginal)
