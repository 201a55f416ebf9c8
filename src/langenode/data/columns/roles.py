"""Which of the columns that vary in time are inputs: by evidence from their numbers; names only break ties."""

import collections
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from langenode.data.columns.evidence import Form, Paths, forms, lead
from langenode.data.names import drive_rank

# Of more columns than these only form and name are looked at, since leads are found for each pair; of still more only
# the name.
_MOST_COMPARED, _MOST_LOOKED_AT = 24, 200


class Role(NamedTuple):
    """Input or output, the reason, and, where it could well be the other, why that is in doubt."""

    is_input: bool
    why: str
    doubt: str | None = None


class _Facts(NamedTuple):
    """Of one column: how it moves, how its name ranks as a drive, whom it leads and whom it follows, and how much."""

    form: Form
    has_gaps: bool
    rank: int | None
    follower: str | None
    forward: float
    leader: str | None
    reverse: float

    @property
    def is_leading(self) -> bool:
        """Whether it leads and hardly follows."""
        return self.forward > 2.0 * self.reverse


def find_roles(paths: Paths, *, needs_output: bool = True) -> dict[str, Role]:
    """Return the role of every column that varies within trajectories; one at least is an output if one is needed.

    A path of steps, or the same in several trajectories, is an input; so is one that is smooth where others are noisy
    and that leads another column. Otherwise the name decides: drives (force, heater) are inputs; quantities that drive
    some processes and respond in others (current, temperature) are inputs only where no other input is there, the
    likeliest drive first. All else is an output.
    """
    facts = _gathered(paths)
    roles = {name: role for name, of in facts.items() if (role := _by_evidence(of)) is not None}
    roles = _one_of_the_weak(roles, facts)
    has_evidence = bool(roles)
    for name, of in facts.items():
        if name not in roles and of.rank == 0:
            roles[name] = _respond(of) if has_evidence and of.reverse > of.forward else _by_name(of)
    able = [n for n, of in facts.items() if n not in roles and of.rank is not None and not of.has_gaps]
    weak = sorted(able, key=_rank_in(facts))
    for name in weak:
        has_input = any(role.is_input for role in roles.values())
        roles[name] = _respond(facts[name]) if has_input else _by_name(facts[name])
    plain = {name: Role(False, "other numeric column") for name in facts if name not in roles}
    roles = {name: (roles | plain)[name] for name in facts}
    has_output = any(not role.is_input for role in roles.values())
    return roles if has_output or not needs_output else _with_outputs(roles, facts)


def _one_of_the_weak(roles: Mapping[str, Role], facts: Mapping[str, _Facts]) -> dict[str, Role]:
    """Keep, of smooth quantities that may drive or respond, the likeliest drive: a response can be smooth, too."""
    weak = [name for name in roles if facts[name].form.kind == "smooth" and (facts[name].rank or 0) > 0]
    best = min(weak, key=_rank_in(facts), default=None)
    return {name: role for name, role in roles.items() if name not in weak or name == best}


def _gathered(paths: Paths) -> dict[str, _Facts]:
    names, facts = list(paths.columns), {}
    shapes = forms(paths) if len(names) <= _MOST_LOOKED_AT else dict.fromkeys(names, Form("noisy", "not looked at"))
    pairs = itertools.permutations(names, 2) if len(names) <= _MOST_COMPARED else ()
    share = collections.defaultdict(float, {pair: lead(paths, *pair) for pair in pairs})
    for name in names:
        others = [other for other in names if other != name]
        follower = max(others, key=lambda other: share[name, other], default=None)
        leader = max(others, key=lambda other: share[other, name], default=None)
        forward = 0.0 if follower is None else share[name, follower]
        reverse = 0.0 if leader is None else share[leader, name]
        gaps = bool(np.isnan(paths.columns[name]).any())
        facts[name] = _Facts(shapes[name], gaps, drive_rank(name), follower, forward, leader, reverse)
    return facts


def _rank_in(facts: Mapping[str, _Facts]) -> Callable[[str], int]:
    return lambda name: facts[name].rank or 0


def _by_evidence(of: _Facts) -> Role | None:
    """Return an input by its numbers, if they say so. What is not known at every time can be no input."""
    if of.has_gaps:
        return None
    follows = f", and {of.follower} follows it" if of.forward > 0 else ""
    if of.form.is_prescribed:
        doubt = None
        if of.form.kind == "steps" and of.rank is None and not of.forward > of.reverse:
            doubt = "no other column follows it" if of.forward == 0 else f"it follows {of.leader} as well"
        return Role(True, of.form.words + follows, doubt)
    is_quiet = of.form.kind == "smooth" or (of.form.kind == "quantised" and of.rank is not None)
    if is_quiet and of.is_leading:
        doubt = None if of.rank is not None else "its name is not that of an input"
        return Role(True, of.form.words + follows, doubt)
    return None


def _by_name(of: _Facts) -> Role:
    if of.reverse > of.forward:
        return Role(True, "by name", f"its changes follow {of.leader}")
    if of.forward > 0:
        return Role(True, f"by name, and {of.follower} follows it")
    return Role(True, "by name", None if of.form.kind == "smooth" else "no other column visibly follows it")


def _respond(of: _Facts) -> Role:
    """Return an output by its name, where something else is a likelier drive."""
    if of.reverse > 0 and not of.is_leading:
        return Role(False, f"it follows {of.leader}")
    return Role(False, "something else is a likelier drive", "its name is that of an input in many processes")


def _with_outputs(roles: Mapping[str, Role], facts: Mapping[str, _Facts]) -> dict[str, Role]:
    """Return roles with an output, where every column looked like an input: those by name, or those that lead least."""
    by_name = [name for name, role in roles.items() if role.why.startswith("by name")]
    least = min(facts[name].forward - facts[name].reverse for name in roles)
    those = by_name or [name for name in roles if facts[name].forward - facts[name].reverse <= least]
    doubt = "every column looks like an input" if len(roles) > 1 else None
    changed = {name: Role(False, "the least likely to be an input", doubt) for name in those}
    return {name: changed.get(name, role) for name, role in roles.items()}
