"""How well a family is known: the information matrix in a case with a closed form, and what is kept out of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
from langenode.data import Dataset
from langenode.fitting.units.solving import zero_spreads
from langenode.inference.hierarchical import estimate as estimating
from langenode.inference.hierarchical import uncertainty
from langenode.inference.hierarchical.estimate import LogPrior, Settings, estimate, search, start_modes
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import make_points
from langenode.inference.hierarchical.units import by_unit
from langenode.inference.partition import Partition
from langenode.posteriors import Gaussian, Reference, gaussian
from langenode.posteriors.gaussian import Covariance

NUM_UNITS, NUM_READINGS, DIM, NUM_DRAWS = 24, 4, 2, 100


class Constants(eqx.Module):
    """Two outputs that do not change: a unit's own weights."""

    weights: jax.Array
    log_noise: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return jnp.broadcast_to(self.weights, (len(times), DIM))


def constants(covariance: Covariance = "full", occasions=None):
    model = Constants(jnp.zeros(DIM), jnp.log(jnp.full(DIM, 0.5)))
    effects = gaussian(Reference(jnp.zeros(DIM), jnp.ones(DIM)), covariance, key=jax.random.key(0))
    return Family(effects, model, Partition.of(model, lambda m: m.weights), None, occasions)


def gaussian_of(family):
    """The distribution of the effects."""
    assert isinstance(family.effects, Gaussian)
    return family.effects


@pytest.fixture(scope="module")
def readings():
    """A balanced design: a unit's mean is all that there is to know of its weights."""
    rng = np.random.default_rng(2)
    own = rng.normal(size=(NUM_UNITS, DIM)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([1.0, -2.0])
    return own[:, None] + 0.4 * rng.normal(size=(NUM_UNITS, NUM_READINGS, DIM))


def units_of(readings):
    times = np.arange(float(NUM_READINGS))
    data = Dataset.from_list(
        [{"times": times, "outputs": outputs, "unit": str(k)} for k, outputs in enumerate(readings)]
    )
    return by_unit(data)


@pytest.fixture(scope="module")
def fitted(readings):
    units = units_of(readings)
    points = make_points(64, DIM, NUM_UNITS, seed=0)
    # Laplace's approximation is exact here.
    start = constants()
    found = search(start, units, start_modes(start, units), points, LogPrior(), "laplace", most=100)
    known = uncertainty.observed_information(
        found.family, units, found.modes, points, LogPrior(), fixed=zero_spreads(found.family)
    )
    return found, known


@pytest.mark.slow
def test_maximum_likelihood_of_a_balanced_design_is_closed(readings, fitted):
    """Noise is the variance within units; the covariance between units is that of their means less a share of it."""
    found, _ = fitted
    means = readings.mean(1)
    within = ((readings - means[:, None]) ** 2).sum((0, 1)) / (NUM_UNITS * (NUM_READINGS - 1))
    between = np.cov(means.T, bias=True) - np.diag(within) / NUM_READINGS
    family = found.family
    assert found.has_converged
    np.testing.assert_allclose(family.effects.shift, means.mean(0), atol=1e-4)
    np.testing.assert_allclose(np.exp(2.0 * family.model.log_noise), within, rtol=1e-3)
    root = np.asarray(family.effects.covariance_root())
    np.testing.assert_allclose(root @ root.T, between, atol=1e-3 * between.max())


@pytest.mark.slow
def test_the_information_of_a_full_covariance_is_positive_and_has_the_closed_form(readings, fitted):
    """The unused half of a triangular matrix is no number: it neither counts nor makes the matrix singular."""
    found, known = fitted
    assert len(known.flat) == 2 + 2 + 4 + 2 and known.free.sum() == uncertainty.num_numbers(found.family) == 7
    assert known.is_positive
    order = np.asarray(gaussian_of(uncertainty.with_flat(found.family, np.arange(10.0))).shift).astype(int)
    exact = np.cov(readings.mean(1).T, bias=True) / NUM_UNITS  # of the two means
    np.testing.assert_allclose(known.covariance[np.ix_(order, order)], exact, rtol=0.02, atol=0.02 * exact.max())


@pytest.fixture(scope="module")
def known_normal():
    """A family of which the first of six numbers is not varied, and the others are correlated."""
    root = np.tril(np.random.default_rng(1).normal(size=(5, 5)), -1) + np.diag([1.0, 2.0, 0.5, 0.1, 1.0])
    covariance, family = np.zeros((6, 6)), constants("diagonal")
    covariance[1:, 1:] = root @ root.T
    flat = uncertainty.flat_of(family)
    return family, uncertainty.Information(flat, np.eye(6), covariance, np.arange(6) > 0, True)


def test_draws_from_a_normal_posterior_have_its_moments_and_leave_the_rest(known_normal):
    """All draws have the same weight then."""
    family, known = known_normal
    precision = np.linalg.inv(known.covariance[1:, 1:])

    def log_posterior(flat):
        shift = (flat - known.flat)[1:]
        return 7.0 - 0.5 * shift @ precision @ shift

    rng = np.random.default_rng(0)
    drawn = uncertainty.laplace_draws(family, known, NUM_DRAWS, log_posterior=log_posterior, rng=rng)
    shifts = np.array([uncertainty.flat_of(one) for one in drawn]) - known.flat
    np.testing.assert_allclose(shifts[:, 0], 0.0, atol=1e-7)
    assert len(np.unique(shifts[:, 1])) == NUM_DRAWS  # of four tries each, none is repeated
    problems.assert_mean(shifts[:, 1:], 0.0)
    problems.assert_mean(shifts[:, 1:, None] * shifts[:, None, 1:], known.covariance[1:, 1:])


def test_a_number_with_an_upper_bound_only_is_not_drawn_beyond_it(known_normal):
    """The logarithm of a noise that is not there: the posterior is flat below and falls off above."""
    family, known = known_normal
    flat_direction = known._replace(covariance=np.diag([0.0, 0.0, 0.0, 0.0, 0.0, 20.0**2]))
    bound = known.flat[5] + 1.0

    def log_posterior(flat):
        return -0.5 * np.exp(2.0 * np.minimum(flat[5] - bound, 300.0)) if flat[5] < bound + 400.0 else np.nan

    rng = np.random.default_rng(0)
    drawn = uncertainty.laplace_draws(family, flat_direction, 40, log_posterior=log_posterior, rng=rng)
    highest = max(uncertainty.flat_of(one)[5] for one in drawn)
    assert highest < bound + 3.0


def test_spreads_that_have_gone_to_zero_are_not_varied():
    family = constants("diagonal", occasions=jnp.asarray([-9.0, 0.0]))
    family = eqx.tree_at(lambda f: f.effects.log_scale, family, jnp.asarray([0.0, -7.0]))
    at_zero = uncertainty.with_flat(family, zero_spreads(family).astype(float))
    np.testing.assert_array_equal(gaussian_of(at_zero).log_scale, [0.0, 1.0])
    np.testing.assert_array_equal(at_zero.occasion_scale, [1.0, 0.0])
    np.testing.assert_array_equal(at_zero.model.log_noise, [0.0, 0.0])
    np.testing.assert_array_equal(gaussian_of(at_zero).shift, [0.0, 0.0])


def test_a_direction_without_curvature_is_told_and_not_varied():
    flat, free = np.zeros(3), np.array([True, True, False])
    found = uncertainty._inverted(flat, np.diag([4.0, -1.0, 0.0]), free)
    assert not found.is_positive
    np.testing.assert_allclose(found.covariance, np.diag([0.25, 0.0, 0.0]))
    assert uncertainty._inverted(flat, np.diag([4.0, 1.0, 0.0]), free).is_positive


@pytest.mark.slow
def test_mini_batches_of_units_find_the_same_maximum(readings, fitted, monkeypatch):
    """Within a fifth of the standard errors; given modes are not written to."""
    found, known = fitted
    monkeypatch.setattr(estimating, "MOST_TOGETHER", NUM_UNITS - 1)
    units = units_of(readings)
    modes = start_modes(found.family, units)
    modes.flags.writeable = False
    settings = Settings(num_points=32, num_laplace=5, batch_units=12, num_updates=300, learning_rate=3e-2)
    again = estimate(constants(), units, settings=settings, modes=modes)
    flat = uncertainty.flat_of(again.family)
    errors = np.sqrt(np.diag(known.covariance))
    assert np.all(np.abs(flat - known.flat)[known.free] < 0.2 * errors[known.free])
    # The value is that of all units, not of a batch: by the exact one a fifth of an error costs 7 / 2 / 25 nats.
    assert again.has_converged
    assert abs(again.log_likelihood - found.log_likelihood) < 0.5


@pytest.mark.slow
def test_scores_of_units_are_the_same_one_by_one_and_together(readings, fitted, monkeypatch):
    """And at the estimate they add up to zero, within a thousandth of a standard error each."""
    found, known = fitted
    units, points = units_of(readings), make_points(64, DIM, NUM_UNITS, seed=0)
    alone = uncertainty.unit_scores(found.family, units, found.modes, points)
    monkeypatch.setattr(uncertainty, "MOST_ONE_BY_ONE", 0)
    together = uncertainty.unit_scores(found.family, units, found.modes, points)
    np.testing.assert_allclose(together, alone, atol=1e-6 * np.abs(alone).max())
    again = uncertainty.score_information(found.family, units, found.modes, points, LogPrior())
    assert np.array_equal(again.free, known.free) and again.is_positive


def test_a_search_that_promises_nothing_more_has_converged():
    """Of a quadratic with curvature 4 the gradient 0.4 promises 0.02 nats."""
    assert estimating.gain_left(np.array([0.4, 0.0]), np.diag([0.25, 1.0])) == pytest.approx(0.02)
