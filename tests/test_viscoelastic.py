"""The viscoelastic demonstration: the paper's counts, both laws, small runs, and the claims (slow)."""

import json
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from commands import done, langenode, options, plain_environment
from langenode.experiments import viscoelastic
from langenode.fitting import build, methods
from langenode.fitting.choose import configure
from langenode.fitting.methods import Ingredients
from langenode.inference.partition import Partition
from langenode.models import num_parameters
from langenode.posteriors import Reference

KEY = jax.random.key(0)
SMALL = options(
    "data.num_microstructures=8 data.num_walks=6 data.num_tensions=0 data.num_steps=6 mle.num_adam=5 mle.num_lbfgs=3 "
    "training.num_updates=4 training.num_samples=8 training.block=2 predict.num_samples=64 predict.num_weights=64 "
    "predict.num_w1_draws=2"
)
FIGURES = {"microstructures", "mle_parity", "mle_trajectories", "stochastic_parity", "bands", "calibration", "loss"}
FIGURES |= {"weight_paths", "dependence"}


def test_the_papers_law_and_drift_have_the_papers_counts():
    config = configure("viscoelastic", [{"method": "paper"}])
    model = build.untrained(viscoelastic.EXPERIMENT, config)
    partition = Partition.of(model, config.stochastic)
    weights = partition.flatten(model)
    ingredients = Ingredients(Reference(weights, jnp.full_like(weights, config.prior.scale)), weights, KEY)
    posterior: Any = methods.find_trained("paper").make(ingredients, config.options)
    assert (num_parameters(model), partition.dim, num_parameters(posterior.control)) == (1207, 119, 42840)
    assert config.rest == "refit" and config.target == "tempered"


def test_the_papers_law_with_nine_inputs_is_what_model_law_gives():
    config = configure("viscoelastic", [{"model": {"law": "paper"}}])
    model = build.untrained(viscoelastic.EXPERIMENT, config)
    assert num_parameters(model) == 646 + 449
    assert (config.stochastic, config.rest, config.target) == ("last_layer", "refit", "population")


def test_networks_are_tried_only_where_they_could_show():
    candidates = viscoelastic.candidates(configure("viscoelastic", []))
    assert list(candidates) == ["no correction", "neural correction"]
    models = [build.untrained(viscoelastic.EXPERIMENT, config) for config in candidates.values()]
    assert models[0].mobility is None and models[1].mobility is not None
    fixed = configure("viscoelastic", [{"model": {"correction": "neural"}}])
    assert list(viscoelastic.candidates(fixed).values()) == [fixed]


def test_a_law_fitted_at_one_time_step_holds_at_another():
    """The law depends on time, not on steps: omitting points on straight parts of a path changes nothing."""
    config = configure("viscoelastic", [{"model": {"correction": "no"}}])
    law = build.untrained(viscoelastic.EXPERIMENT, config)
    law = eqx.filter_jit(jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, law))
    times = jnp.linspace(0.0, 1.0, 51)
    ramp = jnp.minimum(times, 0.5)[:, None] * jnp.array([0.04, -0.02, -0.02])
    path = jnp.expm1(2.0 * ramp) / 2.0
    fine = law(times, path)
    np.testing.assert_allclose(law(times[::5], path[::5]), fine[::5], rtol=1e-9, atol=1e-12)


CASES = {
    "default": ["--set", "model.correction=no"],
    "neural": ["--set", "model.correction=neural"],
    "paper law": ["--set", "model.law=paper"],
    "paper": ["--method", "paper", "--set", "paper.num_steps=5"],
    "neural, convex": options("model.correction=neural model.convex=true langevin.network=residual"),
    "paper law, convex": options("model.law=paper model.convex=true model.trainable_start=true langevin.network=unet"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_law_runs_to_its_report(case, tmp_path):
    done("run", "viscoelastic", "--out", "run", *SMALL, *CASES[case], cwd=tmp_path)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["mle"]["rmse_over_replica_std"] > 0.0 and found["std_ratio"] >= 0.0
    assert found["w1"]["to"] == "test" and {"mean", "floor", "ratio"} <= set(found["energy_distance"])
    shown = {figure.stem for figure in (tmp_path / "run" / "figures").glob("*.png")}
    assert shown == FIGURES
    is_papers = case.startswith("paper")
    assert found["problem"]["num_stochastic"] == (119 if is_papers else 6)
    assert ("within" in found["distance_correlation"]) == is_papers


@pytest.mark.slow
def test_the_claims_on_held_out_loadings(tmp_path):
    """With a seed used for nothing else."""
    # In a process of its own, where programs are compiled with all optimisations.
    command = [sys.executable, "-m", "langenode", "run", "viscoelastic", "--out", "run", "--seed", "87"]
    subprocess.run(command, check=True, cwd=tmp_path, env=plain_environment())
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["mle"]["rmse_over_replica_std"] <= 0.1
    assert 0.9 <= found["std_ratio"] <= 1.1
    assert 0.85 <= found["coverage"]["90"] <= 0.95
    assert found["energy_distance"]["ratio"] <= 1.3


@pytest.mark.parametrize(
    ("experiment", "words", "message"),
    [
        ("viscoelastic", ["--stochastic", "last_layer"], "a last layer needs networks"),
        ("viscoelastic", ["--set", "model.law=paper", "--stochastic", "structure"], "only our law has a structural"),
        ("hyperelastic", [*options("model.structure=no"), "--stochastic", "structure"], "needs a structural factor"),
        ("viscoelastic", options("data.source=fe data.amplitude=0.03"), "data.amplitude must be that of the sim"),
        ("viscoelastic", options("data.source=fe data.fe_set=none.npz"), "data.fe_set must be a file that"),
        ("viscoelastic", options("data.source=fe data.num_held_out=99"), "two microstructures must be left"),
        ("viscoelastic", ["--set", "data.prony_weights=[1.0]"], "a weight of at least 0 for each of its 20 times"),
        ("viscoelastic", ["--set", "data.equilibrium=1.0"], "data.equilibrium below data.instantaneous"),
        ("viscoelastic", ["--set", "data.num_spheres=40", "--set", "data.volume_fraction=0.45"], "spheres"),
        ("hyperelastic", ["--set", "data.num_microstructures=500"], "less than or equal to 128"),
    ],
)
def test_wrong_choices_are_refused_before_any_work(experiment, words, message, tmp_path):
    found = langenode("run", experiment, "--out", "run", *words, cwd=tmp_path)
    assert found.code == 2 and message in found.err, found.err
    assert not (tmp_path / "run" / "test.nc").exists()
