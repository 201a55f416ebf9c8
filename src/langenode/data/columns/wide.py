"""Tables with one column per trajectory: `time, subject1, subject2, ...`, made into one row per reading."""

import dataclasses
import fnmatch
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.columns.labels import find_time, ranked
from langenode.data.columns.record import Columns
from langenode.data.doubts import Doubt
from langenode.data.names import (
    drive_rank,
    is_label_name,
    is_positive_name,
    is_signed_name,
    trajectory_rank,
    unit_rank,
)
from langenode.data.tables import Table, elapsed_times
from langenode.data.units import split_unit

_FEWEST = 3
# Columns whose common name says nothing of a specimen must be this many, and alike, to be trajectories.
_FEWEST_UNNAMED = 5
_ALIKE = 5.0
# A number and perhaps a letter (tree 12B), or the place on a plate (C11).
_NUMBERED = re.compile(r"(.*?)[\s_.#-]*(\d+[A-Za-z]?|[A-H]\d{1,2})")
_MARKS = " _.#-"
# Abbreviations of specimens, by which columns are often numbered.
_SHORT = frozenset(("s", "p", "id", "subj", "sub", "pat", "ind", "spec", "m", "r", "no", "nr", "n", "rep", "run"))


class Wide(NamedTuple):
    """A table made long, its columns, the reason, and the other way to read it, if that is likely too."""

    table: Table
    columns: Columns
    why: str
    doubts: tuple[Doubt, ...] = ()


def make_long(table: Table, given: Columns) -> Wide | None:
    """Return the long form of a table with one column per trajectory; None for other tables.

    Such columns share a name but for a number (`mouse1`, `mouse2`; `1`, `2`) that stands for a specimen or, where it
    says nothing, are at least five of similar size, which is doubtful. Columns can also be named by a pattern.
    """
    if given.trajectory is not None:
        return None if not _is_pattern(table, given.trajectory) else _melted(table, given, given.trajectory, "given")
    time = given.time or find_time(table, {name for _, name in given.named()})
    if time is None or table.files or given.outputs is not None or given.inputs:
        return None
    labels = [name for rank in (trajectory_rank, unit_rank) for name in ranked(table, {time}, rank)]
    if any(table.is_label(name) for name in labels):
        return None
    groups = table.groups(None)
    if not groups.increase(elapsed_times(table, time, groups)[0]):
        return None
    found = _like_named(table, time)
    if found is None:
        return None
    stem, names = found
    pattern, why = f"{stem}*", f"{len(names)} columns of like names, {names[0]!r} to {names[-1]!r}, one per trajectory"
    if _is_specimen(stem):
        return _melted(table, given, pattern, why)
    if len(names) < _FEWEST_UNNAMED or drive_rank(names[0]) is not None or not _are_alike(table, names):
        return None
    doubt = Doubt(
        pattern, "read as one column per trajectory", "they are outputs of one", f"--outputs '{','.join(names)}'"
    )
    return _melted(table, given, pattern, why)._replace(doubts=(doubt,))


def may_be_wide(table: Table, names: Sequence[str]) -> bool:
    """Whether the outputs of one record could be one quantity of many specimens.

    They are several, of one unit, and either alike or without a name of a quantity.
    """
    units = {split_unit(name)[1] for name in names}
    if table.files or len(names) < _FEWEST_UNNAMED or len(units) > 1:
        return False
    is_known = any(is_positive_name(name) or is_signed_name(name) or drive_rank(name) is not None for name in names)
    return _are_alike(table, list(names)) or (not is_known and units == {None})


def matching(table: Table, pattern: str, taken: set[str]) -> list[str]:
    """Return the numeric columns that a pattern names."""
    numeric = [n for n in table.names if n not in taken and table.kind(n) == "numbers"]
    found = [name for name in numeric if fnmatch.fnmatchcase(name, pattern)]
    # In mouse* the star stands for a number, if there are any: mouse_weight is another quantity.
    stem = pattern.partition("*")[0].rstrip(_MARKS)
    numbers = {name: _NUMBERED.fullmatch(split_unit(name)[0]) for name in found}
    numbered = [name for name, number in numbers.items() if number is not None and number[1].rstrip(_MARKS) == stem]
    return numbered if len(numbered) >= 2 else found


def _is_pattern(table: Table, name: str) -> bool:
    return "*" in name and name not in table.names


def _like_named(table: Table, time: str) -> tuple[str, list[str]] | None:
    """Return the largest group of numeric columns that are named alike but for a number, and what they share."""
    stems: dict[str, list[str]] = {}
    for name in table.names:
        found = _NUMBERED.fullmatch(split_unit(name)[0])
        if name != time and found is not None and table.kind(name) == "numbers":
            stems.setdefault(name[: found.end(1)], []).append(name)
    stem = max(stems, key=lambda stem: len(stems[stem]), default=None)
    return None if stem is None or len(stems[stem]) < _FEWEST else (stem, stems[stem])


def _is_specimen(stem: str) -> bool:
    return stem == "" or stem.lower() in _SHORT or is_label_name(stem)


def _are_alike(table: Table, names: list[str]) -> bool:
    """Whether columns could be the same quantity: spreads within a factor, and medians within the spreads."""
    columns = [table.numbers(name) for name in names]
    if not all(np.isfinite(values).any() for values in columns):
        return False
    spreads = np.array([np.nanstd(values) for values in columns])
    medians = np.array([np.nanmedian(values) for values in columns])
    if not spreads.min() > 0:
        return False
    return bool(spreads.max() <= _ALIKE * spreads.min() and np.ptp(medians) <= _ALIKE * np.median(spreads))


def _melted(table: Table, given: Columns, pattern: str, why: str) -> Wide:
    """Stack the columns that a pattern names; all other columns are repeated for each."""
    taken = {name for part, name in given.named() if part != "trajectory"}
    time = given.time or find_time(table, taken)
    names = matching(table, pattern, {*taken, time} if time else taken)
    names = names or [pattern]  # which is then missed with its name
    if names == [pattern]:
        return Wide(table, given, why)
    value = given.outputs[0] if given.outputs else next(n for n in ("value", "reading") if n not in table.names)
    rest = dataclasses.replace(
        table,
        cells={n: c for n, c in table.cells.items() if n not in names},
        _parsed={},
        _labels={},
        _stamped={},
        _groups={},
    )
    rows = np.tile(np.arange(table.num_rows), len(names))
    long = rest.take(rows).with_column(pattern, [name for name in names for _ in range(table.num_rows)])
    long = long.with_column(value, np.concatenate([table.numbers(name) for name in names]))
    return Wide(long, given._replace(trajectory=pattern, outputs=(value,)), why)
