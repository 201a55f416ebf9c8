"""Every method on every experiment that it can serve, with small settings; and clear refusals of the rest."""

# pyright: reportAttributeAccessIssue=false

import functools

import jax
import numpy as np
import pytest

from langenode.cli import options
from langenode.config import DRAWN_METHODS, TRAINED_METHODS, ConfigError
from langenode.experiments import EXPERIMENTS
from langenode.fitting import build, fit_file, solve
from langenode.fitting.choose import configure
from langenode.inference.algorithm1 import train
from langenode.inference.predictions import predict

# Compilation is what these tests cost: few weights, few times, few steps.
SIZES = {
    "draws": {"num": 16, "num_steps": 3, "eta": 1.0, "num_chains": 4, "num_warmup": 20, "num_islands": 2}
    | {"num_iterations": 5, "num_members": 3},
    "training": {"num_updates": 2, "num_samples": 8, "block": 1},
    "sampler": {"num_steps": 3, "layers": (4,)},
    "mle": {"num_adam": 5, "num_lbfgs": 2},
}
COMPOSITE = {"num_replicas": 8, "num_walks": 6, "num_tensions": 0, "num_steps": 4}
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
METHODS = (*TRAINED_METHODS, *DRAWN_METHODS)


def cases():
    """All pairs; beyond the first experiment, most are for `make test-slow`."""
    for experiment in DATA:
        for method in METHODS:
            is_fast = experiment == "ou" or (experiment, method) in (("hyperelastic", "guided"), ("own", "laplace"))
            if method != "bottleneck":  # which serves populations only
                yield pytest.param(experiment, method, marks=[] if is_fast else [pytest.mark.slow])


def configured(experiment, method, target="posterior", fallback="none"):
    asked = {"method": method, "target": target, "data": DATA[experiment], "model": MODEL.get(experiment, {}), **SIZES}
    return configure(experiment, [asked, {"draws": {"fallback": fallback}}])


@functools.cache
def point_fit(experiment):
    """Splits, and the model at its maximum likelihood: the same for all methods."""
    config, known = configured(experiment, "map"), EXPERIMENTS[experiment]
    splits = known.simulate(config, jax.random.key(1))
    data = build.prepare(config, build.new_scaling(config, splits.train), splits.train, None)
    return splits, build.fit_point(config, build.untrained(known, config), data.train)


def fitted(experiment, method, fallback="none"):
    config = configured(experiment, method, fallback=fallback)
    splits, model = point_fit(experiment)
    scaling = build.new_scaling(config, splits.train)
    data = build.prepare(config, scaling, splits.train, None)
    problem = build.assemble(config, model, data.train, scaling)
    key = build.Streams.of(config.seed).training
    if config.is_drawn:
        return config, fit_file.Solved.drawn(solve.draw(config, problem, data.train, key=key)), splits.test, scaling
    view, _ = build.training_views(config, problem, data)
    result = train(problem, view, build.train_settings(config), key=key)
    return config, fit_file.Solved.trained(result, config.training.num_updates), splits.test, scaling


@pytest.fixture(autouse=True)
def in_a_folder_with_a_table(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.chdir(folder)
    if not (folder / "table.csv").exists():
        rows = [f"{i},{t:.2f},{(1 + 0.1 * i) * np.exp(-t):.4f}" for i in range(8) for t in np.linspace(0, 1, 5)]
        (folder / "table.csv").write_text("\n".join(["id,t,x", *rows]) + "\n")


@pytest.mark.parametrize(("experiment", "method"), list(cases()))
def test_every_method_serves_every_experiment(experiment, method, tmp_path):
    """Draws are finite, predictions too, and a file gives both back."""
    config, solved, test, scaling = fitted(experiment, method)
    rule = build.prediction_rule(config, scaling, np.ones(test.num_outputs))
    outputs = predict(solved.problem, test, 8, rule, key=jax.random.key(2)).outputs
    assert np.all(np.isfinite(outputs))
    header = fit_file.fit_header(scaling, np.ones(test.num_outputs), test.input_names, test.output_names, {})
    path = tmp_path / "fit.langenode"
    path.write_bytes(fit_file.fit_bytes(solved.problem, config, header | solved.record))
    again = fit_file.read_fit(path, config, build.untrained(EXPERIMENTS[experiment], config))
    np.testing.assert_array_equal(outputs, predict(again, test, 8, rule, key=jax.random.key(2)).outputs)
    assert again.partition.names == solved.problem.partition.names
    if config.is_drawn:
        record = solved.record["sampling"]
        assert record["method"] == method and record["num_draws"] >= 1
        assert isinstance(record["is_trusted"], bool) and record["reason"]
        assert record.get("num_evaluations", 1) >= 1


@pytest.mark.parametrize("method", DRAWN_METHODS)
def test_methods_that_draw_need_a_likelihood(method):
    with pytest.raises(ConfigError, match=f"method {method} draws from a posterior.*use target='posterior'"):
        configured("ou", method, target="population")


def test_the_commands_methods_are_those_of_the_configuration():
    assert (options.TRAINED, options.DRAWN) == (TRAINED_METHODS, DRAWN_METHODS)
    assert set(solve.METHODS) == set(DRAWN_METHODS)
