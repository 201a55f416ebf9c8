"""Very many trajectories: how many of them each part of a fit looks at."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from langenode.data.dataset import Dataset

# Beyond this many trajectories a fit looks at some of them at a time.
MOST_AT_ONCE = 1000
# Trajectories of an update.
BATCH = 128
# Readings behind the point estimate, whose every step looks at all of them, and held out for validation and for test:
# with a thousand samples of each they are kept in memory several times. Then the limits of their trajectories.
READINGS, FEWEST, MOST = 25_000, 100, 1000


class Sizes(NamedTuple):
    """Trajectories per update, behind the point estimate, and (validation and test each, at most) held out."""

    batch: int
    point: int
    held_out: int


def sizes_for(data: Dataset) -> Sizes | None:
    """Return by how many trajectories each part of a fit is done; None where all of them are looked at."""
    if data.num_trajectories <= MOST_AT_ONCE:
        return None
    num = min(max(READINGS // (data.num_times * data.num_outputs), FEWEST), MOST)
    return Sizes(BATCH, num, num)


def in_parts(data: Dataset) -> Iterator[tuple[slice, Dataset]]:
    """Yield the data in parts of `MOST_AT_ONCE` trajectories, and where they stand among all."""
    num = data.num_trajectories
    if num <= MOST_AT_ONCE:
        yield slice(0, num), data
        return
    for first in range(0, num, MOST_AT_ONCE):
        place = slice(first, min(first + MOST_AT_ONCE, num))
        yield place, data.select(place)


def some_of(data: Dataset, num: int | None, *, seed: int) -> Dataset:
    """Return `num` trajectories at random, in their order; all of them where there are no more or `num` is None."""
    if num is None or num >= data.num_trajectories:
        return data
    chosen = np.random.default_rng(seed).permutation(data.num_trajectories)[:num]
    return data.select(np.sort(chosen))
