"""On which scale an output is modelled, noise in proportion to the level, and starts that are known exactly."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import langenode as ln
from langenode.config import ConfigError
from langenode.data import Dataset, Scaling, find_levels, knees, spread_against_level, starts_are_exact
from langenode.experiments import own
from langenode.fitting import build
from langenode.inference.density import whiten
from langenode.inference.likelihood import inferred_noise
from langenode.inference.noise import Levels, noise_parts, noise_scale
from langenode.inference.predictions import Prediction, Rule, with_noise
from langenode.inference.targets import Posterior
from langenode.scores.metrics import crps
from problems import problem_of

TIMES = np.linspace(0.0, 4.0, 12)


def decays(rng, *, num=12, constant=0.0, proportional=0.0, start=10.0):
    """Readings of exponential decays with noise of two parts; trajectories begin at unequal levels."""
    starts = start * rng.uniform(0.8, 1.2, size=(num, 1))
    mean = starts * np.exp(-0.8 * TIMES)
    noise = np.sqrt(constant**2 + (proportional * mean) ** 2) * rng.normal(size=mean.shape)
    return mean + noise


def level_of(outputs, name="conc"):
    return find_levels(Dataset.from_arrays(TIMES, outputs, output_names=(name,)))[0]


# The scale of an output


def test_spread_in_proportion_makes_a_logarithmic_scale():
    rng = np.random.default_rng(0)
    found = level_of(decays(rng, proportional=0.15))
    assert found.kind == "log" and "in proportion to their level" in found.why
    assert level_of(decays(rng, proportional=0.15), "temp_degC").kind == "linear"  # which may be negative
    assert level_of(decays(rng, proportional=0.15) - 5.0).kind == "linear"


def test_readings_about_zero_that_are_never_negative_are_positive():
    rng = np.random.default_rng(1)
    outputs = np.maximum(1.0 + rng.normal(size=(12, 12)), 0.0)
    assert level_of(outputs).kind == "positive"
    assert level_of(outputs + 20.0).kind == "linear"
    assert level_of(1.0 + rng.normal(size=(12, 12))).kind == "linear"


def test_constant_noise_is_hardly_ever_called_proportional():
    """By the threshold once in a thousand times; more than four of 300 have a chance of 1e-5 then."""
    rng = np.random.default_rng(2)
    level = np.tile(np.linspace(1.0, 10.0, 10), 10)
    gains = [spread_against_level(level, rng.normal(size=100)).gain for _ in range(300)]
    assert sum(gain >= 10.8 for gain in gains) <= 4
    found = [level_of(30.0 + 10 * np.exp(-TIMES) + rng.normal(size=(10, 12)), "mass").kind for _ in range(100)]
    assert found.count("log") <= 2


def test_the_parts_of_the_spread_are_found():
    """Both within five standard errors, from the Fisher information of the logarithms of the two parts."""
    rng = np.random.default_rng(3)
    level = rng.uniform(0.0, 20.0, size=20_000)
    variance = 0.5**2 + (0.1 * level) ** 2
    found = spread_against_level(level, np.sqrt(variance) * rng.normal(size=len(level)))
    shares = np.stack([0.25 / variance, 1 - 0.25 / variance])
    errors = np.sqrt(np.diag(np.linalg.inv(2.0 * shares @ shares.T)))
    grid = np.log(30.0 / 0.01) / 59 / 2  # half a step between two knees
    assert abs(np.log(found.constant / 0.5)) < 5 * errors[0] + grid
    assert abs(np.log(found.slope / 0.1)) < 5 * errors[1] + grid


def test_one_outlier_does_not_change_the_scale():
    rng = np.random.default_rng(4)
    for outputs, kind in ((30.0 + rng.normal(size=(10, 12)), "linear"), (decays(rng, proportional=0.1), "log")):
        wild = outputs.copy()
        wild[3, 4] = 1e6
        assert level_of(outputs, "mass").kind == level_of(wild, "mass").kind == kind


def test_a_knee_is_positive_and_within_the_readings():
    rng = np.random.default_rng(5)
    outputs = decays(rng, constant=0.02, proportional=0.1)
    outputs[:, 0] = 0.0
    data = Dataset.from_arrays(TIMES, np.stack([np.maximum(outputs, 0.0), outputs], axis=-1))
    found = knees(data, ("log", "linear"))
    assert 0 < found[0] <= outputs.max() and found[1] == 0


# Starts


def test_a_start_that_noise_would_not_repeat_is_exact():
    rng = np.random.default_rng(0)
    outputs = np.column_stack([np.zeros(12), rng.uniform(1, 5, size=(12, 6))])
    assert starts_are_exact(Dataset.from_arrays(np.arange(7.0), outputs))
    outputs[:3, 0] = [0.7, 0.2, 0.1]
    assert starts_are_exact(Dataset.from_arrays(np.arange(7.0), outputs))
    outputs[:6, 0] = rng.uniform(size=6)
    assert not starts_are_exact(Dataset.from_arrays(np.arange(7.0), outputs))
    assert not starts_are_exact(Dataset.from_arrays(np.arange(3.0), np.ones((4, 3))))
    assert not starts_are_exact(Dataset.from_arrays(np.arange(7.0), outputs[:2]))


def test_scale_and_start_are_choices_with_reasons():
    rng = np.random.default_rng(0)
    outputs = decays(rng, proportional=0.15)
    outputs[:, 0] = 0.0
    data = Dataset.from_arrays(TIMES, outputs, condition=np.arange(12), output_names=("conc",))
    plan = own.plan(data, {})
    assert plan.layer["output_scale"] == ("log",) and plan.layer["noise"] == {"in_start": False}
    said = {choice.what: choice for choice in plan.choices}
    assert "never negative" in said["scale of conc"].chosen and "without noise" in said["start of a trajectory"].chosen
    told = own.plan(data, {"output_scale": ["linear"]})
    assert "output_scale" not in told.layer and "scale of conc" not in {choice.what for choice in told.choices}


# Noise in two parts


def two_parts(num_out=2, num_samples=3):
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=(num_samples, 4, 5, num_out))
    log_noise = rng.normal(-1.0, 0.3, size=(num_samples, 2, num_out))
    levels = Levels(jnp.array([-0.5, 0.2]), jnp.array([1.0, 0.0]))
    return jnp.asarray(predictions), jnp.asarray(log_noise), levels


def test_the_noise_scale_and_its_density():
    predictions, log_noise, levels = two_parts()
    found = np.asarray(noise_scale(log_noise, predictions, levels))
    parts = np.exp(np.asarray(log_noise))
    for k, (zero, share) in enumerate([(-0.5, 1.0), (0.2, 0.0)]):
        level = share * (np.asarray(predictions)[..., k] - zero)
        constant, slope = (parts[:, j, None, None, k] for j in (0, 1))
        np.testing.assert_allclose(found[..., k], np.hypot(constant, slope * level), rtol=1e-12)
    rng = np.random.default_rng(1)
    outputs, mask = rng.normal(size=(4, 5, 2)), rng.random((4, 5, 2)) < 0.8
    times = jnp.broadcast_to(jnp.arange(5.0), (4, 5))
    density = inferred_noise(levels).log_density(predictions, jnp.asarray(outputs), jnp.asarray(mask), times, log_noise)
    cells = stats.norm.logpdf(outputs, np.asarray(predictions), found)
    np.testing.assert_allclose(density, np.where(mask, cells, 0.0).sum((2, 3)), rtol=1e-10)


def proportional_problem(log_noise):
    levels = Levels(jnp.array([-1.0]), jnp.array([1.0]))
    return problem_of([0.5, 1.0], log_noise=log_noise, likelihood=inferred_noise(levels), target=Posterior())


def test_samplers_see_the_same_density():
    problem = proportional_problem(jnp.log(jnp.array([[0.1], [0.2]])))
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(np.arange(5.0), rng.normal(size=(3, 5)), initial=np.ones(3))
    density = whiten(problem, data, float)
    for z in rng.normal(size=(3, problem.partition.dim)):
        model = problem.partition.combine(problem.model, problem.prior.to_weights(jnp.asarray(z)))
        batch = data.arrays(float)
        outputs = jax.vmap(model)(batch.times, batch.inputs, batch.initial)
        args = (batch.outputs, batch.mask, batch.times, model.log_noise[None])
        expected = problem.likelihood.log_density(outputs[None], *args).sum()
        np.testing.assert_allclose(density.log_likelihood(jnp.asarray(z)), expected, rtol=1e-9)


class ExactDecay(eqx.Module):
    """The exact solution, so that residuals are noise alone."""

    log_noise: jax.Array

    def __call__(self, times, inputs, initial):
        del inputs
        return initial * jnp.exp(-0.8 * times)[:, None]


def test_parts_from_residuals_are_found_where_they_are():
    model = ExactDecay(jnp.zeros(1))
    levels = Levels(jnp.zeros(1), jnp.ones(1))
    rng = np.random.default_rng(0)

    def parts(**noise):
        starts = rng.uniform(8.0, 12.0, size=60)
        mean = starts[:, None] * np.exp(-0.8 * TIMES)
        drawn = np.hypot(noise["constant"], noise["proportional"] * mean) * rng.normal(size=mean.shape)
        return noise_parts(model, Dataset.from_arrays(TIMES, mean + drawn, initial=starts), levels)

    both = parts(constant=0.05, proportional=0.2)
    assert both.is_proportional.tolist() == [True]
    # Standard errors of the logarithms for 720 readings are below 0.1 and 0.04.
    np.testing.assert_allclose(np.exp(both.log_noise[:, 0]), [0.05, 0.2], rtol=0.5)
    assert parts(constant=0.3, proportional=0.0).is_proportional.tolist() == [False]


def test_new_readings_have_both_parts():
    problem = proportional_problem(jnp.log(jnp.array([[0.1], [0.2]])))
    num = 4000
    weights = jnp.broadcast_to(problem.partition.flatten(problem.model), (num, problem.partition.dim))
    outputs = np.broadcast_to(np.array([0.0, 4.0])[None, None, :, None], (num, 1, 2, 1))
    noisy = with_noise(problem, Prediction(outputs, weights), Rule(), rng=np.random.default_rng(0))
    expected = np.hypot(0.1, 0.2 * np.array([1.0, 5.0]))
    # The relative standard error of a standard deviation from n numbers is 1 / sqrt(2 n).
    np.testing.assert_allclose(noisy.std(0).ravel() / expected, 1.0, atol=5 / np.sqrt(2 * num))


# Fits

QUICK = {
    "data": {"folds": None},
    "mle": {"num_adam": 30, "num_lbfgs": 0},
    "model": {"kind": "state", "layers": [3], "largest_step": 0.5},
    "predict": {"num_samples": 64},
}


@pytest.fixture(scope="module")
def positive_fit():
    rng = np.random.default_rng(0)
    outputs = np.maximum(decays(rng, constant=0.3, proportional=0.2, start=3.0), 0.0)
    data = Dataset.from_arrays(TIMES, outputs, condition=np.arange(12), output_names=("conc",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so small a fit is not to be trusted
        fit = ln.fit(data.select(slice(8)), method="laplace", seed=0, options=QUICK, progress=False)
    return fit, data.select(slice(8, 12))


@pytest.mark.slow
def test_bands_and_readings_of_a_positive_output_are_never_negative(positive_fit):
    fit, test = positive_fit
    assert fit.config.output_scale in (("log",), ("positive",))
    bands = fit.predict(test)
    for name in ("outputs", "mean", "quantiles", "observation_quantiles"):
        assert float(bands[name].min()) >= 0.0, name
    # Scores are in the data's own units, against the readings as they are.
    prediction, noisy, prepared = fit._predict(test, None, None)
    members = prepared.replicates()
    np.testing.assert_array_equal(members.outputs[0][:, 1:], test.outputs[:, 1:])
    assert not members.mask[:, :, 0].any()  # the start
    assert fit.evaluate(test)["crps"] == pytest.approx(crps(noisy, test.outputs[None], mask=members.mask), rel=1e-12)
    assert noisy.min() >= 0.0 and prediction.outputs.min() >= 0.0


@pytest.mark.slow
def test_a_fit_on_another_scale_is_the_same_from_its_file(positive_fit, tmp_path):
    fit, test = positive_fit
    fit.save(tmp_path / "a.langenode")
    again = ln.load_fit(tmp_path / "a.langenode")
    assert again.scaling.to_dict() == fit.scaling.to_dict()
    np.testing.assert_array_equal(again.predict(test)["outputs"], fit.predict(test)["outputs"])


def test_scales_need_standardised_data_and_one_entry_per_output():
    data = Dataset.from_arrays(TIMES, np.random.default_rng(0).uniform(1, 2, size=(4, 12, 2)))
    config = own.OwnConfig(output_scale=("log", "linear"))
    assert (build.new_scaling(config, data).knees > 0).tolist() == [True, False]
    with pytest.raises(ConfigError, match="one entry, or one per output, here 2; got 3"):
        build.new_scaling(own.OwnConfig(output_scale=("log", "log", "log")), data)
    with pytest.raises(ConfigError, match="need scaling='standardise'"):
        build.new_scaling(own.OwnConfig(output_scale=("log",), scaling="none"), data)
    assert not build.new_scaling(own.OwnConfig(), data).is_positive.any()


def test_given_noise_has_the_slope_of_the_scale():
    data = Dataset.from_arrays(TIMES, np.random.default_rng(0).uniform(1, 9, size=(4, 12, 1)))
    config = own.OwnConfig.model_validate({"output_scale": ("log",), "noise": {"kind": "given", "sigma": 0.2}})
    scaling = build.new_scaling(config, data)
    likelihood = build.make_likelihood(config, None, data.scaled(scaling), scaling)
    expected = 0.2 * scaling.slope_at(data.outputs)
    assert likelihood.sigma is not None
    np.testing.assert_allclose(likelihood.sigma[0], expected, rtol=1e-6)


@pytest.mark.slow
def test_proportional_noise_is_kept_in_a_file(tmp_path):
    rng = np.random.default_rng(0)
    mean = 20 + 30 * np.exp(-TIMES) * rng.uniform(-1, 1, size=(10, 1))
    data = Dataset.from_arrays(TIMES, -mean * (1 + 0.05 * rng.normal(size=mean.shape)), condition=np.arange(10))
    options = QUICK | {"noise": {"proportional": True}}
    fit = ln.fit(data, method="map", seed=0, options=options, progress=False)
    assert fit.problem.model.log_noise.shape == (2, 1) and fit.problem.likelihood.levels is not None
    fit.save(tmp_path / "a.langenode")
    again = ln.load_fit(tmp_path / "a.langenode")
    for name in ("outputs", "observation_quantiles"):
        np.testing.assert_array_equal(again.predict(data)[name], fit.predict(data)[name])
    zero = float(fit.problem.likelihood.levels.zero[0])
    scaling: Scaling = fit.scaling
    assert scaling.unscale_outputs(np.array([zero]))[0] == pytest.approx(0.0, abs=1e-5 * float(scaling.output_scale[0]))


def test_dataclass_of_a_scaling_is_replaced_whole():
    scaling = Scaling.identity(Dataset.from_arrays(TIMES, np.ones((2, 12, 1))))
    assert dataclasses.replace(scaling, output_positive=np.ones(1)).is_positive.tolist() == [True]
