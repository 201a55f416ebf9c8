"""Units whose importance weights degenerate are served by guided paths: exact evidence, and agreement elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from one_compartment import bateman

from langenode.data import Dataset
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.steering import steered_points
from langenode.inference.hierarchical.units import by_unit
from langenode.inference.partition import Partition
from langenode.models import Effects, LogNormal, Normal, UnitModel
from langenode.posteriors import Reference, gaussian
from textbook import theophylline

# The paths' program takes some ten seconds to compile.
pytestmark = pytest.mark.slow

KEY = jax.random.key(0)


def family_of(model, noise):
    """Independent effects as the model has them, and constant noise."""
    spread = jnp.asarray([effect.spread for _, effect in model.effects.random])
    effects = gaussian(Reference(model.effects.values, spread), "diagonal", key=KEY)
    model = eqx.tree_at(lambda m: m.log_noise, model, jnp.log(jnp.asarray([noise])))
    return Family(effects, model, Partition.of(model, lambda m: m.effects.values), None)


def some(units, number):
    """One unit, without the axis of units."""
    return jax.tree.map(lambda leaf: leaf[number], units)


def moments(points):
    """Log-evidence, and the means and standard deviations of the effects, by weighted points."""
    log_weights = np.asarray(points.log_weights)
    weights = np.exp(log_weights - log_weights.max())
    shares = weights / weights.sum()
    means = shares @ np.asarray(points.xi)
    return np.log(weights.mean()) + log_weights.max(), means, np.sqrt(shares @ (np.asarray(points.xi) - means) ** 2)


def test_guided_paths_and_importance_sampling_agree_on_a_subject_with_three_readings():
    """Theophylline's tenth subject, with the published estimates."""
    typical, spread = np.exp([0.463, 3.461, 1.011]), (0.636, 0.138, 0.263)
    names = ("ka", "V", "CL")
    effects = Effects(**{n: LogNormal(float(t), s) for n, t, s in zip(names, typical, spread, strict=True)})
    family, units = family_of(UnitModel(effects, bateman, noise="additive"), 0.694), by_unit(theophylline())
    units = units._replace(mask=units.mask & (jnp.cumsum(units.mask, axis=2) <= 3))
    alone = jax.tree.map(lambda leaf: leaf[9:10], units)
    plain = condition(stacked([family]), alone, 8192, num_points=8192, key=KEY)
    assert plain.relative_ess[0] > 0.5
    guided = steered_points(stacked([family]), 1, some(alone, 0), key=KEY)
    log_evidence, means, _ = moments(guided)
    assert abs(log_evidence - plain.log_evidence[0]) < 0.05
    np.testing.assert_array_less(np.abs(means - plain.xi[0].mean(0)), 0.15 * plain.xi[0].std(0))


class Parabola(eqx.Module):
    """A curve with two effects for every reading, one of them not far from the other's mirror image."""

    def __call__(self, times, inputs, p):
        COUNT.append(1)
        return jnp.broadcast_to((p.x + 0.2) ** 2, (times.shape[0], 1))


COUNT: list[int] = []
NOISE = 0.15


@pytest.fixture(scope="module")
def two_modes():
    """A family in which the posterior of a unit has two narrow modes, and two units with two readings each."""
    family = family_of(UnitModel(Effects(x=Normal(0.0, 1.0)), Parabola(), noise="additive"), NOISE)
    readings = ((1.0, 1.02), (0.64, 0.66))
    trajectories = [{"times": [0.0, 1.0], "outputs": list(pair), "unit": str(n)} for n, pair in enumerate(readings)]
    return family, by_unit(Dataset.from_list(trajectories))


def exact(readings):
    """Log-evidence, mean and standard deviation by a sum over a fine grid."""
    grid = np.linspace(-6.0, 6.0, 400_001)
    errors = (np.asarray(readings)[:, None] - (grid + 0.2) ** 2) / NOISE
    log_joint = -0.5 * (errors**2).sum(0) - len(readings) * np.log(NOISE * np.sqrt(2 * np.pi))
    log_joint += -0.5 * grid**2 - 0.5 * np.log(2 * np.pi)
    density = np.exp(log_joint - log_joint.max())
    mean = (density * grid).sum() / density.sum()
    deviation = np.sqrt((density * (grid - mean) ** 2).sum() / density.sum())
    return log_joint.max() + np.log(density.sum() * (grid[1] - grid[0])), mean, deviation


def test_a_unit_with_two_modes_is_served_by_guided_paths(two_modes):
    family, units = two_modes
    stack = stacked([family])
    plain = condition(stack, units, 4096, key=KEY)
    found = condition(stack, units, 4096, key=KEY, has_fallback=True)
    assert np.all(plain.relative_ess < 0.1) and not plain.is_guided.any()
    assert found.is_guided.all()
    assert np.all(found.relative_ess > 0.3)
    for unit in range(units.num):
        log_evidence, mean, deviation = exact(np.asarray(units.outputs)[unit, 0, :, 0])
        assert abs(found.log_evidence[unit] - log_evidence) < 0.05
        assert abs(found.xi[unit].mean() - mean) < 0.15 * deviation


def test_units_that_need_no_paths_have_none(two_modes):
    family, units = two_modes
    hidden = units._replace(mask=jnp.zeros_like(units.mask))
    assert not condition(stacked([family]), hidden, 64, key=KEY, has_fallback=True).is_guided.any()


def test_several_families_share_the_evidence_of_guided_paths(two_modes):
    """Members of a stack that are all the same family give the evidence of one."""
    family, units = two_modes
    found = condition(stacked([family] * 3), units, 3000, key=KEY, has_fallback=True)
    assert found.is_guided.all()
    log_evidence, _, _ = exact(np.asarray(units.outputs)[0, 0, :, 0])
    assert abs(found.log_evidence[0] - log_evidence) < 0.1
    np.testing.assert_allclose(np.bincount(found.member[0], minlength=3) / 3000, 1 / 3, atol=0.1)


def test_paths_are_compiled_once_for_all_units(two_modes):
    family, units = two_modes
    steered_points(stacked([family]), 1, some(units, 0), key=KEY)
    traced = len(COUNT)
    steered_points(stacked([family]), 1, some(units, 1), key=KEY)
    assert len(COUNT) == traced
