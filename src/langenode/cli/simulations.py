"""What the verb `simulate` does with --solver fe: a set of finite-strain simulations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langenode.cli.work import prepare_jax, print_json, refuse, refuse_unknown

WITH_SIMULATIONS = ("hyperelastic", "viscoelastic")


class AskedSet(NamedTuple):
    """The options of a set; None where the user said nothing."""

    microstructures: int | None
    loadings: int | None
    grid: int | None
    boundary: str | None
    workers: int | None
    scheduler: str | None

    @property
    def given(self) -> list[str]:
        """The names of the options that were given."""
        return [name for name, value in self._asdict().items() if value is not None]


def refuse_without_solver(asked: AskedSet) -> None:
    """Options of the finite-strain solver say nothing to the others."""
    if asked.given:
        refuse(f"--{asked.given[0]} is an option of --solver fe; it was given without; add --solver fe, or drop it")


def simulate_set(
    experiment: str,
    choices: Sequence[dict[str, Any]],
    out: Path | None,
    asked: AskedSet,
    *,
    force: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Simulate microstructures under loadings, and say what was made."""
    prepare_jax()
    from langenode.fitting import choose
    from langenode.fitting.progress import Reporter
    from langenode.runs import simulations

    refuse_unknown(experiment)
    if experiment not in WITH_SIMULATIONS:
        refuse(f"--solver fe simulates {' or '.join(WITH_SIMULATIONS)}; got {experiment}; drop the option")
    plan = plan_of(choose.configure(experiment, list(choices)), asked)
    folder = Path("runs") / f"{experiment}-fe" if out is None else out
    where: dict[str, Any] = {"workers": asked.workers, "scheduler": asked.scheduler}
    found = simulations.simulate_set(folder, plan, Reporter(verbose=verbose), **where, force=force)
    if as_json:
        print_json(found)
        return
    failed = f"; {len(found['failures'])} failed and are left out" if found["failures"] else ""
    print(f"{found['simulations']} simulations in {found['cpu_seconds']:.0f} s of CPU{failed}")
    print(f"The set is in {', '.join(found['files'])}")
    print(f"Next: langenode run {experiment} --set data.source=fe --set data.fe_set={found['files'][0]}")


def plan_of(config: Any, asked: AskedSet) -> Any:
    """The plan of a set: its own options, and what the demonstration's data are otherwise made of."""
    from langenode.simulators.composite.finite_strain import sets

    own = {
        "num_microstructures": asked.microstructures,
        "num_loadings": asked.loadings,
        "resolution": asked.grid,
        "boundary": asked.boundary,
    }
    shared = [name for name in sets.Plan._fields if name in type(config.data).model_fields and name not in own]
    values = {name: getattr(config.data, name) for name in shared} | {"seed": config.seed}
    return sets.Plan(**values, **{name: value for name, value in own.items() if value is not None})
