"""Every method on every experiment with small settings."""

import functools

import jax
import pytest

from langenode.experiments import EXPERIMENTS
from langenode.fitting import build, points, solve
from langenode.fitting.choose import configure
from langenode.fitting.methods import methods
from langenode.fitting.solve import fit_of

# Compilation is what these tests cost: few weights, few times, few steps.
SMALL_OPTIONS = {"num": 16, "num_steps": 3, "eta": 1.0, "num_chains": 4, "num_warmup": 20, "num_islands": 2}
SMALL_OPTIONS |= {"num_checks": 0, "num_iterations": 5, "num_members": 3, "layers": (4,)}
SMALL_OPTIONS |= {"num_leapfrog": 4, "least_transitions": 0, "most_transitions": 16}
SIZES = {
    "training": {"num_updates": 2, "num_samples": 8, "block": 1},
    "mle": {"num_adam": 5, "num_lbfgs": 2},
    "predict": {"num_samples": 8, "num_weights": 16},
}
COMPOSITE = {"num_microstructures": 8, "num_walks": 6, "num_tensions": 0, "num_steps": 4}
DATA = {
    "ou": {"num_trajectories": 5, "num_validation": 2, "num_test": 4, "num_times": 8},
    "schlogl": {"num_trajectories": 12, "num_validation": 4, "num_test": 6, "num_times": 6},
    "hyperelastic": COMPOSITE,
    "viscoelastic": COMPOSITE,
    "own": {"path": "table.csv", "outputs": ("x",), "time": "t", "trajectory": "id"},
}
MODEL = {
    "schlogl": {"layers": (4,)},
    "viscoelastic": {"law": "tensor"},  # of which all methods share the point fit; `paper` has another by default
    "own": {"kind": "state", "layers": (3,), "largest_step": 0.5},
}


# One of each kind of method, and what another package adds; each sampler has a contract of its own, too.
SLOW = (
    "guided",
    "nuts",
    "smc",
    "pathfinder",
    "sgld",
    "interacting",
    "svgd",
    "ensemble",
    "gaussian-lowrank",
    "gaussian-diagonal",
    "paper",
    "langevin",
    "laplace",
    "ensemble-hmc",
)


def cases():
    """All pairs; those beyond the first experiment, and of methods that compile long, are for `make test-slow`."""
    for experiment in DATA:
        for method in methods():
            is_fast = experiment == "ou" and method not in SLOW
            if method != "bottleneck":  # which serves populations only
                yield pytest.param(experiment, method, marks=[] if is_fast else [pytest.mark.slow])


def small_options(method):
    """Those of the small options that the method has."""
    return {key: value for key, value in SMALL_OPTIONS.items() if key in methods()[method].options.model_fields}


def configured(experiment, method, target="posterior", fallback=None):
    asked = {"method": method, "target": target, "data": DATA[experiment], "model": MODEL.get(experiment, {}), **SIZES}
    told = {} if fallback is None else {method: {"fallback": fallback}}
    return configure(experiment, [asked, {method: small_options(method), "smc": small_options("smc")}, told])


@functools.cache
def point_fit(experiment):
    """Splits, and the model at its maximum likelihood: the same for all methods."""
    config, known = configured(experiment, "map"), EXPERIMENTS[experiment]
    splits = known.simulate(config, jax.random.key(1))
    data = build.prepare(config, splits.train, None)
    return splits, points.fit_point(config, build.untrained(known, config), data.train, data.scaling)


def fitted(experiment, method, fallback=None):
    """The fit, and data to predict."""
    config = configured(experiment, method, fallback=fallback)
    splits, model = point_fit(experiment)
    data = build.prepare(config, splits.train, None)
    solved = solve.solve(config, model, data)
    point = points.PointChoice("the model", config, model, [])
    return fit_of(solved, point, data, train=splits.train, validation=None), splits.test
