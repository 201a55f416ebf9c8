"""The Schlögl demonstration: its parts against known answers, and small runs of every method."""

import json

import jax
import numpy as np
import pytest
from scipy import stats

from commands import done
from langenode.experiments import modes, schlogl
from langenode.fitting.choose import configure
from langenode.models import num_parameters
from langenode.scores import metrics
from langenode.simulators.schlogl import SchloglParameters
from langenode.simulators.schlogl import simulate as simulate_schlogl

KEY = jax.random.key(0)
SMALL = ["data.num_trajectories=48", "data.num_validation=8", "data.num_test=24", "data.num_times=21"]
SMALL += ["mle.num_adam=5", "training.num_updates=4", "training.num_samples=16", "training.block=2"]
SMALL += ["predict.num_samples=32", "predict.num_weights=64", "predict.num_w1_draws=2"]


def words(settings):
    return [word for setting in settings for word in ("--set", setting)]


def test_the_networks_have_the_papers_sizes():
    config = configure("schlogl", [{"method": "paper"}])
    assert num_parameters(schlogl.build_model(config, KEY)) == 321
    assert config.paper.layers == (101, 101) and config.paper.diffusion_start == 2.0
    assert config.target == "tempered" and config.noise.num_modes == 2
    noisy = configure("schlogl", [{"model": {"noise": True}}])
    assert num_parameters(schlogl.build_model(noisy, KEY)) == 321 + 49
    assert (noisy.stochastic, noisy.rest) == ("none", "refit")


def test_the_valley_is_the_least_likely_count_between_the_peaks():
    counts = np.arange(400)
    law = 0.6 * stats.norm.pdf(counts, 90, 15) + 0.4 * stats.norm.pdf(counts, 300, 30)
    split = modes.valley(counts, law)
    assert law[int(split)] == law[90:300].min()
    one = stats.norm.pdf(counts, 200, 20)
    assert modes.valley(counts, one) == 200


def test_modes_of_samples_and_of_a_law():
    values = np.array([1.0, 3.0, 10.0, 14.0, 12.0])
    found = modes.mode_summary(values, 5.0)
    assert found == pytest.approx((0.4, 2.0, 1.0, 12.0, np.sqrt(8 / 3)))
    weighted = modes.mode_summary(np.array([2.0, 12.0]), 5.0, weights=np.array([0.1, 0.3]))
    assert weighted == pytest.approx((0.25, 2.0, 0.0, 12.0, 0.0))
    empty = modes.mode_summary(np.array([1.0]), 5.0)
    assert np.isnan(empty.high_mean) and empty.p_low == 1.0


def test_the_memory_of_increments_is_that_of_an_autoregression():
    """x' = a x + noise: increments have the lag-1 correlation -(1 - a) / 2."""
    rng, a = np.random.default_rng(0), 0.7
    x = np.zeros((500, 400))
    for k in range(1, 400):
        x[:, k] = a * x[:, k - 1] + rng.normal(size=500)
    found = modes.increment_memory(x - 100.0, 0.0)
    assert found["low"] == pytest.approx(-(1 - a) / 2, abs=5 / np.sqrt(500 * 199))
    assert found["high"] is None
    assert modes.increment_memory(np.ones((3, 10)), 0.0) == {"low": None, "high": None}


def test_w1_to_a_law_equals_scipys():
    rng = np.random.default_rng(1)
    samples, values = rng.normal(5.0, 2.0, size=(40, 3)), np.arange(12.0)
    law = rng.dirichlet(np.ones(12), size=3)
    expected = [stats.wasserstein_distance(samples[:, k], values, None, law[k]) for k in range(3)]
    np.testing.assert_allclose(metrics.w1_to_law(samples, values, law), expected, rtol=1e-10)


@pytest.mark.slow
def test_exact_data_are_near_the_exact_law():
    """W1 of n samples to their own law is at most a few standard errors of the mean."""
    law = schlogl.exact_law(configure("schlogl", []))
    data = simulate_schlogl(SchloglParameters(), 512, key=KEY)
    distance = metrics.w1_to_law(data.outputs[:, :, 0], law.counts, law.probabilities)
    assert np.all(distance[1:] < 5 * law.std[1:] / np.sqrt(512))
    assert np.all(data.outputs[:, 0] == 250.0)


CASES = {
    "bottleneck": [],
    "langevin": ["--method", "langevin"],
    "paper": ["--method", "paper", "--set", "paper.num_steps=5", "--set", "training.batch_trajectories=8"],
    "diagonal": ["--method", "gaussian-diagonal"],
    "lowrank": ["--method", "gaussian-lowrank"],
    "sde": ["--set", "model.noise=true"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_method_runs_to_its_report(case, tmp_path):
    done("run", "schlogl", "--out", "run", *words(SMALL), *CASES[case], cwd=tmp_path)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert 0.0 < found["w1_exact"]["data_relative"] < found["w1_exact"]["relative"] + 1.0
    assert {"p_low", "p_low_data", "p_low_exact", "low_std", "high_std"} <= set(found["modes"])
    assert found["modes"]["p_low_exact"] == pytest.approx(0.5135, abs=1e-3)
    assert (found["increments"]["lag1_data"]["high"] is None) or found["increments"]["lag1_data"]["high"] < 0.5
    assert (tmp_path / "run" / "report.html").stat().st_size > 50_000
    shown = {figure.stem for figure in (tmp_path / "run" / "figures").glob("*.png")}
    assert {"trajectories", "end", "w1_exact", "calibration", "loss"} <= shown
    assert ("dependence" in shown) == ("distance_correlation" in found) == (case != "sde")
    assert ("bbvi" in found) == (case in ("bottleneck", "langevin", "paper"))
    if "bbvi" in found:
        assert 0.0 <= found["bbvi"]["at_low"] + found["bbvi"]["at_high"] <= 1.0 and found["bbvi"]["w1_exact"] > 0.0
