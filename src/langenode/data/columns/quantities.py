"""Which columns are the start, the inputs and the outputs, once time and trajectories are known."""

from collections.abc import Mapping, Sequence

import numpy as np

from langenode.data.checks import DataError, is_constant, listed
from langenode.data.columns import categories, labels, wide
from langenode.data.columns.evidence import Paths
from langenode.data.columns.roles import Role, find_roles
from langenode.data.columns.search import Search
from langenode.data.doubts import Doubt
from langenode.data.names import (
    INITIAL_PREFIX,
    INPUT_PREFIXES,
    OUTPUT_PREFIX,
    OWN_LABELS,
    is_category_name,
    is_flag_name,
    is_initial_name,
    is_label_name,
    is_part_name,
    is_repeat_name,
    is_second_time_name,
)
from langenode.data.tables import Groups, Table, elapsed_times

# Minimum number of empty cells of a column for another column of 0 and 1 to be recognised as its flag.
_FEWEST_FLAGGED = 3
_OWN = (*INPUT_PREFIXES, OUTPUT_PREFIX, INITIAL_PREFIX)


def _candidates(search: Search, groups: Groups, time: str) -> dict[str, np.ndarray]:
    """Return the numeric columns that may be start, inputs or outputs; reasons for the others go into `left_out`."""
    table, numbers = search.table, {}
    has_own_names = any(name.startswith(OUTPUT_PREFIX) for name in table.names)
    times = elapsed_times(table, time, groups)[0]
    for name in table.names:
        if name in search.taken:
            continue
        kind = table.kind(name)
        if name.startswith(_OWN) or name in search.dose_inputs:
            numbers[name] = table.numbers(name)
        elif kind == "nothing":
            search.left_out[name] = "empty"
        elif kind != "numbers":
            search.left_out[name] = "text" if table.stamps(name, is_strict=False) is None else "time stamps"
        elif has_own_names:
            search.left_out[name] = "without the prefix x: or y:"
        elif table.is_faulty(name) and not search.is_needed(name):
            search.left_out[name] = "text in some cells"
        elif is_repeat_name(name) and not is_category_name(name) and labels.is_constant_label(table, groups, name):
            search.left_out[name] = "numbers repetitions"
        elif is_part_name(name) and table.whole_numbers(name) is not None:
            _leave_out_part(search, name)
        elif is_label_name(name) and table.is_label(name) and labels.is_same_partition(table, groups, name):
            search.left_out[name] = "labels the trajectories once more"
        elif is_second_time_name(name) and not table.is_faulty(name) and _is_time(table, groups, name, times):
            search.left_out[name] = "the time once more"
        else:
            numbers[name] = table.numbers(name)
    return numbers


def _leave_out_part(search: Search, name: str) -> None:
    """Leave out what numbers the parts of a record; parts that follow each other may be trajectories."""
    search.left_out[name] = "numbers the parts of a record"
    values = search.table.numbers(name)
    if search.given.trajectory is None and np.all(np.diff(values) >= 0) and len(np.unique(values)) > 1:
        option = f"--trajectory {labels.quoted(name)}"
        search.doubts.append(Doubt(name, "numbers the parts of one record", "each part is a trajectory", option))


def _leave_out_flags(search: Search, numbers: dict[str, np.ndarray]) -> None:
    """Leave out columns of 0 and 1 that tell whether another is empty, or are named so: they describe its readings."""
    is_reading = search.is_reading if search.is_reading is not None else np.ones(search.table.num_rows, dtype=bool)
    gaps = {name: np.isnan(values) for name, values in numbers.items()}
    empty = {name: found[is_reading] for name, found in gaps.items() if found.sum() >= _FEWEST_FLAGGED}
    for name, values in list(numbers.items()):
        if name in search.dose_inputs or not np.all(np.isin(values, (0.0, 1.0))) or is_constant(values):
            continue
        flags = values[is_reading] == 1
        of = [other for other, found in empty.items() if np.array_equal(found, flags) or np.array_equal(found, ~flags)]
        if of or is_flag_name(name):
            search.left_out[name] = f"tells where {of[0]} is empty" if of else "a flag of readings, by its name"
            del numbers[name]


def _doubt_text(search: Search, groups: Groups, inputs: Sequence[str]) -> None:
    """Doubt that text of few levels that changes in time is of no use."""
    for name, why in search.left_out.items():
        cells = search.table.cells.get(name)
        if why != "text" or cells is None or "" in cells or isinstance(cells, np.ndarray):
            continue
        num_levels = len(set(labels.distinct_cells(search.table, name)))
        if 2 <= num_levels <= 12 and not labels.is_constant_label(search.table, groups, name):
            option = f"--inputs '{','.join([*inputs, name])}'"
            taken = f"text of {num_levels} levels that changes in time, left out"
            search.doubts.append(Doubt(name, taken, "it drives the process", option))


def _is_time(table: Table, groups: Groups, name: str, times: np.ndarray) -> bool:
    """Whether a column increases with the time along every trajectory, of which one has several rows."""
    return len(groups.labels) < len(times) and groups.increase(table.numbers(name))


def _find_categories(search: Search, groups: Groups) -> dict[str, tuple[str, ...]]:
    """Return the columns of every category that is an input, by its name; the table then has them.

    The condition is one of them where it has to be an input to be seen by the model.
    """
    if search.given.inputs is not None or any(name.startswith(OUTPUT_PREFIX) for name in search.table.names):
        return {}
    condition = search.given.condition
    free = [name for name in search.table.names if name not in search.taken or name == condition]
    names = [name for name in free if name != search.given.trajectory and name not in search.dose_inputs]
    names = [name for name in names if categories.is_category(search.table, groups, name)]
    found = {name: categories.level_names(search.table, name) for name in names}
    for levels in found.values():
        search.table = categories.with_levels(search.table, levels)
    for name in found:
        search.left_out.pop(name, None)
    return found


def find_quantities(
    search: Search, groups: Groups, time: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the start, the inputs and the outputs; those not given are chosen among the numeric columns."""
    given, numbers = search.given, _candidates(search, groups, time)
    if not any(name.startswith(_OWN) for name in search.table.names):
        _leave_out_flags(search, numbers)
    initial = given.initial
    if initial is None:
        found = [name for name in numbers if is_initial_name(name)]
        initial = tuple(n for n in found if n.startswith(INITIAL_PREFIX) or groups.are_constant(numbers[n]))
        search.reasons["initial"] = f"by name: {', '.join(initial)}" if initial else "none found"
    levels = _find_categories(search, groups)
    rest = {name: values for name, values in numbers.items() if name not in initial and name not in levels}
    kinds = {name: _kind(name, values, groups) for name, values in rest.items()}
    kinds |= {name: "varying" for name in search.readings if kinds.get(name) == "setting"}
    is_open = given.inputs is None or given.outputs is None
    roles = _roles(search, kinds, rest, groups, time) if is_open else {}
    inputs, outputs = given.inputs, given.outputs
    if inputs is None:
        inputs = _chosen_inputs(search, kinds, roles, levels, rest, groups)
    if outputs is None:
        is_free = given.inputs is None
        outputs = tuple(n for n, kind in kinds.items() if kind == "varying" and not (is_free and roles[n].is_input))
        search.reasons["outputs"] = _said_of_outputs(outputs, roles)
    for name, kind in kinds.items():
        if name not in inputs + outputs and name not in search.left_out:
            search.left_out[name] = kind if kind not in ("varying", "setting") else "not among the named ones"
    _check_outputs(outputs, search.table.names, search.left_out)
    if given.inputs is None and given.outputs is None:
        _say_doubts(search, roles, inputs, outputs)
        _doubt_text(search, groups, inputs)
        if search.given.trajectory is None and not inputs and wide.may_be_wide(search.table, outputs):
            taken = f"read as outputs of one trajectory, with {', '.join(outputs[1:])}"
            search.doubts.append(Doubt(outputs[0], taken, "each column is a trajectory", "--trajectory '*'"))
    return initial, inputs, outputs


def _roles(
    search: Search, kinds: Mapping[str, str], numbers: Mapping[str, np.ndarray], groups: Groups, time: str
) -> dict[str, Role]:
    """Return the roles of the columns that vary in time."""
    varying = {name: numbers[name] for name, kind in kinds.items() if kind == "varying"}
    own = {n: Role(not n.startswith(OUTPUT_PREFIX), "by name") for n in varying if n.startswith(_OWN)}
    own |= {n: Role(True, "from the doses of the table") for n in varying if n in search.dose_inputs}
    own |= {n: Role(False, "by name") for n in varying if n in search.readings}
    free = {name: values for name, values in varying.items() if name not in own}
    # Outputs that were named are evidence, too: what they follow is an input.
    known = [n for n in search.given.outputs or () if n in search.table.names and not search.table.is_faulty(n)]
    free |= {name: search.table.numbers(name) for name in known}
    times = elapsed_times(search.table, time, groups)[0]
    is_constant_left = any(kind.startswith("constant") for kind in kinds.values())
    # Where all that varies looks like an input and something is constant, the constant was meant as the output.
    needs_output = not (is_constant_left or known or any(not role.is_input for role in own.values()))
    found = find_roles(Paths.of(free, times, groups), needs_output=needs_output) if free else {}
    return {name: (own | found)[name] for name in varying}


def _chosen_inputs(
    search: Search,
    kinds: Mapping[str, str],
    roles: Mapping[str, Role],
    levels: Mapping[str, tuple[str, ...]],
    numbers: Mapping[str, np.ndarray],
    groups: Groups,
) -> tuple[str, ...]:
    """Return the inputs: driven columns, those constant within trajectories, and categories."""
    driving = [name for name, role in roles.items() if role.is_input and name not in (search.given.outputs or ())]
    settings = []
    for name in (name for name, kind in kinds.items() if kind == "setting"):
        absent = _first_absent(numbers[name], groups)
        if absent is None:
            settings.append(name)
        else:
            search.left_out[name] = f"empty throughout trajectory {absent!r}"
    condition = search.given.condition
    is_seen = condition is None or not _must_show(search, groups, driving + settings)
    kept = {name: names for name, names in levels.items() if name != condition or not is_seen}
    if condition is not None and not is_seen and condition not in kept and condition not in settings:
        kept |= _condition_as_input(search, groups, condition, settings)
    parts = {
        "by evidence": [f"{n} ({roles[n].why})" for n in driving if not roles[n].why.startswith("by name")],
        "by name": [n for n in driving if roles[n].why.startswith("by name")],
        "constant within each trajectory": settings,
        "categories": [f"{name} ({len(names)} levels)" for name, names in kept.items()],
    }
    search.reasons["inputs"] = "; ".join(f"{k}: {', '.join(v)}" for k, v in parts.items() if v) or "none found"
    _doubt_codes(search, kept, driving + settings)
    return (*driving, *settings, *(level for names in kept.values() for level in names))


def _first_absent(values: np.ndarray, groups: Groups) -> str | None:
    """Return the first trajectory in which a number is never there."""
    seen = np.bincount(groups.codes, weights=~np.isnan(values), minlength=len(groups.labels))
    empty = np.flatnonzero(seen == 0)
    return groups.labels[empty[0]] if empty.size else None


def _must_show(search: Search, groups: Groups, inputs: Sequence[str]) -> bool:
    """Whether two conditions have the same inputs, so that a model could not tell one from the other."""
    condition = search.given.condition
    if condition is None or (condition in OWN_LABELS and _has_own_names(search.table)):
        return False
    if not labels.is_constant_label(search.table, groups, condition):
        return False
    first = search.table.labels(condition)
    paths: dict[str, set[bytes]] = {}
    for rows in groups.split():
        path = b"".join((search.table.numbers(name)[rows] + 0.0).tobytes() for name in inputs)
        paths.setdefault(first[rows[0]], set()).add(path)
    every = [path for found in paths.values() for path in found]
    return len(set(every)) < len(every)


def _has_own_names(table: Table) -> bool:
    return any(name.startswith(OUTPUT_PREFIX) for name in table.names)


def _condition_as_input(
    search: Search, groups: Groups, condition: str, settings: list[str]
) -> dict[str, tuple[str, ...]]:
    """Make a condition an input that is no category by its looks: its number, or its levels where they are text."""
    table = search.table
    if table.kind(condition) == "numbers" and not table.is_faulty(condition):
        settings.append(condition)
        return {}
    names = categories.level_names(table, condition)
    if len(names) > len(groups.labels) / 2:
        return {}
    search.table = categories.with_levels(table, names)
    return {condition: names}


def _doubt_codes(search: Search, kept: Mapping[str, tuple[str, ...]], others: Sequence[str]) -> None:
    """Doubt that numbers are codes of a category, unless the name says so."""
    for name, names in kept.items():
        if search.table.kind(name) == "numbers":
            rest = [level for other, levels in kept.items() if other != name for level in levels]
            option = "--inputs '" + ",".join([*others, name, *rest]) + "'"
            taken = f"whole numbers, read as a category of {len(names)} levels"
            search.doubts.append(Doubt(name, taken, "it is an amount", option))


def _said_of_outputs(outputs: Sequence[str], roles: Mapping[str, Role]) -> str:
    by_name = bool(outputs) and roles[outputs[0]].why == "by name" and not roles[outputs[0]].is_input
    evident = [n for n in outputs if roles[n].why.startswith("it ") and not roles[n].is_input]
    words = [f"{name} ({roles[name].why})" if name in evident else name for name in outputs]
    return f"{'by name' if by_name else 'all other numeric columns'}: {', '.join(words)}"


def _say_doubts(search: Search, roles: Mapping[str, Role], inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Record which roles are doubtful, with the options for the other reading."""
    for name, role in roles.items():
        if role.doubt is None:
            continue
        now, other = ("an input", "an output") if role.is_input else ("an output", "an input")
        fewer = [n for n in inputs if n != name] if role.is_input else [*inputs, name]
        more = [*outputs, name] if role.is_input else [n for n in outputs if n != name]
        if not more:
            continue
        option = f"--inputs '{','.join(fewer)}' --outputs '{','.join(more)}'"
        search.doubts.append(Doubt(name, f"read as {now} ({role.why}), but {role.doubt}", f"it is {other}", option))


def _kind(name: str, values: np.ndarray, groups: Groups) -> str:
    """Return how a numeric column varies: in time, only between trajectories (a setting), or not at all."""
    if name.startswith((*INPUT_PREFIXES, OUTPUT_PREFIX)):
        return "varying"
    seen = values[~np.isnan(values)]
    # An infinite number is reported later, with its row.
    if len(values) > 1 and np.all(np.isfinite(seen)) and is_constant(seen):
        return f"constant, {seen[0]:g} everywhere" if seen.size else "empty"
    # A trajectory of one row cannot show what is constant within it.
    if len(groups.labels) < len(values) and groups.are_constant(values):
        return "setting"
    return "varying"


def _check_outputs(outputs: Sequence[str], names: Sequence[str], left_out: Mapping[str, str]) -> None:
    if not outputs:
        why = ", ".join(f"{name!r} is {reason}" for name, reason in list(left_out.items())[:5])
        raise DataError(
            f"a data file must have outputs, numbers that change in time; none left among {listed(names)}"
            f"{f' ({why})' if why else ''}; name them with --outputs"
        )
