"""The verbs of the command, each a page of help."""

from pathlib import Path
from typing import Annotated

import typer

from langenode.cli import several, simulations, work
from langenode.cli.options import (
    Budget,
    CompareData,
    CompareJobs,
    CompareOut,
    Condition,
    ConfigFile,
    Coordinator,
    DataArgument,
    Distributed,
    Experiment,
    ExperimentArgument,
    Force,
    Grid,
    Initial,
    Inputs,
    Jobs,
    Json,
    Loadings,
    Method,
    Methods,
    Metric,
    Microstructures,
    NumProcesses,
    Out,
    Outputs,
    ProcessId,
    Quick,
    ReproduceArgument,
    ReproduceJobs,
    ReproduceOut,
    ReproduceSeeds,
    Rest,
    RunArgument,
    Scheduler,
    Seed,
    Seeds,
    Set,
    SetBoundary,
    SetSolver,
    Stochastic,
    SubjectArgument,
    SweepOut,
    Target,
    Time,
    Trajectory,
    Unit,
    Vary,
    Verbose,
    Workers,
)
from langenode.experiments import DEMONSTRATIONS

EPILOG = """
**Examples**

`langenode run ou` — a demonstration, from nothing to runs/ou-langevin/report.html

`langenode check readings.csv` — what is in a table of your own, and a starting config.toml

`langenode fit readings.csv --out runs/mine` — a model with bands, and its report

`langenode predict runs/mine --data new.csv` — bands for new inputs or starts

**Exit codes**: 0 done, 1 a bug of ours, 2 your input, 3 the fit failed, 130 interrupted,
143 terminated (the same command resumes).
"""

app = typer.Typer(
    help="Neural models of evolving processes, with uncertainty by a learned Langevin sampler.",
    epilog=EPILOG,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(epilog=EPILOG, invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Neural models of evolving processes, with uncertainty by a learned Langevin sampler."""
    if version:
        from langenode._version import __version__

        print(f"langenode {__version__}")
        raise typer.Exit


@app.command(
    epilog="**Examples**: `langenode run ou` · `langenode run ou --target posterior --seed 3` · "
    "`langenode run schlogl --set model.noise=true` · "
    "`langenode run hyperelastic --stochastic last_layer --rest refit` · "
    "`langenode run viscoelastic --set model.law=paper` · "
    "`langenode run ou --method gaussian-full --set training.num_updates=500 --out runs/bbvi`"
)
def run(
    experiment: ExperimentArgument,
    method: Method = None,
    target: Target = None,
    stochastic: Stochastic = None,
    rest: Rest = None,
    seed: Seed = None,
    out: Out = None,
    config: ConfigFile = None,
    set_: Set = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
) -> None:
    """Run a demonstration: simulate, fit, predict, evaluate, report.

    A folder that holds an unfinished run of the same configuration is continued where it stopped.
    """
    layers = work.layers(config, set_, method=method, target=target, stochastic=stochastic, rest=rest, seed=seed)
    place = work.place(distributed, coordinator, num_processes, process_id)
    work.demonstrate(experiment, layers, out, "report", force=force, as_json=json_, verbose=verbose, place=place)


@app.command(
    epilog="**Examples**: `langenode simulate ou --out runs/a`, then `langenode fit runs/a` · "
    "`langenode simulate viscoelastic --solver fe --microstructures 16 --loadings 24 --workers 2`"
)
def simulate(
    experiment: ExperimentArgument,
    method: Method = None,
    target: Target = None,
    seed: Seed = None,
    solver: SetSolver = None,
    microstructures: Microstructures = None,
    loadings: Loadings = None,
    grid: Grid = None,
    boundary: SetBoundary = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    out: Out = None,
    config: ConfigFile = None,
    set_: Set = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make the data of a demonstration in a new run folder; the other stages can follow one by one.

    --solver fe: a set of finite-strain simulations of a composite instead, side by side; the same command resumes.
    """
    layers = work.layers(config, set_, method=method, target=target, seed=seed)
    asked = simulations.AskedSet(microstructures, loadings, grid, boundary, workers, scheduler)
    if solver is not None:
        how = {"force": force, "as_json": json_, "verbose": verbose}
        simulations.simulate_set(experiment, layers, out, asked, **how)
        return
    simulations.refuse_without_solver(asked)
    work.demonstrate(experiment, layers, out, "simulate", force=force, as_json=json_, verbose=verbose)


@app.command(
    epilog="**Examples**: `langenode fit readings.csv --out runs/mine` · "
    "`langenode fit folder-of-csv --inputs force --outputs x,v` · `langenode fit runs/a` (a run that has data)"
)
def fit(
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/NAME-OF-THE-FILE by default.")] = None,
    method: Method = None,
    target: Target = None,
    stochastic: Stochastic = None,
    rest: Rest = None,
    seed: Seed = None,
    config: ConfigFile = None,
    set_: Set = None,
    trajectory: Trajectory = None,
    time: Time = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    initial: Initial = None,
    condition: Condition = None,
    unit: Unit = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
) -> None:
    """Fit your own data: read, divide, choose a model, fit, predict, evaluate, report.

    With no further choice a model, a target and a method are chosen from the data, and said with the reason. Given the
    folder of a run that was simulated, its fit stage is done.
    """
    columns = work.columns(trajectory, time, inputs, outputs, initial, condition, unit)
    layers = work.layers(config, set_, method=method, target=target, stochastic=stochastic, rest=rest, seed=seed)
    place = work.place(distributed, coordinator, num_processes, process_id)
    if work.is_run(data):
        work.refuse_options_of_a_run(layers, columns, out)
        if place is not None:
            work.refuse(f"several processes go on with a run by the command that began it; got fit {data}; repeat that")
        work.do_stage(data, "fit", force=force, as_json=json_, verbose=verbose)
    else:
        layers = [*layers, {"data": columns}]
        work.fit_own_data(data, layers, out, force=force, as_json=json_, verbose=verbose, place=place)


@app.command(
    epilog="**Examples**: `langenode predict runs/mine --data new.csv` · "
    "`langenode predict law.langenode --data new.csv --out bands` (writes bands.nc, bands.csv, bands.png) · "
    "`langenode predict runs/units --data new.csv --given` (units whose first readings are known)"
)
def predict(
    fit_: Annotated[Path, typer.Argument(metavar="FIT", help="A .langenode file, or the folder of a run.")],
    data: Annotated[Path | None, typer.Option(help="New inputs or starts, in a file like the one fitted.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write, without suffix; NAME-bands by default.")] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples.", min=2)] = None,
    given: Annotated[
        bool, typer.Option("--given", help="Take the readings in NEW as known, and predict the rest (hierarchical).")
    ] = False,
    seed: Seed = None,
    trajectory: Trajectory = None,
    time: Time = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    initial: Initial = None,
    condition: Condition = None,
    unit: Unit = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Bands for new data from a fit alone, as NetCDF, CSV and a picture; without --data, the predict stage of a run."""
    if data is None:
        if not fit_.is_dir():
            work.refuse(
                f"predictions need new data; only {fit_} was named; add --data NEW, or name the folder of a run"
            )
        work.do_stage(fit_, "predict", force=force, as_json=json_, verbose=verbose)
    else:
        columns = work.columns(trajectory, time, inputs, outputs, initial, condition, unit)
        work.predict_new_data(
            fit_, data, columns, out, samples=samples, seed=seed, force=force, as_json=json_, given=given
        )


@app.command(epilog="**Example**: `langenode evaluate runs/mine`")
def evaluate(run_: RunArgument, force: Force = False, json_: Json = False, verbose: Verbose = False) -> None:
    """Score a run on its test data: metrics.json and figures. Missing earlier stages are done first."""
    work.do_stage(run_, "evaluate", force=force, as_json=json_, verbose=verbose)


@app.command(epilog="**Example**: `langenode report runs/mine`")
def report(run_: RunArgument, force: Force = False, json_: Json = False, verbose: Verbose = False) -> None:
    """Make report.html of a run. Missing earlier stages are done first."""
    work.do_stage(run_, "report", force=force, as_json=json_, verbose=verbose)


@app.command(
    epilog="**Examples**: `langenode compare runs/ou-langevin runs/ou-gaussian-full --out comparison.html` · "
    "`langenode compare --experiment ou --methods all --budget 60s` · "
    "`langenode compare --data readings.csv --methods guided,laplace,langevin --seeds 1,2,3` · "
    "`langenode compare --experiment ou --methods guided,nuts,laplace --seeds 1,2,3 --out runs/three`"
)
def compare(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN...", help="Two or more evaluated runs.")] = None,
    experiment: Experiment = None,
    data: CompareData = None,
    methods: Methods = None,
    budget: Budget = None,
    seeds: Seeds = None,
    target: Target = None,
    stochastic: Stochastic = None,
    out: CompareOut = None,
    jobs: CompareJobs = None,
    scheduler: Scheduler = None,
    config: ConfigFile = None,
    set_: Set = None,
    trajectory: Trajectory = None,
    time: Time = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    initial: Initial = None,
    condition: Condition = None,
    unit: Unit = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Put runs side by side, or run methods on a demonstration or your own data and put them side by side.

    RUN...: ranked by scores that no method was trained on. --experiment, --data: a run for each method and seed on the
    same data, by default of the posterior, with distances to a reference, diagnostics and times. A method that fails
    does not stop the others; the same command resumes with what is missing.
    """
    columns = work.columns(trajectory, time, inputs, outputs, initial, condition, unit)
    chosen = several.with_columns(work.layers(config, set_, target=target, stochastic=stochastic), columns, data)
    several.refuse_several_subjects(runs or [], experiment, data)
    if experiment is None and data is None:
        named = {"--methods": methods, "--budget": budget, "--seeds": seeds, "--scheduler": scheduler}
        several.refuse_without_subject(runs or [], chosen, named)
        several.compare_runs(runs or [], out or Path("comparison.html"), force=force, as_json=json_)
        return
    asked = several.Asked(chosen, seeds, out, jobs, force, json_, verbose, scheduler)
    several.compare_methods(experiment, data, asked, methods, budget)


@app.command(
    epilog="**Examples**: `langenode sweep ou --vary langevin.num_steps=2,4,8,16,32 --seeds 1,2,3` · "
    "`langenode sweep readings.csv --vary model.num_hidden=1,2,4 --seeds 1,2` · "
    "`langenode sweep ou --vary training.num_samples=32,64,128 --vary model.layers=[[],[8]] --out runs/samples` "
    "(one folder per point, sweep.csv, sweep.png)"
)
def sweep(
    subject: SubjectArgument,
    vary: Vary = None,
    seeds: Seeds = None,
    method: Method = None,
    target: Target = None,
    stochastic: Stochastic = None,
    rest: Rest = None,
    out: SweepOut = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    metric: Metric = None,
    config: ConfigFile = None,
    set_: Set = None,
    trajectory: Trajectory = None,
    time: Time = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    initial: Initial = None,
    condition: Condition = None,
    unit: Unit = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a demonstration, or fit your own data, at every combination of settings; one table and one figure of all.

    Each point is a run of its own in the folder. A point that fails does not stop the others; the same command
    runs what is missing. The figure has the first setting on its axis and a line for each value of the others.
    """
    layers = work.layers(config, set_, method=method, target=target, stochastic=stochastic, rest=rest)
    columns = work.columns(trajectory, time, inputs, outputs, initial, condition, unit)
    file = None if subject in DEMONSTRATIONS else Path(subject)
    layers = several.with_columns(layers, columns, file)
    asked = several.Asked(layers, seeds, out, jobs, force, json_, verbose, scheduler)
    several.sweep_settings(subject, asked, vary or [], metric)


@app.command(
    epilog="**Examples**: `langenode reproduce --quick` · `langenode reproduce ou --seeds 1,2,3` · "
    "`langenode reproduce all --jobs 2 --out runs/paper`"
)
def reproduce(
    what: ReproduceArgument = "all",
    quick: Quick = False,
    seeds: ReproduceSeeds = None,
    jobs: ReproduceJobs = None,
    scheduler: Scheduler = None,
    out: ReproduceOut = None,
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make every number and figure of the paper: by the method as printed and by our default, on one page.

    The number of runs and an estimate of their time are said first. Each run is a folder of its own; the same command
    resumes with what is missing. Writes reproduction.html and reproduction.json.
    """
    asked = several.Asked([], seeds, out, jobs, force, json_, verbose, scheduler)
    several.reproduce_paper(what, asked, quick=quick)


@app.command(
    epilog="**Examples**: `langenode check readings.csv` · "
    "`langenode check folder-of-csv --time t --outputs stress --inputs strain`"
)
def check(
    data: DataArgument,
    trajectory: Trajectory = None,
    time: Time = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    initial: Initial = None,
    condition: Condition = None,
    unit: Unit = None,
    out: Annotated[Path, typer.Option(help="The starting configuration to write.")] = Path("config.toml"),
    force: Force = False,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read a file of your own, say what was understood, and write a starting config.toml with comments."""
    columns = work.columns(trajectory, time, inputs, outputs, initial, condition, unit)
    work.check_data(data, columns, out, force=force, as_json=json_)


@app.command(epilog="**Examples**: `langenode methods --json` · `langenode run ou --target posterior --method nuts`")
def methods(json_: Json = False, verbose: Verbose = False) -> None:
    """List the methods: what each is, which targets it serves, and its options."""
    del verbose  # all is said
    work.list_methods(as_json=json_)
