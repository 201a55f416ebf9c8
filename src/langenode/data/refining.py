"""A finer time grid for the integrator: long gaps between readings are cut, the readings stay where they are."""

import dataclasses
from typing import NamedTuple

import numpy as np

from langenode._types import Int
from langenode.data.dataset import Dataset


class Refined(NamedTuple):
    """Data on the finer grid, and where each of the old time points of a condition lies on it."""

    data: Dataset
    rows: Int[np.ndarray, "condition time"]


def refine(data: Dataset, largest_step: float) -> Refined:
    """Cut every interval that is longer than `largest_step` into equal pieces; the new points are unobserved.

    Inputs are linear in between, as the integrators take them. Irregular readings cost what their duration costs,
    not what their longest gap would as a number of substeps of every interval.
    """
    _, first = np.unique(data.condition, return_index=True)
    lengths = data.lengths
    own = [data.times[i, : lengths[i]] for i in first]
    grids = [_refined_grid(times, largest_step) for times in own]
    longest = max((len(grid) for grid in grids), default=0)
    padded = np.stack([np.pad(grid, (0, longest - len(grid)), mode="edge") for grid in grids])
    rows = np.stack([np.searchsorted(grid, data.times[i]) for grid, i in zip(grids, first, strict=True)])
    paths = [data.inputs[i, : lengths[i]] for i in first]
    inputs = [_interpolated(*case) for case in zip(padded, own, paths, strict=True)]
    shape = (data.num_trajectories, longest, data.num_outputs)
    outputs, mask = np.zeros(shape), np.zeros(shape, dtype=bool)
    # Padding maps to the last row of the grid, which it must not overwrite: only readings are placed.
    trajectory, time, column = np.nonzero(data.mask)
    where = (trajectory, rows[data.condition[trajectory], time], column)
    outputs[where], mask[where] = data.outputs[data.mask], True
    refined = dataclasses.replace(
        data,
        times=padded[data.condition],
        inputs=np.stack(inputs)[data.condition],
        outputs=outputs,
        mask=mask,
    )
    return Refined(refined, rows)


def _refined_grid(times: np.ndarray, largest_step: float) -> np.ndarray:
    # A hair's breadth more than the largest step is not worth another point.
    pieces = np.maximum(1, np.ceil(np.diff(times) / largest_step - 1e-6)).astype(int)
    inner = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(times[:-1], times[1:], pieces, strict=True)]
    return np.concatenate([*inner, times[-1:]])


def _interpolated(grid: np.ndarray, times: np.ndarray, path: np.ndarray) -> np.ndarray:
    columns = [np.interp(grid, times, column) for column in path.T]
    return np.stack(columns, axis=1) if columns else np.zeros((len(grid), 0))
