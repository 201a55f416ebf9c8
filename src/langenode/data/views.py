"""Views of a data set: by condition, by member and condition, and as arrays on the device."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._types import Array, Bool, Float, Int
from langenode.data.checks import DataError
from langenode.data.size_classes import class_of, extended


class Cases(NamedTuple):
    """The time grid and the inputs shared by all trajectories of each condition."""

    times: Float[np.ndarray, "condition time"]
    inputs: Float[np.ndarray, "condition time in"]


class Replicates(NamedTuple):
    """Trajectories arranged by member and condition; `present` is False where no such trajectory exists."""

    outputs: Float[np.ndarray, "member condition time out"]
    mask: Bool[np.ndarray, "member condition time out"]
    initial: Float[np.ndarray, "member condition state"] | None
    present: Bool[np.ndarray, "member condition"]


class Batch(NamedTuple):
    """The arrays of a data set on the device: a pytree to pass through `jit`."""

    times: Float[Array, "traj time"]
    inputs: Float[Array, "traj time in"]
    outputs: Float[Array, "traj time out"]
    mask: Bool[Array, "traj time out"]
    initial: Float[Array, "traj state"] | None
    condition: Int[Array, " traj"]

    def in_class(self) -> "Batch":
        """The same padded to its size class: further times of nothing observed, and trajectories of nothing at all."""
        sizes = class_of(*self.times.shape)
        if 0 in self.times.shape or sizes == self.times.shape:
            return self
        extend = lambda leaf, fill=None: placed(extended(np.asarray(leaf), sizes, fill))  # noqa: E731
        alone = lambda leaf: placed(extended(np.asarray(leaf), sizes[:1]))  # noqa: E731
        return Batch(
            times=extend(self.times),
            inputs=extend(self.inputs),
            outputs=extend(self.outputs, 0.0),
            mask=extend(self.mask, False),
            initial=None if self.initial is None else alone(self.initial),
            condition=alone(self.condition),
        )


def are_crossed(unit: np.ndarray, condition: np.ndarray) -> bool:
    """Whether some unit appears in more than one condition."""
    pairs = np.unique(np.stack([unit, condition]), axis=1)
    return pairs.shape[1] > len(np.unique(unit))


def number_members(unit: np.ndarray, condition: np.ndarray) -> np.ndarray:
    """Return the unit where units are crossed with conditions, else the number of the replicate in its condition."""
    if not are_crossed(unit, condition):
        order = np.argsort(condition, kind="stable")
        start = np.searchsorted(condition[order], condition[order])
        member = np.empty_like(condition)
        member[order] = np.arange(len(condition)) - start
        return member
    _, first, counts = np.unique(np.stack([unit, condition]), axis=1, return_index=True, return_counts=True)
    if counts.max() > 1:
        twice = first[np.argmax(counts)]
        raise DataError(
            f"units crossed with conditions must have one trajectory in each; unit {unit[twice]} has "
            f"{counts.max()} in condition {condition[twice]}; number these as different units"
        )
    return unit


def cast(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Cast the array to a floating type; raise if a number is no longer finite."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise DataError(f"arrays must have a floating type; found {dtype}; use float32 or float64")
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if not np.all(np.isfinite(result)):
        raise DataError(f"{name} must be finite in {dtype}; some overflow; scale the data or use float64")
    return result
