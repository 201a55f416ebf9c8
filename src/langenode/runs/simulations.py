"""Sets of finite-strain simulations: side by side on this machine or by a Dask scheduler, then merged into one file.

Every simulation is a file of its own, so that a request that was interrupted goes on with what is missing.
"""

from pathlib import Path
from typing import Any

from langenode.config import ConfigError
from langenode.data import save_data
from langenode.fitting.progress import Reporter
from langenode.runs.workers import TaskError, run_tasks
from langenode.simulators.composite.finite_strain import sets
from langenode.storage.folder import RunFolder, RunFolderError

MERGED, AS_DATA = "set.npz", "data.nc"


def simulate_set(
    path: Path, plan: sets.Plan, reporter: Reporter, *, workers: int | None, scheduler: str | None, force: bool
) -> dict[str, Any]:
    """Do the simulations of a plan that are missing, and merge all; return what was made and what failed."""
    _refuse_impossible(plan)
    with RunFolder(path).locked():
        _claim(path, plan, force=force)
        names = plan.tasks
        ended = {name for name in names if any(file.exists() for file in sets.files_of(path, name))}
        _simulate(path, plan, ended, reporter, workers=workers, scheduler=scheduler)
        found = sets.read_simulations(path)
        if not len(found.stress):
            raise RunFolderError(f"a set needs a simulation that succeeds; all failed; see {path}/*.failed.json")
        sets.write_set(path / MERGED, found)
        save_data(sets.as_dataset(found), path / AS_DATA)
    return {
        "folder": str(path),
        "files": [str(path / MERGED), str(path / AS_DATA)],
        "simulations": len(found.stress),
        "failures": list(found.failures),
        "cpu_seconds": found.cpu_seconds,
    }


def _refuse_impossible(plan: sets.Plan) -> None:
    """Place all spheres before the first simulation begins."""
    try:
        for number in range(plan.num_microstructures):
            plan.spheres(number)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _claim(path: Path, plan: sets.Plan, *, force: bool) -> None:
    """Store the plan in an empty folder, or go on with the same one; with `force` remove what another one left."""
    stored = path / sets.PLAN
    if stored.is_file():
        try:
            is_same = sets.read_plan(path) == plan
        except (ValueError, TypeError):
            is_same = False
        if is_same and not force:
            return
        if not force:
            raise RunFolderError(
                f"a folder holds one set of simulations; that in {path} was asked otherwise; use --force or another "
                "--out"
            )
        for file in (*path.glob("cube-*.npz"), *path.glob("cube-*.failed.json"), path / MERGED, path / AS_DATA):
            file.unlink(missing_ok=True)
    elif any(entry.name != ".lock" for entry in path.iterdir()):
        raise RunFolderError(
            f"a new set of simulations needs an empty folder; {path} holds other things; choose another --out"
        )
    sets.write_plan(path, plan)


def _simulate(
    path: Path, plan: sets.Plan, ended: set[str], reporter: Reporter, *, workers: int | None, scheduler: str | None
) -> None:
    tasks = {name: (str(path.resolve()), *pair) for name, pair in plan.tasks.items() if name not in ended}
    num, broken = len(plan.tasks), {}
    reporter.say(f"{num} simulations" + (f", {len(ended)} of them done already" if ended else ""))

    def on_end(name: str, result: Any) -> None:
        ended.add(name)
        if isinstance(result, TaskError):
            broken[name] = result
        elif (failure := sets.failure_of(Path(result))) is not None:
            reporter.say(
                f"left out: microstructure {failure['microstructure']}, loading {failure['loading']}: "
                f"{failure['reason']}"
            )
        task.at(len(ended), num)

    with reporter.task("simulations", first=len(ended)) as task:
        run_tasks(sets.simulate_loading, tasks, workers=workers, scheduler=scheduler, on_end=on_end)
    if broken:
        name, error = next(iter(broken.items()))
        raise RunFolderError(
            f"every simulation must end; {len(broken)} did not, {name} because of: {error}; the same command begins "
            "those again"
        )
