"""Which columns are the time, the trajectory, the condition and the unit."""

import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.checks import DataError
from langenode.data.columns.record import Columns
from langenode.data.doubts import Doubt
from langenode.data.names import (
    OWN_LABELS,
    condition_rank,
    is_counter_name,
    is_row_number_name,
    is_visit_name,
    time_rank,
    trajectory_rank,
    unit_rank,
)
from langenode.data.tables import Groups, Table, elapsed_times, joined_texts
from langenode.data.texts import Texts

# A row number that is not named like one must count at least this many rows.
_FEWEST_COUNTED = 10
# Share of the trajectories, by a column named like their label, that must have disordered times for another column to
# be tried; below it, disorder is a fault of the table.
_DISORDERED = 0.5
_HAS_DIGIT = re.compile(r"\d").search
# Mean number of rows per trajectory from which a column can be recognised as the time by its order alone.
_FEWEST_ROWS = 3
# Columns beyond these are not tried as labels.
_MOST_TRIED, _MOST_PAIRED = 200, 12


class Trajectories(NamedTuple):
    """The label column, or None, the reason, and the table with that column."""

    table: Table
    name: str | None
    why: str
    doubts: tuple[Doubt, ...] = ()


def find_time(table: Table, taken: set[str]) -> str | None:
    """Return the column whose name looks most like the time."""
    joint = next((name for name in table.names if _is_joint_time(table, name)), None)
    if joint is not None and joint not in taken:
        return joint
    named = ranked(table, taken, time_rank)
    readable = [name for name in named if table.kind(name) == "numbers" or table.stamps(name) is not None]
    # The name is enough: a faulty cell is then reported with its row. Words alone (morning, evening) are no times.
    known = [name for name in named if name in readable or any(map(_HAS_DIGIT, distinct_cells(table, name)))]
    return next(iter(known or named), None)


def distinct_cells(table: Table, name: str) -> Iterable[str]:
    """Return the cells of a column of text, where possible each once."""
    cells = table.cells[name]
    return cells.levels if isinstance(cells, Texts) else cells


def increasing(table: Table, taken: set[str]) -> list[str]:
    """Return the columns that may be the time by their order alone: they increase along every trajectory.

    Time stamps come before numbers. Trajectories are those of the first column named like their label; the whole table
    where there is none.
    """
    label = next(iter(_named_labels(table, taken)), None)
    groups = table.groups(label)
    if len(groups.labels) * _FEWEST_ROWS > table.num_rows:
        return []
    names = [name for name in table.names[:_MOST_TRIED] if name not in taken and name != label]
    stamps = {name: table.stamps(name, is_strict=False) for name in names}
    able = [n for n in names if stamps[n] is not None or (table.kind(n) == "numbers" and not table.is_faulty(n))]
    able = [name for name in able if not is_row_number(table, groups, name)]
    found = [name for name in able if groups.increase(elapsed_times(table, name, groups)[0])]
    return [name for name in found if stamps[name] is not None] or found


def parts_of_time(table: Table, time: str) -> tuple[str, ...]:
    """Return the columns of dates and of times of the day that a time was joined from; none for others."""
    return _parts(table, time) if _is_joint_time(table, time) else ()


def _is_joint_time(table: Table, name: str) -> bool:
    return table.kind(name) == "stamps" and _parts(table, name) != ("", "")


def find_trajectories(table: Table, time: str, taken: set[str], *, may_repeat: bool = False) -> Trajectories:
    """Find the labels of trajectories: by name, by the order of the times within them, or two columns together.

    With `may_repeat` a time may stand twice in a trajectory, as where doses have rows of their own.
    """
    if "trajectory" in table.names and "trajectory" not in taken:
        return Trajectories(table, "trajectory", "column 'trajectory', by its name")

    def fits(name: str | None) -> bool:
        groups = table.groups(name)
        return groups.increase(elapsed_times(table, time, groups)[0], or_equal=may_repeat)

    named = _named_labels(table, taken)
    ordered = [name for name in named if fits(name)]
    if ordered or (named and not _is_disordered(table, time, named[0])):
        # A table in which a few times are out of order is read by its labels, and the fault reported with its row.
        name = (ordered or named)[0]
        return Trajectories(table, name, f"column {name!r}, by its name")
    if not named and fits(None):
        alone = "one file per trajectory, named after it" if table.files else "none found: the table is one trajectory"
        return Trajectories(table, None, alone)
    able = [name for name in separators(table, time, {*taken, time}, or_equal=may_repeat) if table.is_label(name)]
    if able:
        return _by_order(table, able)
    pair = _find_pair(table, time, taken, or_equal=may_repeat)
    if pair is not None:
        return Trajectories(*joined(table, pair), f"columns {pair!r} together, {_pair_reason(table, pair)}")
    if named:
        return Trajectories(table, named[0], f"column {named[0]!r}, by its name")
    return Trajectories(table, None, "none found: the table is one trajectory")


def joined(table: Table, pair: str) -> tuple[Table, str]:
    """Return the table with a column that joins two others, named "A/B", and its name."""
    first, second = _parts(table, pair)
    return table.with_column(pair, joined_texts(table.labels(first), table.labels(second))), pair


def is_pair(table: Table, name: str | None) -> bool:
    """Whether a name stands for two columns of the table together."""
    return name is not None and name not in table.names and _parts(table, name) != ("", "")


def can_be_made(table: Table, name: str) -> bool:
    """Whether a label is a column of the table, or two of its columns together, or a pattern of several."""
    return name in table.names or is_pair(table, name) or any(fnmatch.fnmatchcase(n, name) for n in table.names)


def labels_of_pair(table: Table, pair: str) -> Columns:
    """Return which of two columns that identify trajectories together is the unit, and which may be the condition."""
    parts = _parts(table, pair)
    units = [name for name in parts if unit_rank(name) is not None]
    conditions = [name for name in parts if name not in units and condition_rank_in(table)(name) is not None]
    return Columns(unit=next(iter(units), None), condition=next(iter(conditions), None))


def own_labels(table: Table, columns: Columns, groups: Groups) -> dict[str, tuple[str, ...]]:
    """Return the text of label columns in the first row of each trajectory, by the names that the user gave them.

    Two columns that identify trajectories together come back as two, and the files of a folder as `file`. The time is
    among them where it is a time stamp, which times then count from.
    """
    first = groups.order[groups.starts]
    found: dict[str, tuple[str, ...]] = {}
    if table.file_of_row is not None:
        found["file"] = tuple(table.files[index] for index in table.file_of_row[first])
    parts = () if columns.trajectory is None else _separate(table, columns.trajectory)
    for name in (*parts, columns.condition, columns.unit):
        if name is not None:
            labels = table.labels(name)
            found.setdefault(_without_star(name), tuple(str(labels[row]) for row in first))
    if columns.time is not None and table.stamps(columns.time) is not None:
        found[columns.time] = tuple(str(table.cells[columns.time][row]).strip() for row in first)
    return found


def _separate(table: Table, trajectory: str) -> tuple[str, ...]:
    """Return the two columns that a column was joined from, or the column itself."""
    parts = _parts(table, trajectory)
    is_joined = parts != ("", "") and joined(table, trajectory)[0].cells[trajectory] == table.cells[trajectory]
    return parts if is_joined else (trajectory,)


def _without_star(name: str) -> str:
    """Return what the columns of a pattern have in common; `trajectory` where they are numbered only."""
    return name if "*" not in name else name.replace("*", "").strip(" _.#-") or "trajectory"


def find_label(table: Table, groups: Groups, taken: set[str], rank: Callable[[str], int | None]) -> str | None:
    """Return the best-named label column that is constant within trajectories; the name `save_data` writes wins."""
    for name in ranked(table, taken, rank):
        if rank(name) == 0 and name in OWN_LABELS:
            return name
        if table.is_label(name) and is_constant_label(table, groups, name):
            return name
    return None


def is_constant_label(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column has one label in each trajectory."""
    try:
        labels = table.labels(name).codes
    except DataError:  # an empty cell
        return False
    return bool(np.all(labels == labels[groups.first_rows()]))


def is_same_partition(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column labels the trajectories once more: one label in each, and no two alike."""
    return is_constant_label(table, groups, name) and len(table.labels(name).levels) == len(groups.labels)


def condition_rank_in(table: Table) -> Callable[[str], int | None]:
    """Return the rank of a name as a condition's, in this table: some names label it only as text."""
    return lambda name: condition_rank(name, table.kind(name) == "text")


def ranked(table: Table, taken: Iterable[str], rank: Callable[[str], int | None]) -> list[str]:
    """Return the columns that a vocabulary knows, best first."""
    names = [name for name in table.names if name in OWN_LABELS or table.kind(name) != "nothing"]
    ranks = {name: rank(name) for name in names if name not in taken}
    known = {name: place for name, place in ranks.items() if place is not None}
    return sorted(known, key=lambda name: (known[name], name != name.lower()))


def separators(table: Table, time: str, taken: Iterable[str], *, or_equal: bool = False) -> list[str]:
    """Return the columns that divide the rows into several trajectories of increasing times, the coarsest first."""
    found: dict[str, int] = {}
    for name in table.names[:_MOST_TRIED]:
        if name in taken or table.kind(name) == "nothing":
            continue
        try:
            groups = table.groups(name)
        except DataError:  # A column with empty cells cannot be used.
            continue
        is_coarse = 1 < len(groups.labels) <= table.num_rows / 2
        if is_coarse and groups.increase(elapsed_times(table, time, groups)[0], or_equal=or_equal):
            found[name] = len(groups.labels)
    return sorted(found, key=lambda name: found[name])


def counts_rows(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column numbers the rows consecutively, in the whole table or in each trajectory."""
    values = table.whole_numbers(name)
    if values is None or len(values) < 2:
        return False
    ordered = values[groups.order]
    within = np.delete(ordered[1:] == ordered[:-1] + 1, groups.starts[1:] - 1)
    return bool(np.all(values[1:] == values[:-1] + 1)) or bool(within.size and np.all(within))


def is_row_number(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column numbers rows: by its name and its order, or by holding every number up to that of rows once."""
    values = table.whole_numbers(name)
    if values is None:
        return False
    if is_row_number_name(name) and (len(set(values.tolist())) == len(values) or groups.increase(values)):
        return True
    if is_counter_name(name) and counts_rows(table, groups, name):
        return True
    if is_visit_name(name) and len(groups.labels) < len(values) and groups.increase(values):
        return True
    num = len(values)
    if num < _FEWEST_COUNTED or len(groups.labels) < 2:
        return False
    return any(np.array_equal(np.sort(values), np.arange(first, first + num)) for first in (0, 1))


def _named_labels(table: Table, taken: set[str]) -> list[str]:
    """Return the columns named like a trajectory's label, then (unless files are trajectories) like a specimen's."""

    def is_possible(name: str) -> bool:
        if table.whole_numbers(name) is None:
            return table.is_label(name)
        return not counts_rows(table, table.groups(None), name)

    ranks = [trajectory_rank] if table.files else [trajectory_rank, unit_rank]
    names = [name for rank in ranks for name in ranked(table, taken, rank)]
    return [name for name in dict.fromkeys(names) if "" not in table.cells[name] and is_possible(name)]


def _is_disordered(table: Table, time: str, name: str) -> bool:
    groups = table.groups(name)
    wrong = groups.not_increasing(elapsed_times(table, time, groups)[0])
    return len(np.unique(groups.codes[groups.order[wrong]])) > _DISORDERED * len(groups.labels)


def _by_order(table: Table, able: Sequence[str]) -> Trajectories:
    """Take the coarsest of the columns within which the times increase; another division of the rows is a doubt."""
    name, groups = able[0], table.groups(able[0])
    why = f"column {name!r}, since the time increases within each of its {len(groups.labels)} values and not beyond"
    others = [other for other in able[1:] if not is_same_partition(table, groups, other)]
    doubts = [
        Doubt(name, "read as the label of trajectories", f"{other!r} is the label", f"--trajectory {quoted(other)}")
        for other in others[:1]
    ]
    return Trajectories(table, name, why, tuple(doubts))


def quoted(name: str) -> str:
    """Return a name as a command line needs it."""
    return name if name.isidentifier() else f"'{name}'"


def _find_pair(table: Table, time: str, taken: set[str], *, or_equal: bool) -> str | None:
    """Return the first two label columns whose pairs have increasing times; one at least is named like a label."""
    if table.files:
        return None
    vocabularies = (unit_rank, trajectory_rank, condition_rank_in(table))
    found = [name for rank in vocabularies for name in ranked(table, {*taken, time}, rank)]
    other = [name for name in table.names[:_MOST_TRIED] if name not in {*taken, time, *found}]
    rest = [name for name in other if table.kind(name) != "nothing"]
    able = [n for n in dict.fromkeys([*found, *rest]) if table.is_label(n) and "" not in table.cells[n]]
    few = [n for n in able if n in found or len(table.labels(n).levels) <= table.num_rows / 4]
    for first, second in itertools.combinations(few[:_MOST_PAIRED], 2):
        if first not in found:
            continue
        paired, name = joined(table, f"{first}/{second}")
        groups = paired.groups(name)
        is_coarse = len(groups.labels) <= table.num_rows / 2
        if is_coarse and groups.increase(elapsed_times(paired, time, groups)[0], or_equal=or_equal):
            return name
    return None


def _pair_reason(table: Table, pair: str) -> str:
    ranks = (unit_rank, trajectory_rank, condition_rank_in(table))
    is_named = all(any(rank(part) is not None for rank in ranks) for part in _parts(table, pair))
    return "by their names" if is_named else "since the time increases within each pair of their values"


def _parts(table: Table, pair: str) -> tuple[str, str]:
    """Return the two columns that a name "A/B" stands for; two empty names where it stands for none."""
    for place, letter in enumerate(pair):
        if letter == "/" and pair[:place] in table.names and pair[place + 1 :] in table.names:
            return pair[:place], pair[place + 1 :]
    return "", ""
