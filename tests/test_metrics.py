"""Metrics against exact answers, definitions written out, and the reference packages."""

import importlib
import warnings
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from langenode.scores import floors, metrics
from langenode.scores.diagnostics import is_k_hat_telling


def oracle(name):
    """Import a reference package, ignoring the warnings of its import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def standard_error(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


@pytest.fixture
def rng():
    return np.random.default_rng(20240)


@pytest.fixture
def case(rng):
    """Samples, data and a mask with gaps; missing cells hold NaN in `spoiled` and must not matter."""
    samples = rng.normal(size=(9, 2, 3, 2))
    data = rng.normal(0.5, 2.0, size=(5, 2, 3, 2))
    mask = rng.uniform(size=data.shape) < 0.7
    mask[:, 0, 0, 0] = True
    return samples, np.where(mask, data, 0.0), mask, np.where(mask, data, np.nan)


# --- Wasserstein-1


def test_w1_of_shifted_sets_is_the_shift(rng):
    samples = rng.normal(size=(64, 2, 5, 3))
    shift = rng.normal(size=(2, 5, 3))
    np.testing.assert_allclose(metrics.w1(samples, samples + shift), np.abs(shift), rtol=1e-12)
    np.testing.assert_allclose(metrics.w1(samples, np.repeat(samples, 2, axis=0) + shift), np.abs(shift), rtol=1e-12)


@pytest.mark.parametrize("num_members", [1, 9, 14, 50])
def test_w1_equals_scipy(rng, num_members):
    samples = rng.normal(size=(14, 2, 3, 2))
    data = rng.gamma(2.0, size=(num_members, 2, 3, 2))
    distance = metrics.w1(samples, data)
    for cell in np.ndindex(2, 3, 2):
        expected = scipy.stats.wasserstein_distance(samples[:, *cell], data[:, *cell])
        np.testing.assert_allclose(distance[cell], expected, rtol=1e-12)


def test_w1_missing_members_equal_dropped_ones(case):
    samples, data, mask, spoiled = case
    mask = mask.copy()
    mask[:, 1, 2, 1] = False
    distance = metrics.w1(samples, spoiled, mask_b=mask)
    np.testing.assert_array_equal(distance, metrics.w1(samples, data, mask_b=mask))
    assert np.isnan(distance[1, 2, 1])
    for cell in [cell for cell in np.ndindex(2, 3, 2) if cell != (1, 2, 1)]:
        present = data[:, *cell][mask[:, *cell]]
        expected = scipy.stats.wasserstein_distance(samples[:, *cell], present)
        np.testing.assert_allclose(distance[cell], expected, rtol=1e-12)


def test_w1_of_a_weighted_sample_is_that_of_a_repeated_one(rng):
    samples, data = rng.normal(size=(4, 1, 3, 1)), rng.normal(size=(7, 1, 3, 1))
    repeats = np.array([3, 0, 1, 2])
    weighted = metrics.w1(samples, data, weights_a=repeats / 1.0)
    np.testing.assert_allclose(weighted, metrics.w1(np.repeat(samples, repeats, axis=0), data), rtol=1e-12)


def test_blocks_change_nothing(case, monkeypatch, rng):
    samples, data, mask, _ = case
    weights = rng.normal(size=(20, 3))

    def everything():
        return (
            metrics.w1(samples, data, mask_b=mask),
            metrics.crps(samples, data, mask=mask),
            metrics.energy_score(samples, data, mask=mask),
            metrics.coverage(samples, data, mask=mask)["50"],
            floors.w1_floor_from_data(data, 9, mask=mask, rng=np.random.default_rng(0)).median,
            metrics.distance_correlation_matrix(weights, rng=np.random.default_rng(0)).corrected,
        )

    whole = everything()
    monkeypatch.setattr("langenode.scores.metrics._BLOCK", 20)
    monkeypatch.setattr("langenode.scores.diagnostics._BLOCK", 20)
    for a, b in zip(whole, everything(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("num", "size", "bias"), [(32, 32, 0.015), (32, 50, 0.025), (32, 1024, 0.045), (512, 1024, 0.02)]
)
def test_floor_from_data_has_the_level_of_the_true_floor(rng, num, size, bias):
    """Within the bias that the docstring states for Gaussian members, and five standard errors."""
    num_cells = 800
    data = rng.normal(size=(num, num_cells, 1, 1))
    truth = metrics.w1(rng.normal(size=(size, num_cells, 1, 1)), rng.normal(size=(num, num_cells, 1, 1))).ravel()
    floor = floors.w1_floor_from_data(data, size, rng=rng)
    error = np.sqrt(2.0) * standard_error(truth)  # of the truth, and the same for the data
    assert abs(floor.median - truth.mean()) < bias * truth.mean() + 5.0 * error


def test_floor_from_data_with_missing_members_is_that_of_fewer(rng):
    data = rng.normal(size=(64, 800, 1, 1))
    mask = rng.permuted(np.broadcast_to(np.arange(64)[:, None, None, None] < 32, data.shape), axis=0)
    mask[1:, 0] = False  # one member only: the cell is left out
    floor = floors.w1_floor_from_data(np.where(mask, data, np.nan), 50, mask=mask, rng=rng)
    fewer = floors.w1_floor_from_data(data[:32], 50, rng=rng)
    error = 0.35 * fewer.median / np.sqrt(800)  # W1 of a cell varies by a third of its mean
    assert abs(floor.median - fewer.median) < 5.0 * np.sqrt(2.0) * error
    with pytest.raises(ValueError, match="two members"):
        floors.w1_floor_from_data(data[:1], 50, rng=rng)


def test_floor_from_two_members_and_one_sample_is_their_difference(rng):
    data = rng.normal(size=(2, 1, 6, 1))  # E|F_a - F_b|(1/2) is 1/2 at sizes (1, 2) and at (1, 1)
    floor = floors.w1_floor_from_data(data, 1, rng=rng)
    np.testing.assert_allclose(floor, np.abs(data[0] - data[1]).mean(), rtol=1e-12)


# --- scores


def rms(difference, cells):
    return np.sqrt(np.mean(difference[cells] ** 2))


def energy_score_by_definition(samples, data, mask):
    scores = []
    for member, condition in np.ndindex(data.shape[:2]):
        x, y, cells = samples[:, condition], data[member, condition], mask[member, condition]
        pairs = [rms(a - b, cells) for a, b in combinations(x, 2)]
        scores.append(np.mean([rms(a - y, cells) for a in x]) - 0.5 * np.mean(pairs))
    return np.mean(scores)


def energy_distance_by_definition(samples, data, mask):
    terms = []
    for condition in range(data.shape[1]):
        x = samples[:, condition]
        for i, j in combinations(range(len(data)), 2):
            y, z, cells = data[i, condition], data[j, condition], mask[i, condition] & mask[j, condition]
            if cells.any():
                cross = np.mean([rms(a - y, cells) + rms(a - z, cells) for a in x])
                within = np.mean([rms(a - b, cells) for a, b in combinations(x, 2)])
                terms.append(cross - within - rms(y - z, cells))
    return np.mean(terms)


def test_energy_score_and_distance_are_their_definitions_with_missing_cells(case):
    samples, data, mask, spoiled = case
    score = energy_score_by_definition(samples, data, mask)
    distance = energy_distance_by_definition(samples, data, mask)
    for values in (data, spoiled):
        np.testing.assert_allclose(metrics.energy_score(samples, values, mask=mask), score, rtol=1e-12)
        np.testing.assert_allclose(metrics.energy_distance(samples, values, mask=mask), distance, rtol=1e-12)


@pytest.mark.slow
def test_energy_score_equals_scoringrules(case):
    samples, data, _, _ = case
    ensemble = samples.reshape(9, 2, 6).transpose(1, 0, 2)
    expected = oracle("scoringrules").es_ensemble(
        data.reshape(5, 2, 6), np.broadcast_to(ensemble, (5, 2, 9, 6)), estimator="fair", backend="numpy"
    )
    np.testing.assert_allclose(metrics.energy_score(samples, data), expected.mean() / np.sqrt(6), rtol=1e-12)


@pytest.mark.slow
def test_crps_equals_scoringrules_and_missing_cells_do_not_matter(case):
    samples, data, mask, spoiled = case
    expected = oracle("scoringrules").crps_ensemble(
        data, np.moveaxis(samples, 0, -1) + np.zeros((5, 1, 1, 1, 1)), estimator="fair", backend="numpy"
    )
    np.testing.assert_allclose(metrics.crps(samples, data), expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(metrics.crps(samples, spoiled, mask=mask), expected[mask].mean(), rtol=1e-12)
    np.testing.assert_allclose(metrics.crps(samples + 1e6, data + 1e6), expected.mean(), rtol=1e-8)


def test_weighted_crps_is_its_definition(case, rng):
    samples, data, _, _ = case
    weights = rng.uniform(size=9)
    weights[2] = 0.0
    w = weights / weights.sum()
    error = np.einsum("r,rm...->m...", w, np.abs(samples[:, None] - data))
    spread = np.einsum("r,s,rs...->...", w, w, np.abs(samples[:, None] - samples)) / (2.0 * (1.0 - np.sum(w**2)))
    np.testing.assert_allclose(metrics.crps(samples, data, weights=weights), (error - spread).mean(), rtol=1e-12)
    np.testing.assert_allclose(metrics.crps(samples, data, weights=np.ones(9)), metrics.crps(samples, data), 1e-12)
    with pytest.raises(ValueError, match="non-negative"):
        metrics.crps(samples, data, weights=-weights)


@pytest.mark.parametrize("score", [metrics.crps, metrics.energy_score])
def test_scores_are_fair(score, rng):
    """The mean score of three samples of N(0, 1) against y = 0 is E|x| - E|x - x'|/2."""
    values = [score(rng.normal(size=(3, 50, 1, 1)), np.zeros((1, 50, 1, 1))) for _ in range(60)]
    exact = np.sqrt(2.0 / np.pi) - 1.0 / np.sqrt(np.pi)
    assert abs(np.mean(values) - exact) < 5.0 * standard_error(values)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_energy_distance_is_unbiased(shift, rng):
    values = [
        metrics.energy_distance(rng.normal(size=(4, 50, 1, 1)), rng.normal(shift, size=(3, 50, 1, 1)))
        for _ in range(60)
    ]
    folded = scipy.stats.foldnorm(shift / np.sqrt(2.0), scale=np.sqrt(2.0)).mean()
    exact = 2.0 * folded - 4.0 / np.sqrt(np.pi)
    assert abs(np.mean(values) - exact) < 5.0 * standard_error(values)


def test_a_fair_score_needs_two_samples():
    one = np.zeros((1, 1, 1, 1))
    for score in (metrics.crps, metrics.energy_score, metrics.energy_distance):
        with pytest.raises(ValueError, match="two samples"):
            score(one, one)
    nothing = np.zeros_like(one, dtype=bool)
    for score in (metrics.crps, metrics.energy_score, metrics.energy_distance):
        assert np.isnan(score(np.zeros((2, 1, 1, 1)), one, mask=nothing))


# --- coverage and spread


@pytest.mark.parametrize("num_samples", [19, 39, 999])
def test_coverage_of_uniform_data_is_the_level(num_samples):
    samples = (np.arange(1, num_samples + 1) / (num_samples + 1)).reshape(-1, 1, 1, 1)
    data = ((np.arange(1000) + 0.5) / 1000).reshape(-1, 1, 1, 1)
    levels = (50, 90) if num_samples == 19 else (50, 90, 95)  # 19 samples end at 5 %
    assert metrics.coverage(samples[::-1], data, levels=levels) == {f"{level}": level / 100 for level in levels}
    mask = data < 0.5
    assert metrics.coverage(samples, np.where(mask, data, np.nan), mask=mask, levels=(50,)) == {"50": 0.5}


def test_coverage_has_the_nominal_rate_at_few_samples(rng):
    samples, data = rng.normal(size=(50, 4000, 1, 1)), rng.normal(size=(1, 4000, 1, 1))
    for level, fraction in metrics.coverage(samples, data).items():
        nominal = float(level) / 100
        assert abs(fraction - nominal) < 5.0 * np.sqrt(nominal * (1.0 - nominal) / 4000)


def test_weighted_quantiles_reduce_to_numpys_and_drop_zero_weights(rng):
    samples = rng.normal(size=(30, 2, 3, 1))
    tails = [0.025, 0.25, 0.5, 0.975]
    expected = np.quantile(samples, tails, axis=0, method="weibull")
    np.testing.assert_allclose(metrics._quantiles(samples, tails, None), expected, rtol=1e-12, atol=1e-14)
    weights = rng.uniform(size=30)
    padded = np.concatenate([samples, rng.normal(size=(5, 2, 3, 1))])
    np.testing.assert_allclose(
        metrics._quantiles(padded, tails, np.concatenate([weights, np.zeros(5)])),
        metrics._quantiles(samples, tails, weights),
        rtol=1e-12,
    )


def test_weighted_coverage_undoes_the_proposal(rng):
    samples = rng.normal(0.0, 2.0, size=(20000, 1, 1, 1))
    weights = np.exp(-0.5 * samples**2 * (1.0 - 0.25)).ravel()
    data = scipy.stats.norm.ppf((np.arange(2000) + 0.5) / 2000).reshape(-1, 1, 1, 1)
    fraction = metrics.coverage(samples, data, levels=(90,), weights=weights)["90"]
    effective = metrics.relative_ess(np.log(weights)) * 20000
    assert abs(fraction - 0.9) < 5.0 * np.sqrt(0.9 * 0.1 / effective)


# --- distance correlation


def centred(values, corrected):
    """The centred distance matrix, from its definition."""
    d = np.linalg.norm(values[:, None] - values, axis=-1)
    n = len(d)
    if not corrected:
        return d - d.mean(0) - d.mean(1)[:, None] + d.mean()
    u = d - d.sum(0) / (n - 2) - d.sum(1)[:, None] / (n - 2) + d.sum() / ((n - 1) * (n - 2))
    return u - np.diag(np.diag(u))


def test_distance_correlation_is_its_definition(rng):
    x, y = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    y[:, 0] += x[:, 1] ** 2
    result = metrics.distance_correlation(x, y, num_permutations=5, rng=rng)
    values = []
    for corrected in (True, False):
        a, b = centred(x, corrected), centred(y, corrected)
        values.append(np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)))
    np.testing.assert_allclose(result[:2], (values[0], np.sqrt(values[1])), rtol=1e-10)


@pytest.mark.slow  # the reference compiles itself for half a minute when first imported
def test_distance_correlation_equals_dcor(rng):
    dcor = oracle("dcor")
    weights = rng.normal(size=(100, 4))
    weights[:, 1] += weights[:, 0] ** 2
    matrix = metrics.distance_correlation_matrix(weights, rng=rng)
    for i, j in combinations(range(4), 2):
        pair = metrics.distance_correlation(weights[:, i], weights[:, j], num_permutations=1, rng=rng)
        expected = dcor.u_distance_correlation_sqr(weights[:, i], weights[:, j])
        np.testing.assert_allclose((pair.corrected, matrix.corrected[i, j]), expected, rtol=1e-9)
        expected = dcor.distance_correlation(weights[:, i], weights[:, j])
        np.testing.assert_allclose((pair.biased, matrix.biased[i, j]), expected, rtol=1e-9)


def test_distance_correlation_matrix_agrees_with_pairs_and_itself(rng):
    weights = rng.normal(size=(50, 4))
    weights[:, 2] = 3.0 - 2.0 * weights[:, 0]
    weights[:, 3] = 1.0
    matrix = metrics.distance_correlation_matrix(weights, rng=rng)
    pair = metrics.distance_correlation(weights[:, 0], weights[:, [1]], rng=rng)
    np.testing.assert_allclose((matrix.corrected[0, 1], matrix.biased[0, 1]), pair[:2], rtol=1e-10)
    for values in matrix[:2]:
        np.testing.assert_allclose(np.diag(values), [1, 1, 1, 0], rtol=1e-12)  # a constant depends on nothing
        np.testing.assert_allclose(values[0, 2], 1.0, rtol=1e-12)
        np.testing.assert_array_equal(values, values.T)
    with pytest.raises(ValueError, match="four draws"):
        metrics.distance_correlation_matrix(weights[:3], rng=rng)


@pytest.mark.parametrize(
    ("num", "median", "rounding"),
    [(64, 0.21, 5e-3), (128, 0.15, 5e-3), (256, 0.105, 5e-4), (512, 0.074, 5e-4)],
)
def test_independent_weights_have_the_known_level(rng, num, median, rounding):
    result = metrics.distance_correlation_matrix(rng.normal(size=(num, 16)), num_permutations=4, rng=rng)
    upper = np.triu_indices(16, k=1)
    biased, corrected = result.biased[upper], result.corrected[upper]
    error = 1.2533 * standard_error(biased)
    assert abs(np.median(biased) - median) < rounding + 5.0 * error
    assert abs(result.independence - median) < rounding + 5.0 * error
    assert abs(corrected.mean()) < 5.0 * standard_error(corrected)


@pytest.mark.slow
def test_independence_level_is_exceeded_only_by_dependence(rng):
    x = rng.normal(size=200)
    dependent = metrics.distance_correlation(x, x**2 + rng.normal(size=200), rng=rng)
    assert dependent.biased > dependent.independence
    biased, level = [], []
    for _ in range(20):
        result = metrics.distance_correlation(rng.normal(size=40), rng.normal(size=40), num_permutations=40, rng=rng)
        biased.append(result.biased)
        level.append(result.independence)
    exceeded = np.mean(np.array(biased) > level)
    assert exceeded < 0.05 + 5.0 * np.sqrt(0.05 * 0.95 / 20)


# --- importance weights


def test_relative_ess_of_equal_and_single_weights():
    assert metrics.relative_ess(np.full(7, -1e4)) == 1.0
    assert metrics.relative_ess(np.array([0.0, -np.inf, -np.inf, -1e4])) == 0.25
    np.testing.assert_allclose(metrics.relative_ess(np.log([1.0, 3.0]) + 1e4), 16.0 / 20.0, rtol=1e-8)


def test_log_evidence_is_stable_and_has_its_error():
    weights = np.array([1.0, 2.0, 6.0])
    for shift in (-1e4, 0.0, 1e4):
        value, error = metrics.log_evidence(np.log(weights) + shift)
        np.testing.assert_allclose(value - shift, np.log(3.0), rtol=1e-8)
        np.testing.assert_allclose(error, np.std(weights, ddof=1) / np.sqrt(3) / 3.0, rtol=1e-8)
    assert metrics.log_evidence(np.zeros(5)) == (0.0, 0.0)
    with pytest.raises(ValueError, match="finite"):
        metrics.log_evidence(np.full(3, -np.inf))


def test_log_evidence_of_a_gaussian(rng):
    """Prior N(0, 1), one datum y = 1.3 with noise 0.5, proposal N(0.8, 0.7): log N(1.3; 0, 1 + 0.25)."""
    normal = scipy.stats.norm
    w = rng.normal(0.8, 0.7, size=20000)
    log_weights = normal.logpdf(w) + normal.logpdf(1.3, w, 0.5) - normal.logpdf(w, 0.8, 0.7)
    value, error = metrics.log_evidence(log_weights)
    assert abs(value - normal.logpdf(1.3, 0.0, np.sqrt(1.25))) < 5.0 * error < 0.05


@pytest.mark.parametrize("num", [25, 64, 1000, 5000])
@pytest.mark.parametrize("scale", [0.3, 1.5, 10.0])
def test_k_hat_equals_arviz(rng, num, scale):
    log_weights = scale * rng.standard_t(5, size=num) + 1e3
    _, expected = oracle("arviz").psislw(log_weights.copy())
    np.testing.assert_allclose(metrics.k_hat(log_weights), expected, rtol=1e-6, atol=1e-6)


def test_a_draw_without_a_finite_log_weight_has_the_weight_zero(rng):
    finite = 0.5 * rng.standard_t(5, size=4096)
    zeroed, broken = finite.copy(), finite.copy()
    zeroed[[7, 8]], broken[[7, 8]] = -np.inf, (np.nan, np.inf)
    assert metrics.num_non_finite(broken) == 2 and metrics.num_non_finite(finite) == 0
    for function in (metrics.relative_ess, metrics.k_hat, metrics.log_evidence):
        assert np.all(np.isfinite(function(broken))) and function(broken) == function(zeroed)
        with pytest.raises(ValueError, match="some log weight must be finite; none of 3 is"):
            function(np.array([np.nan, -np.inf, np.inf]))


def test_k_hat_says_nothing_of_weights_that_are_nearly_equal():
    assert not is_k_hat_telling(0.951)
    assert is_k_hat_telling(0.95) and is_k_hat_telling(0.1) and is_k_hat_telling(None) and is_k_hat_telling(np.nan)


def test_k_hat_of_a_pareto_law(rng):
    values = [metrics.k_hat(0.4 * rng.exponential(size=20000)) for _ in range(20)]  # exp of it has k = 0.4
    assert abs(np.mean(values) - 0.4) < 5.0 * standard_error(values) + 10 * 0.1 / (3 * np.sqrt(20000) + 10)


def test_k_hat_without_a_tail_is_nan():
    assert np.isnan(metrics.k_hat(np.zeros(1000)))
    assert np.isnan(metrics.k_hat(np.arange(20.0)))  # four in the tail
    assert np.isnan(metrics.k_hat(np.array([3.0])))
    assert np.isnan(metrics.k_hat(np.append(np.full(999, -np.inf), 0.0)))
    assert np.isfinite(metrics.k_hat(np.arange(25.0)))


def test_single_precision_is_scored_in_double(case):
    samples, data, mask, _ = (values.astype(np.float32) if values.dtype != bool else values for values in case)
    for metric in (metrics.crps, metrics.energy_score, metrics.energy_distance):
        wide = metric(samples.astype(float), data.astype(float), mask=mask)
        np.testing.assert_allclose(metric(samples, data, mask=mask), wide, rtol=1e-12)
    assert metrics.w1(samples, data, mask_b=mask).dtype == np.float64


def test_the_energy_distance_of_two_empirical_laws_is_their_own():
    """If not fair, all pairs count: equal sets are at distance zero, and the definition holds."""
    rng = np.random.default_rng(3)
    samples, data = rng.normal(size=(5, 1, 2, 1)), rng.normal(size=(4, 1, 2, 1))
    assert metrics.energy_distance(data, data, fair=False) == pytest.approx(0.0, abs=1e-14)
    x, y = samples.reshape(5, 2), data.reshape(4, 2)

    def mean(a, b):
        return np.mean([np.sqrt(np.mean((p - q) ** 2)) for p in a for q in b])

    expected = 2.0 * mean(x, y) - mean(x, x) - mean(y, y)
    assert metrics.energy_distance(samples, data, fair=False) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_the_energy_floor_is_what_two_samples_of_one_law_have():
    """Its expectation is (1/R + 1/n) E|Y - Y'|; many conditions keep the sampling error small."""
    rng = np.random.default_rng(4)
    data = rng.normal(size=(16, 400, 1, 1))
    floor = floors.energy_floor_from_data(data, 64, rng=rng)
    expected = (1.0 / 64 + 1.0 / 16) * 2.0 / np.sqrt(np.pi)
    # The distance of one condition varies by about its mean; there are 400, in pairs that share members.
    assert floor.median == pytest.approx(expected, rel=5 / np.sqrt(400))
    with pytest.raises(ValueError, match="two members or more"):
        floors.energy_floor_from_data(data[:1], 8, rng=rng)
