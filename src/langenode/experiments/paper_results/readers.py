"""How a number of the paper is read from our runs.

A reader takes a finished run (its configuration and its metrics.json) and returns a number, or None where the run has
none. `literal` reads runs of the method as printed (`--method paper`), `default` runs of ours.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

DEMONSTRATIONS = ("ou", "schlogl", "hyperelastic", "viscoelastic")
# What all demonstrations share is read from the first of them that was run.
METHOD = "method"


class Record(NamedTuple):
    """A finished run: its options and its numbers."""

    config: Mapping[str, Any]
    metrics: Mapping[str, Any]


Reader = Callable[[Record], Any]


class Fact(NamedTuple):
    """A number of the paper, or a statement where it has none, with readers of ours.

    `bounds` are what a statement amounts to in numbers. `law` reads runs of the paper's material law with our sampler.
    """

    demonstration: str
    section: str
    what: str
    paper: float | str
    literal: Reader | None
    default: Reader | None
    note: str = ""
    bounds: tuple[float, float] | None = None
    law: Reader | None = None


class PaperFigure(NamedTuple):
    """A figure of the paper: what it shows, in our words, and the names of ours in the folder of a run."""

    demonstration: str
    section: str
    label: str
    title: str
    shows: str
    names: tuple[str, ...]
    note: str = ""


# Readers


def at(path: str) -> Reader:
    """A number of metrics.json by its dotted path; list positions are numbers."""
    return lambda record: find(record.metrics, path)


def option(path: str) -> Reader:
    """An option of the configuration by its dotted path."""
    return lambda record: find(record.config, path)


def find(values: Any, path: str) -> Any:
    """A nested value by its dotted path; None where there is none."""
    for part in path.split("."):
        if isinstance(values, Mapping):
            values = values.get(part)
        elif isinstance(values, list) and part.isdigit() and int(part) < len(values):
            values = values[int(part)]
        else:
            return None
    return values


def network_size(*widths: int) -> int:
    """The weights of a network with affine layers of these widths."""
    return sum((i + 1) * o for i, o in itertools.pairwise(widths))


def drift_size(num_stochastic: int | None = None) -> Reader:
    """The weights of the printed drift network, of the run's stochastic weights or of that many."""

    def read(record: Record) -> int | None:
        dim = num_stochastic or find(record.metrics, "problem.num_stochastic")
        layers = find(record.config, "paper.layers") or [dim, dim]
        return None if dim is None or record.config.get("method") != "paper" else network_size(dim, *layers, dim)

    return read


def median_std(record: Record) -> float | None:
    """The median standard deviation of the stochastic weights."""
    found = find(record.metrics, "weights.std")
    return statistics.median(found) if isinstance(found, list) and found else None


def both(reader: Reader) -> tuple[Reader, Reader]:
    """The same reader for runs as printed and of ours."""
    return reader, reader


# Notes that several facts share

OURS_DIFFERS = "Our sampler has other parts, so that the default has no such number."
NO_PULL = (
    "A drift network as printed has no pull of its own before training: the weights diffuse to about the square root "
    "of twice the pseudo-time, and training must bring them back."
)


def motion_facts(demonstration: str, section: str) -> tuple[Fact, ...]:
    """Spread and dependence of the weights before and after training: whether it has moved the sampler."""
    rows = (
        ("median standard deviation of the weights before training", "std_before", ""),
        (
            "the same after training",
            "std_after",
            "Equal numbers would be those of a sampler that training has not moved.",
        ),
        ("rms correlation of the weights before training", "correlation_before", "Few draws have some by chance."),
        ("the same after training, rms correlation", "correlation_after", ""),
    )
    return tuple(
        Fact(demonstration, section, what, "not given", *both(at(f"training.motion.{key}")), note)
        for what, key, note in rows
    )
