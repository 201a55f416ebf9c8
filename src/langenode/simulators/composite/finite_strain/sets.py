"""Sets of simulations: a plan, one file per cube and loading, and all of them merged into one file.

Files are written under a temporary name that is then changed, and what is there is not computed again: a process that
is killed costs no more than the loading it was in. A simulation that fails leaves a record of why, and no numbers.
"""

import functools
import json
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.simulators.composite.finite_strain.cell import Boundary
from langenode.simulators.composite.finite_strain.path import PathError, Settings, follow, problem_of
from langenode.simulators.composite.loading import Loadings, make_six_component_loadings
from langenode.simulators.composite.microstructure import place_spheres
from langenode.simulators.composite.prony import Prony

PLAN = "plan.json"


class Plan(NamedTuple):
    """What a set holds: microstructures 0, 1, 2, ... under loadings that the seed makes, and how they are solved."""

    num_microstructures: int = 16
    num_loadings: int = 24
    num_steps: int = 50
    time_step: float = 1.0
    amplitude: float = 0.02
    seed: int = 0
    num_spheres: int = 4
    volume_fraction: float = 0.2
    gap: float = 0.3
    instantaneous: float = 0.362
    equilibrium: float = 0.084
    shortest: float = 1e-6
    longest: float = 3160.0
    num_times: int = 20
    prony_weights: tuple[float, ...] | None = None
    resolution: int = 8
    boundary: Boundary = "periodic"
    tolerance: float = 1e-5

    @property
    def prony(self) -> Prony:
        """The relaxation of the matrix."""
        ends = (self.instantaneous, self.equilibrium, self.shortest, self.longest)
        return Prony(*ends, self.num_times, self.prony_weights)

    @property
    def loadings(self) -> Loadings:
        """The loadings; the same seed makes the same ones."""
        return make_six_component_loadings(
            self.num_loadings,
            num_steps=self.num_steps,
            time_step=self.time_step,
            amplitude=self.amplitude,
            is_normal=self.boundary == "faces",
            rng=np.random.default_rng(self.seed),
        )

    @property
    def tasks(self) -> dict[str, tuple[int, int]]:
        """The numbers of cube and loading of every simulation, by its name."""
        pairs = ((cube, loading) for cube in range(self.num_microstructures) for loading in range(self.num_loadings))
        return {simulation_name(*pair): pair for pair in pairs}


class SimulationSet(NamedTuple):
    """The simulations of a set that succeeded, in the order of cubes, then loadings; and the failures of the others."""

    plan: Plan
    cubes: Int[np.ndarray, " simulation"]
    loadings: Int[np.ndarray, " simulation"]
    stress: Float[np.ndarray, "simulation time 6"]
    cpu_seconds: float
    failures: tuple[Mapping[str, Any], ...] = ()


def simulation_name(cube: int, loading: int) -> str:
    """Return the name of a simulation's file, without its ending."""
    return f"cube-{cube:03d}-loading-{loading:03d}"


def write_plan(folder: Path, plan: Plan) -> None:
    """Write the plan of a set into its folder; simulations find it there."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / PLAN, json.dumps(plan._asdict(), indent=2).encode())


def read_plan(folder: Path) -> Plan:
    """Read the plan of a set."""
    return _plan_of((folder / PLAN).read_text(encoding="utf-8"))


def _plan_of(text: str) -> Plan:
    fields = json.loads(text)
    weights = fields.get("prony_weights")
    return Plan(**fields | {"prony_weights": None if weights is None else tuple(weights)})


def simulate_loading(folder: str, cube: int, loading: int) -> str:
    """Simulate a cube under a loading of the folder's plan, and return the file; one that is there is left as it is.

    A task for another process: its arguments are text and numbers, its result is a path.
    """
    made, failed = (Path(folder) / f"{simulation_name(cube, loading)}{ending}" for ending in (".npz", ".failed.json"))
    if made.exists() or failed.exists():
        return str(made if made.exists() else failed)
    plan, begin = read_plan(Path(folder)), time.process_time()
    paths = plan.loadings
    try:
        stress = follow(_problem(plan, cube), paths.times, paths.log_strain[loading])
    except PathError as error:
        record = {"microstructure": cube, "loading": paths.names[loading], "step": error.step, "reason": str(error)}
        _write(failed, json.dumps(record, indent=2).encode())
        return str(failed)
    _write_arrays(made, stress=stress, cpu_seconds=np.array(time.process_time() - begin))
    return str(made)


@functools.lru_cache(maxsize=1)
def _problem(plan: Plan, cube: int) -> Any:
    """Return a cube's problem; its factor is of use under the next loading as well."""
    spheres = place_spheres(plan.num_spheres, plan.volume_fraction, seed=cube, gap=plan.gap)
    return problem_of(spheres, plan.prony, Settings(plan.resolution, plan.boundary, tolerance=plan.tolerance))


def read_simulations(folder: Path) -> SimulationSet:
    """Collect what a folder has of its plan; simulations that are missing are no failures, they are just not there."""
    plan = read_plan(folder)
    pairs, stresses, seconds, failures = [], [], 0.0, []
    for name, pair in plan.tasks.items():
        if (path := folder / f"{name}.npz").exists():
            with np.load(path, allow_pickle=False) as file:
                stresses.append(file["stress"])
                seconds += float(file["cpu_seconds"])
            pairs.append(pair)
        elif (path := folder / f"{name}.failed.json").exists():
            failures.append(json.loads(path.read_text(encoding="utf-8")))
    cubes, loadings = np.array(pairs, int).reshape(-1, 2).T
    shape = (-1, plan.num_steps + 1, 6)
    return SimulationSet(plan, cubes, loadings, np.array(stresses).reshape(shape), seconds, tuple(failures))


def write_set(path: Path, found: SimulationSet) -> None:
    """Write a merged set: stresses in single precision, and what made them."""
    _write_arrays(
        path,
        plan=np.array(json.dumps(found.plan._asdict())),
        cubes=found.cubes.astype(np.int16),
        loadings=found.loadings.astype(np.int16),
        log_strain=found.plan.loadings.log_strain,
        stress=found.stress.astype(np.float32),
        cpu_seconds=np.array(found.cpu_seconds),
        failures=np.array(json.dumps(list(found.failures))),
    )


def read_set(path: Path) -> tuple[SimulationSet, Float[np.ndarray, "loading time 6"]]:
    """Read a merged set, and the logarithmic strains of its loadings."""
    with np.load(path, allow_pickle=False) as file:
        found = SimulationSet(
            _plan_of(str(file["plan"])),
            file["cubes"].astype(int),
            file["loadings"].astype(int),
            file["stress"].astype(float),
            float(file["cpu_seconds"]),
            tuple(json.loads(str(file["failures"]))),
        )
        return found, file["log_strain"]


def complete_cubes(found: SimulationSet) -> Sequence[int]:
    """Return the cubes that have been simulated under all loadings of the plan."""
    numbers, counts = np.unique(found.cubes, return_counts=True)
    return [int(number) for number in numbers[counts == found.plan.num_loadings]]


def peak_memory() -> float:
    """Return the most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _write_arrays(path: Path, **arrays: np.ndarray) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    temporary.replace(path)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
