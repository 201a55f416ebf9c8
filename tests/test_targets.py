"""What is inferred: every loss against its definition written out, and what each of them is blind to."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from langenode.data import Dataset, Replicates
from langenode.inference import population
from langenode.inference.algorithm1 import negative_elbo, regularised_distance
from langenode.inference.population import (
    Observed,
    _widened,
    distance,
    fair_energy_score,
    log_mean_exp_likelihood,
    moment_error,
    observe,
    quantile_distance,
    whitened_scores,
)
from langenode.inference.principal import Components, principal_maps
from langenode.inference.targets import Population, Posterior, Tempered, warn_of_mismatched_scales
from langenode.posteriors import Draw
from langenode.scores import metrics

ROOT_CONSTANT = 1e-8


def replicates(outputs, mask=None):
    """Members of conditions; who has no observed cell is not there."""
    mask = np.ones(outputs.shape, bool) if mask is None else mask
    return Replicates(np.where(mask, outputs, 0.0), mask, None, np.asarray(mask.any((2, 3))))


def observed_from(outputs, mask=None, **options):
    return observe(replicates(outputs, mask), np.zeros(outputs.shape), **options)


@eqx.filter_jit
def losses(target, predictions, observed):
    return distance(target, predictions, jnp.zeros_like(predictions), observed)


energy = eqx.filter_jit(fair_energy_score)
moments = eqx.filter_jit(moment_error)
quantile = eqx.filter_jit(quantile_distance)
scores_of = eqx.filter_jit(whitened_scores)
log_mean_exp = eqx.filter_jit(log_mean_exp_likelihood)
slope_of_quantile = eqx.filter_jit(jax.grad(quantile_distance))
select = eqx.filter_jit(Observed.select)


def loss_of(target, predictions, observed):
    return float(losses(target, jnp.asarray(predictions), observed))


@pytest.fixture
def rng():
    return np.random.default_rng(42)


LOSSES = {
    "energy and moments": Population("energy", moment_weight=0.3),
    "quantile": Population("quantile"),
    "log_mean_exp": Population("log_mean_exp"),
    "joint energy": Population("energy", moment_weight=0.3, joint=True),
    "joint log_mean_exp": Population("log_mean_exp", joint=True),
}


# --- fair energy score


def brute_force_energy(ours, theirs, weights):
    """The definition: ours (maps, sample, condition, score), theirs (member, condition, score)."""
    distance = lambda a, b: np.sqrt(np.sum((a - b) ** 2) + ROOT_CONSTANT)  # noqa: E731
    num = ours.shape[1]
    total = 0.0
    for member, condition in np.argwhere(weights):
        x = ours[member if len(ours) > 1 else 0, :, condition]
        y = theirs[member, condition]
        cross = np.mean([distance(x[r], y) for r in range(num)])
        pairs = [distance(x[r], x[s]) for r in range(num) for s in range(num) if r != s]
        total += cross - 0.5 * np.sum(pairs) / (num * (num - 1))
    return total / weights.sum()


@pytest.mark.parametrize("num_maps", [1, 4])
def test_energy_score_equals_its_definition(rng, num_maps):
    ours, theirs = rng.normal(size=(num_maps, 5, 2, 3)), rng.normal(0.5, 2.0, size=(4, 2, 3))
    weights = np.array([[True, True], [False, True], [True, False], [True, True]])
    found = energy(*map(jnp.asarray, (ours, theirs, weights)))
    np.testing.assert_allclose(found, brute_force_energy(ours, theirs, weights), rtol=1e-12)


def test_an_unbiased_spread_is_that_of_n_minus_one_about_the_same_mean(rng):
    theirs, present = rng.normal(size=(5, 2, 3)), np.ones((5, 2), bool)
    present[3, 1] = False
    found = np.asarray(population._unbiased(jnp.asarray(theirs), jnp.asarray(present)))
    for condition in range(2):
        before, after = (values[present[:, condition], condition] for values in (theirs, found))
        np.testing.assert_allclose(after.mean(0), before.mean(0), rtol=1e-12)
        np.testing.assert_allclose(after.var(0), before.var(0, ddof=1), rtol=1e-12)


def test_energy_score_is_unbiased_at_any_number_of_samples(rng):
    # X ~ N(0, 1), Y ~ N(m, s^2): E|X - Y| is the mean of a folded normal, E|X - X'| = 2 / sqrt(pi).
    mean, std, num = 0.5, 0.7, 20_000
    folded = scipy.stats.foldnorm(mean / np.hypot(1.0, std), scale=np.hypot(1.0, std)).mean()
    expected = folded - 1.0 / np.sqrt(np.pi)
    ours, theirs = rng.normal(size=(num, 1, 3, 1, 1)), rng.normal(mean, std, size=(num, 1, 1, 1))
    one = lambda x, y: fair_energy_score(x, y, jnp.ones((1, 1), bool))  # noqa: E731
    scores = np.asarray(jax.jit(jax.vmap(one))(ours, theirs))
    error = scores.std(ddof=1) / np.sqrt(num)
    assert abs(scores.mean() - expected) < 5.0 * error
    # With 1/R^2 in place of 1/(R) the bias would be seen.
    assert 5.0 * error < 1.0 / (3.0 * np.sqrt(np.pi))


def test_energy_score_is_smallest_for_the_true_distribution():
    # Evenly spread quantiles stand for both distributions.
    points = scipy.stats.norm.ppf((np.arange(600) + 0.5) / 600)
    theirs = jnp.asarray(points)[:, None, None]
    shifts, scales = np.array([-0.3, -0.1, 0.0, 0.1, 0.3]), np.array([0.7, 0.9, 1.0, 1.1, 1.3])
    score = lambda shift, scale: fair_energy_score(  # noqa: E731
        (shift + scale * jnp.asarray(points))[None, :, None, None], theirs, jnp.ones((600, 1), bool)
    )
    scan = jax.jit(lambda: jax.lax.map(lambda a: jax.lax.map(lambda b: score(a, b), scales), shifts))()
    assert np.unravel_index(np.argmin(scan), scan.shape) == (2, 2)
    exact = np.sqrt(2.0 / np.pi) * (np.sqrt(1.0 + scales**2) - scales / np.sqrt(2.0))
    np.testing.assert_allclose(scan[2], exact, atol=2e-3)


def test_energy_score_has_a_finite_gradient_where_points_coincide():
    ours = jnp.zeros((1, 4, 1, 2))
    slope = jax.jit(jax.grad(lambda x: fair_energy_score(x, jnp.zeros((3, 1, 2)), jnp.ones((3, 1), bool))))(ours)
    np.testing.assert_array_equal(slope, jnp.zeros_like(ours))


# --- moments


@pytest.mark.parametrize("num_maps", [1, 6])
def test_moment_error_by_hand(rng, num_maps):
    ours, theirs = rng.normal(size=(num_maps, 5, 2, 3)), rng.normal(0.5, 2.0, size=(6, 2, 3))
    weights = np.ones((6, 2), bool)
    weights[2, 0] = weights[4, 1] = False
    expected = 0.0
    for condition in range(2):
        keep = weights[:, condition]
        points = ours[keep if num_maps > 1 else [0], :, condition].reshape(-1, 3)
        data = theirs[keep, condition]
        expected += np.sum((points.mean(0) - data.mean(0)) ** 2)
        expected += np.sum((np.cov(points.T, bias=True) - np.cov(data.T, bias=True)) ** 2)
    found = moments(*map(jnp.asarray, (ours, theirs, weights)))
    np.testing.assert_allclose(found, expected / 2.0, rtol=1e-12)


def test_moment_error_is_zero_for_the_data_themselves(rng):
    theirs = jnp.asarray(rng.normal(size=(6, 2, 3)))
    assert moments(theirs[None], theirs, jnp.ones((6, 2), bool)) < 1e-28


# --- quantiles


def test_quantile_distance_is_zero_for_the_data_in_any_order(rng):
    outputs = rng.normal(size=(7, 2, 4, 3))
    assert quantile(jnp.asarray(rng.permuted(outputs, axis=0)), observed_from(outputs)) < 1e-15


def test_quantile_distance_is_the_w1_of_equal_sizes(rng):
    outputs, predictions = rng.normal(size=(9, 2, 4, 3)) * [1.0, 10.0, 0.1], rng.gamma(2.0, size=(9, 2, 4, 3))
    observed = observed_from(outputs)
    expected = np.mean(metrics.w1(predictions, outputs) / np.asarray(observed.scale))
    np.testing.assert_allclose(quantile(jnp.asarray(predictions), observed), expected, rtol=1e-12)


def test_quantiles_of_the_data_are_those_of_the_midpoint_rule(rng):
    # A sample at each level: the distance from samples at zero is the mean absolute quantile.
    outputs = np.abs(rng.normal(size=(5, 1, 1, 1)))
    observed = observed_from(outputs)
    levels = (np.arange(8) + 0.5) / 8
    expected = np.quantile(outputs[:, 0, 0, 0], levels, method="hazen").mean() / float(observed.scale[0])
    np.testing.assert_allclose(quantile(jnp.zeros((8, 1, 1, 1)), observed), expected, rtol=1e-12)


def test_quantile_gradient_pulls_each_sample_to_its_own_quantile(rng):
    outputs = rng.normal(size=(6, 1, 2, 1))
    observed = observed_from(outputs)
    predictions = outputs + 0.5
    slope = slope_of_quantile(jnp.asarray(predictions), observed)
    np.testing.assert_allclose(slope, np.full(slope.shape, 1.0 / (12.0 * observed.scale[0])), rtol=1e-12)


def test_quantiles_with_scattered_missing_cells(rng):
    outputs, predictions = rng.normal(size=(6, 2, 3, 2)), rng.normal(size=(4, 2, 3, 2))
    mask = rng.uniform(size=outputs.shape) < 0.6
    mask[:, 1, 2, 1] = False
    observed = observed_from(outputs, mask)
    distances = []
    for cell in np.ndindex(2, 3, 2):
        seen = outputs[:, *cell][mask[:, *cell]]
        if len(seen):
            quantiles = np.quantile(seen, (np.arange(4) + 0.5) / 4, method="hazen")
            difference = np.abs(np.sort(predictions[:, *cell]) - quantiles).mean()
            distances.append(difference / float(observed.scale[cell[2]]))
    np.testing.assert_allclose(quantile(jnp.asarray(predictions), observed), np.mean(distances), rtol=1e-12)
    slope = slope_of_quantile(jnp.asarray(predictions), observed)
    assert np.all(np.isfinite(slope))
    np.testing.assert_array_equal(slope[:, 1, 2, 1], 0.0)


# --- marginal likelihood


@pytest.mark.parametrize("joint", [False, True])
def test_log_mean_exp_equals_its_definition(rng, joint):
    outputs, predictions = rng.normal(size=(4, 2, 3, 2)), rng.normal(size=(5, 2, 3, 2))
    sigma = rng.uniform(0.5, 2.0, size=(2, 3, 2))
    mask = rng.uniform(size=outputs.shape) < 0.7
    mask[3, 1] = False
    observed = observed_from(outputs, mask, sigma=sigma)
    density = np.where(mask[:, None], scipy.stats.norm.pdf(outputs[:, None], predictions, sigma), 1.0).prod((-1, -2))
    density = density.prod(-1, keepdims=True) if joint else density
    expected = np.log(density.mean(1)).sum() / mask.sum()
    found = log_mean_exp(jnp.asarray(predictions), observed, joint=joint)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


# --- missing cells


@pytest.mark.parametrize("name", LOSSES)
def test_masked_equals_dropped(rng, name):
    outputs, predictions = rng.normal(size=(6, 2, 4, 2)) * [1.0, 5.0], rng.normal(size=(5, 2, 4, 2))
    plain = loss_of(LOSSES[name], predictions, observed_from(outputs))
    # Two members that were never seen, and two more times that nobody saw (padding).
    wide = rng.normal(size=(8, 2, 6, 2))
    wide[[0, 1, 3, 4, 5, 7], :, :4] = outputs
    mask = np.zeros(wide.shape, bool)
    mask[[0, 1, 3, 4, 5, 7], :, :4] = True
    padded = np.concatenate([predictions, rng.normal(size=(5, 2, 2, 2))], axis=2)
    np.testing.assert_allclose(loss_of(LOSSES[name], padded, observed_from(wide, mask)), plain, rtol=1e-9)


@pytest.mark.parametrize("name", ["energy and moments", "quantile", "log_mean_exp"])
def test_conditions_of_unequal_lengths_and_numbers_equal_those_conditions_alone(rng, name):
    # Condition 1 has two members and two times fewer than condition 0. The spread that scales the outputs is common.
    outputs, predictions = rng.normal(size=(6, 2, 4, 1)), rng.normal(size=(5, 2, 4, 1))
    mask = np.ones(outputs.shape, bool)
    mask[4:, 1] = mask[:, 1, 2:] = False
    together = observed_from(outputs, mask)
    parts = [(slice(0, 6), slice(0, 4)), (slice(0, 4), slice(0, 2))]
    alone = [observed_from(outputs[m, c : c + 1, t]) for c, (m, t) in enumerate(parts)]
    alone = [
        eqx.tree_at(lambda o: o.sigma, o, jnp.asarray(np.full(o.sigma.shape, np.asarray(together.sigma)[0, 0, 0])))
        for o in alone
    ]
    found = loss_of(LOSSES[name], predictions, together)
    values = [loss_of(LOSSES[name], predictions[:, c : c + 1, t], alone[c]) for c, (_, t) in enumerate(parts)]
    if name == "log_mean_exp":  # a mean over cells
        expected = np.average(values, weights=[24, 8])
    elif name == "quantile":  # a mean over cells of condition and time, in units of the spread
        scales = [float(o.scale[0]) for o in alone]
        expected = np.average(np.multiply(values, scales), weights=[4, 2]) / float(together.scale[0])
    else:  # the score is a mean over trajectories, the moments one over conditions
        errors = [
            moments(*scores_of(jnp.asarray(predictions[:, c : c + 1, t]), alone[c]), alone[c].present)
            for c, (_, t) in enumerate(parts)
        ]
        scores = np.array(values) - 0.3 * np.array(errors)
        expected = np.average(scores, weights=[6, 4]) + 0.3 * np.mean(errors)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_what_a_missing_cell_holds_does_not_matter(rng, name):
    outputs, predictions = rng.normal(size=(6, 2, 4, 2)), jnp.asarray(rng.normal(size=(5, 2, 4, 2)))
    mask = rng.uniform(size=outputs.shape) < 0.8
    mask[0] = True
    observed = observed_from(outputs, mask)
    spoiled = eqx.tree_at(lambda o: o.outputs, observed, jnp.asarray(np.where(observed.mask, observed.outputs, 1e6)))
    assert loss_of(LOSSES[name], predictions, spoiled) == loss_of(LOSSES[name], predictions, observed)
    slope = jax.jit(jax.grad(lambda p: distance(LOSSES[name], p, 0.0 * p, observed)))(predictions)
    assert np.all(np.isfinite(slope))
    assert np.any(slope != 0.0)


def test_maps_read_observed_cells_only(rng):
    outputs = rng.normal(size=(6, 2, 4, 2))
    mask = rng.uniform(size=outputs.shape) < 0.7
    projection = np.asarray(observed_from(outputs, mask).projection)
    assert projection.shape[0] == 6
    hidden = np.broadcast_to(~mask[:, :, None], projection.shape)
    np.testing.assert_array_equal(projection[hidden], 0.0)
    assert np.mean(projection[~hidden] != 0.0) > 0.99


def test_maps_are_shared_where_only_padding_and_absent_members_are_missing(rng):
    outputs = rng.normal(size=(6, 2, 4, 1))
    mask = np.ones(outputs.shape, bool)
    mask[4:, 1] = mask[:, 1, 2:] = False
    assert observed_from(outputs, mask).projection.shape[0] == 1


def test_scores_of_incomplete_rows_are_near_those_of_the_complete(rng):
    # Two components and little else: what is seen of a row tells its scores.
    scores = rng.normal(size=(200, 2)) * [3.0, 1.0]
    directions = np.linalg.qr(rng.normal(size=(12, 2)))[0].T
    rows = scores @ directions + 1e-4 * rng.normal(size=(200, 12))
    mask = rng.uniform(size=rows.shape) < 0.8
    maps = principal_maps(rows, mask, Components(2))
    complete = principal_maps(rows, np.ones_like(mask), Components(2))[0]
    centred = rows - rows.mean(0)
    found, expected = np.einsum("rkc,rc->rk", maps, centred), centred @ complete.T
    signs = np.sign((found * expected).sum(0))
    assert np.sqrt(np.mean((found * signs - expected) ** 2)) < 0.02


# --- whitening


def test_scores_of_the_data_have_unit_covariance(rng):
    outputs = np.einsum("mk,kcto->mcto", rng.normal(size=(40, 3)), rng.normal(size=(3, 2, 4, 2))) * [1.0, 100.0]
    centre = rng.normal(size=outputs.shape[1:]) * [1.0, 100.0]
    observed = observe(replicates(outputs), np.broadcast_to(centre, outputs.shape))
    _, theirs = scores_of(jnp.zeros((2, 2, 4, 2)), observed)
    assert theirs.shape == (40, 2, 3)
    for condition in range(2):
        np.testing.assert_allclose(np.cov(theirs[:, condition].T), np.eye(3), atol=1e-10)


def test_scores_of_the_data_have_unit_covariance_where_members_are_absent(rng):
    outputs = rng.normal(size=(30, 2, 4, 1))
    mask = np.ones(outputs.shape, bool)
    mask[10:, 1] = False
    _, theirs = scores_of(jnp.zeros((2, 2, 4, 1)), observed_from(outputs, mask))
    np.testing.assert_allclose(np.cov(theirs[:10, 1].T), np.eye(4), atol=1e-10)


@pytest.mark.parametrize(
    ("explained", "max_components", "kept"),
    [(0.85, 16, 1), (0.95, 16, 2), (0.995, 16, 3), (1.0, 16, 3), (0.995, 2, 2)],
)
def test_as_many_components_as_explain_the_fraction(rng, explained, max_components, kept):
    # Principal variances in the ratio 90 : 9 : 1, by construction.
    scores = np.linalg.qr(rng.normal(size=(50, 4)) - rng.normal(size=4))[0]
    scores = np.linalg.qr(scores - scores.mean(0))[0][:, :3] * np.sqrt([90.0, 9.0, 1.0])
    outputs = (scores @ np.linalg.qr(rng.normal(size=(8, 3)))[0].T).reshape(50, 1, 8, 1)
    observed = observed_from(outputs, explained=explained, max_components=max_components)
    assert observed.projection.shape == (1, 1, kept, 8, 1)


def test_samples_are_looked_at_as_the_data_are(rng):
    outputs = rng.normal(size=(12, 2, 4, 2))
    ours, theirs = scores_of(jnp.asarray(outputs), observed_from(outputs))
    np.testing.assert_allclose(ours[0], theirs, rtol=1e-12)


def test_identical_members_give_finite_scores():
    observed = observed_from(np.ones((4, 1, 3, 1)))
    ours, theirs = scores_of(jnp.full((2, 1, 3, 1), 2.0), observed)
    assert np.all(np.isfinite(ours))
    assert np.all(np.isfinite(theirs))
    np.testing.assert_array_equal(observed.scale, [1.0])


def test_scale_is_the_rms_spread_of_each_output(rng):
    outputs = rng.normal(size=(9, 2, 4, 2)) * [1.0, 30.0]
    mask = np.ones(outputs.shape, bool)
    mask[1:, 1, 3, 0] = False  # one member is no spread: the cell is left out, not counted as zero
    observed = observed_from(outputs, mask)
    variance = outputs.var(0, ddof=1)
    expected = [np.sqrt(np.delete(variance[..., 0].ravel(), 7).mean()), np.sqrt(variance[..., 1].mean())]
    np.testing.assert_allclose(observed.scale, expected, rtol=1e-12)
    np.testing.assert_allclose(observed.sigma, np.broadcast_to(0.1 * observed.scale, (2, 4, 2)), rtol=1e-12)


def test_the_response_of_the_mean_model_is_taken_from_both_sides(rng):
    outputs, predictions = rng.normal(size=(8, 1, 4, 1)), rng.normal(size=(5, 1, 4, 1))
    response, start = rng.normal(size=(1, 4, 1)), rng.normal(size=(8, 1, 1, 1))
    plain = loss_of(Population("energy"), predictions, observed_from(outputs))
    shifted = observe(replicates(outputs + response + start), np.broadcast_to(response + start, outputs.shape))
    responses = jnp.asarray(np.broadcast_to(response, predictions.shape))
    moved = eqx.filter_jit(distance)(Population("energy"), jnp.asarray(predictions + response), responses, shifted)
    np.testing.assert_allclose(moved, plain, rtol=1e-10)


def test_select_takes_members_and_conditions(rng):
    outputs = rng.normal(size=(6, 3, 4, 2))
    mask = rng.uniform(size=outputs.shape) < 0.8
    observed = observed_from(outputs, mask)
    members, conditions = jnp.array([4, 0, 1]), jnp.array([2, 0])
    part = select(observed, members, conditions)
    np.testing.assert_array_equal(part.outputs, np.asarray(observed.outputs)[np.ix_(members, conditions)])
    np.testing.assert_array_equal(part.projection, np.asarray(observed.projection)[np.ix_(members, conditions)])
    np.testing.assert_array_equal(part.sigma, np.asarray(observed.sigma)[np.asarray(conditions)])
    shared = select(observed_from(outputs), members, conditions)
    assert shared.projection.shape[:2] == (1, 2)


# --- one unit in all conditions


def crossed_toy(rng):
    """Units with one w each, seen as w in both conditions: marginals do not tell, the joint distribution does."""
    w = rng.normal(size=60)
    outputs = np.stack([w, w], axis=1)[:, :, None] * np.ones(3)
    data = Dataset.from_arrays(
        np.arange(3.0),
        outputs.reshape(120, 3),
        inputs=np.tile(np.array([0.0, 1.0])[:, None, None] * np.ones((2, 3, 1)), (60, 1, 1)),
        unit=np.repeat(np.arange(60), 2),
    )
    members = data.replicates()
    assert members.outputs.shape == (60, 2, 3, 1)
    ours = rng.normal(size=(50, 2, 1, 1)) * np.ones((3, 1))
    ours[:, 1] = ours[:, 0]  # one w in both conditions
    apart = ours.copy()
    apart[:, 1] = rng.permutation(apart[:, 1])  # the same w's, but another one in each condition
    return observe(members, np.zeros(members.outputs.shape), sigma=np.full((2, 3, 1), 0.5)), ours, apart


@pytest.mark.parametrize("kind", ["energy", "log_mean_exp"])
def test_only_the_joint_loss_sees_which_unit_is_which(rng, kind):
    observed, one_w, two_w = crossed_toy(rng)
    joint, separate = Population(kind, joint=True), Population(kind)
    np.testing.assert_allclose(loss_of(separate, one_w, observed), loss_of(separate, two_w, observed), rtol=1e-10)
    assert loss_of(joint, one_w, observed) < loss_of(joint, two_w, observed) - 0.05


def test_joint_energy_is_that_of_the_conditions_put_side_by_side(rng):
    observed, one_w, _ = crossed_toy(rng)
    ours, theirs = scores_of(jnp.asarray(one_w), observed)
    expected = brute_force_energy(
        np.asarray(ours).reshape(1, 50, 1, -1), np.asarray(theirs).reshape(60, 1, -1), np.ones((60, 1), bool)
    )
    np.testing.assert_allclose(loss_of(Population(joint=True), one_w, observed), expected, rtol=1e-10)


def test_a_unit_that_misses_a_condition_is_left_out_of_the_joint_score(rng):
    observed, one_w, _ = crossed_toy(rng)
    present = np.ones((60, 2), bool)
    present[7, 1] = False
    found = loss_of(Population(joint=True), one_w, eqx.tree_at(lambda o: o.present, observed, jnp.asarray(present)))
    without = select(observed, jnp.asarray(np.delete(np.arange(60), 7)), jnp.asarray([0, 1]))
    expected = loss_of(Population(joint=True), one_w, without)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# --- the terms of a loss


def test_population_loss_is_the_distance_plus_the_weighted_kl(rng):
    observed = observed_from(rng.normal(size=(6, 1, 4, 1)))
    predictions, kl = jnp.asarray(rng.normal(size=(5, 1, 4, 1))), jnp.arange(5.0)
    data = distance(Population("quantile"), predictions, predictions, observed)
    np.testing.assert_allclose(data, quantile(predictions, observed), rtol=1e-14)
    terms = regularised_distance(data, draws_with(kl, kl + 1.0), kl_weight=0.2)
    np.testing.assert_allclose(terms, [float(data) + 0.4, float(data), 2.0], rtol=1e-14)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_keep_the_precision_of_their_arrays(rng, name):
    outputs, predictions = rng.normal(size=(6, 2, 4, 1)), rng.normal(size=(5, 2, 4, 1))
    single = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, observed_from(outputs)
    )
    predictions = jnp.asarray(predictions, jnp.float32)
    found = eqx.filter_eval_shape(distance, LOSSES[name], predictions, predictions, single)
    assert found.dtype == jnp.dtype(jnp.float32)


def draws_with(kl, log_ratio):
    """Draws of which only the KL and the log ratio are looked at."""
    zeros = jnp.zeros_like(kl)
    return Draw(zeros[:, None], kl, log_ratio, zeros)


LOG_TARGET, KL, LOG_RATIO = jnp.array([1.0, 4.0, -2.0]), jnp.array([0.5, 0.7, 0.9]), jnp.array([0.2, 1.0, 0.6])
DRAWS = draws_with(KL, LOG_RATIO)


@pytest.mark.parametrize("kl_weight", [1.0, 2.0])
def test_estimators_of_the_bound(kl_weight):
    """The loss depends on the estimator; the KL that is shown is the mean of `kl` with each of them."""
    reparametrised = negative_elbo(LOG_TARGET, DRAWS, estimator="reparametrised", kl_weight=kl_weight)
    np.testing.assert_allclose(reparametrised, [-1.0 + kl_weight * 0.7, -1.0, 0.7], rtol=1e-14)
    sticking = negative_elbo(LOG_TARGET, DRAWS, estimator="sticking", kl_weight=kl_weight)
    np.testing.assert_allclose(sticking, [-1.0 + kl_weight * 0.6, -1.0, 0.7], rtol=1e-14)
    log_variance = negative_elbo(LOG_TARGET, DRAWS, estimator="log_variance", kl_weight=kl_weight)
    expected = 0.5 * np.var(kl_weight * np.asarray(LOG_RATIO) - np.asarray(LOG_TARGET), ddof=1)
    np.testing.assert_allclose(log_variance, [float(expected), -1.0, 0.7], rtol=1e-14)


def test_log_variance_is_zero_where_the_bound_is_tight():
    assert negative_elbo(LOG_RATIO + 3.0, DRAWS, estimator="log_variance").loss < 1e-30


def test_a_posterior_is_tempered_at_temperature_and_kl_weight_one():
    assert (Posterior.temperature, Posterior.kl_weight) == (Tempered(1.0).temperature, Tempered(1.0).kl_weight)


# --- warnings and refusals


@pytest.mark.parametrize(
    ("target", "num"), [(Tempered(1000.0), 1000), (Tempered(100.0), 1000), (Tempered(5e3, 2.0), 50)]
)
def test_a_mean_scaled_data_term_with_an_unscaled_kl_is_warned_of(target, num):
    with pytest.warns(UserWarning, match="different scales"):
        warn_of_mismatched_scales(target, num)


@pytest.mark.parametrize(
    ("target", "num"),
    [
        (Posterior(), 1000),
        (Tempered(1.0), 1000),
        (Tempered(99.0), 1000),
        (Tempered(1000.0, 1e-3), 1000),
        (Tempered(5.0), 8),
    ],
)
def test_matched_scales_are_not_warned_of(target, num):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_mismatched_scales(target, num)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        Tempered(temperature)


def test_a_kl_weight_must_not_be_negative():
    with pytest.raises(ValueError, match="kl_weight must not be negative"):
        Population(kl_weight=-1.0)


def test_an_unknown_population_loss_is_refused():
    with pytest.raises(Exception, match=r"kind|population loss"):
        Population("crps")  # pyright: ignore[reportArgumentType]


def test_targets_are_called_by_their_names():
    assert (Posterior.name, Tempered.name, Population.name) == ("posterior", "tempered", "population")
    assert isinstance(observed_from(np.ones((2, 1, 2, 1))), Observed)


def test_a_saturated_quantile_distance_grows_with_the_logarithm():
    outputs = np.array([0.0, 1.0, 5.0, 6.0])[:, None, None, None]
    present = np.ones(outputs.shape, bool)
    replicates = Replicates(outputs, present, None, present[:, :, 0, 0])
    observed = observe(replicates, np.zeros_like(outputs))
    predictions = jnp.asarray(np.array([6.5, 0.0, 1.0, 2.0])[:, None, None, None])
    distance = np.abs(np.array([0.0, 0.0, 3.0, 0.5])) / float(observed.scale[0])
    plain = float(quantile_distance(predictions, observed))
    assert plain == pytest.approx(distance.mean(), rel=1e-6)
    found = float(quantile_distance(predictions, observed, saturation=0.5))
    assert found == pytest.approx((0.5 * np.log1p(distance / 0.5)).mean(), rel=1e-6)


def test_the_square_of_the_quantile_distance_is_least_at_the_distribution_of_the_data():
    key_data, key_model = jax.random.split(jax.random.key(5))
    members = np.asarray(3.0 + 2.0 * jax.random.normal(key_data, (24, 1, 1, 1), float))
    observed = observed_from(members)
    standard = jnp.sort(jax.random.normal(key_model, (20000, 1, 1, 1), float), axis=0)
    standard = (standard - standard.mean()) / standard.std()

    def loss(mean, scale):
        return quantile_distance(mean + scale * standard, observed, power=2)

    mean, std = members.mean(), members.std(ddof=1)
    slopes = jax.grad(loss, argnums=(0, 1))(mean, std)
    # The mean is matched exactly, the spread within what Gaussian quantiles explain of 24 members' (a few percent).
    np.testing.assert_allclose(slopes[0], 0.0, atol=1e-9)
    best = std - slopes[1] / (2.0 / float(observed.scale[0]) ** 2)
    assert 0.93 * std < best <= std


def test_the_square_of_the_quantile_distance_widens_members_to_their_unbiased_spread():
    members = jnp.asarray(np.random.default_rng(0).normal(size=(5, 1, 2, 1)))
    ordered = jnp.sort(members, axis=0).at[-1, 0, 1].set(jnp.nan)
    wide = _widened(ordered, jnp.array([[[5], [4]]]))
    np.testing.assert_allclose(wide[:, 0, 0].var(0), ordered[:, 0, 0].var(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(wide[:4, 0, 1].var(0), ordered[:4, 0, 1].var(0, ddof=1), rtol=1e-12)
