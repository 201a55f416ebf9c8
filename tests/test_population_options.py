"""What keeps a population from taking noise for spread, and its bands from being too narrow for new units."""

import numpy as np
import pytest
from scipy.stats import chi2, norm, t

import langenode as ln
from langenode.data import estimate_noise
from langenode.fitting.noise import estimated_noise
from langenode.inference.predictions import for_new_units, predictive_levels
from langenode.inference.principal import NOISE_SHARE, Components
from langenode.inference.targets import Population, Posterior
from problems import problem_of

TIMES = np.linspace(0.25, 3.0, 12)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


# New units


@pytest.mark.parametrize("num_units", [5, 20, 200])
def test_limits_for_new_units_are_the_prediction_limits_of_a_normal_sample(num_units):
    levels = np.array([0.05, 0.5, 0.95])
    # mean + s sqrt(1 + 1 / n) t with the unbiased s, in units of the standard deviation with divisor n
    limits = t.ppf(levels, num_units - 1) * np.sqrt(1.0 + 1.0 / num_units) * np.sqrt(num_units / (num_units - 1))
    np.testing.assert_allclose(norm.ppf(predictive_levels(levels, num_units)), limits, atol=1e-12)


def test_ninety_per_cent_of_new_units_are_within_the_limits(rng):
    known, new = rng.normal(size=(20_000, 8)), rng.normal(size=20_000)
    low, high = norm.ppf(predictive_levels(np.array([0.05, 0.95]), 8))
    place = (new - known.mean(1)) / known.std(1)
    inside = np.mean((place > low) & (place < high))
    assert abs(inside - 0.9) < 5.0 * np.sqrt(0.9 * 0.1 / len(new))


def test_samples_for_new_units_are_wider_and_keep_their_ranks(rng):
    outputs = rng.normal(size=(4000, 1, 3, 2)) * np.array([1.0, 5.0])
    wider = for_new_units(problem_of([1.0], target=Population(num_units=20)), outputs)
    assert np.all(np.diff(np.take_along_axis(wider, np.argsort(outputs, axis=0), axis=0), axis=0) >= 0.0)
    wanted = np.quantile(outputs, predictive_levels(np.array([0.05, 0.95]), 20), axis=0, method="hazen")
    np.testing.assert_allclose(np.quantile(wider, [0.05, 0.95], axis=0, method="hazen"), wanted, rtol=1e-3)
    for same in (Population(), Posterior()):
        assert for_new_units(problem_of([1.0], target=same), outputs) is outputs


# Noise


def readings(num: int, noise: float, rng: np.random.Generator, **more) -> ln.Dataset:
    """Units that differ in two weights, read with noise."""
    weights = np.array([1.0, 0.5]) + np.array([0.3, 0.2]) * rng.standard_normal((num, 2))
    curves = weights[:, :1] * (1.0 - np.exp(-TIMES)) + weights[:, 1:] * TIMES / 3.0
    return ln.Dataset.from_arrays(TIMES, (curves + noise * rng.standard_normal(curves.shape))[..., None], **more)


def test_noise_is_estimated_from_the_roughness_of_trajectories(rng):
    found = [estimate_noise(readings(20, 0.05, rng)) for _ in range(20)]
    sigma = np.array([estimate.sigma[0] for estimate in found if estimate is not None])
    error = np.array([estimate.standard_error[0] for estimate in found if estimate is not None])
    assert len(sigma) == 20 and found[0] is not None and found[0].source == "the roughness of trajectories"
    # The stated error is that of the scatter, up to chance: chi-squared with 19 degrees of freedom.
    low, high = chi2.ppf([0.0005, 0.9995], 19) / 19
    assert low < sigma.var(ddof=1) / np.mean(error**2) < high
    assert abs(sigma.mean() - 0.05) < 5.0 * np.sqrt(np.mean(error**2) / 20)


def test_without_noise_next_to_none_is_found(rng):
    found = estimate_noise(readings(20, 0.0, rng))
    assert found is not None and found.sigma[0] < 1e-3


def test_noise_is_estimated_from_repeats_of_a_unit(rng):
    # Errors that are the same at all times of a trajectory are smooth: only repeats show them.
    levels = np.repeat(rng.normal(size=15), 4)[:, None] + 0.3 * rng.standard_normal((60, 1))
    outputs = np.broadcast_to(levels, (60, 3))[..., None]
    found = estimate_noise(ln.Dataset.from_arrays(np.arange(3.0), outputs, unit=np.repeat(np.arange(15), 4)))
    assert found is not None and found.source == "repeats of the same unit"
    # Chi-squared with 45 independent degrees of freedom.
    assert abs(found.sigma[0] ** 2 / 0.09 - 1.0) < 5.0 * np.sqrt(2.0 / 45)


def test_where_noise_cannot_be_estimated_there_is_almost_none(rng):
    data = ln.Dataset.from_arrays(np.arange(2.0), rng.normal(size=(3, 2, 1)))
    assert estimate_noise(data) is None
    np.testing.assert_allclose(estimated_noise(data), 1e-6 * data.outputs.std(), rtol=1e-6)


# Components


def test_components_count_by_what_they_carry():
    values, directions = np.array([4.0, 1.0, 0.04]), np.eye(3)
    np.testing.assert_array_equal(Components().weights(values, directions, 0.1), np.ones(3))
    floored = np.sqrt(values / (values + 0.1 * 4.0))
    weights = Components(floor=0.1).weights(values, directions, 0.1)
    np.testing.assert_allclose(weights, floored / floored[0], rtol=1e-12)
    noisy = Components(noise=np.full(3, 0.04)).weights(values, directions, 0.1)
    shares = np.sqrt([3.96 / 4.0, 0.96, NOISE_SHARE])  # the last is no more than noise makes
    np.testing.assert_allclose(noisy, shares / shares[0], rtol=1e-12)


def test_components_are_sought_where_the_model_can_go(rng):
    span = rng.normal(size=(50, 2)) @ np.eye(6)[:2]
    rows = rng.normal(size=(30, 6)) * np.array([1.0, 1.0, 9.0, 9.0, 9.0, 9.0])
    components = Components(span=span)
    _, directions = components.principal(rows, components.basis())
    np.testing.assert_allclose(directions[:, 2:], 0.0, atol=1e-12)
