"""Check, before any work, whether a model can be fitted to a data set and scored on it."""

import numpy as np

from langenode.data.checks import DataError, is_constant
from langenode.data.dataset import Dataset

# One to learn from while the other is held out.
FEWEST_TRAJECTORIES = 2
# A distribution over the population needs several replicates; with fewer, only one model and its noise can be learned.
FEWEST_REPLICATES = 5


def check_fittable(data: Dataset) -> None:
    """Raise a `DataError` if there are too few trajectories or times, or an output that is unobserved or constant."""
    if data.num_trajectories < FEWEST_TRAJECTORIES:
        found = "one trajectory" if data.num_trajectories == 1 else f"{data.num_trajectories} trajectories"
        raise DataError(
            f"learning needs at least {FEWEST_TRAJECTORIES} trajectories, one to learn from while the other is held "
            f"out, or a record that is long enough to be cut into windows; found {found}; add more, or name the column "
            "of their labels with --trajectory"
        )
    _check_counts(data, data.mask.any(axis=(1, 2)).astype(int), "at least one observed output", 1)
    _check_counts(data, data.lengths, "at least 2 time points", 2)
    _check_counts(data, data.mask.any(axis=2).sum(axis=1), "at least 2 observed time points", 2)
    for index, name in enumerate(data.output_names):
        seen = data.outputs[..., index][data.mask[..., index]]
        if seen.size == 0:
            raise DataError(f"every output must be observed; {name!r} never is; leave it out with --outputs")
        if is_constant(seen):
            raise DataError(
                f"every output must vary; {name!r} is {seen[0]:g} in every observation; leave it out with --outputs"
            )


def trajectory_name(data: Dataset, index: int) -> str:
    """Name a trajectory in a message: its number, and its unit's name where that differs."""
    name = data.unit_names[data.unit[index]]
    return f"trajectory {index}" if name == str(index) else f"trajectory {index} ({name!r})"


def _check_counts(data: Dataset, counts: np.ndarray, needed: str, least: int) -> None:
    few = np.flatnonzero(counts < least)
    if few.size:
        others = f" (and {few.size - 1} more like it)" if few.size > 1 else ""
        found = f"{counts[few[0]]}" if counts[few[0]] else "none"
        raise DataError(
            f"a trajectory needs {needed}; {trajectory_name(data, int(few[0]))} has {found}{others}; drop it"
        )


def has_replicates(data: Dataset) -> bool:
    """Whether conditions have enough replicates to compare distributions of trajectories."""
    return data.num_trajectories > 0 and int(np.median(np.bincount(data.condition))) >= FEWEST_REPLICATES
