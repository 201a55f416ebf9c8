"""The role of each column of a file: as given, else guessed from its numbers and from common names."""

from collections.abc import Mapping, Sequence

import numpy as np

from langenode.data.checks import DataError, is_constant, listed
from langenode.data.columns import categories, doses, labels, wide
from langenode.data.columns.evidence import Paths
from langenode.data.columns.record import Columns, Doubt, Guess
from langenode.data.columns.roles import Role, find_roles
from langenode.data.names import (
    INITIAL_PREFIX,
    INPUT_PREFIXES,
    OUTPUT_PREFIX,
    OWN_LABELS,
    is_initial_name,
    is_input_name,
    is_label_name,
    is_second_time_name,
    unit_rank,
)
from langenode.data.tables import Groups, Table, elapsed_times

_OWN = (*INPUT_PREFIXES, OUTPUT_PREFIX, INITIAL_PREFIX)


def guess_columns(table: Table, given: Columns) -> Guess:
    """Find the columns that were not given, and make the columns that the table only implies.

    The names that `save_data` writes come first. Then: a table with one column per trajectory is made long; the time, the
    trajectory, the condition and the unit are found by name, the trajectory also by the order of the times; doses become
    inputs; numbers and categories that are constant within every trajectory but differ between trajectories are inputs;
    of the numbers that vary, inputs are found by evidence (see `roles`), and all others are outputs. Row numbers,
    repeated labels, constants and other text are left out.
    """
    long = wide.make_long(table, given)
    if long is not None:
        table, given = long.table, long.columns
    search = _Search(table, given)
    if long is not None:
        search.reasons["trajectory"], search.doubts = long.why, list(long.doubts)
    time = given.time or search.take("time", labels.find_time(table, search.taken), "none")
    if time is None:
        raise DataError(
            f"a table must have a time column; none of {listed(table.names)} looks like one; name it with --time NAME"
        )
    given = given._replace(time=time)
    if time not in table.names:
        given.check_present(table.names)
    trajectory = _find_trajectories(search, time)
    _leave_out_row_numbers(search, trajectory)
    trajectory = _take_doses(search, time, trajectory)
    search.name_levels()
    search.given._replace(time=time, trajectory=trajectory).check_present(search.table.names)
    groups = search.table.groups(trajectory)
    if elapsed_times(search.table, time, groups)[1]:
        search.reasons["time"] += "; time stamps, converted to seconds since each trajectory's first row"
    _find_labels(search, groups)
    initial, inputs, outputs = _find_quantities(search, groups, time)
    columns = search.given._replace(trajectory=trajectory, time=time, inputs=inputs, outputs=outputs, initial=initial)
    reasons = {part: search.reasons[part] for part in Columns._fields}
    return Guess(columns, reasons, search.left_out, search.table, tuple(search.doubts), search.is_reading)


class _Search:
    """The state of the search: the table so far, the columns taken, the reasons, and why others were left out."""

    def __init__(self, table: Table, given: Columns):
        self.table, self.given = table, given
        self.taken = {name for _, name in given.named()}
        self.reasons = {part: "given" for part, names in given._asdict().items() if names is not None}
        self.left_out = dict(table.unread)
        self.doubts: list[Doubt] = []
        self.is_reading: np.ndarray | None = None
        self.dose_inputs: tuple[str, ...] = ()
        self.readings: tuple[str, ...] = ()

    def take(self, part: str, name: str | None, otherwise: str) -> str | None:
        """Assign a column to a role by its name, or record what holds without one."""
        self.reasons[part] = otherwise if name is None else f"column {name!r}, by its name"
        self.taken.update([] if name is None else [name])
        return name

    def is_needed(self, name: str) -> bool:
        """Whether a column that was not named may still be an input or an output."""
        return self.given.outputs is None or (self.given.inputs is None and is_input_name(name))

    def name_levels(self) -> None:
        """Make the columns of categories that are named among the inputs."""
        if self.given.inputs is not None:
            inputs = tuple(categories.named_levels(self.table, self.given.inputs))
            self.given = self.given._replace(inputs=inputs)
            self.table = categories.with_levels(self.table, inputs)
            self.taken.update(inputs)


def _find_trajectories(search: _Search, time: str) -> str | None:
    given, table = search.given, search.table
    if labels.is_pair(table, given.trajectory):
        assert given.trajectory is not None
        search.table, _ = labels.joined(table, given.trajectory)
    elif given.trajectory is None:
        may_repeat = bool(doses.event_columns(table, given.inputs or ()))
        found = labels.find_trajectories(table, time, search.taken, may_repeat=may_repeat)
        search.reasons["trajectory"] = found.why
        search.doubts += found.doubts
        search.table = found.table
        search.given = given._replace(trajectory=found.name)
        search.taken.update([] if found.name is None else [found.name])
    else:
        given._replace(inputs=None).check_present([*table.names, *(given.outputs or ())])
    name = search.given.trajectory
    if name is not None and name not in table.names and labels.is_pair(table, name):
        parts = labels.labels_of_pair(table, name)
        for part, column in (("unit", parts.unit), ("condition", parts.condition)):
            if getattr(search.given, part) is None and column is not None:
                search.given = search.given._replace(**{part: column})
                search.take(part, column, "")
    return name


def _leave_out_row_numbers(search: _Search, trajectory: str | None) -> None:
    """Leave out row numbers while the rows are still those of the file."""
    table = search.table
    if trajectory is not None and trajectory not in table.names:
        return
    groups = table.groups(trajectory)
    found = [n for n in table.names if n not in search.taken and not n.startswith(_OWN)]
    found = [name for name in found if labels.is_row_number(table, groups, name)]
    search.left_out |= dict.fromkeys(found, "row numbers")
    search.taken.update(found)


def _take_doses(search: _Search, time: str, trajectory: str | None) -> str | None:
    """Make inputs of doses, if there are any; the trajectory may be divided where the process was reset."""
    given = search.given
    named = doses.event_columns(search.table, given.inputs or ())
    named = {part: name for part, name in named.items() if name not in search.taken}
    found = doses.with_doses(search.table, time, trajectory, named) if named else None
    if found is None:
        return trajectory
    search.table, search.is_reading, search.dose_inputs = found.table, found.is_reading, found.inputs
    search.readings = found.outputs
    search.left_out |= {name: "doses and events, read as such" for name in found.used}
    search.taken.update(found.used)
    for note in found.notes:
        search.doubts.append(Doubt("doses", note, "that matters", "--inputs with columns of your own"))
    return found.trajectory


def _find_labels(search: _Search, groups: Groups) -> None:
    """Find the condition and the unit."""
    table, given = search.table, search.given
    shared = "none found: trajectories with equal times and inputs share a condition"
    ranks = {"condition": labels.condition_rank_in(table), "unit": unit_rank}
    alone = {"condition": shared, "unit": "none found: every trajectory is its own unit"}
    for part, rank in ranks.items():
        if getattr(given, part) is None:
            name = search.take(part, labels.find_label(table, groups, search.taken, rank), alone[part])
            search.given = search.given._replace(**{part: name})


def _candidates(search: _Search, groups: Groups, time: str) -> dict[str, np.ndarray]:
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
            search.left_out[name] = "time stamps" if kind == "stamps" else "text"
        elif has_own_names:
            search.left_out[name] = "without the prefix x: or y:"
        elif table.is_faulty(name) and not search.is_needed(name):
            search.left_out[name] = "text in some cells"
        elif is_label_name(name) and table.is_label(name) and labels.is_same_partition(table, groups, name):
            search.left_out[name] = "labels the trajectories once more"
        elif is_second_time_name(name) and not table.is_faulty(name) and _is_time(table, groups, name, times):
            search.left_out[name] = "the time once more"
        else:
            numbers[name] = table.numbers(name)
    return numbers


def _is_time(table: Table, groups: Groups, name: str, times: np.ndarray) -> bool:
    """Whether a column increases with the time along every trajectory, of which one has several rows."""
    return len(groups.labels) < len(times) and groups.increase(table.numbers(name))


def _find_categories(search: _Search, groups: Groups) -> dict[str, tuple[str, ...]]:
    """Return the columns of every category that is an input, by its name; the table then has them.

    The condition is one of them where it has to be an input to be seen by the model.
    """
    if search.given.inputs is not None or any(name.startswith(OUTPUT_PREFIX) for name in search.table.names):
        return {}
    condition = search.given.condition
    free = [name for name in search.table.names if name not in search.taken or name == condition]
    names = [name for name in free if name != search.given.trajectory and name not in search.dose_inputs]
    found = {
        n: categories.level_names(search.table, n) for n in names if categories.is_category(search.table, groups, n)
    }
    for levels in found.values():
        search.table = categories.with_levels(search.table, levels)
    for name in found:
        search.left_out.pop(name, None)
    return found


def _find_quantities(
    search: _Search, groups: Groups, time: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the start, the inputs and the outputs; those not given are chosen among the numeric columns."""
    given, numbers = search.given, _candidates(search, groups, time)
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
    return initial, inputs, outputs


def _roles(
    search: _Search, kinds: Mapping[str, str], numbers: Mapping[str, np.ndarray], groups: Groups, time: str
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
    search: _Search,
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


def _must_show(search: _Search, groups: Groups, inputs: Sequence[str]) -> bool:
    """Whether two conditions have the same inputs, so that a model could not tell one from the other."""
    condition = search.given.condition
    if condition is None or condition in OWN_LABELS and _has_own_names(search.table):
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
    search: _Search, groups: Groups, condition: str, settings: list[str]
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


def _doubt_codes(search: _Search, kept: Mapping[str, tuple[str, ...]], others: Sequence[str]) -> None:
    """Doubt that numbers are codes of a category, unless the name says so."""
    for name, names in kept.items():
        if search.table.kind(name) == "numbers":
            rest = [level for other, levels in kept.items() if other != name for level in levels]
            option = "--inputs '" + ",".join([*others, name, *rest]) + "'"
            taken = f"whole numbers, read as a category of {len(names)} levels"
            search.doubts.append(Doubt(name, taken, "it is an amount", option))


def _said_of_outputs(outputs: Sequence[str], roles: Mapping[str, Role]) -> str:
    by_name = bool(outputs) and roles[outputs[0]].why == "by name" and not roles[outputs[0]].is_input
    words = [
        f"{n} ({roles[n].why})" if roles[n].why.startswith("it ") and not roles[n].is_input else n for n in outputs
    ]
    return f"{'by name' if by_name else 'all other numeric columns'}: {', '.join(words)}"


def _say_doubts(search: _Search, roles: Mapping[str, Role], inputs: Sequence[str], outputs: Sequence[str]) -> None:
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
