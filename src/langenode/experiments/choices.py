"""What is chosen for a user from their data, each choice with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langenode.data import (
    FALSE_ALARMS,
    Dataset,
    cut_into_windows,
    find_levels,
    find_modes,
    find_outliers,
    num_windows,
    sizes_for,
    starts_are_exact,
)

# The loss by which a network keeps several groups of units (docs/guide/own-data.md, "Populations").
FOR_GROUPS = {"loss": "quantile", "saturation": 0.5}


class Choice(NamedTuple):
    """A choice made for the user, and its reason."""

    what: str
    chosen: str
    why: str


class Plan(NamedTuple):
    """The layer of configuration that the data suggest, with the reasons, and what the user should look at."""

    layer: dict[str, Any]
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...] = ()


def windows(data: Dataset, asked: Mapping[str, Any]) -> tuple[int | None, list[Choice]]:
    """Return into how many windows trajectories are cut (None leaves them whole), and the choice."""
    asked_data = asked.get("data", {})
    if "windows" in asked_data:
        wanted = asked_data["windows"]
        return (None if wanted == "none" else wanted), []
    found = num_windows(data)
    if found is None:
        return None, []
    count = "one trajectory" if data.num_trajectories == 1 else f"{data.num_trajectories} trajectories"
    why = f"{count} cannot be divided for training and test, so each window is a trajectory from its first reading"
    return found, [Choice("windows", f"{found} per trajectory", why)]


def in_windows(data: Dataset, num: Any) -> Dataset:
    """Return the data cut as configured; what is no number of windows is left to the check of the configuration."""
    return cut_into_windows(data, num) if isinstance(num, int) and num > 0 else data


def is_scale_open(asked: Mapping[str, Any]) -> bool:
    """Whether the scales of outputs are to be chosen."""
    return "output_scale" not in asked and asked.get("scaling", "standardise") == "standardise"


def scales(data: Dataset, asked: Mapping[str, Any]) -> tuple[dict[str, Any], list[Choice]]:
    """Return the scale of each output as a layer, and a choice for every one that is not linear."""
    if not is_scale_open(asked):
        return {}, []
    levels = find_levels(data)
    if all(level.kind == "linear" for level in levels):
        return {}, []
    words = {"log": "logarithmic above a knee, never negative", "positive": "linear, never negative"}
    made = [
        Choice(f"scale of {name}", words[level.kind], level.why)
        for name, level in zip(data.output_names, levels, strict=True)
        if level.kind != "linear"
    ]
    return {"output_scale": tuple(level.kind for level in levels)}, made


def start(data: Dataset, *, is_followed: bool) -> tuple[bool, Choice]:
    """Return whether the start of a trajectory has the noise of a reading, and the choice.

    With `is_followed`, the rates of a hierarchical model are integrated from the reading itself. A start that depends
    on latent inputs would have to be learned from few units.
    """
    if data.initial is not None:
        return False, Choice("start of a trajectory", "the given columns", "the data contain them")
    if starts_are_exact(data):
        same = "most trajectories begin with the same reading, which noise would not repeat: it is known exactly"
        return False, Choice("start of a trajectory", "its first reading, without noise", same)
    if is_followed:
        why = "rates of units are followed from it, and its noise is left to the other errors"
        return False, Choice("start of a trajectory", "its first reading, as it is", why)
    why = "the first complete reading is used as it is, noise included, and is neither fitted nor scored"
    return True, Choice("start of a trajectory", "its first reading", why)


def large(data: Dataset, asked: Mapping[str, Any], target: str) -> tuple[dict[str, Any], list[Choice]]:
    """Return how many trajectories each part of a fit looks at where there are very many, and the choice.

    Units that differ have mini-batches of their own, and replicates of a population are compared all together.
    """
    sizes = sizes_for(data)
    if sizes is None or target not in ("posterior", "tempered"):
        return {}, []
    layer: dict[str, Any] = {
        "training": {"batch_trajectories": sizes.batch},
        "mle": {"most_trajectories": sizes.point},
    }
    held_out = "as asked for"
    if "split" not in asked_section(asked, "data"):
        layer["data"] = {"most_held_out": sizes.held_out}
        held_out = f"at most {sizes.held_out} each"
    chosen = f"updates of {sizes.batch} at random, point estimate from {sizes.point}; validation and test {held_out}"
    why = f"{data.num_trajectories} are too many to look at in every step, and more held-out ones would tell little"
    return layer, [Choice("trajectories", chosen, why)]


def asked_section(asked: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of what was asked; what is none is left to the check of the configuration."""
    section = asked.get(name, {})
    return section if isinstance(section, Mapping) else {}


def population_loss(data: Dataset, asked: Mapping[str, Any], target: str) -> tuple[dict[str, Any], list[Choice]]:
    """Return the loss that keeps several groups of units apart, as a layer, where there are such, and the choice."""
    if target != "population" or {"loss", "saturation", "power"} & set(asked_section(asked, "population")):
        return {}, []
    found = find_modes(data)
    if found is None:
        return {}, []
    why = (
        f"the trajectories of {found.num_units} units fall into groups: their dip is {found.dip:.2g}, and that of one "
        f"group exceeds {found.critical:.2g} in at most {100 * FALSE_ALARMS:g} % of data sets"
    )
    return {"population": FOR_GROUPS}, [Choice("population loss", "quantile, with saturation", why)]


def outlier_warnings(data: Dataset, most: int = 5) -> tuple[str, ...]:
    """Return a line for each reading that stands apart; of many the first."""
    found = find_outliers(data)
    more = (f"{len(found) - most} more readings stand apart like these",) if len(found) > most else ()
    return (*(outlier.line() for outlier in found[:most]), *more)
