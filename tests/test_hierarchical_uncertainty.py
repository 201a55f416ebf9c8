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

NUM_UNITS, NUM_READINGS, DIM, NUM_DRAWS = 24, 4, 2, 200


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
        found.family, units, found.modes, points, LogPrior(), at_zero=zero_spreads(found.family)
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


@pytest.mark.slow
def test_draws_have_the_covariance_of_the_information_and_leave_the_rest(fitted):
    found, known = fitted
    drawn = uncertainty.laplace_draws(found.family, known, NUM_DRAWS, rng=np.random.default_rng(0))
    flats = np.array([uncertainty.flat_of(family) for family in drawn])
    np.testing.assert_allclose(
        flats[:, ~known.free], np.broadcast_to(known.flat[~known.free], (NUM_DRAWS, 3)), atol=1e-7
    )
    centred = flats[:, known.free] - known.flat[known.free]
    problems.assert_mean(centred, 0.0)
    products = centred[:, :, None] * centred[:, None, :]
    problems.assert_mean(products, known.covariance[np.ix_(known.free, known.free)])


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
