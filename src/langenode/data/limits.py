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
MOST_FILES = 20_000
MOST_LETTERS = 200_000_000


def check_size(num_rows: int, num_columns: int) -> None:
    """Raise a `DataError` where a table is larger than can be read."""
    for most, found, what in (
        (MOST_ROWS, num_rows, "rows"),
        (MOST_COLUMNS, num_columns, "columns"),
        (MOST_CELLS, num_rows * num_columns, "cells"),
    ):
        if found > most:
            remedy = "keep the columns you need" if what == "columns" else "thin it out, or keep fewer trajectories"
            raise DataError(f"a table must have at most {most} {what}; found {found}; {remedy}")


def check_cells(num_cells: int) -> None:
    """Raise a `DataError` where arrays are larger than can be read."""
    if num_cells > MOST_CELLS:
        raise DataError(
            f"the arrays of a file must have at most {MOST_CELLS} numbers; found {num_cells}; thin them out, or store "
            "fewer trajectories"
        )


def check_distinct(names: Sequence[str]) -> None:
    """Raise a `DataError` where two columns have one name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f"column names must differ; found {listed(twice)} more than once; rename them")
