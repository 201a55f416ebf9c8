"""Hierarchical fits in full: textbook tables, quadrature of fifty units, ranks of simulated effects, recovery."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import two_kinds
from hierarchical_recovery import recover, summarise
from one_compartment import (
    RICH,
    SPARSE,
    SPARSE_TRUTH,
    Truth,
    bateman,
    exact_log_likelihood,
    family_at,
    simulate,
)

import problems
from langenode.inference.hierarchical.conditional import condition, stacked, unit_outputs
from langenode.inference.hierarchical.estimate import LogPrior, log_likelihood, search, start_modes
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import make_points
from langenode.inference.hierarchical.units import by_unit
from langenode.inference.partition import Partition
from langenode.models import Effects, Fixed, LogNormal, Normal, UnitModel
from langenode.posteriors import Reference, gaussian
from textbook import orange_trees, theophylline

pytestmark = pytest.mark.slow

CASES = {"rich": (RICH, Truth()), "sparse": (SPARSE, SPARSE_TRUTH)}


def family_of(model):
    """Independent effects, with constant noise, where the model's own values are."""
    values = model.effects.values
    spread = jnp.asarray([effect.spread for _, effect in model.effects.random])
    effects = gaussian(Reference(values, spread), "diagonal", key=jax.random.key(0))
    return Family(effects, model, Partition.of(model, lambda m: m.effects.values), None)


def laplace_fit(model, data):
    """The maximum of Laplace's approximation: what FOCE with interaction reports."""
    family, units = family_of(model), by_unit(data)
    modes = start_modes(family, units)
    points = make_points(8, modes.shape[1], units.num, seed=0)
    return search(family, units, modes, points, LogPrior(), "laplace", most=200)


def typical_values(family):
    return np.asarray(family.effects.reference.to_weights(family.effects.shift))


def test_theophylline_has_the_published_likelihood_and_parameters():
    """nlmixr2's FOCEI: -179.69 with log values .464, 3.461, 1.011 and noise .696."""
    effects = Effects(ka=LogNormal(1.5, 0.6), V=LogNormal(30.0, 0.3), CL=LogNormal(2.7, 0.3))
    found = laplace_fit(UnitModel(effects, bateman, noise="additive"), theophylline())
    assert found.has_converged
    np.testing.assert_allclose(found.log_likelihood, -179.70, atol=0.05)
    np.testing.assert_allclose(typical_values(found.family), [0.463, 3.461, 1.011], atol=0.01)
    np.testing.assert_allclose(np.exp(found.family.model.log_noise), 0.696, atol=0.01)


def growth(times, inputs, p):
    """A logistic curve whose asymptote differs between trees."""
    return (p.asymptote / (1.0 + jnp.exp(-(times - p.middle) / p.scale)))[:, None]


def test_orange_trees_have_the_published_likelihood():
    """NLMIXED: -131.57 with 192.05, 727.9, 348.07; the effect is linear, so Laplace's approximation is exact."""
    effects = Effects(asymptote=Normal(170.0, 20.0), middle=Fixed(700.0), scale=Fixed(350.0))
    model = UnitModel(effects, growth, noise="additive")
    found = laplace_fit(model, orange_trees())
    np.testing.assert_allclose(found.log_likelihood, -131.57, atol=0.02)
    np.testing.assert_allclose(typical_values(found.family), [192.05], atol=0.5)
    np.testing.assert_allclose(found.family.model.effects.shared, [727.9, 348.07], rtol=5e-3)


@pytest.mark.parametrize("case", CASES)
def test_the_likelihood_of_fifty_units_is_that_of_quadrature(case):
    design, truth = CASES[case]
    data = simulate(50, design, truth, seed=1)
    family, units = family_at(truth.numbers()), by_unit(data)
    exact = exact_log_likelihood(truth.numbers(), data)
    assert abs(exact - exact_log_likelihood(truth.numbers(), data, num_nodes=21)) < 0.05
    found, error, _ = log_likelihood(family, units, start_modes(family, units))
    assert abs(found - exact) < 0.3
    assert error < 0.3


def test_ranks_of_simulated_effects_among_their_draws_are_uniform():
    """Simulation-based calibration of a unit's effects given its readings, at the level of 1 % for three effects."""
    num, num_draws, num_bins = 400, 99, 10
    family = family_at(SPARSE_TRUTH.numbers())
    units, stack = by_unit(simulate(num, SPARSE, SPARSE_TRUTH, seed=0)), stacked([family])
    rng = np.random.default_rng(1)
    effects = rng.standard_normal((num, 1, 3))
    outputs, noise = unit_outputs(stack, units, jnp.asarray(effects), jnp.zeros((num, 1), int))
    readings = (outputs + noise * rng.standard_normal(noise.shape))[:, 0]
    units = units._replace(outputs=jnp.where(units.mask, readings, 0.0))
    drawn = condition(stack, units, num_draws, key=jax.random.key(0)).xi
    ranks = (drawn < effects).sum(1)
    for column in ranks.T:
        counts = np.bincount(column * num_bins // (num_draws + 1), minlength=num_bins)
        assert scipy.stats.chisquare(counts).pvalue > 0.01 / 3


def test_intervals_and_bands_of_simulated_data_hold():
    """Few data sets here; the benchmark has the full table."""
    found = [recover("rich", seed, has_exact=False) for seed in range(6)]
    summary = summarise("rich", found)
    num_intervals = 8 * len(found)
    lowest, highest = scipy.stats.binom.ppf([0.005, 0.995], num_intervals, 0.9) / num_intervals
    assert lowest <= summary.intervals <= highest
    problems.assert_mean(np.array([one.new.coverage for one in found]), 0.9)
    # A flat direction must be said, and here there is none.
    assert summary.num_indefinite == 0


def test_units_of_two_kinds_are_served_by_a_map_with_several_modes():
    """New units are more probable by the bottleneck than by a normal distribution, beyond two standard errors."""
    data, new = two_kinds.simulate(two_kinds.NUM_UNITS, seed=0), two_kinds.simulate(two_kinds.NUM_NEW, seed=10_000)
    normal, mixed = (two_kinds.score(two_kinds.fit(data, method), new) for method in two_kinds.METHODS)
    gain = mixed.log_scores - normal.log_scores
    assert gain.mean() > 2.0 * gain.std(ddof=1) / np.sqrt(len(gain))
    assert abs(mixed.coverage[0] - 0.5) < abs(normal.coverage[0] - 0.5)
