"""A finer time grid for the integrator: long gaps between readings are subdivided, the readings stay in place."""

import dataclasses
from typing import NamedTuple

import numpy as np

from langenode._types import Int
from langenode.data.dataset import Dataset


class Refined(NamedTuple):
    """Data on the finer grid, and the index on it of each original time point of a condition."""

    data: Dataset
    rows: Int[np.ndarray, "condition time"]


def refine(data: Dataset, largest_step: float) -> Refined:
    """Divide every interval longer than `largest_step` into equal pieces; the new points are unobserved.

    Inputs are interpolated linearly, as the integrators do. The cost of irregular readings is then proportional to
    their duration; substeps sized for the longest gap would be taken in every interval.
    """
    _, first = np.unique(data.condition, return_index=True)
    lengths = data.lengths
    is_compact = data.num_trajectories > 0 and lengths.max() == data.num_times
    if is_compact and _num_pieces(data.times, largest_step).max(initial=1) == 1:  # nothing to divide
        return Refined(data, np.minimum(np.arange(data.num_times), lengths[first, None] - 1))
    own = [data.times[i, : lengths[i]] for i in first]
    grids = [_refined_grid(times, largest_step) for times in own]
    longest = max((len(grid) for grid in grids), default=0)
    padded = np.stack([np.pad(grid, (0, longest - len(grid)), mode="edge") for grid in grids])
    rows = np.stack([np.searchsorted(grid, data.times[i]) for grid, i in zip(grids, first, strict=True)])
    paths = [data.inputs[i, : lengths[i]] for i in first]
    inputs = [_interpolated(*case) for case in zip(padded, own, paths, strict=True)]
    shape = (data.num_trajectories, longest, data.num_outputs)
    outputs, mask = np.zeros(shape), np.zeros(shape, dtype=bool)
    # Padding maps to the last row of the grid, which it must not overwrite, so only observed cells are written.
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
    pieces = _num_pieces(times, largest_step)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    inner = number * np.repeat(np.diff(times) / pieces, pieces) + np.repeat(times[:-1], pieces)
    return np.concatenate([inner, times[-1:]])


def _num_pieces(times: np.ndarray, largest_step: float) -> np.ndarray:
    """Into how many pieces each interval is divided."""
    # An interval that exceeds the largest step by rounding only needs no further point.
    return np.maximum(1, np.ceil(np.diff(times) / largest_step - 1e-6)).astype(int)


def _interpolated(grid: np.ndarray, times: np.ndarray, path: np.ndarray) -> np.ndarray:
    columns = [np.interp(grid, times, column) for column in path.T]
    return np.stack(columns, axis=1) if columns else np.zeros((len(grid), 0))
