"""The paper's numbers beside ours: one row per number and per figure, from finished runs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langenode.experiments.paper_results import FACTS, FIGURES, METHOD, Fact, PaperFigure, Record
from langenode.experiments.paper_results.figures import CONVERGENCE, CUBES, FRAMEWORK
from langenode.experiments.paper_results.readers import Reader

# Runs by the method as printed, by our default, and by our sampler with the paper's material law.
LITERAL, DEFAULT, LAW = "literal", "default", "law"
# A number within this fraction of the paper's is called equal to it.
NEAR = 0.02


class Found(NamedTuple):
    """Finished runs by demonstration and role, each by its seed; why others are missing; and figures by role.

    `figures` maps (demonstration, role, name) to the path of an image below the folder.
    """

    demonstrations: Sequence[str]
    seeds: Sequence[int]
    records: Mapping[tuple[str, str], Mapping[int, Record]]
    missing: Mapping[tuple[str, str], str]
    figures: Mapping[tuple[str, str, str], str]


def results_of(found: Found) -> list[dict[str, Any]]:
    """Return a row for every number of the paper, then one for every figure: what is written to reproduction.json."""
    chosen = {METHOD, *found.demonstrations}
    rows = [_number_row(fact, found) for fact in FACTS if fact.demonstration in chosen]
    return rows + [_figure_row(figure, found) for figure in FIGURES if figure.demonstration in chosen]


# Numbers


def _number_row(fact: Fact, found: Found) -> dict[str, Any]:
    values = {role: _value(reader, _records(fact.demonstration, role, found)) for role, reader in _readers(fact)}
    literal, default = values[LITERAL], values[DEFAULT]
    seeds = sorted({seed for role in (LITERAL, DEFAULT) for seed in _records(fact.demonstration, role, found)})
    says = [
        *_differences(fact, literal, default),
        fact.note,
        *_beside(values[LAW]),
        *_absences(fact, values, found),
    ]
    return {
        "section": fact.section,
        "what": fact.what,
        "paper": fact.paper,
        "literal": literal,
        "default": default,
        "seeds": seeds,
        "note": " ".join(text for text in says if text),
    }


def _readers(fact: Fact) -> list[tuple[str, Reader | None]]:
    return [(LITERAL, fact.literal), (DEFAULT, fact.default), (LAW, fact.law)]


def _records(demonstration: str, role: str, found: Found) -> Mapping[int, Record]:
    """The runs of a demonstration; what all share is read from the first that has some."""
    names = found.demonstrations if demonstration == METHOD else (demonstration,)
    return next((found.records[name, role] for name in names if found.records.get((name, role))), {})


def _value(reader: Reader | None, records: Mapping[int, Record]) -> dict[str, Any] | None:
    """Mean and standard deviation over seeds of the numbers that there are."""
    values = [] if reader is None else [reader(record) for record in records.values()]
    numbers = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if not numbers:
        return None
    std = statistics.stdev(numbers) if len(numbers) > 1 else None
    return {"mean": statistics.fmean(numbers), "std": std, "values": numbers}


def _differences(fact: Fact, literal: Any, default: Any) -> list[str]:
    """Return a sentence on how far our numbers are from the paper's."""
    named = {"as printed": literal, "by default": default}
    words = {name: _difference(fact, value["mean"]) for name, value in named.items() if value is not None}
    words = {name: text for name, text in words.items() if text}
    if len(words) == 2 and len(set(words.values())) == 1:
        return [f"Both {words['by default']}."]
    text = "; ".join(f"{name}: {said}" for name, said in words.items())
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _difference(fact: Fact, value: float) -> str:
    if fact.bounds is not None:
        low, high = fact.bounds
        if value < low or value > high:
            return f"{'below' if value < low else 'above'} what the paper says"
        return "as the paper says"
    if not isinstance(fact.paper, int | float):
        return ""
    if abs(value - fact.paper) <= NEAR * abs(fact.paper):
        return "equal" if math.isclose(value, fact.paper, rel_tol=1e-6) else "within 2 %"
    if value * fact.paper > 0:
        return f"{value / fact.paper:.2g} times the paper's"
    return f"of the other sign, by {value - fact.paper:+.2g}"


def _beside(law: Any) -> list[str]:
    return [] if law is None else [f"The paper's law with our sampler: {number_text(law)}."]


def _absences(fact: Fact, values: Mapping[str, Any], found: Found) -> list[str]:
    """Return why a number that should be there is not."""
    says = []
    for role, reader in _readers(fact)[:2]:
        if reader is None or values[role] is not None:
            continue
        why = found.missing.get((fact.demonstration, role))
        word = "as printed" if role == LITERAL else "by default"
        says.append(f"No number {word}: {why or 'the runs have none'}.")
    return says


def number_text(value: Mapping[str, Any]) -> str:
    """Format a mean with its spread over seeds."""
    mean, std = value["mean"], value["std"]
    text = f"{mean:.0f}" if float(mean).is_integer() and 10 <= abs(mean) < 1e6 else f"{mean:.3g}"
    return text if not std else f"{text} ± {std:.2g}"


# Figures


def _figure_row(figure: PaperFigure, found: Found) -> dict[str, Any]:
    paths = {role: figure_paths(figure, role, found) for role in (LITERAL, DEFAULT)}
    says = [figure.note]
    for role, word in ((LITERAL, "as printed"), (DEFAULT, "by default")):
        if not paths[role]:
            why = found.missing.get((figure.demonstration, role), "the run has none")
            says.append(f"No figure {word}: {why}.")
    return {
        "section": figure.section,
        "what": f"Figure {figure.label}: {figure.title}",
        "paper": figure.shows,
        "literal": ", ".join(paths[LITERAL]) or None,
        "default": ", ".join(paths[DEFAULT]) or None,
        "seeds": list(found.seeds[:1]),
        "note": " ".join(text for text in says if text),
    }


def figure_paths(figure: PaperFigure, role: str, found: Found) -> list[str]:
    """Return the images of ours, below the folder."""
    keys = [(figure.demonstration, role, name) for name in figure.names]
    return [found.figures[key] for key in keys if key in found.figures]


__all__ = [
    "CONVERGENCE",
    "CUBES",
    "DEFAULT",
    "FRAMEWORK",
    "LAW",
    "LITERAL",
    "Found",
    "figure_paths",
    "number_text",
    "results_of",
]
