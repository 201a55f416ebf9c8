"""A grid of runs of a demonstration or a user's file: ordinary run folders, and one table and one figure of them all.

The request is stored first and the table last; see `grid` for what is between.
"""

import csv
import difflib
import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode import plots
from langenode.config import ConfigError, merge
from langenode.fitting.choose import unused_options
from langenode.fitting.progress import Reporter
from langenode.runs import grid
from langenode.runs.grid import (
    GridFolder,
    Point,
    Subject,
    as_json,
    flat,
    make_point,
    nested,
    parse_values,
    record_of,
    refuse_equal,
    request_of,
    text_of,
)
from langenode.storage.folder import RunFolder, RunFolderError, plain, read_metrics, write_together

# The first of these that there is, is drawn.
METRICS = {
    "w1_exact.relative": "W1 to the exact law, relative",
    "w1.ratio": "W1 to the data, over its floor",
    "crps": "CRPS, held out",
}


class Plan(NamedTuple):
    """What was asked, the points of it, and which of the user's options have no effect (with the reason)."""

    request: dict[str, Any]
    points: list[Point]
    unused: list[tuple[str, str]]


class Row(NamedTuple):
    """What a point gave: the numbers of its metrics.json, or why there are none."""

    point: Point
    metrics: dict[str, float]
    error: str | None


class SweepFolder(GridFolder):
    """The files of a sweep, by name."""

    kind = "sweep"
    identity = ("experiment", "data", "settings", "vary", "seeds", "points")

    def __init__(self, path: Path):
        super().__init__(path, "sweep.json", ("sweep.csv", "sweep.png"))
        self.table, self.figure = self.products


# What is asked


def parse_vary(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`["a.b=1,2", "c=x,y"]` as the values of each key, in the order given."""
    vary: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        keys = [key.strip() for key in name.split(".")]
        key = ".".join(keys)
        if not equals or not all(keys) or not values.strip():
            raise ConfigError(
                f"--vary must read section.key=value,value; got {text!r}; e.g. training.num_samples=64,128"
            )
        if key in ("seed", "experiment"):
            remedy = "use --seeds" if key == "seed" else "name it first, as in: langenode sweep ou"
            raise ConfigError(f"--vary takes other keys than {key}; got {text!r}; {remedy}")
        if key in vary:
            raise ConfigError(f"a key must be varied once; got {key} twice; list its values at one --vary")
        vary[key] = parse_values(values)
    return vary


def make_plan(
    subject: Subject,
    layers: Sequence[Mapping[str, Any]],
    vary: Mapping[str, Sequence[Any]],
    seeds: Sequence[Any] | None,
) -> Plan:
    """Every combination of the values, and every seed, over the user's layers; all configurations are checked here."""
    if seeds == [] or not (vary or seeds):
        raise ConfigError("a sweep must vary something; no value was named; e.g. --vary training.num_samples=64,128")
    base: dict[str, Any] = {}
    for layer in layers:
        base = merge(base, layer)
    combined = itertools.product(*vary.values(), [None] if seeds is None else seeds)
    made = [make_point(subject, base, dict(zip(vary, values, strict=True)), seed) for *values, seed in combined]
    refuse_equal(made, "sweep")
    asked = [base, *(nested(key, None) for key in vary)]
    unused = {found for point in made for found in unused_options(point.config, asked)}
    request = {**request_of(subject, made), "settings": base, "vary": dict(vary), "seeds": seeds}
    return Plan(plain(request | {"points": [point.name for point in made]}), made, sorted(unused))


# The work


def run_sweep(
    path: Path,
    plan: Plan,
    reporter: Reporter,
    *,
    jobs: int | None,
    metric: str | None,
    force: bool,
    scheduler: str | None = None,
) -> dict[str, Any]:
    """Run the points that are not complete, then write the table, the request and the figure together."""
    folder = SweepFolder(path)
    with RunFolder(path).locked():
        grid.claim(folder, plan.request, plan.points, force=force)
        pending = [point for point in plan.points if not grid.is_complete(folder, point)]
        num, num_done = len(plan.points), len(plan.points) - len(pending)
        reporter.say(f"{num} points" + (f", {num_done} of them complete already" if num_done else ""))
        where = {"jobs": jobs, "scheduler": scheduler}
        errors = grid.run_points(folder, pending, reporter, num_points=num, num_done=num_done, **where)
        rows = [_row(folder, point, errors.get(point.name)) for point in plan.points]
        return _write(folder, plan, rows, metric)


# The results


def _row(folder: SweepFolder, point: Point, error: str | None) -> Row:
    if error is not None:
        return Row(point, {}, error)
    try:
        found = flat(read_metrics(folder.run(point)))
    except RunFolderError as problem:
        return Row(point, {}, str(problem))
    taken = {*point.values, "seed", "point", "error"}
    is_number = {key: isinstance(value, int | float) and not isinstance(value, bool) for key, value in found.items()}
    return Row(point, {key: found[key] for key in found if is_number[key] and key not in taken}, None)


def _write(folder: SweepFolder, plan: Plan, rows: Sequence[Row], asked: str | None) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))
    is_known = asked is None or asked in names or not names  # without any numbers the failures are the message
    metric = next((name for name in ([asked] if asked else METRICS) if name in names), None)
    failed = {row.point.name: row.error for row in rows if row.error is not None}
    record = record_of(plan.request) | {"complete": not failed, "failed": failed, "metric": metric}
    files = {folder.table: _table(plan, rows, names), folder.request: as_json(record)}
    if metric is not None:
        files[folder.figure] = _picture(plan, rows, metric)
    write_together(files)
    if not is_known:
        near = difflib.get_close_matches(str(asked), names, n=1)
        hint = f"did you mean {near[0]}?" if near else "name another in the same command to draw it"
        raise ConfigError(f"--metric must be a column of {folder.table}; there is no {asked}; {hint}")
    cells = [{**row.point.values, "seed": row.point.seed, "point": row.point.name, **row.metrics} for row in rows]
    rows_said = [cell | {"error": row.error} for cell, row in zip(cells, rows, strict=True)]
    return {"sweep": str(folder.path), "files": [str(file) for file in files], **record, "rows": rows_said}


def _table(plan: Plan, rows: Sequence[Row], names: Sequence[str]) -> bytes:
    """A row a point: the varied keys, the seed, the folder, every number of metrics.json, and what failed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*plan.request["vary"], "seed", "point", *names, "error"])
    for point, metrics, error in rows:
        head = [*map(text_of, point.values.values()), point.seed, point.name]
        writer.writerow([*head, *(repr(metrics[name]) if name in metrics else "" for name in names), error or ""])
    return buffer.getvalue().encode()


def _picture(plan: Plan, rows: Sequence[Row], metric: str) -> bytes:
    """The metric against the first varied key, one line per choice of the others, one column per seed."""
    first, *others = plan.request["vary"] or {"seed": None}
    seeds = [0] if first == "seed" else sorted({row.point.seed for row in rows})
    values: list[Any] = []
    lines: dict[str, dict[tuple[int, int], float]] = {}
    for point, metrics, _ in rows:
        value = point.values.get(first, point.seed)
        if value not in values:
            values.append(value)
        cell = (values.index(value), 0 if first == "seed" else seeds.index(point.seed))
        label = ", ".join(text_of(point.values[key]) for key in others)
        lines.setdefault(label, {})[cell] = metrics.get(metric, np.nan)
    arrays = {label: np.full((len(values), len(seeds)), np.nan) for label in lines}
    for label, cells in lines.items():
        for cell, number in cells.items():
            arrays[label][cell] = number
    name = f"{METRICS[metric]} ({metric})" if metric in METRICS else metric
    labels = {"xlabel": first, "ylabel": name, "legend": ", ".join(others)}
    buffer = io.BytesIO()
    plots.sweep_lines(values, arrays, **labels).savefig(buffer, format="png")
    return buffer.getvalue()
