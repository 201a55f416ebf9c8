"""Sets of simulations: a plan, one file per cube and loading, and all of them merged into one file.

Files are written under a temporary name that is then changed, and what is there is not computed again: a process that
is killed costs no more than the loading it was in. A simulation that fails leaves a record of why, and no numbers.
"""

import functools
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.data import Dataset
from langenode.simulators.composite.finite_strain.cell import Boundary
from langenode.simulators.composite.finite_strain.path import PathError, Settings, follow, problem_of, stretch
from langenode.simulators.composite.loading import Loadings, make_six_component_loadings
from langenode.simulators.composite.microstructure import Microstructure, place_spheres
from langenode.simulators.composite.prony import Prony
from langenode.simulators.composite.stiffness import VOIGT

PLAN = "plan.json"
# Sets that come with the package, by demonstration.
SHIPPED = {name: Path(__file__).with_name(f"{name}.npz") for name in ("hyperelastic", "viscoelastic")}
STRAIN_NAMES = ("E11", "E22", "E33", "E23", "E13", "E12")
STRESS_NAMES = ("S11", "S22", "S33", "S23", "S13", "S12")


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

    def spheres(self, number: int) -> Microstructure:
        """Return a microstructure; its number is the seed of its spheres."""
        return place_spheres(self.num_spheres, self.volume_fraction, seed=number, gap=self.gap)

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
    log_strain: Float[np.ndarray, "loading time 6"]
    stress: Float[np.ndarray, "simulation time 6"]
    cpu_seconds: float
    failures: tuple[Mapping[str, Any], ...] = ()


def simulation_name(cube: int, loading: int) -> str:
    """Return the name of a simulation's file, without its ending."""
    return f"cube-{cube:03d}-loading-{loading:03d}"


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the file of a simulation's stress, and that which is there instead if it failed."""
    return folder / f"{name}.npz", folder / f"{name}.failed.json"


def failure_of(path: Path) -> dict[str, Any] | None:
    """Return why the simulation with this file failed, or None if it did not."""
    return json.loads(path.read_text(encoding="utf-8")) if path.name.endswith(".failed.json") else None


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
    made, failed = files_of(Path(folder), simulation_name(cube, loading))
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
    _write_arrays(made, {"stress": stress, "cpu_seconds": np.array(time.process_time() - begin)})
    return str(made)


@functools.lru_cache(maxsize=1)
def _problem(plan: Plan, cube: int) -> Any:
    """Return a cube's problem; its factor is of use under the next loading as well."""
    return problem_of(
        plan.spheres(cube), plan.prony, Settings(plan.resolution, plan.boundary, tolerance=plan.tolerance)
    )


def read_simulations(folder: Path) -> SimulationSet:
    """Collect what a folder has of its plan; simulations that are missing are no failures, they are just not there."""
    plan = read_plan(folder)
    pairs, stresses, seconds, failures = [], [], 0.0, []
    for name, pair in plan.tasks.items():
        made, failed = files_of(folder, name)
        if made.exists():
            with np.load(made, allow_pickle=False) as file:
                stresses.append(file["stress"])
                seconds += float(file["cpu_seconds"])
            pairs.append(pair)
        elif failed.exists():
            failures.append(failure_of(failed))
    cubes, loadings = np.array(pairs, int).reshape(-1, 2).T
    shape = (-1, plan.num_steps + 1, 6)
    strain, stress = plan.loadings.log_strain, np.array(stresses).reshape(shape)
    return SimulationSet(plan, cubes, loadings, strain, stress, seconds, tuple(failures))


def write_set(path: Path, found: SimulationSet) -> None:
    """Write a merged set: stresses in single precision, and what made them."""
    arrays = {
        "plan": np.array(json.dumps(found.plan._asdict())),
        "cubes": found.cubes.astype(np.int16),
        "loadings": found.loadings.astype(np.int16),
        "log_strain": found.log_strain,
        "stress": found.stress.astype(np.float32),
        "cpu_seconds": np.array(found.cpu_seconds),
        "failures": np.array(json.dumps(list(found.failures))),
    }
    _write_arrays(path, arrays)


def read_set(path: Path) -> SimulationSet:
    """Read a merged set."""
    with np.load(path, allow_pickle=False) as file:
        return SimulationSet(
            _plan_of(str(file["plan"])),
            file["cubes"].astype(int),
            file["loadings"].astype(int),
            file["log_strain"],
            file["stress"].astype(float),
            float(file["cpu_seconds"]),
            tuple(json.loads(str(file["failures"]))),
        )


def as_dataset(found: SimulationSet) -> Dataset:
    """Return a set as data: loadings are conditions, cubes are units; Green's strain and stress of six components."""
    names, times = np.array(found.plan.loadings.names), found.plan.loadings.times
    stretches = np.array([[stretch(row) for row in path] for path in found.log_strain])
    green = 0.5 * (stretches @ stretches - np.eye(3))
    rows, columns = np.array(VOIGT).T
    return Dataset.from_arrays(
        times,
        found.stress,
        inputs=green[..., rows, columns][found.loadings],
        condition=names[found.loadings],
        unit=np.array([f"cube {number:03d}" for number in found.cubes]),
        input_names=STRAIN_NAMES,
        output_names=STRESS_NAMES,
        units={"time": "s"} | dict.fromkeys(STRESS_NAMES, "MPa"),
    )


def complete_cubes(found: SimulationSet) -> Sequence[int]:
    """Return the cubes that have been simulated under all loadings of the plan."""
    numbers, counts = np.unique(found.cubes, return_counts=True)
    return [int(number) for number in numbers[counts == found.plan.num_loadings]]


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    _write(path, content.getvalue())


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
