"""How well the common numbers of a family are known: Laplace draws for few of them, a bootstrap over units for many."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.inference.hierarchical.batches import MOST_POINTS
from langenode.inference.hierarchical.estimate import LogPrior, Searched, objective, search, trained
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import Points, Rule, unit_value
from langenode.inference.hierarchical.units import Units
from langenode.posteriors import Standard

# Above this many common numbers their information matrix is not formed.
MOST_FOR_LAPLACE = 60
# Up to this many units their scores are found one by one: compiling a program for them would take longer.
MOST_ONE_BY_ONE = 64
# Steps of the differences, relative to the scale of a number, and the smallest curvature that counts as known.
DIFFERENCE, SMALLEST_CURVATURE = 1e-4, 1e-6
# A standard deviation between units this small is zero for all that the data can tell: it is reported, not varied.
LOG_ZERO_SPREAD = -6.0
# Normal draws that are weighted for every one that is kept.
TRIES_PER_DRAW = 4
# An eigenvalue of a correlation matrix below this is rounding.
SMALLEST_SHARE = 1e-10


class Information(NamedTuple):
    """The observed information of the common numbers, in the order of the flat vector, and how it was found.

    `covariance` is its inverse among the numbers that are `free`; the others are at a bound (a spread of zero), or have
    no effect.
    """

    flat: Float[np.ndarray, " common"]
    hessian: Float[np.ndarray, "common common"]
    covariance: Float[np.ndarray, "common common"]
    free: np.ndarray  # (common,)
    is_positive: bool


def flat_of(family: Family) -> np.ndarray:
    """The estimated numbers as one vector."""
    return np.asarray(ravel_pytree(eqx.filter(family, trained(family)))[0], float)


def with_flat(family: Family, flat: np.ndarray | Array) -> Family:
    """The family with its estimated numbers replaced."""
    params, static = eqx.partition(family, trained(family))
    return eqx.combine(ravel_pytree(params)[1](jnp.asarray(flat)), static)


def has_effect(family: Family) -> np.ndarray:
    """Which numbers of the flat vector are estimated: of a triangular matrix, stored whole, one part means nothing."""
    marks = jax.tree.map(lambda leaf: np.ones(np.shape(leaf)), eqx.filter(family, trained(family)))
    if getattr(family.effects, "lower", None) is not None:
        marks = eqx.tree_at(lambda f: f.effects.lower, marks, np.tril(marks.effects.lower, -1))
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(marks)]) > 0


def num_numbers(family: Family) -> int:
    """How many numbers are estimated."""
    return int(has_effect(family).sum())


def observed_information(
    family: Family,
    units: Units,
    modes: np.ndarray,
    points: Points,
    prior: LogPrior,
    *,
    fixed: np.ndarray | None = None,
    rule: Rule = "importance",
) -> Information:
    """The curvature of minus the log posterior at the estimate, by central differences of its gradient.

    `fixed` marks numbers that are kept as they are: logarithms of spreads that have gone to zero, for example.
    """
    params, static = eqx.partition(family, trained(family))
    flat, unravel = ravel_pytree(params)
    flat = np.asarray(flat, float)

    def gradient(vector: np.ndarray) -> np.ndarray:
        # Small steps away from the estimate, modes stay near those given.
        params, near = unravel(jnp.asarray(vector)), jnp.asarray(False)
        found = objective(params, static, units, jnp.asarray(modes), points, prior, rule, near)
        return np.asarray(ravel_pytree(found[1])[0], float)

    free = has_effect(family) if fixed is None else has_effect(family) & ~fixed
    steps = DIFFERENCE * np.maximum(1.0, np.abs(flat))
    columns = np.zeros((len(flat), len(flat)))
    for place in np.flatnonzero(free):
        change = np.zeros_like(flat)
        change[place] = steps[place]
        columns[place] = (gradient(flat + change) - gradient(flat - change)) / (2.0 * steps[place])
    return _inverted(flat, 0.5 * (columns + columns.T), free)


def _inverted(flat: np.ndarray, hessian: np.ndarray, free: np.ndarray) -> Information:
    inner = hessian[np.ix_(free, free)]
    values, vectors = np.linalg.eigh(inner) if inner.size else (np.ones(1), np.ones((1, 1)))
    is_positive = bool(np.all(np.isfinite(inner)) and values.min() > SMALLEST_CURVATURE)
    # A direction without curvature is not known; it is not varied either, since nothing says how far.
    inverse = np.where(values > SMALLEST_CURVATURE, 1.0 / np.maximum(values, SMALLEST_CURVATURE), 0.0)
    covariance = np.zeros_like(hessian)
    if inner.size:
        covariance[np.ix_(free, free)] = (vectors * inverse) @ vectors.T
    return Information(flat, hessian, covariance, free, is_positive)


def log_posterior_of(
    family: Family, units: Units, modes: np.ndarray, points: Points, prior: LogPrior, *, rule: Rule = "importance"
) -> Callable[[np.ndarray], float]:
    """The log posterior density of the common numbers, up to a constant, as a function of the flat vector."""
    params, static = eqx.partition(family, trained(family))
    unravel = ravel_pytree(params)[1]

    def value(flat: np.ndarray) -> float:
        params = unravel(jnp.asarray(flat))
        (loss, _, _), _ = objective(params, static, units, jnp.asarray(modes), points, prior, rule, jnp.asarray(True))
        return -float(loss)

    return value


def laplace_draws(
    family: Family,
    information: Information,
    num: int,
    *,
    log_posterior: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> list[Family]:
    """Families drawn from the normal distribution about the estimate, and chosen by their posterior density.

    A part of the noise, or a spread, that is near zero has a logarithm of which only an upper bound is known. The
    normal distribution does not know the bound: without the weights some draws would have immense noise.
    """
    root = _root(information.covariance)
    white = rng.standard_normal((TRIES_PER_DRAW * num, root.shape[1]))
    tried = information.flat + white @ root.T
    log_weights = np.array([log_posterior(flat) for flat in tried]) + 0.5 * (white**2).sum(1)
    return [with_flat(family, tried[place]) for place in chosen_places(log_weights, num, rng)]


def _root(covariance: np.ndarray) -> Float[np.ndarray, "common varied"]:
    """A matrix R with `R R^T` the covariance, and a column per direction that varies; scales may differ widely."""
    scale = np.sqrt(np.diag(covariance))
    safe = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(safe, safe))
    return (scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > SMALLEST_SHARE]


def chosen_places(log_weights: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Places in proportion to weights, none above the mean by more than the root of their number (Ionides 2008)."""
    log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    weights = np.exp(log_weights - log_weights.max())
    weights = np.minimum(weights, weights.mean() * np.sqrt(len(weights)))
    cumulative = np.cumsum(weights) / weights.sum()
    places = np.searchsorted(cumulative, (np.arange(num) + rng.random()) / num)
    return rng.permutation(np.minimum(places, len(weights) - 1))


def with_drawn_spreads(families: Sequence[Family], num_units: int, rng: np.random.Generator) -> list[Family]:
    """Families whose latent effects have a spread that is drawn, too, by `sqrt(n / chi^2)` with n - 1 degrees.

    Latent effects have a spread of one while a network shapes what they do; of n units the spread of that is known as
    the standard deviation of n normal numbers is. Without this, bands of new units would be too narrow for few units.
    """
    factors = np.sqrt(num_units / rng.chisquare(max(num_units - 1, 1), len(families)))
    return [_with_spread(family, factor) for family, factor in zip(families, factors, strict=True)]


def with_typical_spreads(family: Family, num_units: int, num: int) -> list[Family]:
    """The family with spreads at equally probable quantiles of the same distribution; itself without latent effects."""
    from scipy.stats import chi2

    if not isinstance(family.effects, Standard) or not np.any(np.asarray(family.effects.scale) > 0):
        return [family]
    levels = (np.arange(num) + 0.5) / num
    factors = np.sqrt(num_units / chi2.ppf(levels, max(num_units - 1, 1)))
    return [_with_spread(family, float(factor)) for factor in factors]


def _with_spread(family: Family, factor: float) -> Family:
    assert isinstance(family.effects, Standard)
    return eqx.tree_at(lambda f: f.effects.scale, family, family.effects.scale * factor)


def bootstrap_draws(
    family: Family,
    units: Units,
    modes: np.ndarray,
    points: Points,
    prior: LogPrior,
    num: int,
    *,
    rng: np.random.Generator,
    rule: Rule = "laplace",
    most: int = 20,
    on_step: Callable[[int], None] | None = None,
) -> list[Family]:
    """Families re-estimated from the present one with random weights of the units (the Bayesian bootstrap)."""
    found = []
    for number in range(num):
        weight = rng.standard_exponential(units.num) * np.asarray(units.weight > 0)
        weight *= float(np.asarray(units.weight).sum()) / weight.sum()
        again: Searched = search(
            family, units._replace(weight=jnp.asarray(weight)), modes, points, prior, rule, most=most
        )
        found.append(again.family)
        if on_step is not None:
            on_step(number + 1)
    return found


def sandwich_ratio(
    family: Family, units: Units, modes: np.ndarray, points: Points, prior: LogPrior, information: Information
) -> Float[np.ndarray, " common"]:
    """Standard errors by the sandwich over those by the information: far from one where the model does not fit."""
    scores = unit_scores(family, units, modes, points)
    meat = scores.T @ scores
    covariance = information.covariance @ meat @ information.covariance
    plain = np.sqrt(np.maximum(np.diag(information.covariance), 0.0))
    return np.sqrt(np.maximum(np.diag(covariance), 0.0)) / np.where(plain > 0.0, plain, np.inf)


def unit_scores(family: Family, units: Units, modes: np.ndarray, points: Points) -> Float[np.ndarray, "unit common"]:
    """The gradient of every unit's log-likelihood by importance sampling.

    Of few units one at a time in the program of the objective, which is compiled already; of more in one of their own.
    """
    if units.num > MOST_ONE_BY_ONE:
        return _scores_together(family, units, modes, points)
    params, static = eqx.partition(family, trained(family))
    rows = []
    for number in range(units.num):
        weight = np.zeros(units.num)
        weight[number] = 1.0 if float(units.weight[number]) > 0 else 0.0
        alone = units._replace(weight=jnp.asarray(weight))
        found: Any = objective(
            params, static, alone, jnp.asarray(modes), points, LogPrior(), "importance", jnp.asarray(False)
        )
        rows.append(-np.asarray(ravel_pytree(found[1])[0], float))
    return np.array(rows)


def _scores_together(family: Family, units: Units, modes: np.ndarray, points: Points) -> np.ndarray:
    size = min(units.num, max(1, MOST_POINTS // (points.num * units.num_trajectories)))
    found = []
    for begin in range(0, units.num, size):
        rows = np.minimum(np.arange(begin, begin + size), units.num - 1)
        some = jax.tree.map(lambda leaf, rows=rows: leaf[rows], units)
        scores = _scores(family, some, jnp.asarray(modes[rows]), Points(points.base, points.shift[rows]))
        found.append(np.asarray(scores)[: units.num - begin])
    return np.concatenate(found) * np.asarray(units.weight > 0)[:, None]


@quick_jit
def _scores(family: Family, units: Units, modes: Array, points: Points) -> Array:
    params, static = eqx.partition(family, trained(family))
    flat, unravel = ravel_pytree(params)

    def one(mode: Array, unit: Units, shift: Array) -> Array:
        def value(flat: Array) -> Array:
            near = jnp.asarray(False)
            own = eqx.combine(unravel(flat), static)
            return unit_value(own, mode, unit, points.base, shift, "importance", from_zero=near)[0]

        return jax.grad(value)(flat)

    return jax.vmap(one)(modes, units, points.shift)


def score_information(
    family: Family,
    units: Units,
    modes: np.ndarray,
    points: Points,
    prior: LogPrior,
    *,
    fixed: np.ndarray | None = None,
) -> Information:
    """The information by the outer products of the units' scores, with the prior's: for many units.

    It costs one gradient of each unit, where the observed one costs two gradients of all units per number.
    """
    scores = unit_scores(family, units, modes, points)
    flat = flat_of(family)
    curvature = np.asarray(jax.hessian(lambda vector: -prior(with_flat(family, vector)))(jnp.asarray(flat)))
    free = has_effect(family) if fixed is None else has_effect(family) & ~fixed
    weighted = np.asarray(units.weight, float)[:, None] * scores
    return _inverted(flat, scores.T @ weighted + curvature, free)


def normal_draws(family: Family, information: Information, num: int, *, rng: np.random.Generator) -> list[Family]:
    """Families drawn from the normal distribution about the estimate: what is left of the posterior with many units."""
    root = _root(information.covariance)
    white = rng.standard_normal((num, root.shape[1]))
    return [with_flat(family, flat) for flat in information.flat + white @ root.T]
