"""Trajectories by unit: the likelihood of a unit is the product of those of its trajectories."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Bool, Float
from langenode.data import Dataset


class Units(NamedTuple):
    """Arrays of every unit, padded to the same numbers of trajectories and times; a pytree to pass through `jit`.

    `below` marks readings of which only a limit is known: the true reading was below the stored number. `weight` says
    how often a unit counts: zero for padding, other numbers in a bootstrap.
    """

    times: Float[Array, "unit traj time"]
    inputs: Float[Array, "unit traj time in"]
    outputs: Float[Array, "unit traj time out"]
    mask: Bool[Array, "unit traj time out"]
    below: Bool[Array, "unit traj time out"]
    initial: Float[Array, "unit traj known"] | None
    weight: Float[Array, " unit"]

    @property
    def num(self) -> int:
        """How many units, padding included."""
        return self.weight.shape[0]

    @property
    def num_trajectories(self) -> int:
        """Trajectories per unit, padding included."""
        return self.times.shape[1]


def by_unit(
    data: Dataset, *, limit: Float[np.ndarray, " out"] | None = None, num: int | None = None, dtype: type = float
) -> Units:
    """Arrange scaled data by unit; readings at or below `limit` are known to be below it, and no more.

    `num` is the number of units to pad to. Trajectories that a unit lacks repeat its first one, unobserved.
    """
    counts = np.bincount(data.unit, minlength=data.num_units)
    num = data.num_units if num is None else num
    rows = np.zeros((num, int(counts.max(initial=1))), int)
    present = np.zeros(rows.shape, bool)
    for unit in range(data.num_units):
        own = np.flatnonzero(data.unit == unit)
        rows[unit], rows[unit, : len(own)], present[unit, : len(own)] = own[0], own, True
    mask = data.mask[rows] & present[..., None, None]
    outputs, below = data.outputs[rows], np.zeros(mask.shape, bool)
    if limit is not None:
        below = mask & (outputs <= limit)
        outputs = np.where(below, limit, outputs)
    as_array = lambda values: jnp.asarray(values, dtype)  # noqa: E731
    return Units(
        times=as_array(data.times[rows]),
        inputs=as_array(data.inputs[rows]),
        outputs=as_array(np.where(mask, outputs, 0.0)),
        mask=jnp.asarray(mask),
        below=jnp.asarray(below),
        initial=None if data.initial is None else as_array(data.initial[rows]),
        weight=as_array(mask.any((1, 2, 3)).astype(float)),
    )
