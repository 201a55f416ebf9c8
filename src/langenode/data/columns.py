"""Which column of a file plays which part in a data set."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from langenode.data.checks import DataError


class Columns(NamedTuple):
    """The names of columns (or variables) by their part; None is found by its default name."""

    trajectory: str | None
    time: str | None
    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None
    initial: tuple[str, ...] | None
    condition: str | None
    unit: str | None

    def check_present(self, available: Sequence[str]) -> None:
        """Raise a `DataError` that hints at the nearest name unless every column named here is available."""
        singles = (self.trajectory, self.time, self.condition, self.unit)
        names = [name for name in singles if name is not None]
        names += [*(self.inputs or ()), *(self.outputs or ()), *(self.initial or ())]
        for name in names:
            if name not in available:
                near = difflib.get_close_matches(name, available, n=1, cutoff=0.0)
                raise DataError(
                    f"column '{name}' must be in the file; found {list(available)}; "
                    f"did you mean '{near[0] if near else ''}'?"
                )
