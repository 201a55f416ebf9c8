"""A table in memory: named columns of text or numbers, and the origin of each row."""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.data.checks import DataError
from langenode.data.doubts import Doubt

_MISSING = frozenset(
    (
        *("", ".", "-", "--", "---", "\u2013", "\u2014"),
        *("na", "n/a", "n.a.", "nan", "<na>", "null", "none", "nd", "n.d.", "missing"),
    )
)
# What spreadsheets write where a formula fails, also in German.
_FAILED = frozenset(
    (
        *("#n/a", "#na", "#nv", "#div/0!", "#name?", "#null!"),
        *("#value!", "#wert!", "#ref!", "#bezug!", "#num!", "#zahl!"),
    )
)


class Groups(NamedTuple):
    """The rows of a table grouped by trajectory, in order of appearance; rows within a trajectory keep their order."""

    labels: tuple[str, ...]
    codes: np.ndarray  # (row,), the number of the row's trajectory
    order: np.ndarray  # (row,), rows sorted by trajectory
    starts: np.ndarray  # (traj,), the position in `order` of a trajectory's first row

    def split(self) -> list[np.ndarray]:
        """Return the rows of each trajectory."""
        return np.split(self.order, self.starts[1:])

    def first_rows(self) -> np.ndarray:
        """Return, for every row, the first row of its trajectory."""
        return self.order[self.starts][self.codes]

    def are_constant(self, values: np.ndarray) -> bool:
        """Whether the numbers are constant up to rounding within every trajectory; NaN is missing."""
        high = np.fmax.reduceat(values[self.order], self.starts)
        low = np.fmin.reduceat(values[self.order], self.starts)
        seen = ~np.isnan(high)
        high, low = high[seen], low[seen]
        if not (np.all(np.isfinite(high)) and np.all(np.isfinite(low))):
            return False
        return bool(np.all(high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * np.maximum(abs(high), abs(low))))

    def increase(self, times: np.ndarray, *, or_equal: bool = False) -> bool:
        """Whether the times increase strictly within every trajectory; with `or_equal` a time may be repeated."""
        return not self.not_increasing(times, or_equal=or_equal).size

    def not_increasing(self, times: np.ndarray, *, or_equal: bool = False) -> np.ndarray:
        """Return positions in `order` whose time is NaN or not later than the one before in the same trajectory."""
        ordered = times[self.order]
        wrong = np.ones(len(ordered), dtype=bool)
        wrong[1:] = ~(ordered[1:] >= ordered[:-1] if or_equal else ordered[1:] > ordered[:-1])
        wrong[self.starts] = np.isnan(ordered[self.starts])
        return np.flatnonzero(wrong)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Columns by name in file order: a sequence of text, or an array of numbers or time stamps.

    `file_of_row` is the index into `files` of the file that a row came from, for a folder of files. `notes` records
    choices made while reading the file, `doubts` what may have been meant otherwise; `unread` says why a column of the
    file is not in the table; `units` are those that do not stand in names.
    """

    cells: Mapping[str, Any]
    row_numbers: np.ndarray
    files: tuple[str, ...] = ()
    file_of_row: np.ndarray | None = None
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    doubts: tuple[Doubt, ...] = ()
    # Caches, filled by `_numbers_and_faults`, `stamps` and `groups` only: every column is parsed and grouped by once.
    _parsed: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    _stamped: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
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
        """Name the place of a row for a message: "row 7", or "run3.csv row 7"."""
        number = f"row {self.row_numbers[row]}"
        return number if self.file_of_row is None else f"{self.files[self.file_of_row[row]]} {number}"

    def with_missing(self, names: Sequence[str]) -> "Table":
        """Return the table with an empty column of numbers for each name that it lacks."""
        blank = {name: np.full(self.num_rows, np.nan) for name in names if name not in self.cells}
        return dataclasses.replace(self, cells={**self.cells, **blank}, _parsed=dict(self._parsed))

    def with_column(self, name: str, labels: Sequence[str] | np.ndarray) -> "Table":
        """Return the table with one more column, or another in the place of one."""
        parsed, stamped = ({n: of for n, of in known.items() if n != name} for known in (self._parsed, self._stamped))
        cells = {**self.cells, name: labels}
        return dataclasses.replace(self, cells=cells, _parsed=parsed, _stamped=stamped, _groups={})

    def take(self, rows: np.ndarray) -> "Table":
        """Return the table of some rows, in the order given; a row may be taken more than once."""
        cells = {
            name: column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]
            for name, column in self.cells.items()
        }
        origin = None if self.file_of_row is None else self.file_of_row[rows]
        numbers = self.row_numbers[rows]
        caches: dict[str, Any] = {"_parsed": {}, "_stamped": {}, "_groups": {}}
        return dataclasses.replace(self, cells=cells, row_numbers=numbers, file_of_row=origin, **caches)

    def kind(self, name: str) -> str:
        """Return what a column holds: "numbers", "stamps", "text", or "nothing" if all its cells are empty.

        A column whose filled cells are numbers in at least half of the cases holds numbers: the others are faults.
        """
        if isinstance(self.cells[name], np.ndarray) and self.cells[name].dtype.kind == "M":
            return "stamps"
        values, wrong = self._numbers_and_faults(name)
        num_right = int((~np.isnan(values)).sum())
        if num_right == 0 and not wrong:
            return "nothing"
        return "numbers" if num_right and num_right >= len(wrong) else "text"

    def numbers(self, name: str) -> np.ndarray:
        """Return the numbers of a column, NaN where the cell is empty."""
        values, wrong = self._numbers_and_faults(name)
        if wrong:
            row = wrong[0]
            raise DataError(
                f"column {name!r} must hold numbers; {self.place(row)} has {_shown(self.cells[name][row])}; "
                "correct it, or leave it empty if it is missing"
            )
        return values

    def labels(self, name: str) -> list[str]:
        """Return the labels of a column; raise if one is empty."""
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
        """Return the numbers of a column if all its cells are whole numbers, else None."""
        values, wrong = self._numbers_and_faults(name)
        return None if wrong or not np.all(np.isfinite(values)) or np.any(values != np.round(values)) else values

    def is_label(self, name: str) -> bool:
        """Whether a column can serve as labels: text, or whole numbers without empty cells."""
        return self.kind(name) == "text" or self.is_faulty(name) or self.whole_numbers(name) is not None

    def stamps(self, name: str, *, is_strict: bool = True) -> np.ndarray | None:
        """Return the ISO-8601 time stamps of a column as datetime64 in UTC; None if it holds none.

        Where only some cells are none, raise if `is_strict`, else return None.
        """
        cells = self.cells[name]
        if isinstance(cells, np.ndarray):
            return cells if cells.dtype.kind == "M" else None
        if name not in self._stamped:
            self._stamped[name] = _stamps(cells)
        stamps, wrong = self._stamped[name]
        if wrong is not None and is_strict:
            raise DataError(
                f"column {name!r} must hold ISO-8601 time stamps like 2024-05-01T12:00:00 throughout; "
                f"{self.place(wrong)} has {_shown(cells[wrong])}; correct it"
            )
        return stamps

    def groups(self, trajectory: str | None) -> Groups:
        """Group the rows by trajectory label: its column, its file, or both; without either all rows are one.

        Cached per column, since the guess of the columns asks for the same groups several times.
        """
        if trajectory not in self._groups:
            self._groups[trajectory] = self._grouped(trajectory)
        return self._groups[trajectory]

    def _grouped(self, trajectory: str | None) -> Groups:
        labels = ["0"] * self.num_rows if trajectory is None else self.labels(trajectory)
        if self.file_of_row is not None:
            stems = [name.rpartition(".")[0] or name for name in self.files]
            files = [stems[index] for index in self.file_of_row]
            labels = files if trajectory is None else [f"{a}/{b}" for a, b in zip(files, labels, strict=True)]
        seen: dict[str, int] = {}
        codes = np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.int64)
        order = np.argsort(codes, kind="stable")
        return Groups(tuple(seen), codes, order, np.searchsorted(codes[order], np.arange(len(seen))))

    def _numbers_and_faults(self, name: str) -> tuple[np.ndarray, list[int]]:
        """Return the numbers of a column, and the rows whose text is not a number."""
        if name not in self._parsed:
            cells = self.cells[name]
            if isinstance(cells, np.ndarray):
                is_stamp = cells.dtype.kind == "M"
                values = np.full(len(cells), np.nan) if is_stamp else cells.astype(np.float64)
                self._parsed[name] = values, list(range(len(cells))) if is_stamp else []
            else:
                self._parsed[name] = _parse(cells)
        return self._parsed[name]


def elapsed_times(table: Table, name: str, groups: Groups) -> tuple[np.ndarray, bool]:
    """Return the times, and whether they come from time stamps (then in seconds since the trajectory's first row)."""
    stamps = table.stamps(name)
    if stamps is None and table.kind(name) == "text":
        row = next(row for row, cell in enumerate(table.cells[name]) if not is_missing(cell) and _number(cell) is None)
        raise DataError(
            f"times must be numbers, dates or time stamps, written alike in all rows; {table.place(row)} of column "
            f"{name!r} has {_shown(table.cells[name][row])}; write it like 2024-05-31T12:00:00, or name another column "
            "with --time NAME"
        )
    if stamps is None:
        return table.numbers(name), False
    return (stamps - stamps[groups.first_rows()]) / np.timedelta64(1, "s"), True


def _parse(cells: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    # Fast path: in most columns all cells are plain numbers.
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
    """Return a cell's number, exact to the last bit (pandas' fast parser is not), NaN if empty, None if text."""
    try:
        # Python would also read 1_000, which no other program does. Typesetters' minus signs come from documents.
        return float(cell.replace("_", "?").replace("\u2212", "-"))
    except ValueError:
        return math.nan if is_missing(cell) else None


def _stamps(cells: Sequence[str]) -> tuple[np.ndarray | None, int | None]:
    """Return time stamps, None where the first filled cell is none, and the first row in which a cell is no stamp."""
    filled = next((cell for cell in cells if not is_missing(cell)), "")
    if _number(filled) is not None or _stamp(filled) is None:
        return None, None
    stamps = [np.datetime64("NaT") if is_missing(cell) else _stamp(cell) for cell in cells]
    wrong = next((row for row, stamp in enumerate(stamps) if stamp is None), None)
    return (np.array(stamps, dtype="datetime64[us]") if wrong is None else None), wrong


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no reading."""
    return cell.strip().lower() in _MISSING or cell.strip().lower() in _FAILED


def _stamp(cell: str) -> datetime.datetime | None:
    try:
        stamp = datetime.datetime.fromisoformat(cell.strip())
        return stamp if stamp.tzinfo is None else stamp.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _labels_of_array(values: np.ndarray) -> list[str]:
    """Return numbers as the text that a CSV file would have; empty text where they are missing."""
    found, codes = np.unique(values, return_inverse=True)
    if values.dtype.kind == "M":
        texts = ["" if np.isnat(value) else str(value) for value in found]
    elif values.dtype.kind == "f":
        texts = ["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in found.tolist()]
    else:
        texts = [str(value) for value in found.tolist()]
    return [texts[code] for code in codes]


def _shown(cell: Any) -> str:
    """Return a cell for a message: quoted, escaped and shortened."""
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
