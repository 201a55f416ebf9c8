"""Every result of the paper: its runs side by side, and one page of them.

A demonstration is run by the method as printed and by our default, for each seed; its baseline (BBVI, or the other
choices of stochastic weights) is fitted within these runs. For Schlögl the number of replicas and of steps is varied,
with the first seed. Finished runs are kept: the same command, or one with more seeds, runs what is missing.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from langenode import plots
from langenode.experiments import deformed
from langenode.experiments.paper_results import METHOD, Record
from langenode.fitting.progress import Reporter
from langenode.reports.reproduction import CONVERGENCE, CUBES, DEFAULT, FRAMEWORK, LITERAL, Found, results_of
from langenode.reports.reproduction_page import render_reproduction
from langenode.runs import grid
from langenode.runs.grid import GridFolder
from langenode.runs.processes import num_cores
from langenode.runs.reproduction_plan import VARIATIONS, VARIED, Plan, Task, seconds_of
from langenode.storage.folder import (
    RunFolder,
    RunFolderError,
    read_config,
    read_metrics,
    read_record,
    write_json,
    write_together,
)
from langenode.storage.records import read_figures

ROLES = (LITERAL, DEFAULT)
METRIC = "w1_exact.relative"
# The demonstration whose section shows the cubes.
WITH_CUBES = "hyperelastic"


class ReproductionFolder(GridFolder):
    """The files of a reproduction, by name."""

    kind = "reproduction"
    # More seeds and other demonstrations may join; settings must not change.
    identity = ("quick",)

    def __init__(self, path: Path):
        pictures = [
            f"{name}.png" for name in (FRAMEWORK, CUBES, *(f"{CONVERGENCE}-{role}" for role in (LITERAL, DEFAULT)))
        ]
        super().__init__(path, "request.json", ("reproduction.html", "reproduction.json", *pictures))
        self.page, self.results = self.products[:2]


# The work


def say_plan(
    path: Path, plan: Plan, reporter: Reporter, *, jobs: int | None, force: bool, scheduler: str | None = None
) -> None:
    """Say how many runs there are and how long they will take, before any begins."""
    folder = ReproductionFolder(path)
    pending = {task.point.name: task for task in plan.tasks if force or not grid.is_complete(folder, task.point)}
    num, num_done = len(plan.points), len(plan.points) - len(pending)
    side_by_side = 1 if scheduler is not None else jobs or num_cores()
    seconds = seconds_of(pending, quick=plan.quick, jobs=side_by_side)
    size = "small settings" if plan.quick else "full size"
    done = f", {num_done} of them complete already" if num_done else ""
    words = f"{num} runs at {size}{done}"
    if pending:
        at_a_time = f"{min(side_by_side, len(pending))} at a time"
        shared = f"shared among the workers of {scheduler}"
        words += f"; about {time_text(seconds)} on quiet cores, {at_a_time if scheduler is None else shared}"
    reporter.say(words)


def time_text(seconds: float) -> str:
    """Format a time in minutes, or in hours."""
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def run_reproduction(
    path: Path, plan: Plan, reporter: Reporter, *, jobs: int | None, force: bool, scheduler: str | None = None
) -> dict[str, Any]:
    """Run what is not complete, then write the page and the results."""
    folder = ReproductionFolder(path)
    with RunFolder(path).locked():
        request = _with_earlier(folder, plan, force=force)
        grid.claim(folder, request, plan.points, force=force)
        write_json(folder.request, grid.record_of(request) | {"complete": False})
        pending = [point for point in plan.points if not grid.is_complete(folder, point)]
        num_done = len(plan.points) - len(pending)
        counts = {"num_points": len(plan.points), "num_done": num_done}
        errors = grid.run_points(folder, pending, reporter, jobs=jobs, scheduler=scheduler, **counts)
        return _write(folder, plan, request, errors)


def _with_earlier(folder: ReproductionFolder, plan: Plan, *, force: bool) -> dict[str, Any]:
    """The request with the runs of earlier ones, so that `--force` can remove them all."""
    stored = {} if force else read_record(folder.request, remedy="delete the folder, or choose another --out")
    found = stored.get("points")
    earlier = found if isinstance(found, list) else []
    return {**plan.request, "points": list(dict.fromkeys([*earlier, *plan.request["points"]]))}


# The results


def _write(
    folder: ReproductionFolder, plan: Plan, request: Mapping[str, Any], errors: Mapping[str, str]
) -> dict[str, Any]:
    failed = dict(errors)
    records = _records(folder, plan, failed)
    pictures = {FRAMEWORK: _png(plots.framework())}
    if WITH_CUBES in plan.demonstrations:
        pictures[CUBES] = _png(deformed.deformed_cubes())
    for role in ROLES:
        if VARIED in plan.demonstrations:
            cells = _cells(folder, plan, role, failed)
            pictures |= _convergence(cells, plan, role)
            _add_convergence(records, cells, plan, role)
    found = Found(plan.demonstrations, plan.seeds, records, _missing(plan, failed), _figures(folder, plan, pictures))
    results = results_of(found)
    files = {folder.path / f"{name}.png": content for name, content in pictures.items()}
    files[folder.results] = grid.as_json(results)
    page = render_reproduction(results, found, folder.path, pictures, _about(folder, plan, failed))
    files[folder.page] = page.encode()
    record = grid.record_of(request) | {"complete": not failed, "failed": failed}
    files[folder.request] = grid.as_json(record)
    write_together(files)
    names = sorted(str(file) for file in files)
    return {"folder": str(folder.path), "files": names, **record, "results": results}


def _records(
    folder: ReproductionFolder, plan: Plan, failed: dict[str, str]
) -> dict[tuple[str, str], dict[int, Record]]:
    """Read the finished runs; what cannot be read has failed."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for task in plan.tasks:
        if task.cell is None and task.point.name not in failed:
            record = _read(folder, task, failed)
            if record is not None:
                found.setdefault((task.demonstration, task.role), {})[task.point.seed] = record
    return found


def _read(folder: ReproductionFolder, task: Task, failed: dict[str, str]) -> Record | None:
    run = folder.run(task.point)
    try:
        return Record(read_config(run), read_metrics(run))
    except RunFolderError as problem:
        failed[task.point.name] = str(problem)
        return None


def _missing(plan: Plan, failed: Mapping[str, str]) -> dict[tuple[str, str], str]:
    why: dict[tuple[str, str], str] = {}
    for task in plan.tasks:
        if task.cell is None and task.point.name in failed:
            why[task.demonstration, task.role] = f"{task.point.name} failed ({failed[task.point.name]})"
    return why


def _figures(folder: ReproductionFolder, plan: Plan, pictures: Mapping[str, bytes]) -> dict[tuple[str, str, str], str]:
    """The images of the first seed, and those that are made here, by demonstration, role and name."""
    found = {(METHOD, role, FRAMEWORK): f"{FRAMEWORK}.png" for role in ROLES}
    for role in ROLES:
        if CUBES in pictures:
            found[WITH_CUBES, role, CUBES] = f"{CUBES}.png"
        if f"{CONVERGENCE}-{role}" in pictures:
            found[VARIED, role, CONVERGENCE] = f"{CONVERGENCE}-{role}.png"
    for task in plan.tasks:
        run = folder.run(task.point)
        if task.cell is not None or task.point.seed != plan.seeds[0] or not run.figure_index.is_file():
            continue
        for entry in read_figures(run.figure_index, remedy="use --force") or []:
            found[task.demonstration, task.role, str(entry["name"])] = f"{task.point.name}/figures/{entry['file']}"
    return found


def _about(folder: ReproductionFolder, plan: Plan, failed: Mapping[str, str]) -> dict[str, Any]:
    """What a reader must know of the runs: their size, seconds and failures."""
    rows = []
    for point in plan.points:
        seconds, verdict = None, None
        if point.name not in failed and folder.run(point).metrics.is_file():
            metrics = read_metrics(folder.run(point))
            times = [x for x in (metrics.get("seconds") or {}).values() if isinstance(x, int | float)]
            seconds, verdict = sum(times), (metrics.get("verdict") or {}).get("level")
        settings = " ".join(f"--set {setting}" for setting in point.settings)
        command = f"langenode run {point.config.experiment} {settings}"
        rows.append({"name": point.name, "seconds": seconds, "verdict": verdict, "command": command})
    return {"quick": plan.quick, "seeds": list(plan.seeds), "runs": rows, "failed": dict(failed)}


# W1 against replicas


def _cells(folder: ReproductionFolder, plan: Plan, role: str, failed: dict[str, str]) -> dict[tuple[int, int], float]:
    """W1 to the exact law by the number of replicas and of steps."""
    found: dict[tuple[int, int], float] = {}
    for task in plan.tasks:
        if task.cell is None or task.role != role or task.point.name in failed:
            continue
        record = _read(folder, task, failed)
        value = None if record is None else grid.flat(record.metrics).get(METRIC)
        if isinstance(value, int | float):
            found[task.cell] = float(value)
    return found


def _convergence(cells: Mapping[tuple[int, int], float], plan: Plan, role: str) -> dict[str, bytes]:
    if not cells:
        return {}
    variation = VARIATIONS[plan.quick][role]
    lines = {
        str(steps): np.array([[cells.get((replicas, steps), np.nan)] for replicas in variation.replicas])
        for steps in variation.steps
    }
    labels = {"xlabel": "replicas (samples of an update)", "ylabel": "W1 to the exact law / rms std"}
    figure = plots.sweep_lines(variation.replicas, lines, **labels, legend="pseudo-time steps")
    return {f"{CONVERGENCE}-{role}": _png(figure)}


def _add_convergence(
    records: dict[tuple[str, str], dict[int, Record]], cells: Mapping[tuple[int, int], float], plan: Plan, role: str
) -> None:
    """Add what the variation says to the record of the first seed, where facts can read it."""
    variation, seed = VARIATIONS[plan.quick][role], plan.seeds[0]
    record = records.get((VARIED, role), {}).get(seed)
    fewest, most = variation.replicas[0], variation.replicas[-1]
    shortest, longest = variation.steps[0], variation.steps[-1]
    if record is None or (most, longest) not in cells:
        return
    last = cells[most, longest]
    says = {
        "by_replicas": cells[fewest, longest] / last if (fewest, longest) in cells else None,
        "by_steps": cells[most, shortest] / last if (most, shortest) in cells else None,
    }
    records[VARIED, role][seed] = record._replace(metrics={**record.metrics, "convergence": says})


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
