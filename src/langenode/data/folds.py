"""Folds of trajectories for cross-validation, each held out once, and data sets padded to one shape for all folds."""

import dataclasses
from typing import Literal

import numpy as np

from langenode._types import Int
from langenode.data.checks import DataError
from langenode.data.dataset import Dataset

# From this many trajectories on, one division into training, validation and test data is good enough.
ENOUGH_TRAJECTORIES = 40
NUM_FOLDS = 5
# Between two times of a trajectory that is padding, over its duration.
PADDING_STEP = 1e-3


def num_folds(data: Dataset, asked: int | Literal["auto"] | None) -> int | None:
    """Return the number of folds; None where the data are divided once.

    `auto` is 5 below 40 trajectories, or as many as there are groups to hold out, and none where there is one group.
    """
    if asked is None or (asked == "auto" and data.num_trajectories >= ENOUGH_TRAJECTORIES):
        return None
    wanted = NUM_FOLDS if asked == "auto" else asked
    what, groups = _groups(data, wanted)
    count = len(np.unique(groups))
    if asked == "auto":
        return min(wanted, count) if count > 1 else None
    if not 2 <= asked <= count:
        raise DataError(
            f"data.folds must be from 2 to the number of {what}, {count}; found {asked}; change it, or set it to auto"
        )
    return asked


def assign_folds(data: Dataset, num: int, *, seed: int) -> Int[np.ndarray, " traj"]:
    """Return the number of every trajectory's fold, from 0, such that folds are as equal in size as possible.

    Whole conditions are held out where there are at least `num` of them; otherwise whole units, so that every condition
    remains among the data of each fit. A unit is never divided: units that appear in several conditions are held out
    in all of them.
    """
    _, groups = _groups(data, num)
    labels, group = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group)
    # Members of one condition are dealt out in turn; which is first is random, and large groups come before small ones.
    first = np.array([data.condition[group == label].min() for label in range(len(labels))])
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    is_by_unit = len(labels) > data.num_conditions
    order = sorted(shuffled, key=lambda label: (-sizes[label], first[label] if is_by_unit else 0))
    filled, fold = np.zeros(num, int), np.empty(len(labels), int)
    for label in order:
        fold[label] = int(np.argmin(filled))
        filled[fold[label]] += sizes[label]
    return fold[group]


def _groups(data: Dataset, wanted: int) -> tuple[str, np.ndarray]:
    """Return what is held out as a whole, in words, and its number for every trajectory."""
    if data.has_crossed_units or data.num_conditions < min(wanted, data.num_units):
        return "units", data.unit
    return "conditions", data.condition


def by_fold(data: Dataset, fold: Int[np.ndarray, " traj"]) -> Dataset:
    """Return the data with a condition of its own for the members of every fold: each fold has its own prediction."""
    pairs, condition = np.unique(np.stack([data.condition, fold]), axis=1, return_inverse=True)
    if pairs.shape[1] == data.num_conditions:
        return data
    names = tuple(f"{data.condition_names[label]}, fold {number + 1}" for label, number in pairs.T)
    return dataclasses.replace(data, condition=condition.ravel(), condition_names=names)


def padded(data: Dataset, num_trajectories: int, num_times: int) -> Dataset:
    """Return the data with further trajectories and times, none of them observed, up to these numbers.

    Programs are compiled for shapes: with this, folds of unequal size share theirs. A trajectory that is added repeats
    the last one, as a condition and a unit of its own, and has all the times: a selection with it keeps their number.
    More times therefore need more trajectories.
    """
    more, longer = num_trajectories - data.num_trajectories, num_times - data.num_times
    if more < 0 or longer < 0 or (longer and not more):
        raise DataError(f"padding adds trajectories, then times; {data} cannot be {num_trajectories} by {num_times}")
    rows = np.minimum(np.arange(num_trajectories), data.num_trajectories - 1)
    columns = np.minimum(np.arange(num_times), data.num_times - 1)
    is_real = (rows == np.arange(num_trajectories))[:, None] & (columns == np.arange(num_times))
    times, extra = data.times[rows][:, columns], np.arange(more)
    # Beyond its end an added trajectory takes steps that are small beside its duration, so that it stays finite.
    beyond = np.maximum(np.arange(num_times) - (data.lengths[-1] - 1), 0)
    times[data.num_trajectories :] += PADDING_STEP * (times[-1, -1] - times[-1, 0]) * beyond
    return dataclasses.replace(
        data,
        times=times,
        inputs=data.inputs[rows][:, columns],
        outputs=np.where(is_real[..., None], data.outputs[rows][:, columns], 0.0),
        mask=data.mask[rows][:, columns] & is_real[..., None],
        initial=None if data.initial is None else data.initial[rows],
        condition=np.concatenate([data.condition, data.num_conditions + extra]),
        unit=np.concatenate([data.unit, data.num_units + extra]),
        condition_names=(*data.condition_names, *(f"padding {data.num_conditions + i}" for i in extra)),
        unit_names=(*data.unit_names, *(f"padding {data.num_units + i}" for i in extra)),
        attributes={name: values[rows] for name, values in data.attributes.items()},
        labels={name: tuple(values[row] for row in rows) for name, values in data.labels.items()},
    )
