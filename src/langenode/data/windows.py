"""A record of one trajectory cut into windows, so that there is something to train on and something to test on."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from langenode.data.checks import DataError
from langenode.data.dataset import Dataset

# About this many time points per window, within these numbers of windows.
_POINTS = 20
_FEWEST, _MOST = 5, 20
_FEWEST_POINTS = 11
# From this many trajectories on, whole ones can be held out and leave some variety to learn from.
_ENOUGH_TRAJECTORIES = 3


def num_windows(data: Dataset) -> int | None:
    """Return into how many windows each trajectory is cut: None where there are enough of them.

    Fewer than three trajectories are cut: each into windows of about 20 time points, at least 5 and at most 20 of them.
    """
    if not 0 < data.num_trajectories < _ENOUGH_TRAJECTORIES:
        return None
    shortest = int(data.lengths.min())
    if shortest < _FEWEST_POINTS:
        return None
    return int(np.clip(shortest // _POINTS, _FEWEST, min(_MOST, (shortest - 1) // 2)))


def cut_into_windows(data: Dataset, num: int | None) -> Dataset:
    """Return every window as a trajectory and a condition of its own, in its own time; None cuts nothing.

    A window ends at the time point where the next begins: what is the last reading of one is the start of the other. A
    given start is that of the first window only, so all start from their first reading.
    """
    if num is None:
        return data
    shortest = int(data.lengths.min())
    if shortest < 2 * num + 1:
        raise DataError(
            f"every window must have at least 3 time points; {num} windows of a trajectory of {shortest} have fewer; "
            "set data.windows lower, or none"
        )
    windows: list[dict[str, Any]] = []
    rows: list[int] = []
    numbers: list[str] = []
    for row, length in enumerate(data.lengths):
        edges = np.round(np.linspace(0, length - 1, num + 1)).astype(int)
        name = "" if data.num_trajectories == 1 else f"{data.unit_names[data.unit[row]]}, "
        for number, (begin, end) in enumerate(itertools.pairwise(edges), start=1):
            part = slice(begin, end + 1)
            if data.mask[row, part].any(axis=1).sum() < 2:  # nothing to learn from
                continue
            rows.append(row)
            numbers.append(f"{number:0{len(str(num))}d}")
            label = f"{name}window {numbers[-1]}"
            windows.append(
                {
                    "times": data.times[row, part],
                    "inputs": data.inputs[row, part],
                    "outputs": data.outputs[row, part],
                    "mask": data.mask[row, part],
                    "condition": label,
                    "unit": label,
                }
            )
    cut = Dataset.from_list(windows, input_names=data.input_names, output_names=data.output_names, units=data.units)
    labels = {column: tuple(values[row] for row in rows) for column, values in data.labels.items()}
    return dataclasses.replace(cut, labels={**labels, "window": tuple(numbers)})
