"""Many units: descent on random units, and what is evaluated of all of them in chunks."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float, Int, OnStep
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import Marginal, Points, marginal
from langenode.inference.hierarchical.units import Units

# Importance points of this many trajectories are evaluated together: tens of megabytes.
MOST_POINTS = 65_536

# The gradient of minus the log posterior of some units, scaled to these; None where it is not finite.
Gradient = Callable[[Any, Int[np.ndarray, " batch"], int], Any]


class Descended(NamedTuple):
    """Means of the numbers over the last quarter of the updates, and over the quarter before it."""

    params: Any
    before: Any


def descend(
    gradient: Gradient,
    params: Any,
    num_units: int,
    *,
    batch_units: int,
    num_updates: int,
    learning_rate: float,
    rng: np.random.Generator,
    on_step: OnStep | None = None,
) -> Descended:
    """Adam on random units with fresh points, its rate falling by a cosine."""
    import optax

    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_updates, 0.02))
    state = optimiser.init(params)
    means, counts, order = [params, params], [0, 0], np.zeros(0, int)
    for step in range(num_updates):
        if len(order) < batch_units:  # each unit once before any comes again
            order = rng.permutation(num_units)
        rows, order = order[:batch_units], order[batch_units:]
        slope = gradient(params, rows, int(rng.integers(2**31)))
        if slope is not None:
            updates, state = optimiser.update(slope, state, params)
            params = optax.apply_updates(params, updates)
        quarter = 4 * step // num_updates
        if quarter >= 2:
            place = quarter - 2
            counts[place] += 1
            means[place] = jax.tree.map(lambda m, p, n=counts[place]: m + (p - m) / n, means[place], params)
        if on_step is not None:
            on_step(step + 1, num_updates, "mini-batches of units")
    return Descended(means[1] if counts[1] else params, means[0])


class Evaluated(NamedTuple):
    """Log-likelihoods of the units by importance sampling, and their modes."""

    values: Float[np.ndarray, " unit"]
    modes: Float[np.ndarray, "unit effect"]


def evaluate(family: Family, units: Units, modes: Float[np.ndarray, "unit effect"], points: Points) -> Evaluated:
    """Evaluate all units, some at a time: one program for all chunks, of which the last repeats a unit."""
    size = min(units.num, max(1, MOST_POINTS // (points.num * units.num_trajectories)))
    found = []
    for begin in range(0, units.num, size):
        rows = np.minimum(np.arange(begin, begin + size), units.num - 1)
        some = units if size == units.num else jax.tree.map(lambda leaf, rows=rows: leaf[rows], units)
        result = _evaluate(family, some, jnp.asarray(modes[rows]), Points(points.base, points.shift[rows]))
        found.append([np.asarray(part)[: units.num - begin] for part in result])
    return Evaluated(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


@quick_jit
def _evaluate(family: Family, units: Units, modes: Array, points: Points) -> Marginal:
    return marginal(family, units, modes, points, "importance")
