"""The command: verbs to pipeline. It parses, prints and exits; no science here."""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

EXIT_BUG, EXIT_INPUT, EXIT_FIT = 1, 2, 3

app = typer.Typer(
    help="Neural models of evolving processes, with uncertainty by a learned Langevin sampler.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Neural models of evolving processes, with uncertainty by a learned Langevin sampler."""


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Which demonstration: ou.")],
    method: Annotated[str | None, typer.Option(help="langevin, paper, bottleneck, gaussian-full, ...")] = None,
    target: Annotated[str | None, typer.Option(help="posterior, tempered or population.")] = None,
    stochastic: Annotated[str | None, typer.Option(help="Which weights: all or last_layer.")] = None,
    rest: Annotated[str | None, typer.Option(help="The other weights: fixed or refit.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the whole run.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/EXPERIMENT-METHOD by default.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of choices.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; repeatable.")] = None,
    force: Annotated[bool, typer.Option(help="Replace the run in the folder.")] = False,
) -> None:
    """Run a demonstration: simulate, fit, predict, evaluate.

    A folder that holds an unfinished run of the same configuration is continued where it stopped.
    """
    _prepare_jax()
    from langenode import pipeline
    from langenode.config import ConfigError, parse_overrides, read_toml
    from langenode.experiments import EXPERIMENTS
    from langenode.progress import Reporter
    from langenode.runfolder import RunFolder

    if experiment not in EXPERIMENTS:
        raise ConfigError(f"an experiment must be one of {', '.join(EXPERIMENTS)}; got {experiment!r}; choose one")
    named = {"method": method, "target": target, "stochastic": stochastic, "rest": rest, "seed": seed}
    layers = [read_toml(config)] if config is not None else []
    layers += [parse_overrides(set_ or []), {key: value for key, value in named.items() if value is not None}]
    resolved = pipeline.configure(experiment, layers)
    folder = Path("runs") / f"{experiment}-{resolved.method}" if out is None else out
    with RunFolder(folder).locked():  # before anything in it is touched
        found = pipeline.open_run(folder, resolved, Reporter(), force=force).complete()
    _print_results(found, folder)


def _prepare_jax() -> None:
    """The command runs with 64-bit on; the configuration's precision sets the arrays."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    jax.config.update("jax_enable_x64", True)


def _print_results(found: dict[str, Any], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{found['experiment']}: {found['method']}, target {found['target']}, seed {found['seed']}")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("beside it", justify="right")
    for row in _rows(found):
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print(f"Results are in {folder}: metrics.json, predictions.nc, fit.langenode and figures.", soft_wrap=True)


def _rows(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    w1, held_out = found["w1"], found["w1_held_out"]
    rows = [
        ("W1 to the data (median of draws)", f"{w1['mean']:.4g}", f"floor {w1['floor']:.4g}, ratio {w1['ratio']:.2f}"),
        ("W1 to held-out data", f"{held_out['mean']:.4g}", f"training data's own {held_out['data']:.4g}"),
        ("energy score, held out", f"{found['energy_score']:.4g}", ""),
        ("CRPS, held out", f"{found['crps']:.4g}", ""),
    ]
    rows += [(f"coverage of the {k} % band", f"{100 * v:.1f} %", "") for k, v in found["coverage"].items()]
    drawn = found.get("data_weights")
    if drawn is not None and drawn["comparable"]:
        for i, name in enumerate(("W", "b")):
            ours, theirs = found["weights"]["std"][i], drawn["std"][i]
            rows.append((f"std of {name}", f"{ours:.4f}", f"drawn {theirs:.4f}"))
        rows.append(("correlation of W and b", f"{found['weights']['corr']:.4f}", f"drawn {drawn['corr']:.4f}"))
    rows += _diagnostic_rows(found.get("posterior", {}))
    rows += [(f"seconds to {name}", f"{value:.1f}", "") for name, value in found["seconds"].items()]
    return rows


def _diagnostic_rows(diagnostics: dict[str, Any]) -> list[tuple[str, str, str]]:
    if not diagnostics:
        return []
    ess, k_hat = diagnostics["relative_ess"], diagnostics["k_hat"]
    rows = [
        ("ELBO", f"{diagnostics['elbo']:.4f}", f"s.e. {diagnostics['elbo_se']:.1g}"),
        ("log-evidence", f"{diagnostics['log_evidence']:.4f}", f"s.e. {diagnostics['log_evidence_se']:.1g}"),
        ("relative ESS", f"{ess:.4f}", ""),
    ]
    # Above 0.95 there is no tail to speak of, and k-hat says nothing.
    return rows if ess > 0.95 or k_hat is None else [*rows, ("k-hat", f"{k_hat:.2f}", "trust below 0.7")]


def main() -> None:
    """Entry point: one line for people, and an exit code for scripts (0 done, 1 our bug, 2 input, 3 the fit failed)."""
    from langenode.config import ConfigError

    warnings.showwarning = _show_warning
    try:
        app(standalone_mode=False)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        code = _exit_code(error, ConfigError)
        if code is None:
            raise
        print(f"langenode: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(code)


def _exit_code(error: Exception, config_error: type[Exception]) -> int | None:
    show = getattr(error, "show", None)
    if show is not None:  # a usage error of the command line: it prints itself
        show()
        sys.exit(EXIT_INPUT)
    from langenode.data import DataError
    from langenode.fitfile import FitFileError
    from langenode.inference import FitError
    from langenode.runfolder import RunFolderError

    if isinstance(error, FitError | FloatingPointError):
        return EXIT_FIT
    if isinstance(error, config_error | DataError | FitFileError | RunFolderError):
        return EXIT_INPUT
    return None


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"langenode: warning: {message}", file=sys.stderr)
