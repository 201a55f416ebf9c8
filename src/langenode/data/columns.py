"""The role of each column of a file: as given, else guessed from common names and from its values."""

import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.checks import DataError, is_constant, listed
from langenode.data.names import (
    INITIAL_PREFIX,
    INPUT_PREFIXES,
    OUTPUT_PREFIX,
    OWN_LABELS,
    condition_rank,
    is_counter_name,
    is_initial_name,
    is_input_name,
    is_row_number_name,
    time_rank,
    trajectory_rank,
    unit_rank,
)
from langenode.data.tables import Groups, Table, elapsed_times


class Columns(NamedTuple):
    """The names of columns (or variables) by role; None means to be guessed, an empty tuple means none."""

    trajectory: str | None = None
    time: str | None = None
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    initial: tuple[str, ...] | None = None
    condition: str | None = None
    unit: str | None = None

    def named(self) -> list[tuple[str, str]]:
        """Return every role and name that is given."""
        parts = [(part, (names,) if isinstance(names, str) else names) for part, names in self._asdict().items()]
        return [(part, name) for part, names in parts for name in names or ()]

    def check_present(self, available: Sequence[str]) -> None:
        """Raise a `DataError` that suggests the nearest name unless every column named here is available."""
        for part, name in self.named():
            if name not in available:
                near = difflib.get_close_matches(name, available, n=1, cutoff=0.0)
                raise DataError(
                    f"column {name!r} must be in the file (--{part}); found {listed(available)}; "
                    f"did you mean {near[0] if near else ''!r}?"
                )


class Guess(NamedTuple):
    """The columns of every role, the reasons for the choice, and the reasons why others were left out."""

    columns: Columns
    reasons: dict[str, str]
    left_out: dict[str, str]


def guess_columns(table: Table, given: Columns) -> Guess:
    """Find the columns that were not given, by common names and by their values.

    The names that `save_data` writes come first. Then: the time, the trajectory, the condition and the unit by name;
    numbers named like an input, and those that are constant within every trajectory but differ between trajectories,
    are inputs; all other numbers are outputs. Row numbers, constants and other text are left out.
    """
    given.check_present(table.names)
    search = _Search(table, given)
    time = given.time or search.take("time", _find_time(table, search.taken), "none")
    if time is None:
        raise DataError(
            f"a table must have a time column; none of {listed(table.names)} looks like one; name it with --time NAME"
        )
    found = None if given.trajectory else _find_trajectory(table, time, search.taken)
    alone = "one file per trajectory, named after it" if table.files else "none found: the table is one trajectory"
    trajectory = given.trajectory or search.take("trajectory", found, alone)
    groups = table.groups(trajectory)
    if elapsed_times(table, time, groups)[1]:
        search.reasons["time"] += "; time stamps, converted to seconds since each trajectory's first row"
    found = None if given.condition else _find_label(table, groups, search.taken, _condition_rank_in(table))
    shared = "none found: trajectories with equal times and inputs share a condition"
    condition = given.condition or search.take("condition", found, shared)
    found = None if given.unit else _find_label(table, groups, search.taken, unit_rank)
    unit = given.unit or search.take("unit", found, "none found: every trajectory is its own unit")
    initial, inputs, outputs = _find_quantities(search, groups)
    columns = Columns(trajectory, time, inputs, outputs, initial, condition, unit)
    return Guess(columns, {part: search.reasons[part] for part in Columns._fields}, search.left_out)


def pair_trajectories(table: Table, given: Columns) -> tuple[Table, Columns]:
    """Add a column that joins two label columns, where only the two together identify trajectories.

    Its name is "A/B", which can also be given. The specimen of the two is the unit; the other may be the condition.
    """
    pair = given.trajectory if given.trajectory is not None else _find_pair(table, given)
    parts = () if pair is None or pair in table.names else tuple(pair.split("/"))
    if pair is None or len(parts) != 2 or not set(parts) <= set(table.names):
        return table, given
    joined = [f"{a}/{b}" for a, b in zip(*(table.labels(name) for name in parts), strict=True)]
    units = [name for name in parts if unit_rank(name) is not None]
    conditions = [name for name in parts if name not in units and _condition_rank_in(table)(name) is not None]
    given = given._replace(
        trajectory=pair,
        unit=given.unit or next(iter(units), None),
        condition=given.condition or next(iter(conditions), None),
    )
    return table.with_column(pair, joined), given


def _find_pair(table: Table, given: Columns) -> str | None:
    """Return the first two label columns whose pairs have increasing times, if no single column will do."""
    taken = {name for _, name in given.named()}
    time = given.time or _find_time(table, taken)
    if time is None or table.files:
        return None
    vocabularies = (unit_rank, trajectory_rank, _condition_rank_in(table))
    found = [name for rank in vocabularies for name in _ranked(table, {*taken, time}, rank) if table.is_label(name)]
    names = [name for name in dict.fromkeys(found) if "" not in table.cells[name]]
    for name in names:
        groups = table.groups(name)
        if groups.increase(elapsed_times(table, time, groups)[0]):
            return None
    for first, second in itertools.combinations(names, 2):
        joined = [f"{a}/{b}" for a, b in zip(table.labels(first), table.labels(second), strict=True)]
        groups = table.with_column("pair", joined).groups("pair")
        if groups.increase(elapsed_times(table, time, groups)[0]):
            return f"{first}/{second}"
    return None


class _Search:
    """The state of the search: the columns taken, the reasons, and why others were left out."""

    def __init__(self, table: Table, given: Columns):
        self.table, self.given = table, given
        self.taken = {name for _, name in given.named()}
        self.reasons = {part: "given" for part, names in given._asdict().items() if names is not None}
        self.left_out = dict(table.unread)

    def take(self, part: str, name: str | None, otherwise: str) -> str | None:
        """Assign a column to a role by its name, or record what holds without one."""
        self.reasons[part] = otherwise if name is None else f"column {name!r}, by its name"
        self.taken.update([] if name is None else [name])
        return name

    def is_needed(self, name: str) -> bool:
        """Whether a column that was not named may still be an input or an output."""
        return self.given.outputs is None or (self.given.inputs is None and is_input_name(name))


def separators(table: Table, times: np.ndarray, taken: Sequence[str]) -> list[str]:
    """Return the columns that divide the rows into several trajectories of increasing times."""
    found = []
    for name in table.names:
        if name in taken or table.kind(name) == "nothing":
            continue
        try:
            groups = table.groups(name)
        except DataError:  # A column with empty cells cannot be used.
            continue
        if 1 < len(groups.labels) <= table.num_rows / 2 and groups.increase(times):
            found.append(name)
    return found


def _ranked(table: Table, taken: set[str], rank: Callable[[str], int | None]) -> list[str]:
    """Return the columns that a vocabulary knows, best first."""
    names = [name for name in table.names if name in OWN_LABELS or table.kind(name) != "nothing"]
    ranks = {name: rank(name) for name in names if name not in taken}
    known = {name: place for name, place in ranks.items() if place is not None}
    return sorted(known, key=lambda name: (known[name], name != name.lower()))


def _find_time(table: Table, taken: set[str]) -> str | None:
    named = _ranked(table, taken, time_rank)
    readable = [name for name in named if table.kind(name) == "numbers" or table.stamps(name) is not None]
    # The name is enough: a faulty cell is then reported with its row.
    return next(iter(readable or named), None)


def _find_trajectory(table: Table, time: str, taken: set[str]) -> str | None:
    """Return the label column with the best name; among several, one within which the times increase."""

    def is_possible(name: str) -> bool:
        return table.is_label(name) and not _counts_rows(table, table.groups(None), name)

    if "trajectory" in table.names and "trajectory" not in taken:
        return "trajectory"
    named = [name for name in _ranked(table, taken, trajectory_rank) if is_possible(name)]
    if not named and not table.files:
        named = [name for name in _ranked(table, taken, unit_rank) if is_possible(name)]
    if len(named) < 2:
        return next(iter(named), None)
    for name in named:
        groups = table.groups(name)
        if groups.increase(elapsed_times(table, time, groups)[0]):
            return name
    return named[0]


def _condition_rank_in(table: Table) -> Callable[[str], int | None]:
    return lambda name: condition_rank(name, table.kind(name) == "text")


def _find_label(table: Table, groups: Groups, taken: set[str], rank: Callable[[str], int | None]) -> str | None:
    """Return the best-named label column that is constant within trajectories; the name `save_data` writes wins."""
    for name in _ranked(table, taken, rank):
        if rank(name) == 0 and name in OWN_LABELS:
            return name
        if table.is_label(name):
            labels = np.array(table.labels(name))
            if np.all(labels == labels[groups.first_rows()]):
                return name
    return None


def _counts_rows(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column numbers the rows consecutively, in the whole table or in each trajectory."""
    values = table.whole_numbers(name)
    if values is None or len(values) < 2:
        return False
    ordered = values[groups.order]
    within = np.delete(ordered[1:] == ordered[:-1] + 1, groups.starts[1:] - 1)
    return bool(np.all(values[1:] == values[:-1] + 1)) or bool(within.size and np.all(within))


def _is_row_number(table: Table, groups: Groups, name: str) -> bool:
    """Whether a column is named like a row number and increases, or is named like a counter and counts."""
    values = table.whole_numbers(name)
    if values is None or not is_row_number_name(name):
        return is_counter_name(name) and _counts_rows(table, groups, name)
    return bool(np.all(values[1:] > values[:-1])) or groups.increase(values)


def _candidates(search: _Search, groups: Groups) -> dict[str, np.ndarray]:
    """Return the numeric columns that may be start, inputs or outputs; reasons for the others go into `left_out`."""
    table, numbers = search.table, {}
    names = [name for name in table.names if name not in search.taken]
    own = (*INPUT_PREFIXES, OUTPUT_PREFIX, INITIAL_PREFIX)
    has_own_names = any(name.startswith(OUTPUT_PREFIX) for name in table.names)
    for name in names:
        kind = table.kind(name)
        if name.startswith(own):
            numbers[name] = table.numbers(name)
        elif kind == "nothing":
            search.left_out[name] = "empty"
        elif kind != "numbers":
            search.left_out[name] = "time stamps" if kind == "stamps" else "text"
        elif _is_row_number(table, groups, name):
            search.left_out[name] = "row numbers"
        elif has_own_names:
            search.left_out[name] = "without the prefix x: or y:"
        elif table.is_faulty(name) and not search.is_needed(name):
            search.left_out[name] = "text in some cells"
        else:
            numbers[name] = table.numbers(name)
    return numbers


def _find_quantities(search: _Search, groups: Groups) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the start, the inputs and the outputs; those not given are chosen among the numeric columns."""
    given, numbers = search.given, _candidates(search, groups)
    initial = given.initial
    if initial is None:
        found = [name for name in numbers if is_initial_name(name)]
        initial = tuple(n for n in found if n.startswith(INITIAL_PREFIX) or groups.are_constant(numbers[n]))
        search.reasons["initial"] = f"by name: {', '.join(initial)}" if initial else "none found"
    kinds = {name: _kind(name, values, groups) for name, values in numbers.items() if name not in initial}
    is_constant_left = any(kind.startswith("constant") for kind in kinds.values())
    if given.outputs is None and given.inputs is None and "output" not in kinds.values() and not is_constant_left:
        # Where all columns are named like inputs, those that change in time must be the outputs.
        kinds = {name: "output" if kind == "input" else kind for name, kind in kinds.items()}
    inputs, outputs = given.inputs, given.outputs
    if inputs is None:
        inputs = tuple(name for name, kind in kinds.items() if kind in ("input", "setting"))
        search.reasons["inputs"] = _said_of_inputs(inputs, kinds)
    if outputs is None:
        wanted = ("output",) if given.inputs is None else ("output", "input")
        outputs = tuple(name for name, kind in kinds.items() if kind in wanted)
        by_name = bool(outputs) and outputs[0].startswith(OUTPUT_PREFIX)
        search.reasons["outputs"] = f"{'by name' if by_name else 'all other numeric columns'}: {', '.join(outputs)}"
    for name, kind in kinds.items():
        if name not in inputs + outputs:
            search.left_out[name] = kind if kind not in ("input", "output", "setting") else "not among the named ones"
    _check_outputs(outputs, search.table.names, search.left_out)
    return initial, inputs, outputs


def _said_of_inputs(inputs: Sequence[str], kinds: Mapping[str, str]) -> str:
    phrases = {"input": "by name", "setting": "constant within each trajectory"}
    said = [(phrase, [name for name in inputs if kinds[name] == kind]) for kind, phrase in phrases.items()]
    return "; ".join(f"{phrase}: {', '.join(names)}" for phrase, names in said if names) or "none found"


def _kind(name: str, values: np.ndarray, groups: Groups) -> str:
    """Return the role of a numeric column by its name and values, or the reason why it has none."""
    if name.startswith((*INPUT_PREFIXES, OUTPUT_PREFIX)):
        return "output" if name.startswith(OUTPUT_PREFIX) else "input"
    seen = values[~np.isnan(values)]
    # An infinite number is reported later, with its row.
    if len(values) > 1 and np.all(np.isfinite(seen)) and is_constant(seen):
        return f"constant, {seen[0]:g} everywhere" if seen.size else "empty"
    # A trajectory of one row cannot show what is constant within it.
    if len(groups.labels) < len(values) and groups.are_constant(values):
        return "setting"
    return "input" if is_input_name(name) else "output"


def _check_outputs(outputs: Sequence[str], names: Sequence[str], left_out: Mapping[str, str]) -> None:
    if not outputs:
        why = ", ".join(f"{name!r} is {reason}" for name, reason in list(left_out.items())[:5])
        raise DataError(
            f"a data file must have outputs, numbers that change in time; none left among {listed(names)}"
            f"{f' ({why})' if why else ''}; name them with --outputs"
        )
