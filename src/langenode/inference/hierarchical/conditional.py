"""The effects of a unit given some of its readings: importance sampling about the mode, for every draw of the family.

Where the weights of a unit degenerate, guided Langevin paths can take its place.

The uncertainty of what all units have in common is a set of families. Each one proposes points of the unit's effects;
all points together are weighted by the product of the family's evidence for the given readings and their own weights.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Bool, Float, Int, PRNGKeyArray
from langenode.inference.hierarchical.family import Family, expand
from langenode.inference.hierarchical.marginal import Points, Weighted, make_points, weighted_points, white_points
from langenode.inference.hierarchical.modes import best_mode
from langenode.inference.hierarchical.steering import steered_points
from langenode.inference.hierarchical.units import Units
from langenode.posteriors.particles import systematic

# Effects of about this many trajectories are worked on together.
MOST_TRAJECTORIES = 20_000
# Importance weights with a smaller effective share, or a heavier tail, are not to be relied on.
LOWEST_ESS, HIGHEST_K_HAT = 0.1, 0.7


class Conditional(NamedTuple):
    """Draws of the effects of every unit, equally weighted, and the family that each belongs to.

    `log_evidence` is the log density of the given readings; `relative_ess` and `k_hat` are those of the weights, before
    the draws were made equally weighted. `is_guided` marks units whose draws are ends of guided paths.
    """

    xi: Float[np.ndarray, "unit sample effect"]
    member: Int[np.ndarray, "unit sample"]
    log_evidence: Float[np.ndarray, " unit"]
    relative_ess: Float[np.ndarray, " unit"]
    k_hat: Float[np.ndarray, " unit"]
    is_guided: Bool[np.ndarray, " unit"]


def stacked(families: list[Family]) -> Family:
    """Families of one structure as one whose arrays have a leading axis of members."""
    arrays = [eqx.partition(family, eqx.is_array)[0] for family in families]
    static = eqx.partition(families[0], eqx.is_array)[1]
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), static)


def member_of(families: Family, number: Any) -> Family:
    """One family of a stack."""
    arrays, static = eqx.partition(families, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf[number], arrays), static)


def num_members(families: Family) -> int:
    """How many families a stack has."""
    return jax.tree.leaves(eqx.filter(families, eqx.is_array))[0].shape[0]


def condition(
    families: Family,
    units: Units,
    num_samples: int,
    *,
    num_points: int = 512,
    seed: int = 0,
    key: PRNGKeyArray,
    has_fallback: bool = False,
) -> Conditional:
    """Draws of the units' effects given their readings, from a stack of families.

    Without any reading the points are those of the law of the effects. `num_points` are divided between the families,
    at least 32 each. With a fallback, units whose importance weights degenerate are served by guided paths.
    """
    num = num_members(families)
    # A power of two, as Sobol points want: the largest that does not exceed the share of each family.
    each = max(32, 1 << ((num_points // num).bit_length() - 1)) if num <= num_points else 32
    num_effects = member_of(families, 0).num_effects(units.num_trajectories)
    points = make_points(each, num_effects, units.num, seed=seed)
    chunk = min(size_class(units.num), max(1, MOST_TRAJECTORIES // (num * each * units.num_trajectories)))
    found = []
    for begin in range(0, units.num, chunk):
        rows = np.minimum(np.arange(begin, begin + chunk), units.num - 1)  # the last chunk repeats a unit
        part = jax.tree.map(lambda leaf, rows=rows: leaf[rows], units)
        keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.asarray(rows))
        result = _condition(families, part, Points(points.base, points.shift[rows]), num_samples, keys)
        found.append([np.asarray(leaf)[: units.num - begin] for leaf in result])
    xi, member, log_weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
    rated = [_rated(row, num) for row in log_weights]
    is_guided = np.zeros(units.num, bool)
    for unit in np.flatnonzero([one.is_low for one in rated]) if has_fallback else ():
        alone = jax.tree.map(lambda leaf, unit=unit: leaf[unit], units)
        key_unit = jax.random.fold_in(jax.random.fold_in(key, unit), 2)
        steered = steered_points(families, num, alone, key=key_unit)
        again = _rated(np.asarray(steered.log_weights), num)
        if again.within_ess > rated[unit].within_ess:
            rated[unit], is_guided[unit] = again, True
            drawn = _drawn(steered.xi, steered.log_weights, num, num_samples, key_unit)
            xi[unit], member[unit] = (np.asarray(part) for part in drawn)
    evidence, ess, shapes = (
        np.array([getattr(one, name) for one in rated]) for name in ("log_evidence", "ess", "k_hat")
    )
    return Conditional(xi, member, evidence, ess, shapes, is_guided)


class _Rated(NamedTuple):
    """The evidence by weighted points of a stack of families, and how far the weights can be relied on.

    `within_ess` is the mean of the families' own effective shares, weighted by their evidence: that of all points
    together is low, too, where the families differ in how well they explain the readings.
    """

    log_evidence: float
    ess: float
    within_ess: float
    k_hat: float

    @property
    def is_low(self) -> bool:
        """Whether the weights degenerate within the families."""
        return not self.within_ess >= LOWEST_ESS or self.k_hat > HIGHEST_K_HAT


def _rated(log_weights: Float[np.ndarray, " point"], num_families: int) -> _Rated:
    from langenode.scores.metrics import k_hat

    weights = np.exp(log_weights - log_weights.max())
    ess = weights.sum() ** 2 / (weights**2).sum() / len(weights)
    families = weights.reshape(num_families, -1)
    totals, squares = families.sum(1), (families**2).sum(1)
    own = totals**2 / np.where(squares > 0.0, squares, 1.0) / families.shape[1]
    within = float((own * totals).sum() / totals.sum())
    return _Rated(float(log_weights.max() + np.log(weights.mean())), float(ess), within, k_hat(log_weights))


def size_class(num: int) -> int:
    """The next power of two, at least 8: programs for numbers of units of one class are compiled once."""
    return max(8, 1 << (num - 1).bit_length())


@quick_jit
def _condition(
    families: Family, units: Units, points: Points, num_samples: int, keys: Array
) -> tuple[Array, Array, Array]:
    arrays, static = eqx.partition(families, eqx.is_array)

    def of_family(arrays: Any, unit: Units, shift: Array) -> Weighted:
        family = eqx.combine(arrays, static)
        start = jnp.zeros(points.base.shape[1], points.base.dtype)
        mode = best_mode(family, start, unit, from_zero=False)  # where it starts
        return weighted_points(
            family, mode, expand(family, mode, unit).information, white_points(points.base, shift), unit
        )

    def of_unit(unit: Units, shift: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        xi, log_weights = jax.vmap(lambda one: of_family(one, unit, shift))(arrays)
        num, each = log_weights.shape
        flat = log_weights.ravel()
        return *_drawn(xi.reshape(num * each, -1), flat, num, num_samples, key), flat

    return jax.vmap(of_unit)(units, points.shift, keys)


def _drawn(
    xi: Array, log_weights: Array, num_families: int, num_samples: int, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """Equally weighted draws of weighted points, and the family of each."""
    chosen = systematic(log_weights, num_samples, key=key)
    # In random order, so that any part of the draws is a sample of all.
    chosen = jax.random.permutation(jax.random.fold_in(key, 1), chosen)
    return xi[chosen], chosen // (log_weights.shape[0] // num_families)


@quick_jit
def unit_outputs(
    families: Family, units: Units, xi: Float[Array, "unit sample effect"], member: Int[Array, "unit sample"]
) -> tuple[Float[Array, "unit sample traj time out"], Float[Array, "unit sample traj time out"]]:
    """Outputs of every unit under draws of its effects, and the standard deviation of readings there."""
    arrays, static = eqx.partition(families, eqx.is_array)

    def one(unit: Units, xi: Array, number: Array) -> tuple[Array, Array]:
        family = eqx.combine(jax.tree.map(lambda leaf: leaf[number], arrays), static)
        outputs, log_variance = family.respond(xi, unit)
        return outputs, jnp.exp(0.5 * log_variance)

    return jax.vmap(lambda unit, xi, member: jax.vmap(lambda x, m: one(unit, x, m))(xi, member))(units, xi, member)
