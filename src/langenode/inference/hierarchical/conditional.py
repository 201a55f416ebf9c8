"""The effects of a unit given some of its readings: importance sampling about the mode, for every draw of the family.

The uncertainty of what all units have in common is a set of families. Each one proposes points of the unit's effects;
all points together are weighted by the product of the family's evidence for the given readings and their own weights.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.inference.hierarchical.family import Family, expand
from langenode.inference.hierarchical.marginal import Points, Weighted, make_points, weighted_points, white_points
from langenode.inference.hierarchical.modes import best_mode
from langenode.inference.hierarchical.units import Units
from langenode.posteriors.particles import systematic

# Effects of about this many trajectories are worked on together.
MOST_TRAJECTORIES = 20_000


class Conditional(NamedTuple):
    """Draws of the effects of every unit, equally weighted, and the family that each belongs to.

    `log_evidence` is the log density of the given readings; `relative_ess` and `k_hat` are those of the importance
    weights, before the draws were made equally weighted.
    """

    xi: Float[np.ndarray, "unit sample effect"]
    member: Int[np.ndarray, "unit sample"]
    log_evidence: Float[np.ndarray, " unit"]
    relative_ess: Float[np.ndarray, " unit"]
    k_hat: Float[np.ndarray, " unit"]


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
    families: Family, units: Units, num_samples: int, *, num_points: int = 512, seed: int = 0, key: PRNGKeyArray
) -> Conditional:
    """Draws of the units' effects given their readings, from a stack of families.

    Without any reading the points are those of the law of the effects. `num_points` are divided between the families,
    at least 32 each.
    """
    from langenode.scores.metrics import k_hat

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
    shifted = np.exp(log_weights - log_weights.max(1, keepdims=True))
    ess = shifted.sum(1) ** 2 / (shifted**2).sum(1) / shifted.shape[1]
    evidence = log_weights.max(1) + np.log(shifted.mean(1))
    return Conditional(xi, member, evidence, ess, np.array([k_hat(row) for row in log_weights]))


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
        chosen = systematic(log_weights.ravel(), num_samples, key=key)
        # In random order, so that any part of the draws is a sample of all.
        chosen = jax.random.permutation(jax.random.fold_in(key, 1), chosen)
        return xi.reshape(num * each, -1)[chosen], chosen // each, log_weights.ravel()

    return jax.vmap(of_unit)(units, points.shift, keys)


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
