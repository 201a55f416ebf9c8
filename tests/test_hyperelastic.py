"""The hyperelastic demonstration: the paper's counts, the three variants, small runs, and the claims (slow)."""

import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from commands import done, options, plain_environment
from langenode.experiments import hyperelastic
from langenode.fitting import build, methods
from langenode.fitting.choose import configure
from langenode.fitting.methods import Ingredients
from langenode.inference.partition import Partition
from langenode.models import num_parameters
from langenode.posteriors import Reference

KEY = jax.random.key(0)
SMALL = options(
    "data.num_microstructures=8 data.num_walks=6 data.num_tensions=0 data.num_steps=6 mle.num_adam=5 mle.num_lbfgs=5 "
    "training.num_updates=4 training.num_samples=8 training.block=2 predict.num_samples=64 predict.num_weights=64 "
    "predict.num_w1_draws=2"
)
FIGURES = {"microstructures", "mle_parity", "mle_trajectories", "stochastic_parity", "bands", "calibration", "loss"}
FIGURES |= {"weight_paths", "dependence"}


@pytest.mark.parametrize(("way", "dim", "trained"), [("full", 28, 2436), ("fixed", 4, 60), ("refit", 4, 84)])
def test_the_papers_drift_has_the_papers_counts(way, dim, trained):
    stochastic, rest = hyperelastic.VARIANTS[way]
    config = configure("hyperelastic", [{"method": "paper", "stochastic": stochastic, "rest": rest}])
    model = build.untrained(hyperelastic.EXPERIMENT, config)
    partition = Partition.of(model, stochastic)
    weights = partition.flatten(model)
    ingredients = Ingredients(Reference(weights, jnp.full_like(weights, config.prior.scale)), weights, KEY)
    posterior: Any = methods.find_trained("paper").make(ingredients, config.options)
    assert partition.dim == dim and num_parameters(model) == 28
    others = 28 - dim if rest == "refit" else 0
    assert num_parameters(posterior.control) + others == trained
    assert config.target == "tempered" and config.tempered.temperature == 1.0


def test_the_other_two_ways_are_companions_with_settings_of_their_own():
    config = configure("hyperelastic", [])
    others = hyperelastic.companions(config)
    assert hyperelastic.variant(config) == "full" and set(others) == {"fixed", "refit"}
    assert (others["refit"].stochastic, others["refit"].rest) == ("last_layer", "refit")
    asked = configure("hyperelastic", [{"stochastic": "last_layer", "rest": "refit"}])
    assert others["refit"].training == asked.training != config.training
    assert set(hyperelastic.companions(asked)) == {"full", "fixed"}
    assert hyperelastic.companions(asked)["full"].training == config.training
    quick = configure("hyperelastic", [{"training": {"num_updates": 3}}])
    assert {other.training.num_updates for other in hyperelastic.companions(quick).values()} == {3}
    printed = configure("hyperelastic", [{"method": "paper"}])
    assert all(other.training == printed.training for other in hyperelastic.companions(printed).values())


CASES = {
    "default": [],
    "convex": ["--set", "model.convex=true", "--stochastic", "last_layer", "--rest", "refit"],
    "paper": ["--method", "paper", "--set", "paper.num_steps=5"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_way_runs_to_its_report(case, tmp_path):
    done("run", "hyperelastic", "--out", "run", *SMALL, *CASES[case], cwd=tmp_path)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert {"rmse", "rmse_over_data_std", "rmse_over_replica_std"} == set(found["mle"])
    assert found["std_ratio"] > 0.0 and found["w1"]["to"] == "test" and found["w1"]["floor"] > 0.0
    assert {"mean", "floor", "ratio"} <= set(found["energy_distance"])
    assert set(found["variants"]) == {"full", "fixed", "refit"}
    assert found["variants"]["full"]["w1_over_full"] == 1.0
    assert {figure.stem for figure in (tmp_path / "run" / "figures").glob("*.png")} == FIGURES
    page = (tmp_path / "run" / "report.html").read_text()
    assert "W1 over its floor" in page


@pytest.mark.slow
def test_the_claims_on_held_out_loadings(tmp_path):
    """The full and the refitted variant, from one run with a seed used for nothing else."""
    # In a process of its own, where programs are compiled with all optimisations.
    command = [sys.executable, "-m", "langenode", "run", "hyperelastic", "--out", "run", "--seed", "87"]
    subprocess.run(command, check=True, cwd=tmp_path, env=plain_environment())
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["mle"]["rmse_over_data_std"] <= 0.1
    for way in ("full", "refit"):
        scores = found["variants"][way]
        assert scores["w1_over_floor"] <= 1.3
        assert 0.9 <= scores["std_ratio"] <= 1.15
        assert 0.85 <= scores["coverage"] <= 0.95
