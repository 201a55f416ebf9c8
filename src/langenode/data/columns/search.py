"""The state of a search for the roles of columns."""

import numpy as np

from langenode.data.columns import categories
from langenode.data.columns.record import Columns
from langenode.data.doubts import Doubt
from langenode.data.names import is_input_name
from langenode.data.tables import Table


class Search:
    """The state of the search: the table so far, the columns taken, the reasons, and why others were left out."""

    def __init__(self, table: Table, given: Columns):
        self.table, self.given = table, given
        self.taken = {name for _, name in given.named()}
        self.reasons = {part: "given" for part, names in given._asdict().items() if names is not None}
        self.left_out = dict(table.unread)
        self.doubts: list[Doubt] = []
        self.is_reading: np.ndarray | None = None
        self.dose_inputs: tuple[str, ...] = ()
        self.readings: tuple[str, ...] = ()

    def take(self, part: str, name: str | None, otherwise: str) -> str | None:
        """Assign a column to a role by its name, or record what holds without one."""
        self.reasons[part] = otherwise if name is None else f"column {name!r}, by its name"
        self.taken.update([] if name is None else [name])
        return name

    def is_needed(self, name: str) -> bool:
        """Whether a column that was not named may still be an input or an output."""
        return self.given.outputs is None or (self.given.inputs is None and is_input_name(name))

    def name_levels(self) -> None:
        """Make the columns of categories that are named among the inputs."""
        if self.given.inputs is not None:
            inputs = tuple(categories.named_levels(self.table, self.given.inputs))
            self.given = self.given._replace(inputs=inputs)
            self.table = categories.with_levels(self.table, inputs)
            self.taken.update(inputs)
