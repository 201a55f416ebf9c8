"""What the verbs `compare` and `sweep` do: several runs, one table and one page of them."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from langenode.cli.work import prepare_jax, print_json, refuse, refuse_unknown


def sweep_settings(
    experiment: str,
    choices: list[dict[str, Any]],
    vary: Sequence[str],
    seeds: str | None,
    out: Path | None,
    *,
    jobs: int | None,
    metric: str | None,
    force: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """A grid of runs; every point's configuration is checked before the first begins."""
    prepare_jax()
    from langenode.cli import screen
    from langenode.cli.exit_codes import EXIT_FIT
    from langenode.fitting.progress import Reporter
    from langenode.runs import sweep
    from langenode.runs.grid import parse_values

    refuse_unknown(experiment)
    values = None if seeds is None else parse_values(seeds)
    plan = sweep.make_plan(experiment, choices, sweep.parse_vary(vary), values)
    folder = Path("runs") / f"{experiment}-sweep" if out is None else out
    reporter = Reporter(verbose=verbose)
    for name, why in plan.unused:
        reporter.say(f"note: {name} has no effect with {why}")
    found = sweep.run_sweep(folder, plan, reporter, jobs=jobs, metric=metric, force=force)
    if as_json:
        print_json(found)
    else:
        screen.print_sweep(found)
        print(f"The sweep is in {folder}: {', '.join(Path(file).name for file in found['files'])}")
    if failed := found["failed"]:
        names = ", ".join(failed)
        print(
            f"langenode: every point must be fitted; {len(failed)} of {len(plan.points)} failed ({names}); "
            "see the column error of sweep.csv; the same command tries them again",
            file=sys.stderr,
        )
        sys.exit(EXIT_FIT)


def refuse_without_experiment(runs: Sequence[Path], choices: Iterable[dict[str, Any]], named: dict[str, Any]) -> None:
    """Runs have been made as they are."""
    asked = [option for option, value in named.items() if value is not None]
    if any(choices):
        asked.append("settings")
    if asked:
        refuse(f"{', '.join(asked)}: only what is run can be told how; no --experiment was named; add --experiment ou")
    if not runs:
        refuse("a comparison needs runs or an experiment; got neither; name two runs, or --experiment ou")


def compare_methods(
    experiment: str,
    choices: list[dict[str, Any]],
    methods: str | None,
    budget: str | None,
    seeds: str | None,
    out: Path | None,
    *,
    jobs: int,
    force: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """A run for each method and seed, and what they look like side by side."""
    prepare_jax()
    from langenode.cli import screen
    from langenode.cli.exit_codes import EXIT_FIT
    from langenode.fitting.progress import Reporter
    from langenode.runs import methods as running
    from langenode.runs.grid import parse_values

    refuse_unknown(experiment)
    if any("method" in choice for choice in choices):
        refuse("methods are named once; got a method among the settings; use --methods alone")
    extra = {} if budget is None else {"budget": running.parse_budget(budget)}
    names = running.parse_methods("all" if methods is None else methods)
    values = None if seeds is None else parse_values(seeds)
    plan = running.make_plan(experiment, [{"target": "posterior"}, *choices, extra], names, values)
    reporter = Reporter(verbose=verbose)
    for name in plan.unused:
        reporter.say(f"note: {name} has no effect with any of the methods")
    for name, why in plan.refused.items():
        reporter.say(f"note: {name} is not run: {why}")
    folder = Path("runs") / f"{experiment}-comparison" if out is None else out
    found = running.run_comparison(folder, plan, reporter, jobs=jobs, force=force)
    if as_json:
        print_json(found)
    else:
        screen.print_methods(found)
        print(f"The comparison is in {folder}: {', '.join(Path(file).name for file in found['files'])}")
    if failed := found["failed"]:
        print(
            f"langenode: every run must be fitted; {len(failed)} of {len(plan.points)} failed ({', '.join(failed)}); "
            "see the page or comparison.csv; the same command tries them again",
            file=sys.stderr,
        )
        sys.exit(EXIT_FIT)


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
