"""A table in memory: named columns of text or numbers, and the origin of each row."""

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.data.checks import DataError
from langenode.data.doubts import Doubt
from langenode.data.texts import Texts

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


class _Parsed(NamedTuple):
    """The numbers of a column, NaN where there is none, and which cells are neither empty nor numbers."""

    values: np.ndarray
    num_known: int
    num_faults: int = 0
    first_fault: int = 0

    @classmethod
    def of(cls, values: np.ndarray, num_faults: int = 0, first_fault: int = 0) -> "_Parsed":
        """Count the numbers that are known."""
        return cls(values, len(values) - int(np.count_nonzero(np.isnan(values))), num_faults, first_fault)


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
    # Caches, filled by `_parsed_column`, `_texts`, `stamps` and `groups` only: every column is parsed and grouped once.
    _parsed: dict[str, _Parsed] = dataclasses.field(default_factory=dict, repr=False)
    _labels: dict[str, Texts] = dataclasses.field(default_factory=dict, repr=False)
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
        return dataclasses.replace(
            self, cells={**self.cells, **blank}, _parsed=dict(self._parsed), _labels=dict(self._labels)
        )

    def with_column(self, name: str, labels: Sequence[str] | np.ndarray) -> "Table":
        """Return the table with one more column, or another in the place of one."""
        kept: dict[str, Any] = {
            cache: {n: of for n, of in getattr(self, cache).items() if n != name}
            for cache in ("_parsed", "_labels", "_stamped")
        }
        cells = {**self.cells, name: labels}
        return dataclasses.replace(self, cells=cells, _groups={}, **kept)

    def take(self, rows: np.ndarray) -> "Table":
        """Return the table of some rows, in the order given; a row may be taken more than once."""
        cells = {name: _rows_of(column, rows) for name, column in self.cells.items()}
        origin = None if self.file_of_row is None else self.file_of_row[rows]
        numbers = self.row_numbers[rows]
        caches: dict[str, Any] = {"_parsed": {}, "_labels": {}, "_stamped": {}, "_groups": {}}
        return dataclasses.replace(self, cells=cells, row_numbers=numbers, file_of_row=origin, **caches)

    def kind(self, name: str) -> str:
        """Return what a column holds: "numbers", "stamps", "text", or "nothing" if all its cells are empty.

        A column whose filled cells are numbers in at least half of the cases holds numbers: the others are faults.
        """
        if isinstance(self.cells[name], np.ndarray) and self.cells[name].dtype.kind == "M":
            return "stamps"
        _, num_right, num_wrong, _ = self._parsed_column(name)
        if num_right == 0 and not num_wrong:
            return "nothing"
        return "numbers" if num_right and num_right >= num_wrong else "text"

    def numbers(self, name: str) -> np.ndarray:
        """Return the numbers of a column, NaN where the cell is empty."""
        values, _, num_wrong, row = self._parsed_column(name)
        if num_wrong:
            raise DataError(
                f"column {name!r} must hold numbers; {self.place(row)} has {_shown(self.cells[name][row])}; "
                "correct it, or leave it empty if it is missing"
            )
        return values

    def labels(self, name: str) -> Texts:
        """Return the labels of a column; raise if one is empty."""
        labels = self._texts(name)
        if "" in labels:
            raise DataError(
                f"column {name!r} must be filled in every row; {self.place(labels.index(''))} is empty; fill it"
            )
        return labels

    def is_faulty(self, name: str) -> bool:
        """Whether some cell of a column is neither empty nor a number."""
        return self._parsed_column(name).num_faults > 0

    def whole_numbers(self, name: str) -> np.ndarray | None:
        """Return the numbers of a column if all its cells are whole numbers, else None."""
        values, _, num_wrong, _ = self._parsed_column(name)
        return None if num_wrong or not np.all(np.isfinite(values)) or np.any(values != np.round(values)) else values

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
        one = Texts(("0",) if self.num_rows else (), np.zeros(self.num_rows, dtype=np.int32))
        labels = one if trajectory is None else self.labels(trajectory)
        if self.file_of_row is not None:
            stems = [name.rpartition(".")[0] or name for name in self.files]
            files = Texts.of(stems, self.file_of_row)
            labels = files if trajectory is None else joined_texts(files, labels)
        codes = labels.codes.astype(np.int64)
        is_ordered = bool(np.all(codes[1:] >= codes[:-1]))
        order = np.arange(len(codes)) if is_ordered else np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(labels.levels))
        return Groups(labels.levels, codes, order, np.cumsum(counts) - counts)

    def _texts(self, name: str) -> Texts:
        """Return a column as text, cached: that of numbers is found by sorting them."""
        if name not in self._labels:
            cells = self.cells[name]
            if isinstance(cells, np.ndarray):
                self._labels[name] = _labels_of_array(cells)
            else:
                self._labels[name] = cells if isinstance(cells, Texts) else Texts.of(cells, np.arange(len(cells)))
        return self._labels[name]

    def _parsed_column(self, name: str) -> _Parsed:
        """Return the numbers of a column, and where its text is not a number."""
        if name not in self._parsed:
            cells = self.cells[name]
            if not isinstance(cells, np.ndarray):
                self._parsed[name] = _parsed_texts(cells) if isinstance(cells, Texts) else _parse(cells)
            elif cells.dtype.kind == "M":
                self._parsed[name] = _Parsed(np.broadcast_to(np.nan, len(cells)), 0, len(cells))
            else:
                self._parsed[name] = _Parsed.of(cells.astype(np.float64, copy=False))
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


def joined_texts(first: Texts, second: Texts) -> Texts:
    """Return the texts of two columns joined by a slash."""
    pairs, codes = np.unique(first.codes.astype(np.int64) * len(second.levels) + second.codes, return_inverse=True)
    num = len(second.levels)
    return Texts.of([f"{first.levels[pair // num]}/{second.levels[pair % num]}" for pair in pairs.tolist()], codes)


def _rows_of(column: Any, rows: np.ndarray) -> Any:
    """Return the cells of some rows."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return column.take(rows) if isinstance(column, Texts) else [column[row] for row in rows]


def _parsed_texts(cells: Texts) -> _Parsed:
    """Parse every distinct text once."""
    values, wrong = _values_and_faults(cells.levels)
    if not wrong:
        return _Parsed.of(cells.map(values, np.float64))
    is_wrong = np.zeros(len(values), dtype=bool)
    is_wrong[wrong] = True
    faults = is_wrong[cells.codes]
    if np.all(np.isnan(values)):  # labels: no array for all rows
        return _Parsed(np.broadcast_to(np.nan, len(cells)), 0, int(faults.sum()), int(faults.argmax()))
    return _Parsed.of(cells.map(values), int(faults.sum()), int(faults.argmax()))


def _parse(cells: Sequence[str]) -> _Parsed:
    values, wrong = _values_and_faults(cells)
    return _Parsed.of(values, len(wrong), wrong[0] if wrong else 0)


def _values_and_faults(cells: Sequence[str]) -> tuple[np.ndarray, list[int]]:
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
    if isinstance(cells, Texts):
        stamps, level = _stamps(cells.levels)
        if level is not None:
            return None, int((cells.codes == level).argmax())
        assert stamps is not None
        return cells.map(stamps), None
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


def _labels_of_array(values: np.ndarray) -> Texts:
    """Return numbers as the text that a CSV file would have; empty text where they are missing."""
    found, codes = _distinct(values)
    if values.dtype.kind == "M":
        texts = ["" if np.isnat(value) else str(value) for value in found]
    elif values.dtype.kind == "f":
        texts = ["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in found.tolist()]
    else:
        texts = [str(value) for value in found.tolist()]
    return Texts.of(texts, codes)


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values and the number of each; runs of equal ones, as labels have, are sorted as one."""
    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = values[1:] != values[:-1]  # NaN is new every time
    found, codes = np.unique(values[is_new], return_inverse=True)
    return found, codes[np.cumsum(is_new) - 1]


def _shown(cell: Any) -> str:
    """Return a cell for a message: quoted, escaped and shortened."""
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
