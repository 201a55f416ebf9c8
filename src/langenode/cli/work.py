"""What verbs do: choices into layers, stages of a run, and what is said at the end."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from langenode.cli import streams

# Choices


def layers(config: Path | None, overrides: Sequence[str] | None, **named: Any) -> list[dict[str, Any]]:
    """The user's choices, the particular over the general: a file, `--set`, and options of their own."""
    from langenode.config import parse_overrides, read_toml

    files = [read_toml(config)] if config is not None else []
    return [*files, parse_overrides(overrides or []), {key: value for key, value in named.items() if value is not None}]


def columns(
    trajectory: str | None,
    time: str | None,
    inputs: str | None,
    outputs: str | None,
    initial: str | None,
    condition: str | None,
    unit: str | None,
) -> dict[str, Any]:
    """The roles of columns that were named, lists at their commas."""
    lists = {"inputs": inputs, "outputs": outputs, "initial": initial}
    found: dict[str, Any] = {
        part: tuple(name.strip() for name in names.split(",") if name.strip())
        for part, names in lists.items()
        if names is not None
    }
    single = {"trajectory": trajectory, "time": time, "condition": condition, "unit": unit}
    return found | {part: name for part, name in single.items() if name is not None}


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run, rather than data; `check` may have put a config.toml among tables."""
    from langenode.data import table_files
    from langenode.storage.folder import RunFolder

    folder = RunFolder(path)
    return folder.is_run or (folder.config.is_file() and not table_files(path))


def refuse(message: str) -> None:
    """Stop because of the user's input."""
    from langenode.config import ConfigError

    raise ConfigError(message)


def refuse_options_of_a_run(choices: Iterable[dict[str, Any]], named: dict[str, Any], out: Path | None) -> None:
    """A run's choices were made when it was started."""
    if any(choices) or named or out is not None:
        refuse("a run has its choices in its config.toml already; others were given; start a new run to change them")


# Verbs


def demonstrate(
    experiment: str,
    choices: list[dict[str, Any]],
    out: Path | None,
    last: Any,
    *,
    force: bool,
    as_json: bool,
    verbose: bool,
    place: Any = None,
) -> None:
    """Start or go on with a demonstration, up to the stage `last`; as one of several processes at a `place`."""
    prepare_jax(is_alone=place is None)
    from langenode.fitting import choose
    from langenode.fitting.progress import Reporter
    from langenode.runs import parallel, stages
    from langenode.storage.folder import RunFolder

    refuse_unknown(experiment)
    config = choose.configure(experiment, choices)
    folder = Path("runs") / f"{experiment}-{config.method}" if out is None else out
    if place is not None:
        parallel.check(config)
    with parallel.team(place, _end_lost) as team, team.folder(folder) as mine:
        reporter = Reporter(verbose=verbose, quiet=not team.is_first)
        with RunFolder(mine).locked():  # before anything in it is touched
            run = stages.open_run(mine, config, reporter, force=force and team.is_first)
            team.share(mine)
            _say_unused(config, choices, reporter)
            team.complete(run, last)
    if team.is_first:
        _finish(folder, as_json=as_json)


def place(distributed: bool, coordinator: str | None, num_processes: int | None, process_id: int | None) -> Any:
    """Where this process meets the others of its run; None where it is alone."""
    from langenode.runs import parallel

    named = {"--coordinator": coordinator, "--num-processes": num_processes, "--process-id": process_id}
    given = [name for name, value in named.items() if value is not None]
    if distributed:
        return parallel.place_of(coordinator, num_processes, process_id, os.environ)
    if given:
        refuse(f"{' and '.join(given)} go with --distributed; it was not given; add it")
    return None


def _end_lost(message: str) -> None:
    """End the process from a thread: another one is lost, and the main thread may wait for it inside a program."""
    from langenode.cli.exit_codes import EXIT_FIT
    from langenode.storage import interrupts

    if interrupts.is_ending():  # for a reason of its own, which it is just saying
        return
    interrupts.tidy_up()
    streams.say_at_once(f"langenode: {message}")
    os._exit(EXIT_FIT)


def refuse_unknown(experiment: str, verb: str = "fit") -> None:
    """A demonstration must be one that there is; `verb` is what serves a file."""
    from langenode.experiments import DEMONSTRATIONS

    if experiment not in DEMONSTRATIONS:
        hint = f"for a file of your own: langenode {verb}" if Path(experiment).exists() else "choose one"
        refuse(f"an experiment must be one of {', '.join(DEMONSTRATIONS)}; got {experiment!r}; {hint}")


def fit_own_data(
    data: Path,
    choices: list[dict[str, Any]],
    out: Path | None,
    *,
    force: bool,
    as_json: bool,
    verbose: bool,
    place: Any = None,
) -> None:
    """The whole road for a file of the user's own; as one of several processes at a `place`."""
    prepare_jax(is_alone=place is None)
    from langenode.fitting.choose_target import settle_file
    from langenode.fitting.plan import plan_file
    from langenode.fitting.progress import Reporter
    from langenode.runs import parallel, stages
    from langenode.runs.own_file import facts_of, recorded_target
    from langenode.storage.folder import RunFolder

    reporter = Reporter(verbose=verbose, quiet=place is not None and place.rank > 0)
    with reporter.task(f"reading {data}"):
        plan = plan_file(data, choices)
    folder = Path("runs") / data.resolve().stem if out is None else out
    _refuse_data_of_the_run(data, folder)
    with parallel.team(place, _end_lost) as team, team.folder(folder) as mine, RunFolder(mine).locked():
        force = force and team.is_first
        recorded = None if force else recorded_target(mine, plan)
        if force or recorded or RunFolder(mine).is_empty:  # a folder that will be refused is refused at once
            plan = settle_file(plan, choices, reporter, recorded)
        if place is not None:
            parallel.check(plan.config)
        run = stages.open_run(mine, plan.config, reporter, force=force, facts=facts_of(plan), splits=plan.splits)
        team.share(mine)
        say_reading(plan, reporter)
        for choice in plan.choices:
            reporter.say(f"{choice.what}: {choice.chosen} ({choice.why})")
        _say_unused(plan.config, choices, reporter)
        del plan  # the table as it was read is as large as the data of the run
        team.complete(run)
    if team.is_first:
        _finish(folder, as_json=as_json)


def say_reading(plan: Any, reporter: Any) -> None:
    """How the columns of a file were read, and what is doubtful or odd about it."""
    for role, reason in plan.reading.reasons.items():
        reporter.say(f"{role}: {reason}")
    for line in (*(f"doubt: {doubt.line()}" for doubt in plan.doubts), *(f"warning: {w}" for w in plan.warnings)):
        reporter.say(line)


def _refuse_data_of_the_run(data: Path, folder: Path) -> None:
    """The data must not be replaced by the run that is made of them."""
    from langenode.storage.folder import RunFolder

    if data.resolve() in [path.resolve() for path in RunFolder(folder).own_files()]:
        refuse(f"data must lie outside of the run made of them; {data} is a file of {folder}; use another --out")


def do_stage(path: Path, stage: Any, *, force: bool, as_json: bool, verbose: bool) -> None:
    """One stage of a run, after the missing ones before it."""
    prepare_jax()
    from langenode.fitting.progress import Reporter
    from langenode.runs import stages
    from langenode.storage.folder import RunFolder

    stages.existing_run(path, Reporter(quiet=True))  # a folder that is no run gets no lock file
    with RunFolder(path).locked():
        run = stages.existing_run(path, Reporter(verbose=verbose))
        if force and run.product(stage).exists():
            run.redo(stage)
        elif run.product(stage).exists():
            run.reporter.say(f"{run.product(stage)} is there already; use --force to make it again")
        run.complete(stage)
    _finish(path, as_json=as_json)


def predict_new_data(
    fit: Path,
    data: Path,
    named: dict[str, Any],
    out: Path | None,
    *,
    samples: int | None,
    seed: int | None,
    force: bool,
    as_json: bool,
    given: bool = False,
) -> None:
    """Bands for new data from a fit alone."""
    prepare_jax()
    from langenode.fitting.progress import Reporter
    from langenode.runs import new_data

    path = fit / "fit.langenode" if fit.is_dir() else fit
    stem = Path(f"{data.resolve().stem}-bands") if out is None else out
    with Reporter().task(f"predicting {data}"):
        options = {"num_samples": samples, "seed": seed, "force": force, "given": given}
        written = new_data.predict_file(path, data, named, stem, **options)
    if as_json:
        print_json(written)
    else:
        print(f"{written['samples']} samples for {written['conditions']} trajectories or conditions:")
        print("\n".join(written["files"]))


def check_data(data: Path, named: dict[str, Any], out: Path, *, force: bool, as_json: bool) -> None:
    """What is in a user's file, what would be done with it, and a starting configuration."""
    from langenode.cli import screen
    from langenode.data import DataError, summarise
    from langenode.fitting.plan import as_planned, plan_file
    from langenode.fitting.starter import starter_toml
    from langenode.storage.folder import write_text

    try:
        plan = plan_file(data, [{"data": named}])
    except DataError as error:
        if error.facts and not as_json:
            screen.print_facts(error.facts)
        raise
    summary = summarise(as_planned(plan)) | {
        "choices": [choice._asdict() for choice in plan.choices],
        "warnings": list(plan.warnings),
    }
    folder = Path("runs") / data.resolve().stem
    text = starter_toml(plan.config, plan.choices, command=_fit_command(data, out, {}, folder))
    is_kept = out.exists() and not force and out.read_text(encoding="utf-8", errors="replace") != text
    if not is_kept:
        write_text(out, text)
    # An earlier configuration, which may be of other data, is no part of the advice.
    advice = _fit_command(data, None, named, folder) if is_kept else _fit_command(data, out, {}, folder)
    if as_json:
        print_json(summary | {"config": str(out), "config_written": not is_kept, "next": advice})
        return
    screen.print_summary(summary, data)
    left = f"{out} is there already and was left alone; use --force, or --out for another name"
    print(left if is_kept else f"A starting configuration is in {out}")
    print(f"Next: {advice}")


def _fit_command(data: Path, config: Path | None, named: dict[str, Any], folder: Path) -> str:
    """The command that fits these data, as a shell takes it."""
    import shlex

    words = ["langenode", "fit", str(data)]
    words += [] if config is None else ["--config", str(config)]
    for part, names in named.items():
        words += [f"--{part}", names if isinstance(names, str) else ",".join(names)]
    # A folder of tables is not the place for its own results: they would be inside what is read.
    return shlex.join([*words, "--out", str(folder)])


def list_methods(*, as_json: bool) -> None:
    """The registry of methods, for people or as JSON."""
    from langenode.cli import screen
    from langenode.fitting.methods import methods

    rows = [
        {
            "name": method.name,
            "kind": method.kind,
            "targets": list(method.targets),
            "summary": method.summary,
            "options": [f"{method.name}.{key}" for key in method.options.model_fields],
        }
        for method in methods().values()
    ]
    if as_json:
        print_json(rows)
    else:
        screen.print_methods_known(rows)


# What is said


def prepare_jax(*, is_alone: bool = True) -> None:
    """The command runs with 64-bit on, the configuration's precision sets the arrays; programs are kept on disk.

    Unless it is one of several processes its cores are devices.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    from langenode.cli import programs
    from langenode.inference import sharding

    jax.config.update("jax_enable_x64", True)
    programs.keep()
    if is_alone:
        sharding.use_cores()


def _finish(path: Path, *, as_json: bool) -> None:
    """Show what a run has so far."""
    from langenode.cli import screen
    from langenode.storage.folder import RunFolder, RunFolderError, read_metrics

    folder = RunFolder(path)
    found = read_metrics(folder) if folder.metrics.exists() else None
    if as_json:
        files = sorted(str(entry) for entry in path.iterdir() if not entry.name.startswith("."))
        print_json({"run": str(path), "files": files, "metrics": found})
        return
    if found is not None:
        try:
            screen.print_results(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunFolderError(
                f"{folder.metrics} must hold what evaluate writes; it does not ({type(error).__name__}: {error}); "
                f"run: langenode evaluate {path} --force"
            ) from error
    print(f"The run is in {path}" + (f"; open {folder.report}" if folder.report.exists() else ""))


def _say_unused(config: Any, choices: Iterable[dict[str, Any]], reporter: Any) -> None:
    from langenode.config import to_toml
    from langenode.fitting.choose import unused_options

    for name, why in unused_options(config, choices):
        reporter.say(f"note: {name} has no effect with {why}")
    if reporter.verbose:
        reporter.say(to_toml(config))


def print_json(record: Any) -> None:
    """A record on standard output."""
    from langenode.storage.folder import plain

    out = streams.output()
    json.dump(plain(record), out, indent=2, allow_nan=False)
    print(file=out, flush=True)
