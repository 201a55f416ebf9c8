"""A starting config.toml for a user's own data: what was chosen, why, and what else could be."""

import json
from collections.abc import Sequence
from typing import Any

from langenode.experiments.own import Choice, OwnConfig
from langenode.fitting import methods

_HEAD = """\
# A starting configuration for langenode fit. A line that begins with a # shows what is chosen from the data, or the
# default: uncomment it to settle it, with this value or another.
#   {command}
"""
# What the file settles. All else is left open, so that the fit with the file is the fit without it.
_SETTLED = {"trajectory", "time", "inputs", "outputs", "initial", "condition", "unit", "seed"}
_TOP = ("method", "target", "stochastic", "rest", "seed", "scaling", "output_scale")
_SECTIONS: dict[str, tuple[str, ...]] = {
    "data": (
        *("trajectory", "time", "inputs", "outputs", "initial", "condition", "unit"),
        *("separate", "windows", "split", "folds"),
    ),
    "model": ("kind", "num_hidden", "layers", "activation", "solver"),
    "noise": ("kind", "in_start"),
    "training": ("num_updates", "num_samples"),
}


def starter_toml(config: OwnConfig, choices: Sequence[Choice], *, command: str) -> str:
    """The text of the file; `command` is the one that uses it."""
    lines = [_HEAD.format(command=command.replace("\n", " "))]
    lines += [f"# {choice.what}: {choice.chosen}, because {choice.why}" for choice in choices]
    lines.append("")
    lines += [_line(config, key, _words(config, key)) for key in _TOP]
    for name, keys in _SECTIONS.items():
        section = getattr(config, name)
        lines += ["", f"[{name}]", *(_line(section, key, _words(section, key)) for key in keys)]
    options = config.options
    if keys := tuple(type(options).model_fields):
        lines += ["", f"[{config.method}]", *(_line(options, key, _words(options, key)) for key in keys)]
    return "\n".join(lines) + "\n"


def _words(section: Any, key: str) -> str:
    """The meaning of a key; of the method, all there are."""
    meaning = type(section).model_fields[key].description or ""
    if key == "method":
        able = [name for name, method in methods.methods().items() if section.target in method.targets]
        return f"{meaning} for this target: {', '.join(able)}"
    return meaning


def _line(section: Any, key: str, comment: str) -> str:
    value = getattr(section, key)
    if value is None:
        return f"# {key} =  # {comment}"
    # JSON's text, numbers, lists and truth values are TOML's, too.
    shown = list(value) if isinstance(value, tuple) else value
    mark = "" if key in _SETTLED else "# "
    return f"{mark}{key} = {json.dumps(shown, ensure_ascii=False)}  # {comment}"
