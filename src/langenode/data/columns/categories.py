"""Categories (text, or whole numbers that are codes) as inputs: one column per level, 1 where it holds and else 0.

Every level has its column, named `NAME=LEVEL`, so the names of a fit's inputs say which levels it knows: another level
is refused in new data.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from langenode.data.checks import DataError, listed
from langenode.data.columns.labels import is_constant_label
from langenode.data.names import drive_rank, is_category_name, is_repeat_name, natural_key, time_rank
from langenode.data.tables import Groups, Table
from langenode.data.units import split_unit

_MOST_LEVELS = 12
# Numbers of more levels are amounts, unless the name is that of a category.
_FEWEST_CODES, _MOST_CODES = 3, 8
ALL_LEVELS = "=*"


def levels_of(table: Table, name: str) -> list[str]:
    """Return the levels of a category in natural order."""
    return sorted(table.labels(name).levels, key=natural_key)


def level_names(table: Table, name: str) -> tuple[str, ...]:
    """Return the names of the columns for all levels of a category."""
    return tuple(f"{name}={level}" for level in levels_of(table, name))


def is_category(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column is a category: few labels, one per trajectory, each of several trajectories.

    Numbers are codes where they are whole and consecutive from 0 or 1, at least three, and not named like an amount.
    (Two numbers are as good as a category.)
    """
    is_text = table.kind(name) == "text"
    if is_repeat_name(name) and not is_category_name(name):
        return False
    # Numbers are compared first, which is many times faster than their labels.
    if not is_text and (table.whole_numbers(name) is None or not groups.are_constant(table.numbers(name))):
        return False
    if not table.is_label(name) or not is_constant_label(table, groups, name):
        return False
    levels = levels_of(table, name)
    if not 2 <= len(levels) <= min(_MOST_LEVELS, len(groups.labels) / 2):
        return False
    return is_text or _are_codes(table, name, levels)


def _are_codes(table: Table, name: str, levels: Sequence[str]) -> bool:
    values = table.whole_numbers(name)
    is_named = is_category_name(name)
    if values is None or len(levels) < _FEWEST_CODES or (len(levels) > _MOST_CODES and not is_named):
        return False
    if split_unit(name)[1] is not None or (drive_rank(name) is not None and not is_named):
        return False
    if time_rank(name) is not None:
        return False
    first = values.min()
    return bool(first in (0, 1) and values.max() - first + 1 == len(levels))


def named_levels(table: Table, names: Iterable[str]) -> list[str]:
    """Return names of inputs with each category that is named as a whole replaced by those of its levels.

    Text is named as a whole by its name; numbers by `NAME=*`.
    """
    found: list[str] = []
    for name in names:
        whole = name.removesuffix(ALL_LEVELS)
        is_text = name in table.names and table.kind(name) == "text"
        if is_text or (name not in table.names and whole != name and whole in table.names):
            found += level_names(table, whole)
        else:
            found.append(name)
    return found


def with_levels(table: Table, names: Iterable[str]) -> Table:
    """Return the table with the columns `NAME=LEVEL` that are named and that it lacks.

    Where two levels or more of a category are named, they must be all that the table has.
    """
    wanted: dict[str, list[str]] = {}
    for name in names:
        category = _category_of(table, name)
        if name not in table.names and category is not None:
            wanted.setdefault(category, []).append(name[len(category) + 1 :])
    for category, levels in wanted.items():
        labels = table.labels(category)
        unknown = np.flatnonzero(labels.map([level not in levels for level in labels.levels]))
        if len(levels) > 1 and unknown.size:
            row = int(unknown[0])
            raise DataError(
                f"column {category!r} must hold levels that are known, {listed(levels, 8)}; {table.place(row)} has "
                f"{str(labels[row])[:40]!r}; correct it, or fit again with data of that level"
            )
        for level in levels:
            table = table.with_column(
                f"{category}={level}", labels.map([one == level for one in labels.levels], np.float64)
            )
    return table


def _category_of(table: Table, name: str) -> str | None:
    """Return the column that a name `NAME=LEVEL` is of, the longest that there is."""
    places = [place for place, letter in enumerate(name) if letter == "="]
    return next((name[:place] for place in reversed(places) if name[:place] in table.names), None)
