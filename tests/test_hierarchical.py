"""Units that differ, against closed forms and quadrature: marginal likelihoods, effects given readings, gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from one_compartment import SPARSE, SPARSE_TRUTH, Truth, family_at, numbers_of, quadrature, simulate
from scipy.integrate import trapezoid

import problems
from langenode.data import Dataset
from langenode.inference.errors import FitError
from langenode.inference.hierarchical import marginal as marginals
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.estimate import LogPrior, objective, search, start_modes, trained
from langenode.inference.hierarchical.family import Family, expand
from langenode.inference.hierarchical.marginal import compiled_marginal, make_points, marginal
from langenode.inference.hierarchical.modes import best_mode, find_modes
from langenode.inference.hierarchical.units import by_unit
from langenode.inference.noise import Levels
from langenode.inference.partition import Partition
from langenode.models import Effects, LogNormal, UnitModel
from langenode.posteriors import Reference, gaussian
from langenode.posteriors.particles import relative_ess

KEY = jax.random.key(0)


# --- linear and Gaussian: everything is known


class Linear(eqx.Module):
    """`outputs = inputs weights`: a unit's design is its inputs."""

    weights: jax.Array
    log_noise: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return (inputs @ self.weights)[:, None]


DIM, SIGMA = 2, 0.3


def linear_family(seed=0, *, occasions=False):
    """Correlated weights with nothing equal to zero or one."""
    model = Linear(jnp.zeros(DIM), jnp.log(jnp.full(1, SIGMA)))
    effects = problems.perturbed(gaussian(problems.reference_of(DIM), "full", key=KEY), 0.5, seed=seed)
    scale = jnp.log(jnp.asarray([0.4, 0.7])) if occasions else None
    return Family(effects, model, Partition.of(model, lambda m: m.weights), None, scale)


def moments(family):
    """Mean and root of the covariance of a unit's weights."""
    root = problems.dense_root(family.effects.reference) @ np.asarray(family.effects.covariance_root())
    shift = problems.dense_root(family.effects.reference) @ np.asarray(family.effects.shift)
    return np.asarray(family.effects.reference.mean) + shift, root


@pytest.fixture(scope="module")
def linear_data():
    """Three units of one, two and two trajectories with different numbers of readings, one of them not observed."""
    rng = np.random.default_rng(3)
    trajectories = []
    for unit, count in (("a", 3), ("b", 2), ("c", 4), ("b", 4), ("c", 1)):
        trajectories.append(
            {
                "times": np.arange(float(count)),
                "inputs": rng.normal(size=(count, DIM)),
                "outputs": rng.normal(size=count),
                "mask": np.arange(count) != 2,
                "unit": unit,
            }
        )
    return Dataset.from_list(trajectories, input_names=["one", "two"], output_names=["y"])


def designs(data, unit):
    """Design and readings of each trajectory of a unit, without padding."""
    rows = np.flatnonzero(data.unit == unit)
    seen = [data.mask[row, :, 0] for row in rows]
    pairs = zip(rows, seen, strict=True)
    return [(data.inputs[row][keep], data.outputs[row][keep, 0]) for row, keep in pairs]


def closed_form(family, data, unit):
    """The log density of a unit's readings: normal, with what its trajectories share and what each has of its own."""
    mean, root = moments(family)
    parts = designs(data, unit)
    design, readings = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    covariance = design @ root @ root.T @ design.T + SIGMA**2 * np.eye(len(readings))
    if family.occasion_scale is not None:
        own = np.diag(np.exp(2.0 * np.asarray(family.occasion_scale)))
        begin = 0
        for part, _ in parts:
            block = slice(begin, begin + len(part))
            covariance[block, block] += part @ own @ part.T
            begin += len(part)
    return problems.log_normal(readings, design @ mean, covariance)


def values_of(family, units, rule, *, seed=0, num_points=64):
    start = start_modes(family, units)
    points = make_points(num_points, start.shape[1], units.num, seed=seed)
    return np.asarray(compiled_marginal(family, units, jnp.asarray(start), points, rule).values)


@pytest.mark.parametrize("occasions", [False, True])
def test_laplace_is_exact_in_a_linear_gaussian_family(linear_data, occasions):
    """Trajectories of a unit multiply, padding counts for nothing, and occasions are blocks of the covariance."""
    family = linear_family(occasions=occasions)
    exact = [closed_form(family, linear_data, unit) for unit in range(3)]
    found = values_of(family, by_unit(linear_data, num=4), "laplace")
    np.testing.assert_allclose(found[:3], exact, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found[3], 0.0, atol=1e-12)  # a unit of padding has no readings


@pytest.mark.slow
def test_importance_sampling_has_the_closed_form_as_its_mean(linear_data):
    family, units = linear_family(), by_unit(linear_data, num=4)
    exact = [closed_form(family, linear_data, unit) for unit in range(3)]
    found = np.array([values_of(family, units, "importance", seed=seed) for seed in range(8)])[:, :3]
    assert np.all(problems.standard_error(found) < 0.03)
    problems.assert_mean(np.exp(found - exact), 1.0)


NUM_POINTS = 2048


@pytest.fixture(scope="module")
def conditioned(linear_data):
    """Effects of every unit under three families, which is no power of two."""
    families = [linear_family(seed) for seed in range(3)]
    units = by_unit(linear_data)
    return families, condition(stacked(families), units, 4096, num_points=NUM_POINTS, key=KEY)


def exact_effects(family, data, unit):
    """Mean and covariance of the white effects given a unit's readings."""
    mean, root = moments(family)
    design, readings = (np.concatenate(part) for part in zip(*designs(data, unit), strict=True))
    covariance = np.linalg.inv(np.eye(DIM) + root.T @ design.T @ design @ root / SIGMA**2)
    return covariance @ root.T @ design.T @ (readings - design @ mean) / SIGMA**2, covariance


def test_evidence_of_several_families_is_the_mean_of_theirs(linear_data, conditioned):
    families, found = conditioned
    for unit in range(3):
        each = np.array([closed_form(family, linear_data, unit) for family in families])
        exact = np.log(np.mean(np.exp(each)))
        error = np.sqrt((1.0 / found.relative_ess[unit] - 1.0) / NUM_POINTS)
        assert error < 0.05
        assert abs(found.log_evidence[unit] - exact) < 5.0 * error
        share = np.exp(each) / np.exp(each).sum()
        drawn = np.bincount(found.member[unit], minlength=3) / found.member.shape[1]
        allowed = 5.0 * np.sqrt(share * (1.0 - share) / (found.relative_ess[unit] * NUM_POINTS))
        assert np.all(np.abs(drawn - share) <= allowed)


def test_effects_given_readings_have_the_closed_form_moments(linear_data, conditioned):
    families, found = conditioned
    for unit in range(3):
        for number, family in enumerate(families):
            own = found.xi[unit][found.member[unit] == number]
            if len(own) < 400:  # a family that the readings speak against has few draws
                continue
            mean, covariance = exact_effects(family, linear_data, unit)
            size = found.relative_ess[unit] * NUM_POINTS * len(own) / found.xi.shape[1]
            spread = np.sqrt(np.diag(covariance))
            assert np.all(np.abs(own.mean(0) - mean) < 5.0 * spread / np.sqrt(size))
            error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / size)
            assert np.all(np.abs(np.cov(own.T) - covariance) < 5.0 * error)


def test_any_part_of_the_draws_is_a_sample_of_all(conditioned):
    """Draws come in random order: the first half has the families in the shares that all have."""
    _, found = conditioned
    for member in found.member:
        share = np.bincount(member, minlength=3) / len(member)
        half = np.bincount(member[: len(member) // 2], minlength=3) / (len(member) // 2)
        assert np.all(np.abs(half - share) <= 5.0 * np.sqrt(share * (1.0 - share) / len(member)) + 1e-12)


# --- points


@pytest.mark.parametrize("num", [64, 100])
def test_points_of_the_law_and_about_the_mode_are_each_even(num):
    """Each eighth of every coordinate's range holds as many points as the others, whatever the number asked for."""
    base = np.asarray(make_points(num, 3, 2, seed=1).base)
    assert base.shape == (num, 3)
    for part in (base[:8], base[8:64]):
        counts = [np.bincount((8.0 * column).astype(int), minlength=8) for column in part.T]
        assert np.all(np.array(counts) == len(part) // 8)


def test_every_unit_has_points_of_its_own():
    points = make_points(16, 2, 3, seed=0)
    white = np.asarray(jax.vmap(marginals.white_points, in_axes=(None, 0))(points.base, points.shift))
    assert white.shape == (3, 16, 2) and np.all(np.isfinite(white))
    assert all(not np.any(np.isclose(white[one], white[two])) for one, two in ((0, 1), (0, 2), (1, 2)))


# --- one compartment: against quadrature


@pytest.fixture(scope="module")
def few():
    """Three units with rich readings, and the family that they come from."""
    truth = Truth()
    data = simulate(3, truth=truth, seed=4)
    return family_at(truth.numbers()), data, by_unit(data)


def test_importance_sampling_has_the_quadrature_of_each_unit_as_its_mean(few):
    family, data, units = few
    numbers = numbers_of(family)
    rows = [(data.times[row, data.mask[row, :, 0]], data.outputs[row, data.mask[row, :, 0], 0]) for row in range(3)]
    exact = np.array([quadrature(numbers, *row) for row in rows])
    finer = np.array([quadrature(numbers, *row, num_nodes=21) for row in rows])
    np.testing.assert_allclose(exact, finer, atol=0.02)  # else the reference is none
    found = np.array([values_of(family, units, "importance", seed=seed) for seed in range(16)])
    assert np.all(problems.standard_error(found) < 0.05)
    problems.assert_mean(np.exp(found - exact), 1.0, bias=0.02)


# --- gradients


def flat_objective(family, units, points, rule):
    """Minus the log-likelihood and its gradient, as functions of a flat vector."""
    params, static = eqx.partition(family, trained(family))
    flat, unravel = ravel_pytree(params)
    modes = jnp.asarray(start_modes(family, units))

    def evaluate(vector):
        found, gradient = objective(
            unravel(jnp.asarray(vector)), static, units, modes, points, LogPrior(), rule, jnp.asarray(True)
        )
        return float(found[0]), np.asarray(ravel_pytree(gradient)[0])

    return np.asarray(flat), evaluate


def differences(evaluate, flat, step=1e-3):
    """Central differences of fourth order."""
    found = []
    for change in step * np.eye(len(flat)):
        one, two = (evaluate(flat + n * change)[0] - evaluate(flat - n * change)[0] for n in (1, 2))
        found.append((8.0 * one - two) / (12.0 * step))
    return np.array(found)


@pytest.mark.parametrize("rule", ["importance", pytest.param("laplace", marks=[pytest.mark.slow])])
def test_gradients_are_those_of_the_objective_as_it_is_computed(few, rule):
    family, _, units = few
    flat, evaluate = flat_objective(family, units, make_points(16, 3, units.num, seed=2), rule)
    exact = differences(evaluate, flat)
    np.testing.assert_allclose(evaluate(flat)[1], exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["laplace", "importance"])
def test_gradients_with_modes_held_are_wrong(few, rule):
    """The check above has power: it would see that modes move with the family."""
    family, _, units = few
    points = make_points(16, 3, units.num, seed=2)
    flat, evaluate = flat_objective(family, units, points, rule)
    params, static = eqx.partition(family, trained(family))

    @eqx.filter_jit
    def held(params):
        def loss(params):
            start = jnp.asarray(start_modes(family, units))
            return -jnp.sum(marginal(eqx.combine(params, static), units, start, points, rule, moves=False).values)

        return jax.grad(loss)(params)

    right, wrong = evaluate(flat)[1], np.asarray(ravel_pytree(held(params))[0])
    assert np.abs(wrong - right).max() > 1e-2 * np.abs(right).max()


@pytest.mark.slow
def test_a_point_at_which_the_model_is_not_finite_leaves_gradients_finite():
    """It has no weight; its derivative is not a number."""
    model = UnitModel(
        Effects(k=LogNormal(0.6, 1.5)), lambda t, x, p: jnp.exp(jnp.exp(p.k * t))[:, None], noise="additive"
    )
    effects = gaussian(Reference(jnp.log(jnp.full(1, 0.6)), jnp.full(1, 1.5)), "diagonal", key=KEY)
    family = Family(effects, model, Partition.of(model, lambda m: m.effects.values), None)
    readings = {"times": np.array([0.0, 1.0, 2.0]), "outputs": np.array([2.7, 6.3, 24.0])}
    units = by_unit(Dataset.from_list([readings], output_names=["y"]))
    points = make_points(64, 1, 1, seed=0)
    white = marginals.white_points(points.base, points.shift[0])
    assert not np.all(np.isfinite(jax.vmap(lambda xi: family.log_likelihood(xi, one_of(units)))(white)[:8]))
    flat, evaluate = flat_objective(family, units, points, "importance")
    np.testing.assert_allclose(evaluate(flat)[1], differences(evaluate, flat), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_stable", [False, True])
def test_equations_whose_derivative_overflows_are_told_from_those_that_have_no_likelihood(is_stable):
    """At widths near zero exp overflows: its reciprocal is right, and the derivative of that is not a number."""

    def curve(times, inputs, p):
        place = (1.0 - times) / p.width
        return (jax.nn.sigmoid(-place) if is_stable else 1.0 / (1.0 + jnp.exp(place)))[:, None]

    model = UnitModel(Effects(width=LogNormal(1.0, 3.0)), curve, noise="additive")
    model = eqx.tree_at(lambda m: m.log_noise, model, jnp.zeros(1))  # so wide that widths near zero have weight
    effects = gaussian(Reference(jnp.zeros(1), jnp.full(1, 4.0)), "diagonal", key=KEY)
    family = Family(effects, model, Partition.of(model, lambda m: m.effects.values), None)
    readings = {"times": np.array([0.0, 0.5, 2.0]), "outputs": np.array([0.1, 0.4, 0.9])}
    units = by_unit(Dataset.from_list([readings], output_names=["y"]))
    points, modes = make_points(64, 1, 1, seed=0), start_modes(family, units)
    arguments = (family, units, modes, points, LogPrior(), "importance")
    if is_stable:
        assert np.isfinite(search(*arguments, most=1).log_likelihood)
        return
    with pytest.raises(FitError, match="the derivative of the marginal likelihood must be finite"):
        search(*arguments, most=1)


# --- importance weights of sparse readings


def worst_ess(family, units):
    """The least relative effective sample size of the units' importance weights, at their modes."""

    @eqx.filter_jit
    def weights(family, units, modes, points):
        def one(mode, unit, shift):
            white = marginals.white_points(points.base, shift)
            information = expand(family, mode, unit).information
            return marginals.weighted_points(family, mode, information, white, unit).log_weights

        return jax.vmap(one)(modes, units, points.shift)

    points = make_points(512, 3, units.num, seed=5)
    modes = find_modes(family, units, jnp.asarray(start_modes(family, units)))
    return min(float(relative_ess(row)) for row in weights(family, units, modes, points))


@pytest.mark.slow
def test_points_of_the_law_bound_the_weights(monkeypatch):
    """Without them some unit in fifty is seen by a handful of points: here .42 and .01."""
    units = by_unit(simulate(50, SPARSE, SPARSE_TRUTH, seed=2))
    family = family_at(SPARSE_TRUTH.numbers())
    assert worst_ess(family, units) > 0.1
    monkeypatch.setattr(marginals, "DEFENSIVE_EVERY", 10**6)  # one point only
    assert worst_ess(family, units) < 0.1


# --- readings below a limit


LIMIT, TIMES = 0.35, np.array([0.0, 0.5, 1.5, 3.0, 4.0])
READINGS = np.array([1.1, 0.6, 0.2, 0.0, 0.35])  # the last three are at or below the limit


@pytest.fixture(scope="module")
def limited():
    """One unit that decays at its own rate, with noise that depends on the level."""
    model = UnitModel(Effects(k=LogNormal(0.6, 0.5)), lambda t, x, p: jnp.exp(-p.k * t)[:, None])
    model = eqx.tree_at(lambda m: m.log_noise, model, jnp.log(jnp.asarray([[0.1], [0.2]])))
    effects = gaussian(Reference(jnp.log(jnp.full(1, 0.6)), jnp.full(1, 0.5)), "diagonal", key=KEY)
    partition = Partition.of(model, lambda m: m.effects.values)
    data = Dataset.from_list([{"times": TIMES, "outputs": READINGS}], output_names=["y"])
    family = Family(effects, model, partition, Levels(jnp.zeros(1), jnp.ones(1)))
    return family, by_unit(data, limit=np.array([LIMIT]))


def exact_log_likelihood(xi):
    """The product of normal densities, and of normal probabilities below the limit."""
    level = np.exp(-0.6 * np.exp(0.5 * xi) * TIMES)
    scale = np.hypot(0.1, 0.2 * level)
    densities = scipy.stats.norm.logpdf(READINGS, level, scale)
    return np.where(READINGS <= LIMIT, scipy.stats.norm.logcdf(LIMIT, level, scale), densities).sum()


def one_of(units, number=0):
    return jax.tree.map(lambda leaf: leaf[number], units)


def test_readings_below_a_limit_count_by_their_probability(limited):
    family, units = limited
    assert np.asarray(units.below).ravel().tolist() == [False, False, True, True, True]
    log_likelihood = jax.jit(lambda xi: family.log_likelihood(xi, one_of(units)))
    for xi in (-1.3, 0.2, 2.0):
        np.testing.assert_allclose(log_likelihood(jnp.asarray([xi])), exact_log_likelihood(xi), rtol=1e-10)
    grid = np.linspace(-9.0, 9.0, 4001)
    joint = np.array([exact_log_likelihood(xi) + scipy.stats.norm.logpdf(xi) for xi in grid])
    exact = np.log(trapezoid(np.exp(joint), grid))
    found = np.array([values_of(family, units, "importance", seed=seed)[0] for seed in range(16)])
    assert problems.standard_error(found) < 0.02
    problems.assert_mean(np.exp(found - exact), 1.0)


def test_the_expansion_has_the_gradient_of_the_log_density(limited):
    """Also far out, where a reading below the limit has next to no probability."""
    family, units = limited
    unit = one_of(units)
    log_joint = jax.jit(lambda xi: family.log_joint(xi, unit))
    gradient = jax.jit(lambda xi: expand(family, xi, unit).gradient)
    for xi in (-4.0, -1.3, 0.2, 2.0):
        point, step = jnp.asarray([xi]), 1e-4
        slope = (log_joint(point + step) - log_joint(point - step)) / (2.0 * step)
        np.testing.assert_allclose(gradient(point)[0], slope, rtol=1e-6)


class Square(eqx.Module):
    """`outputs = weight^2`: effects of either sign explain a reading."""

    weight: jax.Array
    log_noise: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return jnp.broadcast_to(self.weight**2, (len(times), 1))


def test_the_lesser_mode_is_left_where_the_search_from_zero_is_asked_for():
    model = Square(jnp.zeros(1), jnp.log(jnp.full(1, 0.2)))
    # The weight is 0.3 + xi: of the two modes, near 0.7 and -1.3, zero leads to the first, and it is the higher one.
    effects = gaussian(Reference(jnp.full(1, 0.3), jnp.ones(1)), "diagonal", key=KEY)
    family = Family(effects, model, Partition.of(model, lambda m: m.weight), None, None)
    data = Dataset.from_list([{"times": np.zeros(1), "outputs": np.ones(1), "unit": "a"}])
    unit = jax.tree.map(lambda leaf: leaf[0], by_unit(data))
    grid = np.linspace(-3.0, 3.0, 60_001)
    density = -0.5 * ((1.0 - (0.3 + grid) ** 2) / 0.2) ** 2 - 0.5 * grid**2
    lesser, higher = (part[np.argmax(density[part])] for part in (np.flatnonzero(grid < 0), np.flatnonzero(grid > 0)))
    assert density[higher] > density[lesser]
    search = problems.quick_jit(lambda start, asked: best_mode(family, start, unit, asked))
    start = jnp.full(1, -1.2)
    np.testing.assert_allclose(search(start, jnp.asarray(False)), grid[lesser], atol=2e-4)
    np.testing.assert_allclose(search(start, jnp.asarray(True)), grid[higher], atol=2e-4)
    np.testing.assert_allclose(search(-start, jnp.asarray(True)), grid[higher], atol=2e-4)
