"""Which runs the paper's results take, with which settings, and how long they will be at work."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langenode.config import ConfigError, merge
from langenode.experiments.paper_results import DEMONSTRATIONS
from langenode.reports.reproduction import DEFAULT, LAW, LITERAL
from langenode.runs import grid
from langenode.runs.grid import Point
from langenode.storage.folder import plain

SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)

SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    **{(name, LITERAL): {"method": "paper"} for name in DEMONSTRATIONS},
    **{(name, DEFAULT): {} for name in DEMONSTRATIONS},
    ("viscoelastic", LAW): {"model": {"law": "paper"}},
}

# Small settings: fewer data, updates, samples and steps, the pseudo-time as it is.
_FEW = {"num_weights": 256, "num_samples": 256, "num_w1_draws": 2}
_CHEMICAL = {"num_trajectories": 256, "num_validation": 64, "num_test": 256}
_CUBES = {"num_microstructures": 12, "num_walks": 28, "num_tensions": 4, "num_steps": 25}
_MATERIAL_CHAIN = {"num_steps": 250, "pseudo_time_step": 2e-2}
QUICK: dict[tuple[str, str], dict[str, Any]] = {
    ("ou", LITERAL): {
        "data": _CHEMICAL,
        "predict": _FEW,
        "paper": {"num_steps": 500, "pseudo_time_step": 2e-2},
        "training": {"num_updates": 60},
    },
    ("ou", DEFAULT): {"data": _CHEMICAL, "predict": _FEW | {"num_weights": 1024}, "training": {"num_updates": 300}},
    ("schlogl", LITERAL): {
        "data": _CHEMICAL | {"num_times": 41},
        "predict": _FEW,
        "paper": {"num_steps": 100, "pseudo_time_step": 1e-2},
        "training": {"num_updates": 30},
    },
    ("schlogl", DEFAULT): {
        "data": _CHEMICAL | {"num_times": 41},
        "predict": _FEW,
        "training": {"num_updates": 300, "num_samples": 128},
    },
    ("hyperelastic", LITERAL): {
        "data": _CUBES,
        "predict": _FEW,
        "paper": _MATERIAL_CHAIN,
        "training": {"num_updates": 20},
        "mle": {"num_lbfgs": 100},
    },
    ("hyperelastic", DEFAULT): {
        "data": _CUBES,
        "predict": _FEW,
        "training": {"num_updates": 200, "num_samples": 64},
        "mle": {"num_lbfgs": 100},
    },
    ("viscoelastic", LITERAL): {
        "data": _CUBES,
        "predict": _FEW,
        "paper": _MATERIAL_CHAIN,
        "training": {"num_updates": 20},
        "mle": {"num_adam": 300},
    },
    ("viscoelastic", DEFAULT): {
        "data": _CUBES,
        "predict": _FEW,
        "training": {"num_updates": 150, "num_samples": 64},
        "mle": {"num_lbfgs": 50},
    },
    ("viscoelastic", LAW): {
        "data": _CUBES,
        "predict": _FEW,
        "training": {"num_updates": 60, "num_samples": 32},
        "mle": {"num_adam": 300},
    },
}


class Variation(NamedTuple):
    """Numbers of replicas and of steps, and the option that has the latter."""

    replicas: tuple[int, ...]
    steps: tuple[int, ...]
    option: str


VARIATIONS = {
    False: {
        LITERAL: Variation((16, 32, 64), (250, 500, 1000), "paper.num_steps"),
        DEFAULT: Variation((48, 128, 384), (2, 8, 32), "bottleneck.num_steps"),
    },
    True: {
        LITERAL: Variation((8, 32), (50, 100), "paper.num_steps"),
        DEFAULT: Variation((32, 128), (2, 8), "bottleneck.num_steps"),
    },
}
VARIED = "schlogl"
# Processor seconds of a run with its compilation. With small settings: measured on one run each, of nearly these
# settings. At full size: guessed from clock times in the guides, and without any for the paper's viscoelastic law.
QUICK_SECONDS = {
    ("ou", LITERAL): 70.0,
    ("ou", DEFAULT): 50.0,
    ("schlogl", LITERAL): 85.0,
    ("schlogl", DEFAULT): 85.0,
    ("hyperelastic", LITERAL): 75.0,
    ("hyperelastic", DEFAULT): 110.0,
    ("viscoelastic", LITERAL): 90.0,
    ("viscoelastic", DEFAULT): 70.0,
    ("viscoelastic", LAW): 90.0,
}
FULL_SECONDS = {
    ("ou", LITERAL): 700.0,
    ("ou", DEFAULT): 100.0,
    ("schlogl", LITERAL): 400.0,
    ("schlogl", DEFAULT): 150.0,
    ("hyperelastic", LITERAL): 450.0,
    ("hyperelastic", DEFAULT): 250.0,
    ("viscoelastic", LITERAL): 900.0,
    ("viscoelastic", DEFAULT): 140.0,
    ("viscoelastic", LAW): 300.0,
}


class Task(NamedTuple):
    """A run and what it is for; `cell` is its number of replicas and steps where these are varied."""

    demonstration: str
    role: str
    point: Point
    cell: tuple[int, int] | None = None


class Plan(NamedTuple):
    """What was asked and the runs of it, the first seed of all demonstrations first."""

    request: dict[str, Any]
    demonstrations: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool
    tasks: list[Task]

    @property
    def points(self) -> list[Point]:
        """The runs, each once: a cell of the variation may be the run of the demonstration itself."""
        return list({task.point.name: task.point for task in self.tasks}.values())


def make_plan(what: str, seeds: Sequence[Any] | None, *, quick: bool) -> Plan:
    """All runs of `all` or of one demonstration; every configuration is checked here."""
    if what not in ("all", *DEMONSTRATIONS):
        raise ConfigError(
            f"what is reproduced must be all or one of {', '.join(DEMONSTRATIONS)}; got {what!r}; check the name"
        )
    chosen = DEMONSTRATIONS if what == "all" else (what,)
    numbers = _checked(seeds) if seeds is not None else (QUICK_SEEDS if quick else SEEDS)
    kinds = [(name, role) for name, role in SETTINGS if name in chosen]
    kinds.sort(key=lambda kind: chosen.index(kind[0]))
    tasks = [_task(name, role, seed, quick) for seed in numbers for name, role in kinds]
    if VARIED in chosen:
        for role, variation in VARIATIONS[quick].items():
            tasks += _varied(role, variation, numbers[0], quick)
    request = {
        "quick": quick,
        "demonstrations": chosen,
        "seeds": numbers,
        "points": list(dict.fromkeys(task.point.name for task in tasks)),
    }
    return Plan(plain(request), chosen, numbers, quick, tasks)


def _checked(seeds: Sequence[Any]) -> tuple[Any, ...]:
    if not seeds or len(set(map(str, seeds))) < len(seeds):
        raise ConfigError(f"seeds must be different numbers; got {list(seeds)}; e.g. --seeds 1,2,3")
    return tuple(seeds)


def _settings(demonstration: str, role: str, quick: bool) -> dict[str, Any]:
    kind = (demonstration, role)
    return merge(SETTINGS[kind], QUICK[kind]) if quick else SETTINGS[kind]


def _task(demonstration: str, role: str, seed: Any, quick: bool) -> Task:
    point = grid.make_point(demonstration, _settings(demonstration, role, quick), {}, seed)
    return Task(demonstration, role, point._replace(name=f"{demonstration}-{role}-{point.seed}"))


def _varied(role: str, variation: Variation, seed: Any, quick: bool) -> list[Task]:
    """A run for each number of replicas and of steps; the demonstration's own run where it has these already."""
    own = _task(VARIED, role, seed, quick).point
    tasks = []
    for steps in variation.steps:
        for replicas in variation.replicas:
            values = {"training.num_samples": replicas, variation.option: steps}
            point = grid.make_point(VARIED, _settings(VARIED, role, quick), values, seed)
            name = f"{VARIED}-{role}-replicas-{replicas}-steps-{steps}-{point.seed}"
            point = own if point.config == own.config else point._replace(name=name)
            tasks.append(Task(VARIED, role, point, (replicas, steps)))
    return tasks


def seconds_of(tasks: Mapping[str, Task], *, quick: bool, jobs: int) -> float:
    """Estimate the time of these runs, `jobs` at a time, from times of their kind; those of full size are guesses."""
    table = QUICK_SECONDS if quick else FULL_SECONDS
    total = sum(table[task.demonstration, task.role] for task in tasks.values())
    return total / max(1, min(jobs, len(tasks)))
