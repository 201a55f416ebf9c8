"""What a data file may hold at most: beyond it, reading would take minutes or more memory than most machines have.

A million rows of four columns take some seconds and half a gigabyte. A small file can declare any size, so a reader
compares what is declared with these before it reads.
"""

from collections import Counter
from collections.abc import Sequence

from langenode.data.checks import DataError, listed

MOST_BYTES = 1_000_000_000
MOST_ROWS = 2_000_000
MOST_COLUMNS = 2_000
MOST_CELLS = 20_000_000
# Of Parquet, whose numbers need no parsing and whose texts are stored once; and of NetCDF-3, which is not compressed.
MOST_BINARY_ROWS = 25_000_000
MOST_BINARY_CELLS = 200_000_000
MOST_FILES = 20_000
MOST_LETTERS = 200_000_000


def check_size(num_rows: int, num_columns: int, *, is_binary: bool = False) -> None:
    """Raise a `DataError` where a table is larger than can be read."""
    for most, found, what in (
        (MOST_BINARY_ROWS if is_binary else MOST_ROWS, num_rows, "rows"),
        (MOST_COLUMNS, num_columns, "columns"),
        (MOST_BINARY_CELLS if is_binary else MOST_CELLS, num_rows * num_columns, "cells"),
    ):
        if found > most:
            remedy = "keep the columns you need" if what == "columns" else "thin it out, or keep fewer trajectories"
            raise DataError(f"a table must have at most {most} {what}; found {found}; {remedy}")


def check_cells(num_cells: int, *, is_binary: bool = False) -> None:
    """Raise a `DataError` where arrays are larger than can be read."""
    most = MOST_BINARY_CELLS if is_binary else MOST_CELLS
    if num_cells > most:
        raise DataError(
            f"the arrays of a file must have at most {most} numbers; found {num_cells}; thin them out, or store "
            "fewer trajectories"
        )


def check_distinct(names: Sequence[str]) -> None:
    """Raise a `DataError` where two columns have one name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"column names must differ; found {listed(twice)} more than once; rename them")
