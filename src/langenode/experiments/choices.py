"""What is chosen for a user from their data, each choice with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from langenode.data import Dataset, cut_into_windows, find_outliers, num_windows


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


def outlier_warnings(data: Dataset, most: int = 5) -> tuple[str, ...]:
    """Return a line for each reading that stands apart; of many the first."""
    found = find_outliers(data)
    more = (f"{len(found) - most} more readings stand apart like these",) if len(found) > most else ()
    return (*(outlier.line() for outlier in found[:most]), *more)
