"""CSV files (one row per time point) and folders of them (one file per trajectory), read into a `Table`."""

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from langenode.data.checks import DataError, is_text, listed, valid_cells
from langenode.data.dataset import Dataset
from langenode.data.layout import find_layout
from langenode.data.limits import MOST_BYTES, MOST_FILES, check_distinct, check_size
from langenode.data.names import natural_key
from langenode.data.tables import Table
from langenode.data.units import is_unit

_SUFFIXES = (".csv", ".tsv")
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_POINT_NUMBER = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
# Points that can only separate thousands, and those that may: 1.500,0 or 1.234.567, and 1.500.
_POINT_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}((\.\d{3})+,\d+|(\.\d{3}){2,})\s*")
_POINT_GROUPS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")


def write_csv(data: Dataset, path: Path) -> None:
    """Write the valid part of every trajectory; a missing value is an empty cell."""
    import pandas as pd

    valid = valid_cells(data.times)
    trajectory = np.nonzero(valid)[0]
    outputs = np.where(data.mask, data.outputs, np.nan)[valid]
    columns = {"trajectory": trajectory, "time": data.times[valid]}
    columns |= {f"x:{name}": data.inputs[valid][:, i] for i, name in enumerate(data.input_names)}
    columns |= {f"y:{name}": outputs[:, i] for i, name in enumerate(data.output_names)}
    if data.initial is not None:
        columns |= {f"h0:{i}": column[trajectory] for i, column in enumerate(data.initial.T)}
    columns["condition"] = np.array(data.condition_names)[data.condition[trajectory]]
    columns["unit"] = np.array(data.unit_names)[data.unit[trajectory]]
    pd.DataFrame(columns).to_csv(path, index=False, lineterminator="\n")


def csv_table(content: bytes) -> Table:
    """Read the table in a file whose cells are separated by commas, semicolons, tabs or blanks, as its header shows.

    Lines above the header, rows without a filled cell and a row of units below the header are no part of the table.
    """
    text, skipped, delimiter = find_layout(_decoded(content).replace("\r\n", "\n").replace("\r", "\n"))
    num_lines = text.count("\n") + 1
    check_size(num_lines, 1)
    # pandas would pad a truncated row with missing values.
    if '"' in text:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    else:
        rows = iter(text.split("\n"))
    above, header = next(((number, row) for number, row in enumerate(rows, start=1) if row), (1, ""))
    header = [name.strip() for name in (header.split(delimiter) if isinstance(header, str) else header)]
    check_size(1, len(header))
    named = [name for name in header if name]
    _check_header(named if len(named) > 1 else header)
    check_size(num_lines, len(header))
    columns, numbers = _body(rows, len(header), skipped + above, delimiter)
    if not numbers:
        raise DataError("a CSV file must have rows below its header; found none; add data")
    notes = {"header": f"in row {skipped + above}, below lines that are left out"} if skipped else {}
    header, columns = _without_blank(header, columns)
    columns, numbers, units = _without_units(header, columns, numbers)
    if delimiter == ";" and any(_COMMA_NUMBER.fullmatch(cell) for column in columns for cell in column):
        columns = [_with_points(column, numbers) for column in columns]
        notes["numbers"] = "read with a decimal comma, since semicolons separate the cells"
    return Table(dict(zip(header, columns, strict=True)), np.array(numbers), notes=notes, units=units)


def _without_blank(header: list[str], columns: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Remove columns without a name that are empty; raise if several are left."""
    kept = [place for place, name in enumerate(header) if name or any(cell.strip() for cell in columns[place])]
    header = [header[place] for place in kept]
    check_distinct(header)
    return header, [columns[place] for place in kept]


def _without_units(
    header: Sequence[str], columns: list[list[str]], numbers: list[int]
) -> tuple[list[list[str]], list[int], dict[str, str]]:
    """Remove a first row that holds units alone; return them by column."""
    first = {name: column[0].strip().strip("[]()").strip() for name, column in zip(header, columns, strict=True)}
    units = {name: cell for name, cell in first.items() if cell and is_unit(cell)}
    others = [cell for cell in first.values() if cell not in units.values() and cell not in ("", "-", "1", "none")]
    if not units or others or len(numbers) < 2:
        return columns, numbers, {}
    return [column[1:] for column in columns], numbers[1:], units


def _body(
    rows: Iterator[str] | Iterator[list[str]], width: int, above: int, delimiter: str
) -> tuple[list[list[str]], list[int]]:
    """Return the cells of every column, and the row numbers, of the non-blank rows below row `above`."""
    header_row = above
    columns: list[list[str]] = [[] for _ in range(width)]
    numbers: list[int] = []
    # Columns are filled in blocks: a million small lists at once would be slow to manage.
    while piece := list(itertools.islice(rows, 10_000)):
        filled = [_is_filled(row, delimiter) for row in piece]
        here = [number for number, has in enumerate(filled, start=above + 1) if has]
        kept = [row for row, has in zip(piece, filled, strict=True) if has]
        widths = [row.count(delimiter) + 1 if isinstance(row, str) else len(row) for row in kept]
        for number, found in zip(here, widths, strict=True):
            if found != width:
                raise DataError(
                    f"every row must have {width} cells; row {number} has {found} (the header is row {header_row}); "
                    "the file may be cut short, or a cell may hold an unquoted separator: correct that row"
                )
        # Lines without quotes are split in one pass, several times faster than one by one.
        lines = [row for row in kept if isinstance(row, str)]
        cells = delimiter.join(lines).split(delimiter) if lines else list(itertools.chain.from_iterable(kept))
        for index, column in enumerate(columns):
            column.extend(cells[index::width])
        numbers.extend(here)
        above += len(piece)
    return columns, numbers


def _is_filled(row: str | list[str], delimiter: str) -> bool:
    """Whether a row has a cell that is not blank: spreadsheets write rows of separators below a table."""
    if isinstance(row, str):
        return bool(row.strip(f"{delimiter} "))
    return any(cell.strip() for cell in row)


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder, in natural order of their names; hidden files are none of them."""
    paths = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")]
    return sorted((path for path in paths if path.is_file()), key=lambda path: (natural_key(path.stem), path.name))


def folder_table(folder: Path) -> Table:
    """Concatenate the tables of all CSV files of a folder, in natural order of their names."""
    paths = table_files(folder)
    _check_files(folder, paths)
    tables = [_named_table(path) for path in paths]
    names = tables[0].names
    check_size(sum(table.num_rows for table in tables), len(names))
    for path, table in zip(paths, tables, strict=True):
        lacks = [name for name in names if name not in table.cells]
        extra = [name for name in table.names if name not in tables[0].cells]
        if lacks or extra:
            difference = [f"lacks {listed(lacks, 5)}"] * bool(lacks) + [f"adds {listed(extra, 5)}"] * bool(extra)
            raise DataError(
                f"all files of a folder must have the same columns; {path.name!r} {' and '.join(difference)} compared "
                f"with {paths[0].name!r}; make the headers equal"
            )
    return Table(
        {name: [cell for table in tables for cell in table.cells[name]] for name in names},
        np.concatenate([table.row_numbers for table in tables]),
        files=tuple(path.name for path in paths),
        file_of_row=np.repeat(np.arange(len(tables)), [table.num_rows for table in tables]),
        notes={key: note for table in tables for key, note in table.notes.items()},
    )


def _check_files(folder: Path, paths: Sequence[Path]) -> None:
    if not paths:
        found = listed(sorted(path.name for path in folder.iterdir()), 5) or "nothing"
        raise DataError(f"a data folder must hold .csv or .tsv files, one per trajectory; found {found}; add them")
    if len(paths) > MOST_FILES:
        raise DataError(f"a data folder must hold at most {MOST_FILES} files; found {len(paths)}; join some")
    size = sum(path.stat().st_size for path in paths)
    if size > MOST_BYTES:
        raise DataError(f"the files of a data folder must have at most {MOST_BYTES} bytes; found {size}; thin them out")
    for path in paths:
        if not is_text(path.name):
            raise DataError(
                f"files of a folder name their trajectories, so names must be UTF-8 text; found {path.name!a}; "
                "rename it"
            )
    for one, other in itertools.pairwise(paths):
        if one.stem == other.stem:
            raise DataError(
                f"files of a folder must differ in more than their suffix; found {one.name!r} and {other.name!r}; "
                "rename or remove one"
            )


def _named_table(path: Path) -> Table:
    """Read one file of a folder; an error names the file."""
    content = path.read_bytes()
    if not content.strip():
        raise DataError(f"every file of a data folder must hold data; {path.name!r} is empty; fill or remove it")
    try:
        return csv_table(content)
    except (DataError, csv.Error, ValueError) as error:
        raise DataError(f"{path.name}: {error}") from error


def _decoded(content: bytes) -> str:
    """Decode UTF-8 or, by its byte order mark, UTF-16; otherwise assume Windows-1252."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\x00" in content:
        raise DataError("a CSV file must be text; found a zero byte; write or copy it again")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Spreadsheets still use it for headers such as "T [°C]".
        return content.decode("cp1252")


def _check_header(header: Sequence[str]) -> None:
    check_distinct(header)
    if all(re.fullmatch(r"[+-]?\d*[.,]?\d+([eE][+-]?\d+)?", name) for name in header):
        raise DataError(
            f"the first row must hold the names of the columns; it holds numbers, {listed(header, 5)}; "
            "add a row of names above it"
        )


def _with_points(column: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Replace decimal commas by points; a point beside commas is refused unless all points separate thousands."""
    if any(_POINT_THOUSANDS.fullmatch(cell) for cell in column):
        pointed = [cell for cell in column if _POINT_NUMBER.fullmatch(cell)]
        if all(_POINT_GROUPS.fullmatch(cell) for cell in pointed):
            column = [cell.replace(".", "") if _POINT_GROUPS.fullmatch(cell) else cell for cell in column]
    for number, cell in zip(numbers, column, strict=True):
        if _POINT_NUMBER.fullmatch(cell):
            raise DataError(
                f"all numbers of a file must have the same decimal sign; row {number} has {cell.strip()!r} in a file "
                "with decimal commas; use one decimal sign throughout"
            )
    return [cell.replace(",", ".") if _COMMA_NUMBER.fullmatch(cell) else cell for cell in column]
