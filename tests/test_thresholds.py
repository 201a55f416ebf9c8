"""Thresholds of the verdict: how often a perfect model exceeds them, and how often a wrong one does.

Perfect models are simulated at small sizes; a rate is compared with 5 % by the probability of the count. The last tests
send perfect models through the whole evaluation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from langenode.config import Config, PredictConfig
from langenode.data import Dataset
from langenode.experiments.base import Results, Splits
from langenode.experiments.own import EXPERIMENT
from langenode.fitting.evaluation import evaluate, training_state
from langenode.fitting.perfect import HeldOut, coverage_check
from langenode.inference.likelihood import given_noise
from langenode.inference.partition import Partition
from langenode.inference.predictions import Rule, observable, predict
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Population, Posterior
from langenode.posteriors import Reference, gaussian
from langenode.scores import floors, metrics
from langenode.scores.thresholds import (
    FALSE_ALARM,
    coverage_limits,
    energy_null,
    has_fallen,
    needed_levels,
    upper_threshold,
    w1_null,
)

NUM_TIMES = 12


def is_at_most(count, num, rate=0.05):
    """Whether so many alarms can be, with a false-alarm rate of at most `rate`: 1 in 10,000 tests fails by chance."""
    return count <= binom.ppf(1.0 - 1e-4, num, rate)


def walks(num, rng, *, scale=1.0):
    """Trajectories whose readings err together, (num, 1, time, 1)."""
    steps = scale * rng.standard_normal((num, 1, NUM_TIMES, 1))
    return np.cumsum(steps, axis=2)


# Ranks


def test_a_threshold_is_a_rank_and_states_its_rate():
    found = upper_threshold(np.arange(99.0)[::-1], rate=0.05)
    assert found == (94.0, 0.05)  # five of a hundred numbers in random order are above the 95th
    assert upper_threshold(np.arange(100.0)).false_alarm <= FALSE_ALARM
    assert upper_threshold(np.arange(3.0), rate=0.05) == (2.0, 0.25)  # too few: the largest, and what that means


# Distances: the checks of D6


def alarms(size, num, seed, *, scale=1.0):
    """Exceedances of the thresholds, and of a fixed ratio of 1.3, by data whose spread is `scale` times the model's."""
    rng = np.random.default_rng(seed)
    mask = np.ones((size, 1, NUM_TIMES, 1), dtype=bool)
    counts = np.zeros(4, dtype=int)
    for _ in range(num):
        data, pool = walks(size, rng, scale=scale), walks(20 * size, rng)
        sets = np.split(pool, 20)
        w1 = np.median([metrics.w1(one, data).mean() for one in sets])
        energy = np.median([metrics.energy_distance(one, data, fair=False) for one in sets])
        counts[0] += w1 > upper_threshold(w1_null(pool, mask, is_crossed=False, rng=rng)).value
        counts[1] += energy > upper_threshold(energy_null(pool, mask, is_crossed=False, rng=rng)).value
        counts[2] += w1 > 1.3 * floors.w1_floor_from_data(data, size, rng=rng).median
        counts[3] += energy > 1.3 * floors.energy_floor_from_data(data, size, rng=rng).median
    return counts


@pytest.mark.slow
def test_distances_of_a_perfect_model_rarely_exceed_their_thresholds():
    num = 60
    found = alarms(8, num, 8)
    assert is_at_most(found[0], num) and is_at_most(found[1], num)
    # A fixed multiple of the floor is exceeded too often: the simulation can see it.
    assert not is_at_most(found[3], num)


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 8, 20, 50])
def test_distances_of_a_perfect_model_rarely_exceed_their_thresholds_in_a_thousand_runs(size):
    found = alarms(size, 1000, 100 + size)
    assert is_at_most(found[0], 1000, 0.03) and is_at_most(found[1], 1000, 0.03)
    assert not is_at_most(found[2], 1000) and not is_at_most(found[3], 1000)


def test_distances_of_a_wrong_spread_exceed_their_thresholds():
    num = 8
    found = alarms(12, num, 3, scale=4.0)
    assert found[0] == num and found[1] == num


@pytest.mark.parametrize("null", [w1_null, energy_null])
def test_a_null_has_the_distances_of_independent_sets(null):
    rng = np.random.default_rng(5)
    size, pool = 6, walks(600, rng)
    mask = np.ones((size, 1, NUM_TIMES, 1), dtype=bool)
    distance = {
        w1_null: lambda a, b: metrics.w1(a, b).mean(),
        energy_null: lambda a, b: metrics.energy_distance(a, b, fair=False),
    }[null]
    found = null(pool, mask, is_crossed=True, rng=rng)
    fresh = []
    for _ in range(200):
        data = walks(size, rng)
        fresh.append(np.median([distance(walks(size, rng), data) for _ in range(8)]))
    error = np.sqrt(np.var(found) / 100 + np.var(fresh) / 200)  # some hundred independent sets are in the pool
    assert abs(found.mean() - np.mean(fresh)) < 5 * error


def test_a_null_has_the_gaps_of_the_data_and_permutes_conditions_apart_where_units_are_not_crossed():
    rng = np.random.default_rng(6)
    shared = np.repeat(walks(400, rng), 4, axis=1)  # one unit's trajectory is the same in all conditions
    mask = np.ones((5, 4, NUM_TIMES, 1), dtype=bool)
    for null in (w1_null, energy_null):
        crossed, apart = (null(shared, mask, is_crossed=is_crossed, rng=rng) for is_crossed in (True, False))
        assert np.std(apart) < 0.75 * np.std(crossed)  # the mean of four independent distances has half the spread
    mask[2:] = False  # fewer members: farther from their distribution
    few = w1_null(shared, mask, is_crossed=True, rng=rng)
    mask[:] = True
    assert np.mean(few) > 1.2 * np.mean(w1_null(shared, mask, is_crossed=True, rng=rng))


# Coverage


def held_out(num, steps, rho, rng, *, width=1.0):
    """Readings with standard normal margins and correlation `rho` within a trajectory; a band of `width` times that."""
    common, own = rng.standard_normal((num, 1, 1)), rng.standard_normal((num, steps, 1))
    values = np.sqrt(rho) * common + np.sqrt(1.0 - rho) * own
    data = Dataset.from_arrays(np.arange(steps, dtype=float), values, condition=np.arange(num))
    quantiles = np.linspace(-1.0, 1.0, 400)
    samples = width * np.sqrt(2.0) * np.asarray(jax.scipy.special.erfinv(quantiles * 0.9975))
    return HeldOut(np.broadcast_to(samples[:, None, None, None], (400, num, steps, 1)), data)


def coverage_alarms(num_runs, num, steps, rho, seed, **options):
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(num_runs):
        found = coverage_check([held_out(num, steps, rho, rng, **options)], is_posterior=False)
        assert found is not None
        count += not found["low"] <= found["coverage"] <= found["high"]
    return count


CASES = [(2, 10, 0.0), (2, 10, 0.9), (4, 30, 0.3), (8, 20, 1.0), (8, 40, 0.6), (30, 10, 0.0), (30, 10, 0.8)]


@pytest.mark.parametrize(("num", "steps", "rho"), CASES)
def test_a_right_band_passes_whatever_the_dependence_within_trajectories(num, steps, rho):
    assert is_at_most(coverage_alarms(40, num, steps, rho, num + steps), 40)


@pytest.mark.slow
@pytest.mark.parametrize(("num", "steps", "rho"), [*CASES, (3, 100, 0.5), (100, 10, 0.5)])
def test_a_right_band_passes_in_a_thousand_runs(num, steps, rho):
    assert is_at_most(coverage_alarms(1000, num, steps, rho, 1000 + num + steps), 1000, 0.03)


@pytest.mark.parametrize(
    ("num", "steps", "rho", "width"), [(8, 40, 0.0, 0.6), (40, 10, 0.0, 0.75), (40, 10, 0.3, 0.6), (60, 20, 0.0, 1.6)]
)
def test_a_wrong_band_is_found_where_there_are_readings_enough(num, steps, rho, width):
    assert coverage_alarms(20, num, steps, rho, 7, width=width) == 20


def test_limits_of_independent_readings_are_binomial():
    count = np.ones(400)
    found = coverage_limits(0.9 * count, count, correlation=0.0)  # one reading each: nothing to correlate
    assert found.effective == 400.0
    assert found.standard_error == pytest.approx(0.015, rel=1e-12)
    # P(X <= k) reaches the rate between the two whole numbers around the limit.
    low, high = found.low * 400, found.high * 400
    assert binom.cdf(np.floor(low) - 1, 400, 0.9) < 0.75 * FALSE_ALARM < binom.cdf(np.ceil(low) + 1, 400, 0.9)
    assert binom.sf(np.ceil(high), 400, 0.9) < 0.25 * FALSE_ALARM < binom.sf(np.floor(high) - 2, 400, 0.9)


def test_readings_of_one_mind_count_as_one():
    count = np.full(12, 50.0)
    found = coverage_limits(np.where(np.arange(12) < 10, count, 0.0), count, correlation=0.0)
    assert 12.0 <= found.effective < 14.0


def test_eighty_percent_is_judged_by_what_the_readings_can_say():
    few, many = np.full(2, 10.0), np.full(200, 10.0)
    assert coverage_limits(0.8 * few, few, 0.0).low < 0.8 < coverage_limits(0.8 * many, many, 0.0).low
    assert coverage_limits(few, few, 0.0).high == 1.0 > coverage_limits(many, many, 0.0).high


def test_the_level_that_reaches_a_reading():
    samples = np.arange(1.0, 5.0).reshape(4, 1, 1, 1)
    data = np.array([0.0, 1.0, 2.5, 4.0]).reshape(4, 1, 1, 1)
    np.testing.assert_allclose(needed_levels(samples, data).ravel(), [1.0, 0.75, 0.0, 0.75], rtol=1e-12)


def test_what_a_posterior_does_not_know_moves_all_trajectories_at_once():
    # One unknown level is behind all readings: bands are right on average over it, and each run is far off.
    rng, num, alarms_with, alarms_without = np.random.default_rng(8), 30, 0, 0
    for _ in range(40):
        levels = rng.standard_normal(401)[:, None, None, None]
        noisy = levels + 0.5 * rng.standard_normal((401, num, 8, 1))
        data = Dataset.from_arrays(np.arange(8.0), noisy[0], condition=np.arange(num))
        for is_posterior in (True, False):
            found = coverage_check([HeldOut(noisy[1:], data)], is_posterior=is_posterior)
            assert found is not None
            is_alarm = not found["low"] <= found["coverage"] <= found["high"]
            alarms_with += is_posterior and is_alarm
            alarms_without += not is_posterior and is_alarm
    assert is_at_most(alarms_with, 40) and not is_at_most(alarms_without, 40)


def test_folds_are_judged_together():
    rng = np.random.default_rng(9)
    parts = [held_out(3, 10, 0.2, rng) for _ in range(4)]
    found = coverage_check(parts, is_posterior=False)
    assert found is not None and (found["num_trajectories"], found["num_readings"]) == (12, 120)
    alone = [coverage_check([part], is_posterior=False) for part in parts]
    np.testing.assert_allclose(found["coverage"], np.mean([one["coverage"] for one in alone if one]), rtol=1e-12)
    assert all(one["low"] < found["low"] for one in alone if one)


# Training


def test_a_loss_at_rest_rarely_seems_to_fall():
    rng, num = np.random.default_rng(10), 300
    for width in (2, 5, 50):
        count = sum(has_fallen(*rng.standard_normal((2, width))) for _ in range(num))
        assert is_at_most(count, num)
    noise = rng.standard_normal((num, 300))
    kept = np.cumsum(0.5 ** np.arange(12))[-1] ** -1 * sum(0.5**k * noise[:, 12 - k : 300 - k] for k in range(12))
    assert is_at_most(sum(has_fallen(row[:100], row[188:]) for row in kept), num)


def test_a_loss_that_falls_is_seen_through_its_scatter():
    rng = np.random.default_rng(11)
    updates = np.arange(500)
    for _ in range(20):
        falling = 10.0 * np.exp(-updates / 400.0) + 0.3 * rng.standard_normal(500)
        settled = 10.0 * np.exp(-updates / 20.0) + 0.3 * rng.standard_normal(500)
        counts = {"updates": 500, "asked": 500, "skipped": 0}
        assert training_state({"loss": falling}, counts)["late_change"] > 0.05
        assert training_state({"loss": settled}, counts)["late_change"] < 0.05


# The whole list


class Line(eqx.Module):
    """A level and a slope."""

    weights: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return (self.weights[0] + self.weights[1] * times)[:, None]


CENTRE, SPREAD, NOISE = np.array([1.0, 0.5]), np.array([0.3, 0.2]), 0.1
TIMES = np.linspace(0.0, 2.0, 8)


def perfect_problem(target):
    """A problem whose distribution of weights is the truth."""
    model = Line(jnp.asarray(CENTRE))
    partition = Partition.of(model)
    posterior = gaussian(Reference(jnp.asarray(CENTRE), jnp.asarray(SPREAD)), key=jax.random.key(0))
    data = Dataset.from_arrays(TIMES, np.zeros((1, len(TIMES), 1)))
    prior = GaussianPrior(jnp.asarray(CENTRE), jnp.ones(2))
    likelihood = None if isinstance(target, Population) else given_noise(NOISE, data)
    return Problem(model, partition, prior, likelihood, target, posterior)


def drawn_data(num, rng, *, is_shared=False, noise=0.0):
    """Trajectories with weights of their own, or with the same ones."""
    weights = CENTRE + SPREAD * rng.standard_normal((1 if is_shared else num, 2))
    values = np.broadcast_to(weights[:, :1] + weights[:, 1:] * TIMES, (num, len(TIMES)))
    return (values + noise * rng.standard_normal(values.shape))[..., None]


def verdict_of(problem, num, seed):
    """The verdict of the whole evaluation on data from the model itself.

    What a posterior does not know is the same for all test trajectories; training data do not give it away, or the
    model would not be perfect.
    """
    rng, is_population = np.random.default_rng(seed), isinstance(problem.target, Population)
    condition, noise = np.zeros(num) if is_population else np.arange(num), 0.0 if is_population else NOISE
    train = Dataset.from_arrays(TIMES, drawn_data(num, rng, noise=noise), condition=condition)
    outputs = drawn_data(num, rng, is_shared=not is_population, noise=noise)
    test = Dataset.from_arrays(TIMES, outputs, condition=condition)
    name = "population" if is_population else "posterior"
    config = Config(experiment="user model", target=name, seed=seed, predict=PredictConfig(num_samples=256))
    key = jax.random.key(seed)
    prediction = predict(problem, test, 256, key=key)
    losses = np.exp(-np.arange(300) / 10.0) + 0.1 * rng.standard_normal(300)
    results = Results(
        config=config,
        problem=problem,
        splits=Splits(train, test.select(np.zeros(0, int)), test),
        rule=Rule(),
        predictions=prediction.outputs,
        prediction_weights=np.asarray(prediction.weights),
        observable=observable(problem, prediction, Rule(), rng=rng),
        weights=np.asarray(prediction.weights),
        companions={},
        mle=problem.model,
        history={"loss": losses},
        convergence={},
        metrics={},
        key=key,
    )
    diagnostics = {"relative_ess": 1.0, "k_hat": float("nan")}
    training = {"updates": 300, "asked": 300, "skipped": 0}
    return evaluate(EXPERIMENT, results, training, diagnostics).metrics["verdict"]


def false_alarms(target, num, seeds):
    """How many verdicts have an alarm, skill apart: it may be in doubt, because a plain predictor may be as good."""
    problem, count = perfect_problem(target), 0
    for seed in seeds:
        checks = verdict_of(problem, num, seed)["checks"]
        skill, others = checks[0], checks[1:]
        assert len(others) == (5 if isinstance(target, Population) and num >= 5 else 3)
        count += skill["passed"] is False or any(check["passed"] is not True for check in others)
    return count


@pytest.mark.parametrize(
    ("target", "num"), [pytest.param(Population(), 10, marks=[pytest.mark.slow]), (Posterior(), 6)]
)
def test_the_whole_list_raises_few_alarms_for_a_perfect_model(target, num):
    assert is_at_most(false_alarms(target, num, range(6)), 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "num"), [(Population(), 6), (Population(), 20), (Population(), 50), (Posterior(), 3), (Posterior(), 20)]
)
def test_the_whole_list_raises_few_alarms_for_a_perfect_model_in_many_runs(target, num):
    assert is_at_most(false_alarms(target, num, range(300)), 300)
