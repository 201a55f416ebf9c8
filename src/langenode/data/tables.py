"""A table in memory: columns of text or numbers by name, and where each row came from."""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.data.checks import DataError

_MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "<na>", "null", "none"))


class Groups(NamedTuple):
    """The rows of a table by trajectory, in order of appearance; rows within one keep their order."""

    labels: tuple[str, ...]
    codes: np.ndarray  # (row,), the number of a row's trajectory
    order: np.ndarray  # (row,), rows sorted by trajectory
    starts: np.ndarray  # (traj,), the position in `order` of a trajectory's first row

    def split(self) -> list[np.ndarray]:
        """The rows of each trajectory."""
        return np.split(self.order, self.starts[1:])

    def first_rows(self) -> np.ndarray:
        """For every row the first row of its trajectory."""
        return self.order[self.starts][self.codes]

    def are_constant(self, values: np.ndarray) -> bool:
        """Whether numbers (NaN is missing) differ by rounding only within every trajectory."""
        high = np.fmax.reduceat(values[self.order], self.starts)
        low = np.fmin.reduceat(values[self.order], self.starts)
        seen = ~np.isnan(high)
        high, low = high[seen], low[seen]
        if not (np.all(np.isfinite(high)) and np.all(np.isfinite(low))):
            return False
        return bool(np.all(high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * np.maximum(abs(high), abs(low))))

    def increase(self, times: np.ndarray) -> bool:
        """Whether the times increase strictly within every trajectory."""
        return not self.not_increasing(times).size

    def not_increasing(self, times: np.ndarray) -> np.ndarray:
        """Positions in `order` whose time is not after the one before, in the same trajectory; NaN is not."""
        ordered = times[self.order]
        wrong = np.ones(len(ordered), dtype=bool)
        wrong[1:] = ~(ordered[1:] > ordered[:-1])
        wrong[self.starts] = np.isnan(ordered[self.starts])
        return np.flatnonzero(wrong)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns by name in file order: a sequence of text, or an array of numbers or time stamps.

    `file_of_row` numbers the entry of `files` that a row came from, for a folder of files. `notes` says how
    the file was read where that was a choice; `unread` why a column of it is not here.
    """

    cells: Mapping[str, Any]
    row_numbers: np.ndarray
    files: tuple[str, ...] = ()
    file_of_row: np.ndarray | None = None
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Every column is parsed once and grouped by once, however often that is asked for.
    _parsed: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    _groups: dict[str | None, Groups] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the columns in file order."""
        return list(self.cells)

    @property
    def num_rows(self) -> int:
        """Number of rows below the header."""
        return len(self.row_numbers)

    def place(self, row: int | np.integer) -> str:
        """Where a row stands: "row 7", or "run3.csv row 7"."""
        number = f"row {self.row_numbers[row]}"
        return number if self.file_of_row is None else f"{self.files[self.file_of_row[row]]} {number}"

    def with_missing(self, names: Sequence[str]) -> "Table":
        """The table with columns of missing numbers for those names that it has not."""
        blank = {name: np.full(self.num_rows, np.nan) for name in names if name not in self.cells}
        return dataclasses.replace(self, cells={**self.cells, **blank}, _parsed=dict(self._parsed))

    def with_column(self, name: str, labels: Sequence[str]) -> "Table":
        """The table with one more column."""
        return dataclasses.replace(self, cells={**self.cells, name: labels}, _parsed=dict(self._parsed), _groups={})

    def kind(self, name: str) -> str:
        """What a column holds: "numbers", "stamps", "text", or "nothing" if all its cells are empty.

        Text that is a number in at least half of its filled cells counts as numbers: the rest are faults.
        """
        if isinstance(self.cells[name], np.ndarray) and self.cells[name].dtype.kind == "M":
            return "stamps"
        values, wrong = self._numbers_and_faults(name)
        num_right = int((~np.isnan(values)).sum())
        if num_right == 0 and not wrong:
            return "nothing"
        return "numbers" if num_right and num_right >= len(wrong) else "text"

    def numbers(self, name: str) -> np.ndarray:
        """The numbers of a column, NaN where the cell is empty."""
        values, wrong = self._numbers_and_faults(name)
        if wrong:
            row = wrong[0]
            raise DataError(
                f"column {name!r} must hold numbers; {self.place(row)} has {_shown(self.cells[name][row])}; "
                "correct it, or leave it empty if it is missing"
            )
        return values

    def labels(self, name: str) -> list[str]:
        """The labels of a column, none of them empty."""
        cells = self.cells[name]
        labels = _labels_of_array(cells) if isinstance(cells, np.ndarray) else list(cells)
        if "" in labels:
            raise DataError(
                f"column {name!r} must be filled in every row; {self.place(labels.index(''))} is empty; fill it"
            )
        return labels

    def is_faulty(self, name: str) -> bool:
        """Whether some cell of a column is neither empty nor a number."""
        return bool(self._numbers_and_faults(name)[1])

    def whole_numbers(self, name: str) -> np.ndarray | None:
        """The numbers of a column if all its cells are whole ones."""
        values, wrong = self._numbers_and_faults(name)
        return None if wrong or not np.all(np.isfinite(values)) or np.any(values != np.round(values)) else values

    def is_label(self, name: str) -> bool:
        """Whether a column may name things: text, or whole numbers without a gap."""
        return self.kind(name) == "text" or self.is_faulty(name) or self.whole_numbers(name) is not None

    def stamps(self, name: str) -> np.ndarray | None:
        """The ISO-8601 time stamps of a column as datetime64 in UTC; None if it holds none."""
        cells = self.cells[name]
        if isinstance(cells, np.ndarray):
            return cells if cells.dtype.kind == "M" else None
        filled = next((cell for cell in cells if not _is_missing(cell)), "")
        if _number(filled) is not None or _stamp(filled) is None:
            return None
        stamps = [np.datetime64("NaT") if _is_missing(cell) else _stamp(cell) for cell in cells]
        wrong = next((row for row, stamp in enumerate(stamps) if stamp is None), None)
        if wrong is not None:
            raise DataError(
                f"column {name!r} must hold ISO-8601 time stamps like 2024-05-01T12:00:00 throughout; "
                f"{self.place(wrong)} has {_shown(cells[wrong])}; correct it"
            )
        return np.array(stamps, dtype="datetime64[us]")

    def _numbers_and_faults(self, name: str) -> tuple[np.ndarray, list[int]]:
        """The numbers of a column, and the rows whose text is none."""
        if name not in self._parsed:
            cells = self.cells[name]
            if isinstance(cells, np.ndarray):
                is_stamp = cells.dtype.kind == "M"
                values = np.full(len(cells), np.nan) if is_stamp else cells.astype(np.float64)
                self._parsed[name] = values, list(range(len(cells))) if is_stamp else []
            else:
                self._parsed[name] = _parse(cells)
        return self._parsed[name]


def group_rows(table: Table, trajectory: str | None) -> Groups:
    """The rows by the label of their trajectory: its column, its file, or both; all are one without either."""
    if trajectory in table._groups:
        return table._groups[trajectory]
    labels = ["0"] * table.num_rows if trajectory is None else table.labels(trajectory)
    if table.file_of_row is not None:
        stems = [name.rpartition(".")[0] or name for name in table.files]
        files = [stems[index] for index in table.file_of_row]
        labels = files if trajectory is None else [f"{a}/{b}" for a, b in zip(files, labels, strict=True)]
    seen: dict[str, int] = {}
    codes = np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    groups = Groups(tuple(seen), codes, order, np.searchsorted(codes[order], np.arange(len(seen))))
    table._groups[trajectory] = groups
    return groups


def elapsed_times(table: Table, name: str, groups: Groups) -> tuple[np.ndarray, bool]:
    """The numbers of the time column, or seconds since the trajectory's first row and True for time stamps."""
    stamps = table.stamps(name)
    if stamps is None:
        return table.numbers(name), False
    return (stamps - stamps[groups.first_rows()]) / np.timedelta64(1, "s"), True


def _parse(cells: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    # The way of most columns, all of whose cells are plain numbers.
    if "_" not in "".join(cells):
        try:
            return np.array(list(map(float, cells)), dtype=np.float64), []
        except ValueError:
            pass
    values = np.empty(len(cells))
    wrong = []
    for row, cell in enumerate(cells):
        number = _number(cell)
        if number is None:
            wrong.append(row)
        values[row] = math.nan if number is None else number
    return values, wrong


def _number(cell: str) -> float | None:
    """A cell's number to the last bit (pandas' fast parser rounds some), NaN if it is empty, None if it is text."""
    try:
        # Python would also read 1_000, which no other reader of the file does.
        return float(cell.replace("_", "?"))
    except ValueError:
        return math.nan if _is_missing(cell) else None


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _stamp(cell: str) -> datetime.datetime | None:
    try:
        stamp = datetime.datetime.fromisoformat(cell.strip())
        return stamp if stamp.tzinfo is None else stamp.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _labels_of_array(values: np.ndarray) -> list[str]:
    """Numbers as the text that a CSV file would have; nothing where they are missing."""
    found, codes = np.unique(values, return_inverse=True)
    if values.dtype.kind == "M":
        texts = ["" if np.isnat(value) else str(value) for value in found]
    elif values.dtype.kind == "f":
        texts = ["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in found.tolist()]
    else:
        texts = [str(value) for value in found.tolist()]
    return [texts[code] for code in codes]


def _shown(cell: Any) -> str:
    """A cell for a message: quoted, escaped and not longer than a glance."""
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
