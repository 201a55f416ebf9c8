"""A starting config.toml for a user's own data: the choices, their reasons, and the alternatives."""

import json
from collections.abc import Sequence
from typing import Any

from langenode.experiments.own import Choice, OwnConfig

_HEAD = """\
# A starting configuration for langenode fit. Change anything; options not listed here keep their defaults.
#   langenode fit {path} --config config.toml --out runs/mine
"""
_TOP = (
    ("method", "the sampler: langevin, bottleneck, paper, gaussian-full, gaussian-diagonal, gaussian-lowrank"),
    ("target", "what is inferred: posterior (one true model), population (one model per specimen), tempered"),
    ("stochastic", "the uncertain weights: all, last_layer"),
    ("rest", "the other weights: fixed (at maximum likelihood), or refit"),
    ("seed", "seed of the split of the data and of all random draws"),
    ("scaling", "standardise, or none to fit in the data's own units"),
)
_SECTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "data": (
        ("trajectory", "column of trajectory labels"),
        ("time", "column of times"),
        ("inputs", "columns that drive the process"),
        ("outputs", "columns to predict"),
        ("initial", "columns of a known start"),
        ("condition", "column of condition labels: equal labels mean replicates"),
        ("unit", "column of specimen labels"),
        ("separate", "true: every trajectory is predicted from its own start"),
        ("split", "fractions for training, validation and test, by trajectory or condition"),
    ),
    "model": (
        (
            "kind",
            "auto, or state (outputs are the state), hidden (additional states), observation (read-out of them)",
        ),
        ("num_hidden", "hidden components of the kinds hidden and observation"),
        ("layers", "hidden layers of each network"),
        ("activation", "tanh, softplus, silu, gelu, relu, elu, sigmoid, sin"),
        ("solver", "heun, adaptive, stiff"),
    ),
    "noise": (("kind", "inferred, given (set noise.sigma), replicates"),),
    "training": (("num_updates", "updates of the sampler"), ("num_samples", "samples per update")),
}


def starter_toml(config: OwnConfig, choices: Sequence[Choice]) -> str:
    """Return the text of the file."""
    lines = [_HEAD.format(path=config.data.path)]
    lines += [f"# {choice.what}: {choice.chosen}, because {choice.why}" for choice in choices]
    lines.append("")
    lines += [_line(config, key, comment) for key, comment in _TOP]
    for name, keys in _SECTIONS.items():
        lines += ["", f"[{name}]", *(_line(getattr(config, name), key, comment) for key, comment in keys)]
    return "\n".join(lines) + "\n"


def _line(section: Any, key: str, comment: str) -> str:
    value = getattr(section, key)
    if value is None:
        return f"# {key} =  # {comment}"
    # Text, numbers, lists and Booleans are written alike in JSON and TOML.
    shown = list(value) if isinstance(value, tuple) else value
    return f"{key} = {json.dumps(shown, ensure_ascii=False)}  # {comment}"
