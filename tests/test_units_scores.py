"""Scores, errors, checks and figures of fits in which units differ, where the answers are known."""

import copy
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from langenode import plots
from langenode.data import Dataset, Scaling
from langenode.experiments import own
from langenode.experiments.unit_figures import has_different_inputs
from langenode.fitting import plan
from langenode.fitting.units import families, solving, views
from langenode.fitting.units.predicting import NUM_POINTS, predict_units
from langenode.fitting.units.scoring import HeldOut, first_readings, score_units
from langenode.inference.hierarchical.conditional import stacked
from langenode.inference.predictions import Rule
from langenode.models import Effects, Normal, UnitModel
from langenode.reports.run_page import render_report, write_report
from langenode.reports.units_section import units_section
from langenode.scores import predictive_check
from langenode.scores.npde import below_limit, npde, npde_summary
from langenode.scores.verdict import judge
from pages import BAD_NAME, Outline, look, make_run

# Readings are `level + noise` in scaled units, with levels N(MEAN, SPREAD); those of the data are SHIFT + SCALE times.
MEAN, SPREAD, NOISE, SHIFT, SCALE = 1.0, 0.8, 0.5, 3.0, 2.0
TIMES = np.linspace(0.0, 1.0, 6)


def level(times, inputs, p):
    return jnp.full((times.shape[0], 1), p.level)


def units_of_the_family(num, seed):
    rng = np.random.default_rng(seed)
    scaled = MEAN + SPREAD * rng.standard_normal((num, 1)) + NOISE * rng.standard_normal((num, len(TIMES)))
    rows = [
        {"times": TIMES, "outputs": SHIFT + SCALE * row, "unit": f"u{k}", "condition": f"u{k}"}
        for k, row in enumerate(scaled)
    ]
    return Dataset.from_list(rows, output_names=["y"])


@pytest.fixture(scope="module")
def held_out():
    """The family itself, not estimated, as a fit, and 20 units of it."""
    data = units_of_the_family(20, seed=1)
    model = UnitModel(Effects(level=Normal(MEAN, SPREAD)), level, noise="additive")
    asked = {"model": {"largest_step": None}, "predict": {"num_samples": 512}}
    _, config = plan.plan_model(model, data, asked, None)
    scaling = dataclasses.replace(
        Scaling.identity(data), output_shift=np.array([SHIFT]), output_scale=np.array([SCALE])
    )
    with families.in_64_bits():
        model = eqx.tree_at(lambda m: m.log_noise, model, jnp.log(jnp.array([NOISE])))
        family = families.make_family(config, model, scaling)
        problem = solving.as_problem(config, stacked([family]))
    return HeldOut(problem, config, Rule(scaling), data)


@pytest.fixture(scope="module")
def scores(held_out):
    return score_units([held_out])


def covariance(num):
    return SCALE**2 * (SPREAD**2 * np.ones((num, num)) + NOISE**2 * np.eye(num))


def log_density(readings):
    mean = np.full(readings.shape[1], SHIFT + SCALE * MEAN)
    cov: Any = covariance(readings.shape[1])
    return multivariate_normal.logpdf(readings, mean, cov)


def standard_error(held_out, num_given):
    """Of the sum of log evidences by as many independent points; those used are more even than that."""
    given = first_readings(held_out.test, num_given)
    key, rng = jax.random.key(0), np.random.default_rng(0)
    problem, config, rule, data = held_out
    found = predict_units(problem, config, data, 512, rule, key=key, rng=rng, given=given)
    return float(np.sqrt(((1.0 / found.relative_ess - 1.0) / NUM_POINTS).sum()))


@pytest.mark.parametrize(("place", "num_given"), [(None, 0), (0, 1), (1, 2), (2, 3)])
def test_log_scores_are_those_of_the_normal_distribution_in_the_datas_units(held_out, scores, place, num_given):
    readings = held_out.test.outputs[..., 0]
    expected = log_density(readings).sum()
    if num_given:
        expected -= log_density(readings[:, :num_given]).sum()
    found = scores["new_units"] if place is None else scores["given_units"][place]
    num = 20 * (len(TIMES) - num_given)
    assert (found["num_readings"], found["num_units"]) == (num, 20)
    error = np.hypot(standard_error(held_out, len(TIMES)), standard_error(held_out, num_given))
    assert abs(num * found["log_score"] - expected) < 5 * error
    assert error < 1.0  # or the test could not see a wrong Jacobian, which is log 2 per reading


@pytest.mark.parametrize(("place", "num_given"), [(None, 0), (0, 1), (1, 2), (2, 3)])
def test_crps_and_coverage_are_those_of_the_normal_distribution(held_out, scores, place, num_given):
    readings = held_out.test.outputs[..., 0]
    share = SPREAD**2 / (SPREAD**2 + NOISE**2 / num_given) if num_given else 0.0
    seen = readings[:, :num_given].mean(1) if num_given else np.zeros(len(readings))
    centre = (1 - share) * (SHIFT + SCALE * MEAN) + share * seen
    std = SCALE * np.sqrt((1 - share) * SPREAD**2 + NOISE**2)
    z = (readings[:, num_given:] - centre[:, None]) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = scores["new_units"] if place is None else scores["given_units"][place]
    assert place is None or found["num_given"] == (1, 2, "half")[place]
    # A mean over 512 draws of a function that changes at most as its argument does.
    assert abs(found["crps"] - crps.mean()) < 5 * std / np.sqrt(512)
    for name, inside in found["coverage"].items():
        reach = norm.ppf(0.5 + float(name) / 200)
        near = np.mean(np.abs(np.abs(z) - reach) < 0.3)  # readings that errors of the band's ends may misplace
        assert abs(inside - np.mean(np.abs(z) < reach)) <= near


def test_given_readings_are_the_first_of_a_unit_trajectory_after_trajectory():
    rows = [
        {"times": np.arange(3.0), "outputs": np.array([1.0, np.nan, 3.0]), "unit": "a", "condition": "a1"},
        {"times": np.arange(2.0), "outputs": np.array([4.0, 5.0]), "unit": "a", "condition": "a2"},
        {"times": np.arange(1.0, 2.0), "outputs": np.array([6.0]), "unit": "b", "condition": "b1"},
    ]
    data = Dataset.from_list(rows)
    given = {num: sorted(data.outputs[first_readings(data, num)]) for num in (0, 1, 3, "half")}
    assert given == {0: [], 1: [1.0, 6.0], 3: [1.0, 3.0, 4.0, 6.0], "half": [1.0, 3.0]}


def test_units_are_never_divided_and_each_trajectory_is_its_own():
    rows = [{"times": TIMES, "outputs": np.sin(k + TIMES) * (TIMES > 0), "unit": f"u{k // 4}"} for k in range(48)]
    config = own.OwnConfig(target="hierarchical")
    parts = own.divide(own.for_training(Dataset.from_list(rows), config), config)
    assert sorted(name for part in parts for name in part.unit_names) == sorted(f"u{k}" for k in range(12))
    assert all(part.num_conditions == part.num_trajectories == 4 * part.num_units > 0 for part in parts)


def test_log_likelihoods_are_in_the_datas_units(held_out):
    units = families.as_units(held_out.config, held_out.test.scaled(held_out.rule.scaling), held_out.rule.scaling)
    assert solving.log_slopes(units, held_out.rule.scaling) == pytest.approx(-units.mask.sum() * np.log(SCALE))
    some = units._replace(below=units.mask.at[0].set(True) & (jnp.arange(20) == 0)[:, None, None, None])
    assert solving.log_slopes(some, held_out.rule.scaling) == pytest.approx(-19 * len(TIMES) * np.log(SCALE))


# NPDE


def correlated(num, rng, *, size=8):
    root = np.linalg.cholesky(0.7 * np.ones((size, size)) + 0.3 * np.eye(size))
    return np.exp(0.3 * rng.standard_normal((num, size)) @ root.T)


def test_npde_of_the_models_own_data_are_standard_normal():
    rng = np.random.default_rng(0)
    errors = np.array([npde(correlated(1, rng)[0], correlated(400, rng), rng=rng) for _ in range(150)])
    num = errors.size
    found = npde_summary(errors.ravel())
    assert abs(found["mean"]) < 5 / np.sqrt(num) and abs(found["variance"] - 1) < 5 * np.sqrt(2 / num)
    assert found["ks_p_value"] > 1e-4 and found["num_readings"] == num
    between = np.corrcoef(errors.T)[np.triu_indices(8, 1)]  # decorrelated, where readings correlate by 0.7
    assert np.abs(between).max() < 5 / np.sqrt(150)


@pytest.mark.parametrize(("shift", "scale"), [(0.3, 1.0), (0.0, 1.6), (0.0, 0.5)])
def test_npde_of_other_data_are_not(shift, scale):
    rng = np.random.default_rng(0)
    data = shift + scale * (correlated(60, rng) - 1) + 1
    errors = [npde(readings, correlated(400, rng), rng=rng) for readings in data]
    assert npde_summary(np.concatenate(errors))["ks_p_value"] < 0.01


def test_a_reading_below_its_limit_is_drawn_from_simulations_below_it():
    simulated = np.random.default_rng(0).random((1000, 2))
    drawn = np.array([below_limit(simulated, [0.3, -1.0], rng=np.random.default_rng(seed)) for seed in range(200)])
    assert drawn[:, 0].max() <= 0.3 and abs(drawn[:, 0].mean() - 0.15) < 5 * 0.0866 / np.sqrt(200)
    assert np.all(drawn[:, 1] == -1.0)


@pytest.mark.slow
def test_views_of_the_training_units(held_out):
    shown = views.unit_views(held_out.problem, held_out.config, held_out.test, held_out.rule)
    readings = held_out.test.outputs[..., 0]
    np.testing.assert_allclose(shown.typical, SHIFT + SCALE * MEAN, rtol=1e-6)
    share = SPREAD**2 / (SPREAD**2 + NOISE**2 / len(TIMES))
    own = SHIFT + SCALE * MEAN + share * (readings.mean(1) - SHIFT - SCALE * MEAN)
    width = SCALE * SPREAD * np.sqrt((1 - share) / 256)
    assert np.abs(shown.own[:, 0, 0] - own).max() < 5 * 1.25 * width  # a median
    assert abs(shown.simulated.mean() - SHIFT - SCALE * MEAN) < 5 * SCALE * np.hypot(SPREAD, NOISE) / np.sqrt(20_000)
    assert npde_summary(shown.npde.ravel())["ks_p_value"] > 1e-3 and np.isfinite(shown.npde).all()
    assert shown.effect_names == ("level",) and shown.effects.shape == (20 * views.NUM_DRAWS, 1)
    assert len(shown.fits) == 12 and all(np.all(fit.low < fit.high) for fit in shown.fits)


# Predictive check


def test_a_data_set_lies_at_its_own_percentiles():
    rng = np.random.default_rng(0)
    times, readings = rng.choice(np.arange(30.0), 400), rng.random(400)
    interval = predictive_check.intervals(times)
    np.testing.assert_array_equal(predictive_check.intervals(np.array([5.0, 1.0, 5.0, 2.0])), [2, 0, 2, 1])
    assert len(np.unique(interval)) <= predictive_check.MOST_INTERVALS and np.bincount(interval).min() > 0
    assert all(len(np.unique(interval[times == time])) == 1 for time in np.unique(times))
    found = predictive_check.percentiles(times, readings, np.tile(readings, (7, 1)), interval)
    for part in (found.low, found.median, found.high):
        np.testing.assert_allclose(part, found.observed, rtol=1e-12)


@pytest.mark.parametrize("is_ratio", [True, False])
def test_correction_removes_what_the_design_explains(is_ratio):
    predictions, interval = np.linspace(1.0, 2.0, 21), np.zeros(21, int)
    values = 1.1 * predictions if is_ratio else predictions + 0.3
    found = predictive_check.corrected(values, predictions, interval, is_ratio=is_ratio)
    np.testing.assert_allclose(found, 1.65 if is_ratio else 1.8, rtol=1e-12)
    assert np.isfinite(predictive_check.corrected(values, 0.0 * predictions, interval, is_ratio=is_ratio)).all()


def test_inputs_differ_by_level_or_over_time():
    def data(levels):
        rows = [{"times": TIMES, "outputs": TIMES, "inputs": np.full((6, 1), x)} for x in levels]
        return Dataset.from_list(rows)

    assert has_different_inputs(data([1.0, 2.0])) and not has_different_inputs(data([1.0, 1.0]))


# Verdict


GOOD = {
    "hierarchical": {
        "has_converged": True,
        "ess": {"min": 0.5, "median": 0.8},
        "log_likelihood_se": 0.1,
        "information_is_positive": True,
        "sandwich_ratio": 1.2,
        "npde": {"mean": 0.0, "variance": 1.0, "ks_p_value": 0.4, "num_readings": 100},
        "integration_error": 0.01,
        "effects": ["log ka", "log V"],
        "effects_std": [1.0, 0.95],
        "shrinkage": [0.1, 0.3],
    }
}


def test_a_good_hierarchical_fit_is_trusted_with_every_check_listed():
    found = judge(GOOD)
    assert found["level"] == "trust" and len(found["checks"]) == 9 and all(check["passed"] for check in found["checks"])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"has_converged": False}, "ended before it had converged"),
        ({"ess": {"min": 0.05}}, "effective sample size of 0.05"),
        ({"log_likelihood_se": 0.6}, "changes by 1.2"),
        ({"information_is_positive": False}, "not positive definite"),
        ({"sandwich_ratio": 2.5}, "up to 2.5 times"),
        ({"npde": {"mean": 0.4, "variance": 1.5, "ks_p_value": 0.002, "num_readings": 9}}, "mean 0.4, variance 1.5"),
        ({"integration_error": 0.3}, "0.3 of the noise"),
        ({"effects_std": [1.0, 1.4]}, "(log V), pooled, have a standard deviation of 1.4"),
        ({"effects_std": [0.6, 1.1]}, "(log ka), pooled, have a standard deviation of 0.6"),
    ],
)
def test_each_rule_asks_for_caution(parts, words):
    metrics = copy.deepcopy(GOOD)
    metrics["hierarchical"] |= parts
    found = judge(metrics)
    assert found["level"] == "caution" and words in found["text"]
    assert sum(check["passed"] is None for check in found["checks"]) == 1


def test_shrinkage_is_a_note():
    metrics = copy.deepcopy(GOOD)
    metrics["hierarchical"]["shrinkage"] = [0.1, 0.8]
    found = judge(metrics)
    assert found["level"] == "trust" and "shrinkage of log V is above 50 %" in found["text"]
    assert "shrinkage" not in judge(GOOD)["text"]


def test_numbers_that_are_not_there_are_not_judged():
    assert judge({"hierarchical": {"ess": {"min": 0.5}}})["checks"][0]["name"] == "relative ESS of the worst unit"
    assert judge({})["checks"] == []


# Report and figures


def unit_metrics():
    score = {"crps": 0.5, "log_score": -1.25, "coverage": {"50": 0.5, "90": 0.9, "95": 0.95}, "num_readings": 40}
    found = copy.deepcopy(GOOD["hierarchical"]) | {
        "log_likelihood": -180.35,
        "aic": 374.7,
        "bic": 378.1,
        "k_hat": {"max": 0.1, "median": -0.2},
        "effects_mean": [0.0, 0.0],
        "parameters": [
            {"name": BAD_NAME, "estimate": 1.59, "se": 0.315, "rse": 0.198},
            {"name": "sd(log V)", "estimate": 0.0, "se": None, "rse": None},
        ],
    }
    return {"hierarchical": found, "new_units": score, "given_units": [{"num_given": 1, **score}]}


def test_the_report_has_a_section_on_units(tmp_path):
    text = Outline(render_report(make_run(tmp_path / "run", metrics=unit_metrics()))).text
    for words in ("360.70 ± 0.2", "374.70", "378.10", "nothing: a new unit −1.250 0.5 50 %", "its first reading"):
        assert words in text
    assert f"{BAD_NAME} 1.59 0.315 19.8 %" in text and "sd(log V) 0 unknown unknown" in text
    assert "log V 30 % 0.00 0.95" in text


@pytest.mark.parametrize("width", [390, 1440])
def test_the_section_shows_well(browser, tmp_path, width):
    assert look(browser, write_report(make_run(tmp_path / "run", metrics=unit_metrics())), width) == {}


@pytest.mark.parametrize("metrics", [{}, {"hierarchical": None}, {"hierarchical": {"parameters": 3, "ess": "x"}}])
def test_other_reports_have_none(metrics):
    assert units_section(metrics) is None


def test_figures_draw_what_they_are_given():
    rng = np.random.default_rng(0)
    effects = plots.effect_panels(rng.standard_normal((500, 3)), ["a", "b", "c$"], [0.1, 0.2, 0.3])
    assert "b, shrinkage 20 %" in [axis.get_title() for axis in effects.axes]
    found = plots.intervals(["a", "b"], np.array([2.0, -1.0]), np.array([0.5, 0.2]))
    assert [text.get_text() for text in found.axes[0].get_yticklabels()] == ["a", "b"]
    curve = np.linspace(0.0, 1.0, 9)
    panel = plots.IndividualPanel("unit", curve, curve, curve, curve - 1, curve + 1, curve[:3], curve[:3])
    axes = plots.individual_fits([panel] * 5, time_label="t [h]", ylabel="y").axes
    assert [axis.get_visible() for axis in axes] == 5 * [True] + 3 * [False]
    assert [axis.get_xlabel() for axis in axes[:5]] == ["", *4 * ["t [h]"]]


@pytest.mark.parametrize(("occasion", "wanted"), [(None, None), (0.2, [0.2, families.FIRST_OCCASION])])
def test_a_spread_between_occasions_that_is_given_is_where_the_fit_starts(occasion, wanted):
    effects = Effects(level=Normal(MEAN, SPREAD, occasion=occasion), slope=Normal(0.1, SPREAD))
    model = UnitModel(effects, lambda t, x, p: (p.level + p.slope * t)[:, None], noise="additive")
    data = units_of_the_family(4, seed=1)
    _, config = plan.plan_model(model, data, {}, None)
    with families.in_64_bits():
        found = families.make_family(config, model, Scaling.identity(data)).occasion_scale
    assert (found is None) == (wanted is None)
    if wanted is not None and found is not None:
        np.testing.assert_allclose(np.exp(found), wanted)
