"""Options and arguments that verbs share."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from langenode.experiments import DEMONSTRATIONS
from langenode.fitting.methods import methods


def _among(*words: str) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more: configuration, every block, tracebacks.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Method = Annotated[
    str | None,
    typer.Option(
        help=f"Which sampler: {', '.join(methods())}; see langenode methods.", autocompletion=_among(*methods())
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="What is inferred: posterior, tempered, population or hierarchical.",
        autocompletion=_among("posterior", "tempered", "population", "hierarchical"),
    ),
]
Stochastic = Annotated[
    str | None,
    typer.Option(
        help="Which weights: all, last_layer, last_two_layers, unit (latent inputs), structure (of a law) or none.",
        autocompletion=_among("all", "last_layer", "last_two_layers", "last_three_layers", "unit", "structure", "none"),
    ),
]
Rest = Annotated[
    str | None, typer.Option(help="The other weights: fixed or refit.", autocompletion=_among("fixed", "refit"))
]
Seed = Annotated[int | None, typer.Option(help="Seed of the whole run.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file of choices.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="section.key=value; repeatable.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
_COLUMNS = "Columns of your file"
Trajectory = Annotated[
    str | None, typer.Option(help="Column that distinguishes trajectories.", rich_help_panel=_COLUMNS)
]
Time = Annotated[str | None, typer.Option(help="Column of the time.", rich_help_panel=_COLUMNS)]
Inputs = Annotated[str | None, typer.Option(help="Columns of inputs: A,B.", rich_help_panel=_COLUMNS)]
Outputs = Annotated[str | None, typer.Option(help="Columns of outputs: C,D.", rich_help_panel=_COLUMNS)]
Initial = Annotated[str | None, typer.Option(help="Columns of the start: E,F.", rich_help_panel=_COLUMNS)]
Condition = Annotated[
    str | None, typer.Option(help="Column that says which trajectories are replicates.", rich_help_panel=_COLUMNS)
]
Unit = Annotated[str | None, typer.Option(help="Column of the specimen.", rich_help_panel=_COLUMNS)]


ExperimentArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help=f"Which demonstration: {', '.join(DEMONSTRATIONS)}.",
        autocompletion=_among(*DEMONSTRATIONS),
    ),
]
SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT|DATA",
        help=f"Which demonstration ({', '.join(DEMONSTRATIONS)}), or a file of your own.",
        autocompletion=_among(*DEMONSTRATIONS),
    ),
]
Out = Annotated[Path | None, typer.Option(help="The run folder; runs/EXPERIMENT-METHOD by default.")]
Experiment = Annotated[
    str | None,
    typer.Option(
        metavar="EXPERIMENT",
        help=f"Run methods on this demonstration: {', '.join(DEMONSTRATIONS)}.",
        autocompletion=_among(*DEMONSTRATIONS),
    ),
]
CompareData = Annotated[
    Path | None, typer.Option("--data", metavar="DATA", help="Run methods on this file of your own, as fit reads it.")
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Which methods: all (but paper, which is slow), or langevin,nuts,... or all,paper.",
        autocompletion=_among("all", *methods()),
    ),
]
Budget = Annotated[str | None, typer.Option(help="Seconds that a fit may take: 60s, 2m or 90.", metavar="TIME")]
CompareOut = Annotated[
    Path | None,
    typer.Option(help="The page to write (comparison.html), or the folder (runs/NAME-comparison)."),
]
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", help="section.key=value,value; repeatable. Lists as [[8],[16,16]]."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds of every point, or method: 1,2,3.")]
SweepOut = Annotated[Path | None, typer.Option(help="The sweep's folder; runs/NAME-sweep by default.")]
Jobs = Annotated[int | None, typer.Option(help="How many points at a time; as many as cores by default.", min=1)]
CompareJobs = Annotated[
    int | None,
    typer.Option(help="How many runs at a time, 1 by default; their times suffer from each other.", min=1),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run by the workers of the Dask scheduler at this address, e.g. tcp://10.0.0.1:8786 "
        "(pip install 'langenode[cluster]').",
    ),
]
_SEVERAL = "Several processes"
Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed",
        help="One of several processes that make the run together; by the options below, or as a task of SLURM.",
        rich_help_panel=_SEVERAL,
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where the first process listens.", rich_help_panel=_SEVERAL),
]
NumProcesses = Annotated[int | None, typer.Option(help="How many processes.", rich_help_panel=_SEVERAL)]
ProcessId = Annotated[int | None, typer.Option(help="Which of them this is; 0 is the first.", rich_help_panel=_SEVERAL)]
SetSolver = Annotated[
    Literal["fe"] | None, typer.Option(help="fe: finite-strain finite elements of the composite, six components.")
]
Microstructures = Annotated[int | None, typer.Option(help="With --solver fe: microstructures, 16 by default.", min=1)]
Loadings = Annotated[int | None, typer.Option(help="With --solver fe: loadings of each, 24 by default.", min=1)]
Grid = Annotated[int | None, typer.Option(help="With --solver fe: voxels along an edge, 8 by default.", min=2)]
SetBoundary = Annotated[
    Literal["periodic", "faces"] | None,
    typer.Option("--boundary", help="With --solver fe: a periodic cell by default, or faces that stay flat."),
]
Workers = Annotated[
    int | None, typer.Option(help="With --solver fe: processes side by side; as many as cores by default.", min=1)
]
ReproduceArgument = Annotated[
    str,
    typer.Argument(
        metavar="[all|ou|schlogl|hyperelastic|viscoelastic]",
        help="Which results of the paper.",
        autocompletion=_among("all", *DEMONSTRATIONS),
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Small settings, to see that everything runs; the numbers are not results.")
]
ReproduceOut = Annotated[
    Path | None, typer.Option(help="The folder of runs and page; runs/reproduction, or runs/reproduction-quick.")
]
ReproduceSeeds = Annotated[str | None, typer.Option(help="Seeds of every run: 1,2,3 by default, with --quick 1.")]
ReproduceJobs = Annotated[int | None, typer.Option(help="How many runs at a time; as many as cores by default.", min=1)]
Metric = Annotated[
    str | None,
    typer.Option(help="The column of sweep.csv to draw; w1_exact.relative, w1.ratio or crps by default."),
]

DataArgument = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A CSV, TSV, Parquet, NetCDF or npz file, or a folder of CSV files."),
]
