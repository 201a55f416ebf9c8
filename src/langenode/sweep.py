"""A grid of runs of one demonstration: a point is an ordinary run folder, and one table and one figure show them all.

Every point is `langenode run` in a process of its own, started anew, since JAX does not survive a fork. The request is
stored first and the table last; points that are complete are not run again, so a sweep that was interrupted, or had
points that failed, goes on where it was.
"""

import contextlib
import csv
import difflib
import io
import itertools
import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode import _version, choosing, pipeline, plots
from langenode.comparison import read_metrics
from langenode.config import ConfigError, merge, parse_overrides, to_toml, unused_options
from langenode.processes import Ended, num_cores, run_commands
from langenode.progress import Reporter
from langenode.runfolder import RunFolder, RunFolderError, plain, read_record, write_json, write_together

# The first of these that there is, is drawn.
METRICS = {
    "w1_exact.relative": "W1 to the exact law, relative",
    "w1.ratio": "W1 to the data, over its floor",
    "crps": "CRPS, held out",
}
IDENTITY = ("experiment", "settings", "vary", "seeds", "points")


class Point(NamedTuple):
    """One run of the grid: its folder's name, its values of the varied keys, and its settings as `--set` takes them."""

    name: str
    values: dict[str, Any]
    seed: int
    config: Any
    settings: list[str]


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


class SweepFolder:
    """The files of a sweep, by name; the points are folders beside them."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.request = self.path / "sweep.json"
        self.table = self.path / "sweep.csv"
        self.figure = self.path / "sweep.png"
        self.logs = self.path / "logs"

    def run(self, point: Point) -> RunFolder:
        """The folder of a point."""
        return RunFolder(self.path / point.name)


# What is asked


def parse_values(text: str) -> list[Any]:
    """`32,64` or `tanh,relu` or `[[8],[16,16]]` as a list; the values are TOML, or plain text where that fails."""
    text = text.strip()
    for array in (text, f"[{text}]") if text.startswith("[[") else (f"[{text}]",):
        found = parse_overrides([f"list={array}"])["list"]
        if isinstance(found, list):
            return found
    return [parse_overrides([f"value={part}"])["value"] for part in text.split(",")]


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
    experiment: str, layers: Sequence[Mapping[str, Any]], vary: Mapping[str, Sequence[Any]], seeds: Sequence[Any] | None
) -> Plan:
    """Every combination of the values, and every seed, over the user's layers; all configurations are checked here."""
    if seeds == [] or not (vary or seeds):
        raise ConfigError("a sweep must vary something; no value was named; e.g. --vary training.num_samples=64,128")
    base: dict[str, Any] = {}
    for layer in layers:
        base = merge(base, layer)
    grid = itertools.product(*vary.values(), [None] if seeds is None else seeds)
    points = [_point(experiment, base, dict(zip(vary, values, strict=True)), seed) for *values, seed in grid]
    _refuse_equal(points)
    asked = [base, *(_nested(key, None) for key in vary)]
    unused = {found for point in points for found in unused_options(point.config, asked)}
    request = {"experiment": experiment, "settings": base, "vary": dict(vary), "seeds": seeds}
    return Plan(plain(request | {"points": [point.name for point in points]}), points, sorted(unused))


def _point(experiment: str, base: Mapping[str, Any], values: dict[str, Any], seed: Any) -> Point:
    settings = merge(base, {} if seed is None else {"seed": seed})
    for key, value in values.items():
        settings = merge(settings, _nested(key, value))
    config = choosing.configure(experiment, [settings])
    pipeline.refuse_function(config)
    words = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in _flat(settings).items()]
    return Point(_name(values, None if seed is None else config.seed), values, config.seed, config, words)


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _name(values: Mapping[str, Any], seed: int | None) -> str:
    """`num_samples-32_num_steps-2_seed-1`: the last part of each key where that tells them apart, and its value."""
    last = [key.split(".")[-1] for key in values]
    words = [
        f"{short if last.count(short) == 1 else key}-{_slug(value)}"
        for short, (key, value) in zip(last, values.items(), strict=True)
    ]
    return "_".join(words if seed is None else [*words, f"seed-{seed}"])


def _slug(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_slug, value)) or "empty"
    return re.sub(r"[^\w.+-]+", "-", _text(value))


def _text(value: Any) -> str:
    """A value as a cell or a label has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _refuse_equal(points: Sequence[Point]) -> None:
    seen: set[str] = set()
    for point in points:
        marks = {to_toml(point.config), point.name}
        if seen & marks:
            raise ConfigError(f"the points of a sweep must differ; {point.name} comes twice; name each value once")
        seen |= marks


# The work


def run_sweep(
    path: Path, plan: Plan, reporter: Reporter, *, jobs: int | None, metric: str | None, force: bool
) -> dict[str, Any]:
    """Run the points that are not complete, then write the table, the request and the figure together."""
    folder = SweepFolder(path)
    with RunFolder(path).locked():
        _claim(folder, plan, force=force)
        pending = [point for point in plan.points if not _is_complete(folder, point)]
        done = len(plan.points) - len(pending)
        reporter.say(f"{len(plan.points)} points" + (f", {done} of them complete already" if done else ""))
        errors = _run_points(folder, plan, pending, reporter, jobs) if pending else {}
        rows = [_row(folder, point, errors.get(point.name)) for point in plan.points]
        return _write(folder, plan, rows, metric)


def _claim(folder: SweepFolder, plan: Plan, *, force: bool) -> None:
    """Store the request in an empty folder, go on with the same one, or, with `force`, remove what another left."""
    stored = read_record(folder.request, remedy="delete the folder, or choose another --out")
    if not stored and any(entry.name != ".lock" for entry in folder.path.iterdir()):
        raise RunFolderError(
            f"a new sweep needs an empty folder; {folder.path} holds other things than a sweep; choose another --out"
        )
    differing = [part for part in IDENTITY if stored and stored.get(part) != plan.request[part]]
    if differing and not force:
        raise RunFolderError(
            f"a folder holds one sweep; that in {folder.path} was asked otherwise ({', '.join(differing)}); "
            "use --force or another --out"
        )
    if stored and force:
        _remove(folder, stored)
    for point in plan.points:
        run = folder.run(point)
        if run.config.is_file() and run.config.read_text(encoding="utf-8") != to_toml(point.config):
            raise RunFolderError(
                f"a point must have the sweep's settings; those in {run.config} differ; use --force or another --out"
            )
    if force or not stored:
        write_json(folder.request, _record(plan) | {"complete": False})


def _remove(folder: SweepFolder, stored: Mapping[str, Any]) -> None:
    """Remove a sweep: the runs that it names and its own files, nothing else."""
    for name in stored.get("points", []):
        run = RunFolder(folder.path / str(name))
        # A file that was tampered with may name a folder elsewhere.
        is_inside = run.path.resolve().parent == folder.path.resolve()
        if is_inside and (run.config.is_file() or run.provenance.is_file()):
            with run.locked():
                shutil.rmtree(run.path)
    shutil.rmtree(folder.logs, ignore_errors=True)
    for file in (folder.table, folder.figure, folder.request):
        file.unlink(missing_ok=True)


def _record(plan: Plan) -> dict[str, Any]:
    return {**plan.request, "version": _version.__version__, "command": sys.argv}


def _is_complete(folder: SweepFolder, point: Point) -> bool:
    run = folder.run(point)
    return run.config.is_file() and run.report.is_file()


def command(folder: SweepFolder, point: Point) -> list[str]:
    """What makes a point: the same words give the same run by hand."""
    settings = [word for setting in point.settings for word in ("--set", setting)]
    run = ["run", point.config.experiment, "--out", str(folder.run(point).path), *settings, "--json"]
    return [sys.executable, "-m", "langenode", *run]


def _run_points(
    folder: SweepFolder, plan: Plan, pending: Sequence[Point], reporter: Reporter, jobs: int | None
) -> dict[str, str]:
    """Run points side by side; what each failed of, for those that did."""
    commands = {point.name: command(folder, point) for point in pending}
    ended: dict[str, str | None] = {}

    def on_end(name: str, one: Ended) -> None:
        ended[name] = error = None if one.code == 0 else _what_failed(one)
        what = f"{one.seconds:.1f} s" if error is None else f"failed: {error}"
        reporter.say(f"{len(plan.points) - len(pending) + len(ended)}/{len(plan.points)} {name}: {what}")

    if reporter.verbose:
        reporter.say("\n".join(map(shlex.join, commands.values())))
    folder.logs.mkdir(exist_ok=True)
    run_commands(commands, folder.logs, jobs=min(jobs or num_cores(), len(pending)), on_end=on_end)
    return {name: error for name, error in ended.items() if error is not None}


def _what_failed(ended: Ended) -> str:
    """The line that `--json` gave, or what else can be said in one."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(ended.out)["error"])
    if ended.code < 0:
        return f"its process was ended by signal {-ended.code}; see {ended.log}"
    said = [line.strip() for line in ended.log.read_text(encoding="utf-8", errors="replace").splitlines()]
    said = [line for line in said if line and not line.startswith("langenode: this is a bug")]
    return f"exit code {ended.code}: {said[-1] if said else 'nothing was said'}; see {ended.log}"


# The results


def _row(folder: SweepFolder, point: Point, error: str | None) -> Row:
    if error is not None:
        return Row(point, {}, error)
    try:
        found = _flat(read_metrics(folder.run(point)))
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
    record = _record(plan) | {"complete": not failed, "failed": failed, "metric": metric}
    files = {folder.table: _table(plan, rows, names), folder.request: _json(record)}
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


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain(dict(record)), indent=2, allow_nan=False) + "\n").encode()


def _table(plan: Plan, rows: Sequence[Row], names: Sequence[str]) -> bytes:
    """A row a point: the varied keys, the seed, the folder, every number of metrics.json, and what failed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*plan.request["vary"], "seed", "point", *names, "error"])
    for point, metrics, error in rows:
        head = [*map(_text, point.values.values()), point.seed, point.name]
        writer.writerow([*head, *(repr(metrics[name]) if name in metrics else "" for name in names), error or ""])
    return buffer.getvalue().encode()


def _picture(plan: Plan, rows: Sequence[Row], metric: str) -> bytes:
    """The metric against the first varied key, a line for each choice of the others, a column a seed."""
    first, *others = plan.request["vary"] or {"seed": None}
    seeds = [0] if first == "seed" else sorted({row.point.seed for row in rows})
    values: list[Any] = []
    lines: dict[str, dict[tuple[int, int], float]] = {}
    for point, metrics, _ in rows:
        value = point.values.get(first, point.seed)
        if value not in values:
            values.append(value)
        cell = (values.index(value), 0 if first == "seed" else seeds.index(point.seed))
        label = ", ".join(_text(point.values[key]) for key in others)
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
