"""Methods side by side on the same data: a run for each method and seed, one table, one page.

The runs of a seed have the same data and start from the same maximum-likelihood model, which the first of them makes
and the others are given. A method that cannot serve what is asked is named with the reason; one that fails stops
nobody.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langenode.config import ConfigError, merge_all
from langenode.fitting import methods as registry
from langenode.fitting.choose import unused_options
from langenode.fitting.progress import Reporter
from langenode.reports import comparison, comparison_page, pictures, standings
from langenode.runs import grid, stages
from langenode.runs.grid import GridFolder, Point, Subject
from langenode.storage.folder import RunFolder, plain, read_provenance, write_bytes, write_together

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# Options that the data and the maximum-likelihood model do not depend on.
FREE = ("method", "budget", "training", "predict", "population", "prior", "tempered")
SHARED = ("data", "validation", "test", "mle")


class Plan(NamedTuple):
    """What was asked, the runs of it, methods that cannot serve it (with the reason), and options without effect."""

    request: dict[str, Any]
    points: list[Point]
    refused: dict[str, str]
    unused: list[str]


class ComparisonFolder(GridFolder):
    """The files of a comparison of methods, by name."""

    kind = "comparison"
    identity = ("experiment", "data", "settings", "methods", "seeds", "points")

    def __init__(self, path: Path):
        super().__init__(path, "comparison.json", ("comparison.html", "comparison.csv", "bands.png", "time.png"))
        self.page, self.table, self.bands, self.time = self.products


# What is asked


def parse_budget(text: str) -> float:
    """`60s`, `2m`, `1.5h` or `90` in seconds."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|m|min|h|)\s*", text)
    if found is None or float(found[1]) <= 0.0:
        raise ConfigError(f"a budget must be a positive time; got {text!r}; write 60s, 2m or 90")
    return float(found[1]) * UNITS[found[2]]


def parse_methods(text: str) -> list[str]:
    """`all` or `a,b,c`, each once; `all,paper` has the slow one, too."""
    names: list[str] = []
    everyone = [name for name, method in registry.methods().items() if method.in_all]
    for word in (part.strip() for part in text.split(",")):
        if word in names:
            raise ConfigError(f"a method must be named once; {word} comes twice; name each once")
        names += [name for name in everyone if name not in names] if word == "all" else [registry.find(word).name]
    return names


def make_plan(
    subject: Subject, layers: Sequence[Mapping[str, Any]], methods: Sequence[str], seeds: Sequence[Any] | None
) -> Plan:
    """A run for every method that can serve what is asked, and every seed; all configurations are checked here."""
    if seeds == []:
        raise ConfigError("seeds must be numbers; none was named; e.g. --seeds 1,2,3")
    base = merge_all(layers)
    made: list[Point] = []
    refused: dict[str, str] = {}
    for method in methods:
        try:
            made += [_point(subject, base, method, seed) for seed in ([None] if seeds is None else seeds)]
        except ConfigError as error:
            refused[method] = str(error)
    if not made:  # what is wrong is not a method's
        raise ConfigError(next(iter(refused.values())))
    grid.refuse_equal(made, "comparison")
    idle = [dict(unused_options(point.config, [base])) for point in made]
    unused = [key for key in idle[0] if all(key in one for one in idle)]
    # By seed, so that the first results are a whole comparison.
    order = list(dict.fromkeys(point.seed for point in made))
    made = sorted(made, key=lambda point: order.index(point.seed))
    request = {**grid.request_of(subject, made), "settings": base, "methods": list(methods), "seeds": seeds}
    return Plan(plain(request | {"points": [point.name for point in made]}), made, refused, unused)


def _point(subject: Subject, base: Mapping[str, Any], method: str, seed: Any) -> Point:
    point = grid.make_point(subject, base, {"method": method}, seed)
    return point._replace(name=method if seed is None else f"{method}-{point.seed}")


# The work


def run_comparison(
    path: Path, plan: Plan, reporter: Reporter, *, jobs: int, force: bool, scheduler: str | None = None
) -> dict[str, Any]:
    """Run what is not complete, the first of every seed before the others; then compare all that there is."""
    folder = ComparisonFolder(path)
    with RunFolder(path).locked():
        grid.claim(folder, plan.request, plan.points, force=force)
        pending = [point for point in plan.points if not grid.is_complete(folder, point)]
        num, num_done = len(plan.points), len(plan.points) - len(pending)
        reporter.say(f"{num} runs" + (f", {num_done} of them complete already" if num_done else ""))
        first = _first_of_seeds(folder, plan.points, pending)
        counts: dict[str, Any] = {"num_points": num, "jobs": jobs, "scheduler": scheduler}
        errors = grid.run_points(folder, first, reporter, num_done=num_done, **counts)
        rest = [point for point in pending if point not in first]
        for point in rest:
            _share(folder, point, plan.points)
        errors |= grid.run_points(folder, rest, reporter, num_done=num_done + len(first), **counts)
        return _write(folder, plan, errors)


def _first_of_seeds(folder: ComparisonFolder, made: Sequence[Point], pending: Sequence[Point]) -> list[Point]:
    """Of every seed whose data are not there yet, one run that will make them."""
    first: dict[int, Point] = {}
    for point in pending:
        alike = [other for other in made if other.seed == point.seed]
        if not any(_has_start(folder.run(other)) for other in alike):
            first.setdefault(point.seed, point)
    return list(first.values())


def _has_start(run: RunFolder) -> bool:
    return run.config.is_file() and all(getattr(run, name).is_file() for name in SHARED)


def _share(folder: ComparisonFolder, point: Point, made: Sequence[Point]) -> None:
    """Begin a run with the data and the maximum-likelihood model of another, where both would come out the same."""
    run = folder.run(point)
    if run.config.is_file():  # it has begun by itself
        return
    for other in made:
        giver = folder.run(other)
        if other.name != point.name and _start_of(other) == _start_of(point) and _has_start(giver):
            words = ["langenode", *grid.command(folder, point)[3:]]
            given = {"from": other.name, "what": "data and maximum-likelihood model"}
            facts = {**point.facts, "command": words, "given": given}
            stages.Run.start(run.path, point.config, Reporter(quiet=True), force=run.provenance.exists(), facts=facts)
            for name in SHARED:  # the test set is looked at to see whether there are data, so it comes after these
                write_bytes(getattr(run, name), getattr(giver, name).read_bytes())
            return


def _start_of(point: Point) -> dict[str, Any]:
    free = {*FREE, *registry.methods()}
    return {key: value for key, value in point.config.model_dump(mode="json").items() if key not in free}


# The results


def _write(folder: ComparisonFolder, plan: Plan, errors: Mapping[str, str]) -> dict[str, Any]:
    """The page, the table and the record of all runs that were evaluated."""
    failed = dict(errors)
    for point in plan.points:
        if point.name not in failed and not folder.run(point).metrics.is_file():
            failed[point.name] = "it was not evaluated; the same command tries it again"
    runs = [folder.run(point) for point in plan.points if point.name not in failed]
    found: dict[str, Any] = comparison.compare_runs(runs, fewest=0)
    for table in found["standings"]:
        table["notes"] += _notes(plan, folder)
    found |= {"failed": failed, "refused": plan.refused}
    kept = {key: value for key, value in found.items() if key != "seeds"}  # which are in the standings, too
    record = kept | grid.record_of(plan.request) | {"complete": not failed}
    files = {folder.table: standings.table_csv(found, failed).encode(), folder.request: grid.as_json(record)}
    if runs:
        drawn = pictures.pictures(found, runs)
        files |= {folder.path / f"{name}.png": picture.content for name, picture in drawn.items()}
        seed = plan.points[0].seed
        shown = [folder.run(point) for point in plan.points if point.seed == seed and point.name not in failed]
        heading = f"{grid.title_of(plan.request)}: {len({run['method'] for run in found['runs']})} methods compared"
        page = comparison_page.render_comparison(
            found, runs, pictures=list(drawn.values()), shown=shown, heading=heading
        )
        files[folder.page] = page.encode("utf-8")
    write_together(files)
    return {"folder": str(folder.path), "files": sorted(str(file) for file in files), **record}


def _notes(plan: Plan, folder: ComparisonFolder) -> list[str]:
    """What a reader of the seconds must know."""
    times = [
        read_provenance(folder.run(point).provenance).get("seconds", {}).get("mle")
        for point in plan.points
        if folder.run(point).provenance.is_file()
    ]
    known = [time for time in times if time is not None]
    notes = []
    if known:
        notes.append(
            f"Seconds are those of the fit with compilation. The maximum-likelihood model that all begin with took "
            f"{max(known):.1f} s at most and is not counted."
        )
    budget = plan.points[0].config.budget
    if budget is not None:
        notes.append(f"The budget is {budget:g} s for a fit. Methods that cannot stop early may take longer.")
    return notes
