"""The roles that columns can play, and what a guess of them returns."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.checks import DataError, listed
from langenode.data.doubts import Doubt
from langenode.data.tables import Table


class Columns(NamedTuple):
    """The names of columns (or variables) by role; None means to be guessed, an empty tuple means none.

    Besides a column of the file an input can be `NAME=LEVEL`, which is 1 where the category NAME has that level and
    else 0; `NAME=*`, all levels of it; or `total NAME` and `infusion NAME`, made from doses. The trajectory can be
    `A/B`, two columns together, or a pattern such as `subject*`, for a table with one column per trajectory.
    """

    trajectory: str | None = None
    time: str | None = None
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    initial: tuple[str, ...] | None = None
    condition: str | None = None
    unit: str | None = None

    def named(self) -> list[tuple[str, str]]:
        """Return every role and name that is given."""
        parts = [(part, (names,) if isinstance(names, str) else names) for part, names in self._asdict().items()]
        return [(part, name) for part, names in parts for name in names or ()]

    def check_present(self, available: Sequence[str]) -> None:
        """Raise a `DataError` that suggests the nearest name unless every column named here is available."""
        for part, name in self.named():
            if name not in available:
                near = difflib.get_close_matches(name, available, n=1, cutoff=0.0)
                raise DataError(
                    f"column {name!r} must be in the file (--{part}); found {listed(available)}; "
                    f"did you mean {near[0] if near else ''!r}?"
                )


class Guess(NamedTuple):
    """The columns of every role, the reasons for the choice, and the reasons why others were left out.

    `table` is the table as it was understood: long where it was wide, with columns for categories and doses.
    `is_reading` tells rows with readings from those that only record an event.
    """

    columns: Columns
    reasons: dict[str, str]
    left_out: dict[str, str]
    table: Table
    doubts: tuple[Doubt, ...] = ()
    is_reading: np.ndarray | None = None
