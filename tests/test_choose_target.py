"""One model for all trajectories, or units that differ: the rule, its numbers, and noise that is calibrated."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.fitting import choose_target
from langenode.fitting.choose_target import Compared, is_open, recorded_choice
from langenode.fitting.plan import plan_data
from langenode.fitting.units.errors import unit_errors
from langenode.fitting.units.families import in_64_bits
from langenode.inference.hierarchical.conditional import stacked


def relaxations(num: int, *, seed: int, rate_spread: float = 0.0) -> ln.Dataset:
    """Relaxations to a level that is an input, from a start of each trajectory's own."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 4.0, 9)
    level, start = rng.uniform(0.5, 2.0, (num, 1)), 1.0 + 0.5 * rng.standard_normal((num, 1))
    rate = 0.8 * np.exp(rate_spread * rng.standard_normal((num, 1)))
    outputs = level + (start - level) * np.exp(-rate * times) + 0.03 * rng.standard_normal((num, len(times)))
    inputs = np.broadcast_to(level[..., None], (num, len(times), 1))
    return ln.Dataset.from_arrays(times, outputs, inputs=inputs)


def slopes(num: int, *, seed: int) -> ln.Dataset:
    """Straight lines from zero at times of their own, each with its slope, which nothing at the start shows."""
    rng = np.random.default_rng(seed)
    trajectories = []
    for number in range(num):
        times = np.concatenate([[0.0], np.sort(rng.uniform(0.1, 1.0, 6))])
        readings = (1.0 + 0.4 * rng.standard_normal()) * times + 0.02 * rng.standard_normal(len(times))
        trajectories.append({"times": times, "outputs": readings, "unit": str(number)})
    return ln.Dataset.from_list(trajectories)


# The rule


def test_one_model_for_all_must_be_clearly_better():
    assert Compared(posterior=0.5, hierarchical=0.1, standard_error=0.0).target == "posterior"
    assert Compared(posterior=0.35, hierarchical=0.1, standard_error=0.0).target == "hierarchical"
    assert Compared(posterior=0.5, hierarchical=0.1, standard_error=0.1).target == "hierarchical"
    assert Compared(posterior=-1.0, hierarchical=-math.inf, standard_error=0.0).target == "posterior"
    assert Compared(posterior=-math.inf, hierarchical=-math.inf, standard_error=0.0).target == "hierarchical"


def test_the_reason_has_both_numbers_and_is_found_again():
    for compared in (Compared(0.512, 0.123, 0.01), Compared(0.123, 0.512, 0.01)):
        assert "0.51" in compared.why and "0.12" in compared.why
        made = [{"what": "method", "why": "x"}, {"what": "target", "why": compared.why}]
        assert recorded_choice(made) == compared.why
    assert recorded_choice([{"what": "target", "why": "requested"}]) is None


def test_log_density_is_that_of_normal_errors_of_this_size():
    errors = [np.array([0.1, 0.4]), np.array([0.2, np.nan])]
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    wanted = [np.mean([-math.log(size) for size in sizes]) - entropy for sizes in ((0.1, 0.4), (0.2,))]
    np.testing.assert_allclose(choose_target._log_densities(errors), wanted)
    assert choose_target._log_densities([np.array([np.nan])])[0] == -math.inf


def test_errors_count_what_was_read():
    error = np.array([[[3.0, np.nan], [np.nan, np.nan]], [[4.0, 1.0], [np.nan, 2.0]]])
    np.testing.assert_allclose(choose_target._rms(error), [math.sqrt(12.5), math.sqrt(2.5)])
    assert np.isinf(choose_target._rms(np.array([[[np.inf], [1.0]]]))[0])


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, True),
        ({"seed": 3, "data": {"folds": 3}}, True),
        ({"target": "hierarchical"}, False),
        ({"hierarchical": {"num_points": 64}}, False),
        ({"model": {"num_latent": 1}}, False),
        ({"model": {"layers": [8]}}, True),
    ],
)
def test_who_asks_for_units_gets_them(asked, wanted):
    config = plan_data(slopes(6, seed=0), asked)[1]
    assert config.target == "hierarchical" and is_open(asked, config) is wanted


# Errors on held-out units, and the noise they ask for


def bent(times, inputs, p):
    return (p.level + 0.0 * times)[:, None]


@pytest.fixture(scope="module")
def levels():
    """Readings y = level + noise with level ~ N(1, 0.5^2) and noise 0.2: all that is asked for is conjugate."""
    model = ln.UnitModel(ln.Effects(level=ln.Normal(1.0, 0.5)), bent, noise="additive")
    rng = np.random.default_rng(4)
    times = np.linspace(0.0, 1.0, 3)
    readings = 1.0 + 0.5 * rng.standard_normal((5, 1)) + 0.2 * rng.standard_normal((5, 3))
    trajectories = [{"times": times, "outputs": row, "unit": str(number)} for number, row in enumerate(readings)]
    return model, ln.Dataset.from_list(trajectories), readings


def test_errors_of_units_are_those_of_the_conjugate_prediction(levels):
    from langenode.data import Scaling
    from langenode.fitting.plan import plan_model
    from langenode.fitting.units import families

    model, data, readings = levels
    config = plan_model(model, data, {"noise": {"in_start": True}}, None)[1]
    scaling = Scaling.identity(data)
    with in_64_bits():
        family = families.make_family(config, model, scaling, None)
        noise = float(jnp.exp(family.model.log_noise[0]))
    found = unit_errors(config, stacked([family]), data, scaling, 20_000, key=jax.random.key(0))
    gain = 0.5**2 / (0.5**2 + noise**2)
    mean, std = 1.0 + gain * (readings[:, :1] - 1.0), 0.5 * math.sqrt(1.0 - gain)
    assert np.isnan(found.error[:, 0]).all()  # the first reading is given
    # Draws are taken from 512 importance points, whose mean is not that of the distribution either.
    bound = 5.0 * std / math.sqrt(512)
    np.testing.assert_allclose(found.error[:, 1:, 0], readings[:, 1:] - mean, atol=bound)
    np.testing.assert_allclose(found.from_weights[:, 1:, 0], std**2, rtol=5.0 * math.sqrt(2.0 / 512))
    np.testing.assert_allclose(found.from_noise[:, 1:, 0], noise**2, rtol=1e-6)


@pytest.mark.slow
def test_the_noise_factor_multiplies_the_noise_of_new_readings_alone(levels):
    model, data, _ = levels
    fit = ln.fit(data, model=model, options={"hierarchical": {"num_importance": 2, "num_draws": 4}}, progress=False)
    prepared = fit.prepared(data)
    outputs, observed = fit.predict_prepared(prepared)
    wider = dataclasses.replace(fit, noise_factor=np.array([3.0]))
    same, more = wider.predict_prepared(prepared)
    np.testing.assert_array_equal(same.outputs, outputs.outputs)
    np.testing.assert_allclose(more - same.outputs, 3.0 * (observed - outputs.outputs), atol=1e-9)


# Whole fits


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_what_follows_from_start_and_inputs_is_one_model_and_what_does_not_is_units(seed):
    """Eight relaxations to a known level are one ODE; lines of unequal slopes are units."""
    fit = ln.fit(relaxations(8, seed=seed), seed=seed, progress=False)
    assert fit.config.target == "posterior"
    assert fit.diagnostics["targets"]["posterior"] > fit.diagnostics["targets"]["hierarchical"]
    other = ln.fit(slopes(8, seed=seed), seed=seed, progress=False)
    assert other.config.target == "hierarchical"
    assert other.diagnostics["calibration"]["num_independent"][0] > 0.0
