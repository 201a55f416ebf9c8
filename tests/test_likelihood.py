"""Observation noise against SciPy's densities, dense covariances, quadrature, and formulas by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from langenode.data import Dataset
from langenode.inference.likelihood import (
    SMALLEST_RELATIVE_SIGMA,
    Likelihood,
    given_noise,
    inferred_noise,
    mode_membership,
    noise_from_replicates,
    point_fit_error,
)

norm_logpdf = scipy.stats.norm.logpdf
NUM_SAMPLES, NUM_TRAJ, NUM_TIMES, NUM_OUT = 3, 4, 6, 2
WEIGHTS = np.array([0.3, 0.7])


@eqx.filter_jit
def log_density(noise, *arrays):
    return noise.log_density(*arrays)


def evaluate(noise, *arrays):
    return np.asarray(log_density(noise, *map(np.asarray, arrays)))


def sigma_of(noise):
    assert noise.sigma is not None
    return np.asarray(noise.sigma)


@pytest.fixture
def case():
    """Predictions, outputs, a mask with gaps, irregular times; every noise scale different."""
    rng = np.random.default_rng(7)
    shape = (NUM_TRAJ, NUM_TIMES, NUM_OUT)
    mask = rng.uniform(size=shape) < 0.7
    mask[0] = True
    mask[1, 2] = False
    times = np.cumsum(rng.uniform(0.1, 1.0, size=shape[:2]), axis=1)
    outputs = np.where(mask, rng.normal(size=shape), 0.0)
    return rng.normal(size=(NUM_SAMPLES, *shape)), outputs, mask, times, rng.uniform(0.5, 2.0, size=(2, *shape))


def kinds(sigma):
    """The three kinds of noise with given scales."""
    return {
        "independent": Likelihood(jnp.asarray(sigma[:1]), jnp.ones(1)),
        "mixture": Likelihood(jnp.asarray(sigma), jnp.asarray(WEIGHTS)),
        "correlated": Likelihood(jnp.asarray(sigma[:1]), jnp.ones(1), jnp.asarray(0.6)),
    }


KINDS = ("independent", "mixture", "correlated")


# --- densities


def test_independent_noise_is_a_product_of_normals(case):
    predictions, outputs, mask, _, sigma = case
    cells = norm_logpdf(outputs, predictions, sigma[0])
    expected = np.where(mask, cells, 0.0).sum((-1, -2))
    np.testing.assert_allclose(evaluate(kinds(sigma)["independent"], *case[:4]), expected, rtol=1e-12)


def test_mixture_is_the_sum_over_modes_at_each_time(case):
    predictions, outputs, mask, _, sigma = case
    expected = np.zeros((NUM_SAMPLES, NUM_TRAJ))
    for sample, traj, time in np.ndindex(NUM_SAMPLES, NUM_TRAJ, NUM_TIMES):
        seen = mask[traj, time]
        density = 0.0
        for mode in range(2):
            centre = predictions[sample, traj, time]
            kernel = np.exp(norm_logpdf(outputs[traj, time], centre, sigma[mode, traj, time]))
            density += WEIGHTS[mode] * np.prod(kernel[seen])
        expected[sample, traj] += np.log(density)
    np.testing.assert_allclose(evaluate(kinds(sigma)["mixture"], *case[:4]), expected, rtol=1e-10)


def test_mixture_with_an_empty_mode_is_the_other_mode(case):
    sigma = case[-1]
    noise = Likelihood(jnp.asarray(sigma), jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(evaluate(noise, *case[:4]), evaluate(kinds(sigma)["independent"], *case[:4]), rtol=1e-12)
    slope = jax.jit(jax.grad(lambda p: noise.log_density(p, *map(jnp.asarray, case[1:4])).sum()))(case[0])
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("kind", [*KINDS, "inferred"])
def test_densities_of_readings_add_up_to_that_of_their_trajectory(case, kind):
    sigma, log_noise = case[-1], np.log([[0.5, 2.0], [0.7, 1.0], [1.5, 0.3]])
    noise = {**kinds(sigma), "inferred": inferred_noise()}[kind]
    arrays: Any = (*case[:4], log_noise) if kind == "inferred" else case[:4]
    evaluated: Any = eqx.filter_jit(lambda *a: noise.reading_log_densities(*a))  # pyright: ignore[reportCallIssue]
    cells = np.asarray(evaluated(*map(np.asarray, arrays)))
    assert cells.shape == case[0].shape and np.all(cells[:, ~case[2]] == 0.0)
    np.testing.assert_allclose(cells.sum((-2, -1)), evaluate(noise, *arrays), rtol=1e-10)
    # The first reading of a trajectory is given nothing.
    if kind in ("independent", "correlated"):
        expected = norm_logpdf(case[1][0, 0, 0], case[0][:, 0, 0, 0], sigma[0, 0, 0, 0])
        np.testing.assert_allclose(cells[:, 0, 0, 0], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_densities_integrate_to_one(kind):
    # Every point of a grid over two cells is a trajectory; the trapezoid rule is exact for what decays so fast.
    grid = np.linspace(-14.0, 14.0, 241)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    for shape in ((2, 1), (1, 2)):  # two times of one output, one time of two outputs
        outputs = points.reshape(-1, *shape)
        sigma = np.broadcast_to(np.reshape([[0.7, 1.3], [1.1, 0.6]], (2, 1, *shape)), (2, *outputs.shape))
        times = np.broadcast_to(0.4 * np.arange(shape[0]), outputs.shape[:2])
        predictions = np.full((1, *outputs.shape), 0.3)
        density = np.exp(evaluate(kinds(sigma)[kind], predictions, outputs, np.ones(outputs.shape, bool), times))
        np.testing.assert_allclose(density.sum() * (grid[1] - grid[0]) ** 2, 1.0, rtol=1e-8)


def test_correlated_noise_is_a_dense_normal_with_an_exponential_kernel(case):
    predictions, outputs, mask, times, sigma = case
    found = evaluate(kinds(sigma)["correlated"], *case[:4])
    for sample, traj in np.ndindex(found.shape):
        expected = 0.0
        for out in range(NUM_OUT):
            seen = mask[traj, :, out]
            t, s = times[traj, seen], sigma[0, traj, seen, out]
            covariance = np.outer(s, s) * np.exp(-np.abs(t[:, None] - t) / 0.6)
            law = scipy.stats.multivariate_normal(predictions[sample, traj, seen, out], covariance)
            expected += law.logpdf(outputs[traj, seen, out])
        np.testing.assert_allclose(found[sample, traj], expected, rtol=1e-9)


def test_noise_without_memory_is_independent(case):
    sigma = case[-1]
    short = Likelihood(jnp.asarray(sigma[:1]), jnp.ones(1), jnp.asarray(1e-3))
    np.testing.assert_allclose(evaluate(short, *case[:4]), evaluate(kinds(sigma)["independent"], *case[:4]), rtol=1e-10)


def test_inferred_noise_is_the_given_noise_of_each_sample(case):
    predictions, outputs, mask, times, _ = case
    log_noise = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_SAMPLES, NUM_OUT)))
    found = evaluate(inferred_noise(), predictions, outputs, mask, times, log_noise)
    for sample in range(NUM_SAMPLES):
        scale = np.exp(np.asarray(log_noise)[sample])
        cells = norm_logpdf(outputs, predictions[sample], scale)
        np.testing.assert_allclose(found[sample], np.where(mask, cells, 0.0).sum((-1, -2)), rtol=1e-12)
    arrays = [jnp.asarray(array) for array in case[:4]]
    total = lambda s: inferred_noise().log_density(*arrays, log_noise=s).sum()  # noqa: E731
    standard = np.where(mask, outputs - predictions, 0.0) / np.exp(np.asarray(log_noise))[:, None, None, :]
    expected = (standard**2).sum((1, 2)) - mask.sum((0, 1))
    np.testing.assert_allclose(jax.jit(jax.grad(total))(log_noise), expected, rtol=1e-10)


def test_select_takes_the_noise_of_some_trajectories(case):
    predictions, outputs, mask, times, sigma = case
    index = np.array([3, 1])
    for noise in kinds(sigma).values():
        part = evaluate(
            noise.select(jnp.asarray(index)), predictions[:, index], outputs[index], mask[index], times[index]
        )
        np.testing.assert_allclose(part, evaluate(noise, *case[:4])[:, index], rtol=1e-14)
    assert inferred_noise().select(jnp.asarray(index)).sigma is None


# --- missing cells


@pytest.mark.parametrize("kind", KINDS)
def test_masked_equals_dropped(case, kind):
    predictions, outputs, _, times, sigma = case
    keep = np.array([0, 2, 3, 5])
    mask = np.zeros(outputs.shape, bool)
    mask[:, keep, :] = True
    masked = evaluate(kinds(sigma)[kind], predictions, outputs, mask, times)
    dropped_noise = kinds(sigma[:, :, keep])[kind]
    dropped = evaluate(dropped_noise, predictions[:, :, keep], outputs[:, keep], mask[:, keep], times[:, keep])
    np.testing.assert_allclose(masked, dropped, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unobserved_output_equals_one_that_is_not_there(case, kind):
    predictions, outputs, mask, times, sigma = case
    mask = mask.copy()
    mask[..., 1] = False
    one = evaluate(kinds(sigma[..., :1])[kind], predictions[..., :1], outputs[..., :1], mask[..., :1], times)
    np.testing.assert_allclose(evaluate(kinds(sigma)[kind], predictions, outputs, mask, times), one, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_equals_shorter_trajectories(kind):
    rng = np.random.default_rng(3)
    records = [{"times": np.cumsum(rng.uniform(0.1, 1.0, n)), "outputs": rng.normal(size=(n, 2))} for n in (5, 3, 4)]
    together = Dataset.from_list(records)
    predictions = rng.normal(size=(2, 3, 5, 2))
    sigma = rng.uniform(0.5, 2.0, size=(2, 3, 5, 2))
    batch = together.arrays(np.float64)
    found = evaluate(kinds(sigma)[kind], predictions, batch.outputs, batch.mask, batch.times)
    for traj, record in enumerate(records):
        num = len(record["times"])
        alone = evaluate(
            kinds(sigma[:, [traj], :num])[kind],
            predictions[:, [traj], :num],
            record["outputs"][None],
            np.ones((1, num, 2), bool),
            record["times"][None],
        )
        np.testing.assert_allclose(found[:, [traj]], alone, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_that_came_in_as_nan_leave_no_nan_in_the_gradient(case, kind):
    predictions, outputs, mask, times, sigma = case
    data = Dataset.from_arrays(times, np.where(mask, outputs, np.nan), condition=np.arange(NUM_TRAJ))
    np.testing.assert_array_equal(data.mask, mask)
    batch = data.arrays(np.float64)
    total = lambda p: kinds(sigma)[kind].log_density(p, batch.outputs, batch.mask, batch.times).sum()  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(total))(predictions)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))
    missing = np.broadcast_to(~mask, slope.shape)
    np.testing.assert_array_equal(np.asarray(slope)[missing], 0.0)
    assert np.all(np.asarray(slope)[~missing] != 0.0)
    # Nor do predictions that are not finite where nothing was observed.
    spoiled = jnp.where(jnp.asarray(mask), jnp.asarray(predictions), jnp.nan)
    np.testing.assert_array_equal(jax.jit(total)(spoiled), jax.jit(total)(jnp.asarray(predictions)))


def test_a_trajectory_without_observations_says_nothing(case):
    predictions, outputs, mask, times, sigma = case
    mask = mask.copy()
    mask[2] = False
    for noise in kinds(sigma).values():
        np.testing.assert_array_equal(evaluate(noise, predictions, outputs, mask, times)[:, 2], 0.0)


# --- sigma from the data


def test_given_noise_broadcasts():
    data = Dataset.from_arrays(np.arange(3.0), np.zeros((2, 3, 2)))
    for sigma in (0.5, [0.5, 0.2], np.full((2, 3, 2), 0.5)):
        noise = given_noise(sigma, data)
        np.testing.assert_array_equal(sigma_of(noise)[0], np.broadcast_to(sigma, (2, 3, 2)))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), [0.1, 0.0]])
def test_given_noise_must_be_positive_and_finite(sigma):
    data = Dataset.from_arrays(np.arange(3.0), np.zeros((2, 3, 2)))
    with pytest.raises(ValueError, match="positive and finite"):
        given_noise(sigma, data)


def test_noise_must_be_given_or_inferred(case):
    with pytest.raises(ValueError, match="given or inferred"):
        evaluate(inferred_noise(), *case[:4])


def test_correlated_noise_needs_one_mode(case):
    with pytest.raises(ValueError, match="one mode"):
        Likelihood(jnp.asarray(case[-1]), jnp.asarray(WEIGHTS), jnp.asarray(1.0))


def replicate_data():
    """Two conditions of 5 and 3 replicates, with missing cells; the fitted model misses the means."""
    rng = np.random.default_rng(11)
    condition = np.array([0, 0, 1, 0, 1, 0, 1, 0])
    outputs = rng.normal(size=(8, 4, 2)) * np.array([1.0, 50.0]) + condition[:, None, None]
    mask = np.ones(outputs.shape, bool)
    mask[0, 1, 0] = mask[3, 1, 0] = False
    mask[[2, 4], 3, 1] = False  # one replicate is left
    fitted = rng.normal(size=(2, 4, 2))[condition]
    times = np.arange(4.0)
    return Dataset.from_arrays(times, np.where(mask, outputs, np.nan), condition=condition), fitted


def test_noise_of_replicates_is_the_sum_of_their_spread_and_the_misfit():
    data, fitted = replicate_data()
    noise = noise_from_replicates(data, fitted)
    np.testing.assert_array_equal(noise.mode_weights, [1.0])
    seen = data.mask
    pooled = np.sqrt([np.mean((data.outputs - fitted)[..., out][seen[..., out]] ** 2) for out in range(2)])
    for traj, time, out in np.ndindex(8, 4, 2):
        rows = (data.condition == data.condition[traj]) & seen[:, time, out]
        values = data.outputs[rows, time, out]
        if len(values) >= 2:
            sigma_data, sigma_mle = np.std(values, ddof=1), np.mean(values) - fitted[traj, time, out]
            expected = np.sqrt(sigma_data**2 + sigma_mle**2)
        else:
            assert (traj, time, out) in {(2, 3, 1), (4, 3, 1), (6, 3, 1)}
            expected = pooled[out]
        np.testing.assert_allclose(sigma_of(noise)[0, traj, time, out], expected, rtol=1e-10)


def test_the_error_of_a_point_fit_is_beside_the_spread_of_replicates():
    data, fitted = replicate_data()
    errors, spreads = [], []  # one for every reading that has replicates
    for traj, time, out in np.ndindex(8, 4, 2):
        rows = (data.condition == data.condition[traj]) & data.mask[:, time, out]
        if rows[traj] and rows.sum() >= 2:
            errors.append((data.outputs - fitted)[rows, time, out].mean() ** 2)
            spreads.append(np.var((data.outputs - fitted)[rows, time, out], ddof=1))
    expected = np.sqrt(np.sum(errors) / np.sum(spreads))
    assert point_fit_error(data, fitted) == pytest.approx(expected, rel=1e-10)
    alone = Dataset.from_arrays(np.arange(4.0), data.outputs, condition=np.arange(8))
    assert point_fit_error(alone, fitted) is None
    # About the mean of its own mode a fit has no error.
    modes = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    outputs = np.where(modes == 0, 1.0, 9.0)[:, None, None] + np.array([-1.0, 1.0])[np.arange(8) // 2 % 2, None, None]
    two = Dataset.from_arrays(np.arange(1.0), outputs)
    centres = np.where(modes == 0, 1.0, 9.0)[:, None, None]
    assert point_fit_error(two, centres, modes) == 0.0


def test_noise_is_never_below_a_fraction_of_its_own_outputs_residuals():
    data, fitted = replicate_data()
    outputs = data.outputs.copy()
    outputs[:, 0] = fitted[:, 0]  # a common start that the model has exactly
    outputs[..., 1] *= 1e6  # an output in other units must not set the smallest scale of the first
    fitted = fitted * np.array([1.0, 1e6])
    coinciding = Dataset.from_arrays(np.arange(4.0), outputs, mask=data.mask, condition=data.condition)
    sigma = sigma_of(noise_from_replicates(coinciding, fitted))
    residual = outputs - fitted
    rms = np.sqrt([np.mean(residual[..., out][data.mask[..., out]] ** 2) for out in range(2)])
    np.testing.assert_allclose(sigma[0, :, 0], np.broadcast_to(SMALLEST_RELATIVE_SIGMA * rms, (8, 2)), rtol=1e-10)
    assert np.all(sigma[0, :, 1:, 0] < 10.0)


def test_a_perfect_fit_still_has_noise():
    data, _ = replicate_data()
    sigma = sigma_of(noise_from_replicates(data, data.outputs))
    np.testing.assert_array_equal(sigma, np.full(sigma.shape, SMALLEST_RELATIVE_SIGMA))


def test_every_mode_has_the_noise_of_its_own_replicates():
    data, fitted = replicate_data()
    membership = np.array([0, 1, 1, 1, 0, 1, 1, 0])
    apart = data.outputs + 100.0 * membership[:, None, None]
    data = Dataset.from_arrays(np.arange(4.0), apart, mask=data.mask, condition=data.condition)
    noise = noise_from_replicates(data, fitted, modes=mode_membership(data, 2, seed=0))
    np.testing.assert_allclose(noise.mode_weights, [3 / 8, 5 / 8], rtol=1e-14)
    # Condition 0 has trajectories 1, 3 and 5 in mode 1.
    values = data.outputs[[1, 3, 5], 2, 0]
    expected = np.sqrt(np.var(values, ddof=1) + (values.mean() - fitted[0, 2, 0]) ** 2)
    for traj in (0, 1, 3, 5, 7):  # every trajectory of the condition has the scales of all modes
        np.testing.assert_allclose(sigma_of(noise)[1, traj, 2, 0], expected, rtol=1e-10)


def two_modes(num_low, num_high):
    rng = np.random.default_rng(5)
    is_high = rng.permutation(np.arange(num_low + num_high) >= num_low)
    outputs = np.where(is_high, 10.0, 1.0)[:, None] + 0.3 * rng.normal(size=(len(is_high), 7))
    outputs[rng.uniform(size=outputs.shape) < 0.2] = np.nan
    return Dataset.from_arrays(np.arange(7.0), outputs), is_high


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_k_means_finds_separated_modes_and_counts_them(seed):
    data, is_high = two_modes(30, 10)
    membership = mode_membership(data, 2, seed=seed)
    np.testing.assert_array_equal(membership, is_high.astype(int))  # mode 0 is the lower one
    np.testing.assert_array_equal(membership, mode_membership(data, 2, seed=seed))
    noise = noise_from_replicates(data, np.zeros(data.outputs.shape), modes=mode_membership(data, 2, seed=seed))
    np.testing.assert_allclose(noise.mode_weights, [0.75, 0.25], rtol=1e-14)
    for mode in range(2):
        values = np.where(data.mask, data.outputs, np.nan)[is_high == mode]
        expected = np.sqrt(np.nanvar(values, axis=0, ddof=1) + np.nanmean(values, axis=0) ** 2)
        np.testing.assert_allclose(sigma_of(noise)[mode], np.broadcast_to(expected, data.outputs.shape), rtol=1e-10)


def test_k_means_is_deterministic_in_the_seed_where_there_are_no_modes():
    data = Dataset.from_arrays(np.arange(4.0), np.random.default_rng(0).normal(size=(60, 4)))
    first, again = (mode_membership(data, 3, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert any(np.any(mode_membership(data, 3, seed=seed) != first) for seed in range(5, 10))


# --- a centre per mode


def test_a_mixture_with_a_centre_per_mode_is_that_of_shifted_predictions(case):
    predictions, outputs, mask, times, sigma = case
    shift = np.random.default_rng(3).normal(size=sigma.shape)
    noise = Likelihood(jnp.asarray(sigma), jnp.asarray(WEIGHTS), shift=jnp.asarray(shift))
    terms = norm_logpdf(outputs, predictions[None] + shift[:, None], sigma[:, None])
    per_time = np.where(mask, terms, 0.0).sum(-1)
    mixture = np.logaddexp(*(per_time + np.log(WEIGHTS)[:, None, None, None]))
    expected = np.where(mask.any(-1), mixture, 0.0).sum(-1)
    np.testing.assert_allclose(evaluate(noise, *case[:4]), expected, rtol=1e-10)
    readings = noise.reading_log_densities(*map(jnp.asarray, case[:4]))
    np.testing.assert_allclose(readings.sum((-2, -1)), expected, rtol=1e-10)
    part = noise.select(jnp.array([2, 0]))
    chosen = [predictions[:, [2, 0]], outputs[[2, 0]], mask[[2, 0]], times[[2, 0]]]
    np.testing.assert_allclose(evaluate(part, *chosen), expected[:, [2, 0]], rtol=1e-10)


def test_centres_of_modes_are_their_means_and_their_noise_is_that_of_the_data_alone():
    """At the point fit the kernels are the modes themselves: nothing is left for sigma_MLE."""
    rng = np.random.default_rng(5)
    modes = np.repeat([0, 1], 20)
    outputs = np.where(modes[:, None, None] == 0, -3.0, 4.0) + 0.2 * rng.normal(size=(40, 5, 1))
    data = Dataset.from_arrays(np.linspace(0.0, 1.0, 5), outputs, condition=np.zeros(40, int))
    fitted = np.full(outputs.shape, 0.7)
    noise = noise_from_replicates(data, fitted, modes=modes, has_centres=True)
    assert noise.shift is not None
    for mode in (0, 1):
        ours = outputs[modes == mode]
        np.testing.assert_allclose(0.7 + np.asarray(noise.shift)[mode, 0], ours.mean(0), rtol=1e-12)
        np.testing.assert_allclose(sigma_of(noise)[mode, 0], ours.std(0, ddof=1), rtol=1e-10)
    one_centre = noise_from_replicates(data, fitted, modes=modes)
    np.testing.assert_allclose(noise.mean_squares(), sigma_of(one_centre) ** 2, rtol=1e-10)
