"""What the verbs `compare`, `sweep` and `reproduce` do: several runs, one table and one page of them."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langenode.cli.work import is_run, prepare_jax, print_json, refuse, refuse_unknown, say_reading


class Asked(NamedTuple):
    """What is asked of several runs: their choices as layers, their seeds, and where and how they are made."""

    choices: list[dict[str, Any]]
    seeds: str | None
    out: Path | None
    jobs: int | None
    force: bool
    as_json: bool
    verbose: bool
    scheduler: str | None = None


def with_columns(layers: list[dict[str, Any]], columns: dict[str, Any], file: Path | None) -> list[dict[str, Any]]:
    """The choices with the roles of columns, which only a user's file has."""
    if columns and file is None:
        refuse(
            f"columns are those of a file; got --{next(iter(columns))} without one; name the file, or drop the option"
        )
    return [*layers, {"data": columns}] if columns else layers


def sweep_settings(what: str, asked: Asked, vary: Sequence[str], metric: str | None) -> None:
    """A grid of runs; every point's configuration is checked before the first begins."""
    prepare_jax()
    from langenode.cli import screen
    from langenode.fitting.choose import asked_for
    from langenode.fitting.choose_target import is_open, settle_file
    from langenode.fitting.progress import Reporter
    from langenode.runs import sweep
    from langenode.runs.grid import parse_values

    reporter = Reporter(verbose=asked.verbose)
    subject = _subject(what)
    values = None if asked.seeds is None else parse_values(asked.seeds)
    base = asked.choices
    if not isinstance(subject, str):
        alone = subject.plan(base)
        say_reading(alone, reporter)
        if is_open(asked_for(base), alone.config):  # decided once for all points
            base = [*base, {"target": settle_file(alone, base, reporter).config.target}]
    plan = sweep.make_plan(subject, base, sweep.parse_vary(vary), values)
    for name, why in plan.unused:
        reporter.say(f"note: {name} has no effect with {why}")
    folder = Path("runs") / f"{_name(subject)}-sweep" if asked.out is None else asked.out
    _check_scheduler(asked)
    where: dict[str, Any] = {"jobs": asked.jobs, "scheduler": asked.scheduler}
    found = sweep.run_sweep(folder, plan, reporter, metric=metric, force=asked.force, **where)
    if asked.as_json:
        print_json(found)
    else:
        screen.print_sweep(found)
        print(f"The sweep is in {folder}: {', '.join(Path(file).name for file in found['files'])}")
    _exit_where_failed("point", "the column error of sweep.csv", found["failed"], len(plan.points))


def reproduce_paper(what: str, asked: Asked, *, quick: bool) -> None:
    """The runs behind the paper's results, and one page of them."""
    prepare_jax()
    from langenode.cli import screen
    from langenode.fitting.progress import Reporter
    from langenode.runs import reproduction, reproduction_plan
    from langenode.runs.grid import parse_values

    reporter = Reporter(verbose=asked.verbose)
    seeds = None if asked.seeds is None else parse_values(asked.seeds)
    plan = reproduction_plan.make_plan(what, seeds, quick=quick)
    folder = Path("runs") / ("reproduction-quick" if quick else "reproduction") if asked.out is None else asked.out
    _check_scheduler(asked)
    where: dict[str, Any] = {"jobs": asked.jobs, "scheduler": asked.scheduler}
    reproduction.say_plan(folder, plan, reporter, force=asked.force, **where)
    found = reproduction.run_reproduction(folder, plan, reporter, force=asked.force, **where)
    if asked.as_json:
        print_json(found)
    else:
        screen.print_reproduction(found)
        print(f"The reproduction is in {folder}; open {folder / 'reproduction.html'}")
    _exit_where_failed("run", "the page or request.json", found["failed"], len(plan.points))


def _check_scheduler(asked: Asked) -> None:
    """A scheduler must answer before a folder is made or, with --force, emptied; it knows how many runs go together."""
    from langenode.runs.workers import check_scheduler

    if asked.scheduler is None:
        return
    if asked.jobs is not None:
        refuse(
            f"a scheduler decides how many runs go at a time; got --jobs {asked.jobs} as well; drop it, or start as "
            "many workers"
        )
    check_scheduler(asked.scheduler)


def _subject(what: str) -> Any:
    """A demonstration by its name, or a user's file; the name of a demonstration is never a file."""
    from langenode.experiments import DEMONSTRATIONS
    from langenode.runs.own_file import OwnFile

    if what in DEMONSTRATIONS:
        return what
    if not Path(what).exists():
        refuse(
            f"an experiment must be one of {', '.join(DEMONSTRATIONS)}, or a file of your own; got {what!r}, which is "
            "neither; check the name"
        )
    return OwnFile(_data(Path(what)))


def _data(path: Path) -> Path:
    if is_run(path):
        refuse(f"several runs are made of data; {path} is the folder of a run; name the file that it was made of")
    return path


def _name(subject: Any) -> str:
    return subject if isinstance(subject, str) else subject.name


def _exit_where_failed(kind: str, where: str, failed: Mapping[str, str], num: int) -> None:
    from langenode.cli.exit_codes import EXIT_FIT

    if failed:
        print(
            f"langenode: every {kind} must be fitted; {len(failed)} of {num} failed ({', '.join(failed)}); "
            f"see {where}; the same command tries them again",
            file=sys.stderr,
        )
        sys.exit(EXIT_FIT)


def refuse_without_subject(runs: Sequence[Path], choices: Iterable[dict[str, Any]], named: dict[str, Any]) -> None:
    """Runs have been made as they are."""
    asked = [option for option, value in named.items() if value is not None]
    if any(choices):
        asked.append("settings")
    if asked:
        refuse(
            f"{', '.join(asked)}: only what is run can be told how; neither --experiment nor --data was named; add "
            "--experiment ou, or --data FILE"
        )
    if not runs:
        refuse(
            "a comparison needs runs or an experiment, or data of your own; got none of them; name two runs, "
            "--experiment ou or --data FILE"
        )


def refuse_several_subjects(runs: Sequence[Path], experiment: str | None, data: Path | None) -> None:
    """Runs, a demonstration and a file are three different questions."""
    given = {f"{len(runs)} runs": runs, f"--experiment {experiment}": experiment, f"--data {data}": data}
    named = [words for words, value in given.items() if value]
    if len(named) > 1:
        refuse(f"runs, an experiment or data are compared, not both; got {' and '.join(named)}; keep one of them")


def compare_methods(
    experiment: str | None, data: Path | None, asked: Asked, methods: str | None, budget: str | None
) -> None:
    """A run for each method and seed, and what they look like side by side."""
    prepare_jax()
    from langenode.cli import screen
    from langenode.fitting.progress import Reporter
    from langenode.runs import methods as running
    from langenode.runs.grid import parse_values
    from langenode.runs.own_file import OwnFile

    if experiment is not None:
        refuse_unknown(experiment, f"compare --data {experiment}")
    subject = OwnFile(_data(data)) if data is not None else str(experiment)
    if any("method" in choice for choice in asked.choices):
        refuse("methods are named once; got a method among the settings; use --methods alone")
    extra = {} if budget is None else {"budget": running.parse_budget(budget)}
    names = running.parse_methods("all" if methods is None else methods)
    values = None if asked.seeds is None else parse_values(asked.seeds)
    plan = running.make_plan(subject, [{"target": "posterior"}, *asked.choices, extra], names, values)
    reporter = Reporter(verbose=asked.verbose)
    if isinstance(subject, OwnFile):
        _say_own(subject, asked.choices, reporter)
    for name in plan.unused:
        reporter.say(f"note: {name} has no effect with any of the methods")
    for name, why in plan.refused.items():
        reporter.say(f"note: {name} is not run: {why}")
    folder = Path("runs") / f"{_name(subject)}-comparison" if asked.out is None else asked.out
    _check_scheduler(asked)
    where: dict[str, Any] = {"jobs": asked.jobs or 1, "scheduler": asked.scheduler}
    found = running.run_comparison(folder, plan, reporter, force=asked.force, **where)
    if asked.as_json:
        print_json(found)
    else:
        screen.print_methods(found)
        print(f"The comparison is in {folder}: {', '.join(Path(file).name for file in found['files'])}")
    _exit_where_failed("run", "the page or comparison.csv", found["failed"], len(plan.points))


def _say_own(subject: Any, choices: list[dict[str, Any]], reporter: Any) -> None:
    """How a file was read, and whether a fit would ask another question than a comparison does by default."""
    alone = subject.plan(choices)
    say_reading(alone, reporter)
    if alone.config.target != "posterior" and not any("target" in choice for choice in choices):
        why = next(choice.why for choice in alone.choices if choice.what == "target")
        reporter.say(
            f"note: methods are compared on the posterior; fit would take target {alone.config.target} ({why}); add "
            f"--target {alone.config.target} to compare those that serve it"
        )


def compare_runs(runs: Sequence[Path], out: Path, *, force: bool, as_json: bool) -> None:
    """One table and one page for several runs."""
    from langenode.cli import screen
    from langenode.reports import comparison, comparison_page, pictures
    from langenode.storage.folder import RunFolder, write_text

    if out.exists() and not force:
        refuse(f"results are not overwritten; {out} is there already; use --force or another --out")
    folders = [RunFolder(path) for path in runs]
    found = comparison.compare_runs(folders)
    drawn = pictures.pictures(found, folders).values()
    write_text(out, comparison_page.render_comparison(found, folders, pictures=list(drawn)))
    if as_json:
        print_json(found | {"page": str(out)})
    else:
        screen.print_comparison(found)
        screen.print_standings(found)
        for note in found["notes"]:
            print(note)
        print(f"The page is {out}")
