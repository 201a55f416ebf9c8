"""One contract for every posterior, in both precisions; and what stored draws promise beside it."""

import dataclasses
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
from langenode.inference.algorithm1 import Objective, Outputs, Terms
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Population
from langenode.inference.training import TrainSettings, train
from langenode.posteriors import (
    AbstractVariational,
    Bottleneck,
    Draw,
    Empirical,
    Standard,
    bottleneck,
    gaussian,
    langevin,
    paper_langevin,
    point,
)

DIM, CHUNK, NUM_CHUNKS = 3, 512, 4
KEY = jax.random.key(0)
ALL_KEYS = jax.random.split(KEY, NUM_CHUNKS * CHUNK)


def _langevin(dtype):
    return langevin(problems.reference_of(DIM, dtype=dtype), num_steps=4, layers=(4,), key=KEY)


def _paper(dtype):
    reference = problems.reference_of(DIM, dtype=dtype)
    start = reference.mean + 0.5
    return paper_langevin(reference, start, num_steps=4, pseudo_time_step=0.1, contraction=2.0, key=KEY)


def _gaussian(covariance, rank=None):
    return lambda dtype: gaussian(problems.reference_of(DIM, rank=rank, dtype=dtype), covariance, rank=2, key=KEY)


def _bottleneck(dtype):
    centre = jnp.arange(5, dtype=dtype)
    return bottleneck(centre, latent_dim=2, num_steps=4, layers=(4,), decoder_layers=(4,), key=KEY)


def _empirical(dtype):
    rng = np.random.default_rng(0)
    return Empirical(jnp.asarray(rng.normal(size=(40, DIM)), dtype), jnp.asarray(rng.normal(size=40), dtype))


VARIATIONAL = {
    "langevin": _langevin,
    "paper": _paper,
    "gaussian-full": _gaussian("full"),
    "gaussian-diagonal": _gaussian("diagonal"),
    "gaussian-lowrank": _gaussian("lowrank", rank=1),
    "bottleneck": _bottleneck,
}
# How much white noise one draw takes. Standard noise is in this list only: nothing of it is trained.
NUM_NOISE = {"langevin": 5 * DIM, "paper": 5 * DIM, "gaussian-full": DIM, "gaussian-diagonal": DIM}
NUM_NOISE |= {"gaussian-lowrank": DIM + 2, "bottleneck": 5 * 2, "standard": DIM}
POSTERIORS = VARIATIONAL | {"empirical": _empirical}
DTYPES = ("float32", "float64")

every_posterior = pytest.mark.parametrize("name", POSTERIORS)
every_variational = pytest.mark.parametrize("name", VARIATIONAL)
every_precision = pytest.mark.parametrize("dtype", DTYPES)


@cache
def initial(name, dtype):
    return POSTERIORS[name](jnp.dtype(dtype))


def make(name, size=0.2, dtype="float64"):
    """A posterior away from its initial state, where every KL is zero."""
    posterior = initial(name, dtype)
    return problems.perturbed(posterior, size) if isinstance(posterior, AbstractVariational) else posterior


def draws_and_gradient(posterior, keys):
    def total(posterior):
        draws = jax.vmap(lambda key: posterior.draw(key=key))(keys)
        return jnp.mean(draws.kl + draws.log_ratio + draws.log_reference + draws.weights.sum(-1)), draws

    numbers, rest = eqx.partition(posterior, posterior.trained())
    (_, draws), gradient = jax.value_and_grad(lambda n: total(eqx.combine(n, rest)), has_aux=True)(numbers)
    return draws, gradient


class Outcome(NamedTuple):
    draws: Draw
    gradient: AbstractVariational
    num_traces: int


@cache
def outcome(name, dtype):
    """Draws made chunk by chunk, a gradient, and how often the program was traced, other numbers included."""
    traces = []

    @problems.quick_jit
    def run(posterior, keys):
        traces.append(name)
        return draws_and_gradient(posterior, keys)

    keys = ALL_KEYS.reshape(NUM_CHUNKS, CHUNK)
    parts = [run(make(name, dtype=dtype), chunk) for chunk in keys]
    run(make(name, 0.1, dtype), keys[0])
    draws = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[draws for draws, _ in parts])
    return Outcome(draws, parts[0][1], len(traces))


@every_precision
@every_posterior
def test_samples_have_the_promised_shape_and_precision(name, dtype):
    posterior = eqx.filter_eval_shape(lambda: POSTERIORS[name](jnp.dtype(dtype)))
    samples = eqx.filter_eval_shape(lambda p, key: p.sample(6, key=key), posterior, KEY)
    assert (samples.shape, samples.dtype) == ((6, posterior.dim), dtype)


@every_precision
@every_variational
def test_draws_and_gradients_keep_their_shape_and_precision(name, dtype):
    posterior = eqx.filter_eval_shape(lambda: VARIATIONAL[name](jnp.dtype(dtype)))
    draws, gradient = eqx.filter_eval_shape(draws_and_gradient, posterior, jax.random.split(KEY, 6))
    assert draws.weights.shape == (6, posterior.dim)
    assert all(field.shape == (6,) for field in (draws.kl, draws.log_ratio, draws.log_reference))
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves((posterior, draws, gradient)))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float64") for name in VARIATIONAL), pytest.param("langevin", "float32", marks=[pytest.mark.slow])],
)
def test_draws_and_gradients_are_finite(name, dtype):
    draws, gradient, _ = outcome(name, dtype)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((draws, gradient)))


class Constant(eqx.Module):
    """A model whose outputs are its weights."""

    weights: jax.Array

    def __call__(self, times, inputs, initial=None, *, key=None):
        return self.weights[None]


class Everything(Objective):
    """A loss of all that a draw holds."""

    def pick(self, key, num_trajectories, num_conditions):
        return self

    def run(self, model, *, key_start, key_noise):
        return Outputs(model(None, None)[None])

    def loss(self, problem, samples):
        draws = samples.draw
        value = jnp.mean(draws.kl + draws.log_ratio + draws.log_reference + samples.outputs.predictions.sum((1, 2, 3)))
        return Terms(value, value, jnp.mean(draws.kl))

    def score(self, problem, samples):
        return self.loss(problem, samples).loss


@every_variational
def test_every_number_that_is_declared_has_a_gradient(name):
    gradient = outcome(name, "float64").gradient
    assert all(np.any(leaf != 0.0) for leaf in jax.tree.leaves(gradient))


# One program of training shows that it moves what is declared and nothing else; the gradients are tested for all.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ("paper", "point") else [pytest.mark.slow]) for n in (*VARIATIONAL, "point")],
)
def test_an_update_changes_every_number_that_is_declared_and_no_other(name):
    posterior = point(float) if name == "point" else make(name)
    assert isinstance(posterior, AbstractVariational)
    model = Constant(jnp.zeros(posterior.dim))
    prior = GaussianPrior(model.weights, jnp.ones(posterior.dim))
    problem = Problem(model, Partition.of(model), prior, None, Population(), posterior)
    settings = TrainSettings(num_updates=1, num_samples=8, block=1, average=0.0)
    found = train(problem, Everything(), settings, key=KEY).problem.posterior
    declared = [bool(flag) for flag in jax.tree.leaves(posterior.trained())]
    pairs = zip(jax.tree.leaves(posterior), jax.tree.leaves(found), strict=True)
    assert [not np.array_equal(before, after) for before, after in pairs] == declared
    assert any(declared) == (name != "point")


@every_variational
def test_numbers_of_a_draw_do_not_depend_on_the_estimator_of_gradients(name):
    plain = jax.tree.map(lambda leaf: leaf[:4], outcome(name, "float64").draws)
    for estimator in ("sticking", "log_variance"):
        other = with_estimator(make(name), estimator)
        for one, two in zip(plain, problems.draw_many(other, ALL_KEYS[:4]), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)


def with_estimator(posterior, estimator):
    fields = {field.name: getattr(posterior, field.name) for field in dataclasses.fields(posterior)}
    return type(posterior)(**{**fields, "estimator": estimator})


@every_posterior
def test_samples_depend_on_the_key_alone(name):
    """Not on how many are made in one piece, nor on what was compiled: nothing is traced for new numbers."""
    posterior, traces = make(name), []

    @problems.quick_jit
    def sample(posterior, key):
        traces.append(name)
        return posterior.sample(NUM_CHUNKS * CHUNK, key=key)

    samples = sample(posterior, KEY)
    np.testing.assert_array_equal(sample(posterior, KEY), samples)
    assert np.any(sample(make(name, 0.1), jax.random.key(1)) != samples)
    assert len(traces) == 1
    if isinstance(posterior, AbstractVariational):
        chunked = outcome(name, "float64")
        np.testing.assert_allclose(chunked.draws.weights, samples, rtol=1e-12, atol=1e-12)
        assert chunked.num_traces == 1


@every_variational
def test_log_ratio_has_the_kl_as_its_mean(name):
    draws = outcome(name, "float64").draws
    assert np.mean(draws.kl) > 0.0
    problems.assert_mean(draws.log_ratio - draws.kl, 0.0)


@pytest.mark.parametrize("name", NUM_NOISE)
def test_a_map_of_white_noise_has_the_moments_of_the_samples(name):
    """Means and second moments of independent draws agree within five standard errors of their difference."""
    posterior = Standard(scale=jnp.asarray([1.0, 1.0, 0.0])) if name == "standard" else make(name)
    assert isinstance(posterior, AbstractVariational)
    assert posterior.num_noise == NUM_NOISE[name]
    num = NUM_CHUNKS * CHUNK
    white = jax.random.normal(jax.random.key(1), (num, posterior.num_noise), float)
    mapped = problems.quick_jit(lambda p, white: jax.vmap(p.from_noise)(white))(posterior, white)
    is_cached = name in VARIATIONAL
    samples = outcome(name, "float64").draws.weights if is_cached else posterior.sample(num, key=jax.random.key(2))
    assert mapped.shape == samples.shape == (num, posterior.dim)
    centre = np.mean(samples, axis=0)
    one, two = (np.asarray(values) - centre for values in (mapped, samples))
    for one_part, two_part in ((one, two), (products(one), products(two))):
        error = np.hypot(problems.standard_error(one_part), problems.standard_error(two_part))
        assert np.all(np.abs(one_part.mean(0) - two_part.mean(0)) <= 5.0 * error)


def products(values):
    """All products of two weights, one row per draw."""
    return (values[:, :, None] * values[:, None, :]).reshape(len(values), -1)


def test_bottleneck_decodes_its_chain():
    posterior = make("bottleneck")
    assert isinstance(posterior, Bottleneck)
    draw, latent, path = problems.quick_jit(lambda p: (p.draw(key=KEY), p.chain.draw(key=KEY), p.path(key=KEY)))(
        posterior
    )
    assert not posterior.has_density
    np.testing.assert_array_equal(draw.kl, latent.kl)
    np.testing.assert_allclose(draw.weights, posterior.centre + posterior.decoder(latent.weights), rtol=1e-12)
    assert path.shape == (5, 5)
    np.testing.assert_allclose(path[-1], draw.weights, rtol=1e-12)


# --- stored draws


@pytest.fixture(scope="module")
def stored():
    """Four one-hot draws, so that a mean of samples is a frequency."""
    weights = np.array([0.05, 0.5, 0.0, 0.45])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights) + 700.0  # far from normalised
    return Empirical(jnp.eye(4), jnp.asarray(log_weights)), weights


@problems.quick_jit
def samples_of(posterior, keys, num_samples):
    return jax.vmap(lambda key: posterior.sample(num_samples, key=key))(keys)


def test_stored_draws_appear_within_one_of_their_expected_number(stored):
    posterior, weights = stored
    counts = np.asarray(samples_of(posterior, jax.random.split(KEY, 4096), 10)).sum(1)
    assert np.all(np.abs(counts - 10 * weights) < 1.0)
    problems.assert_mean(counts, 10 * weights)


def test_stored_draws_come_in_random_order(stored):
    """A sample at any one place is distributed by the weights."""
    posterior, weights = stored
    samples = np.asarray(samples_of(posterior, jax.random.split(KEY, 4096), 10))
    problems.assert_mean(samples, np.broadcast_to(weights, (10, 4)))


def test_single_samples_follow_the_weights(stored):
    posterior, weights = stored
    problems.assert_mean(samples_of(posterior, jax.random.split(KEY, 4096), 1)[:, 0], weights)


def test_without_weights_every_draw_counts_the_same():
    counts = np.asarray(samples_of(Empirical(jnp.eye(4)), jax.random.split(KEY, 4096), 10)).sum(1)
    assert set(np.unique(counts)) == {2.0, 3.0}
    problems.assert_mean(counts, 2.5)


@pytest.mark.parametrize("chosen", range(4))
def test_one_draw_with_all_the_weight_is_always_taken(chosen):
    log_weights = jnp.asarray(np.where(np.arange(4) == chosen, 0.0, -np.inf))
    samples = samples_of(Empirical(jnp.eye(4), log_weights), jax.random.split(KEY, 4096), 10)
    np.testing.assert_array_equal(samples[..., chosen], 1.0)


def test_no_draws_are_refused():
    with pytest.raises(ValueError, match="at least one draw"):
        Empirical(jnp.zeros((0, 2)))
