"""Inputs that jump: a row just before each jump, since inputs are linear between two times."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from langenode.data.dataset import Dataset

# The row before a jump is this part of the gap before it earlier; a gap that is this part of the duration needs none.
_BEFORE, _SHORT = 1e-3, 1e-3


def with_jump_rows(data: Dataset, columns: Sequence[int]) -> Dataset:
    """Return the data with a row just before every time at which one of these inputs is not what it was.

    At that row these inputs are still what they were; the others are linear in time. It has no readings.
    """
    lengths, rows = data.lengths, []
    for row, length in enumerate(lengths):
        changed = np.any(np.diff(data.inputs[row, :length][:, list(columns)], axis=0) != 0, axis=1)
        gaps = np.diff(data.times[row, :length])
        changed &= gaps > _SHORT * (data.times[row, length - 1] - data.times[row, 0])
        rows.append(np.flatnonzero(changed) + 1)  # the first row with the new value
    longest = max((length + len(jumps) for length, jumps in zip(lengths, rows, strict=True)), default=0)
    num, num_out = data.num_trajectories, data.num_outputs
    times, inputs = np.zeros((num, longest)), np.zeros((num, longest, data.num_inputs))
    outputs, mask = np.zeros((num, longest, num_out)), np.zeros((num, longest, num_out), bool)
    for row, (length, jumps) in enumerate(zip(lengths, rows, strict=True)):
        source = np.insert(np.arange(length), jumps, jumps)
        is_added = np.insert(np.zeros(length, bool), jumps, True)
        grid, path = data.times[row, :length][source].copy(), data.inputs[row, :length][source].copy()
        gaps = data.times[row, jumps] - data.times[row, jumps - 1]
        grid[is_added] -= _BEFORE * gaps
        before = data.inputs[row, jumps - 1]
        path[is_added] = data.inputs[row, jumps] + _BEFORE * (before - data.inputs[row, jumps])
        for column in columns:
            path[is_added, column] = before[:, column]
        full = np.minimum(np.arange(longest), len(source) - 1)  # padding repeats the last row
        times[row], inputs[row] = grid[full], path[full]
        outputs[row, : len(source)] = data.outputs[row, :length][source]
        mask[row, : len(source)] = data.mask[row, :length][source] & ~is_added[:, None]
    return dataclasses.replace(data, times=times, inputs=inputs, outputs=np.where(mask, outputs, 0.0), mask=mask)
