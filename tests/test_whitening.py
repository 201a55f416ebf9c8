"""The whitened posterior is the problem's own: log-likelihood, residuals, mini-batches and the way back to weights."""

# What a test knows of its objects is more than their declared types say.
# pyright: reportAttributeAccessIssue=false, reportOptionalCall=false, reportOptionalMemberAccess=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset, class_of
from langenode.inference.density import FEWEST_FOR_MINIBATCH, GivenNoise, InferredNoise, whiten
from langenode.inference.likelihood import Likelihood, given_noise, inferred_noise
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Population, Posterior, Tempered
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Empirical

KEY = jax.random.key(5)
NUM, NUM_TIMES = 18, 5


def data_with_replicates(num_starts=3, *, seed=0):
    """Trajectories of a few starts, so that some differ in outputs alone, with cells missing."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 1.0, NUM_TIMES)
    start = np.repeat(np.linspace(0.5, 2.0, num_starts), NUM // num_starts)
    outputs = 1.0 + (start - 1.0)[:, None] * np.exp(-3.0 * times) + 0.05 * rng.normal(size=(NUM, NUM_TIMES))
    outputs[rng.random(outputs.shape) < 0.2] = np.nan
    return Dataset.from_arrays(times, outputs[..., None], initial=start[:, None])


def noises(data):
    rng = np.random.default_rng(1)
    sigma = rng.uniform(0.05, 0.2, data.outputs.shape)
    two = jnp.asarray(np.stack([sigma, 3.0 * sigma]))
    return {
        "given": given_noise(sigma, data),
        "inferred": inferred_noise(),
        "memory": Likelihood(jnp.asarray(sigma)[None], jnp.ones(1), jnp.asarray(0.3)),
        "inferred memory": Likelihood(None, jnp.ones(1), jnp.asarray(0.3)),
        "modes": Likelihood(two, jnp.asarray([0.7, 0.3])),
    }


def problem_of(noise, target):
    network = MLP((1, 2, 1), key=KEY)
    log_noise = jnp.log(jnp.full(1, 0.1)) if noise.sigma is None else None
    model = NeuralODE(OnConcatenation(network), num_hidden=1, log_noise=log_noise)
    partition = Partition.of(model, "all")
    weights = partition.flatten(model)
    prior = GaussianPrior(weights, jnp.linspace(0.5, 1.5, len(weights)))
    return Problem(model, partition, prior, noise, target, Empirical(weights[None]))


def direct_log_likelihood(problem, data, z):
    """Trajectory by trajectory, by the likelihood itself."""
    batch = data.arrays(float)
    model = problem.partition.combine(problem.model, problem.prior.mean + problem.prior.scale * z)
    outputs = jax.vmap(model)(batch.times, batch.inputs, batch.initial)[None]
    log_noise = None if model.log_noise is None else model.log_noise[None]
    density = problem.likelihood.log_density(outputs, batch.outputs, batch.mask, batch.times, log_noise)
    return density.sum() / problem.target.temperature


TARGETS = {"tempered": Tempered(7.0), "posterior": Posterior()}
KINDS = ("given", "inferred", "memory", "inferred memory", "modes")


@functools.cache
def case(kind, target="tempered", num_starts=3):
    """A problem, its data and its whitened density."""
    data = data_with_replicates(num_starts)
    problem = problem_of(noises(data)[kind], TARGETS[target])
    return problem, data, whiten(problem, data, float)


@functools.cache
def found_at_points(kind, target="tempered"):
    """Log-likelihoods by the density and by hand, and residuals, at four points: one program for several tests."""
    problem, data, density = case(kind, target)

    def at(z):
        return density.log_likelihood(z), direct_log_likelihood(problem, data, z), density.residual(z)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(at))(jax.random.normal(KEY, (4, density.dim))))


@pytest.mark.parametrize("target", ["tempered", pytest.param("posterior", marks=[pytest.mark.slow])])
@pytest.mark.parametrize("kind", KINDS)
def test_log_likelihood_is_the_sum_over_trajectories(kind, target):
    found, direct, _ = found_at_points(kind, target)
    np.testing.assert_allclose(found, direct, rtol=1e-10, atol=1e-10)
    assert np.ptp(found) > 0.1


@pytest.mark.parametrize("kind", ["given", "memory"])
def test_residuals_are_the_log_likelihood_of_gaussian_noise(kind):
    found, _, residuals = found_at_points(kind)
    constants = found + 0.5 * np.sum(residuals**2, axis=-1)
    np.testing.assert_allclose(constants, constants[0], rtol=1e-10)


@pytest.mark.parametrize("kind", ["inferred", "inferred memory"])
def test_residuals_of_inferred_noise_have_its_information(kind):
    """At the point fit the residuals' curvature in the log noise is the expected one, 2 per reading."""
    problem, data, density = case(kind)
    jacobian = np.asarray(jax.jit(jax.jacfwd(density.residual))(jnp.zeros(density.dim)))
    place = problem.partition.names.index("log_noise[0]")
    information = np.sum(jacobian[:, place] ** 2) / problem.prior.scale[place] ** 2
    np.testing.assert_allclose(information, 2.0 * data.mask.sum() / TARGETS["tempered"].temperature, rtol=1e-10)


def test_residuals_of_inferred_noise_with_memory_steer_to_the_scale_that_is_likeliest():
    """Given the other weights of the point fit, the pull vanishes where the likelihood is highest in the log noise."""
    problem, data, density = case("inferred memory")
    place = problem.partition.names.index("log_noise[0]")

    @jax.jit
    @jax.vmap
    def along(step):
        z = jnp.zeros(density.dim).at[place].set(step / problem.prior.scale[place])
        return density.log_likelihood(z), density.residual(z)[-1]

    steps = np.linspace(-2.0, 2.0, 4001)
    values, pulls = map(np.asarray, along(steps))
    best = np.argmax(values)
    assert 0 < best < len(steps) - 1 and abs(steps[best]) > 0.01  # not where the point fit has it
    strength = np.sqrt(2.0 * data.mask.sum() / TARGETS["tempered"].temperature)
    np.testing.assert_allclose(pulls[best] / strength, 0.0, atol=1e-3)


def test_replicates_are_merged_and_unobserved_cells_left_out():
    problem, _, density = case("given")
    term = density.log_likelihood.__self__
    assert isinstance(term, GivenNoise)
    assert term.cases.times.shape[0] < NUM
    residual = jax.eval_shape(term.residual, jnp.zeros(problem.partition.dim))
    assert residual.shape == (int(term.cases.mask.sum()),)


@pytest.mark.parametrize("kind", KINDS)
def test_minibatches_are_unbiased(kind):
    """The mean over all pairs of cases, each as likely, is the whole log-likelihood."""
    _, _, density = case(kind, num_starts=NUM)
    assert NUM >= FEWEST_FOR_MINIBATCH and density.minibatch is not None
    term, pairs = density.log_likelihood.__self__, np.asarray(list(itertools.combinations(range(NUM), 2)))

    @jax.jit
    def evaluate(z, pairs):
        parts = jax.vmap(lambda chosen: term.minibatch(z, chosen))(pairs)
        return jnp.mean(parts), density.log_likelihood(z), density.minibatch(z, KEY)

    mean, whole, estimate = evaluate(jax.random.normal(KEY, (density.dim,)), pairs)
    np.testing.assert_allclose(mean, whole, rtol=1e-10)
    assert np.isfinite(estimate)


def test_weights_are_whitened_by_the_prior():
    problem, _, density = case("given")
    prior = problem.prior
    z = jax.random.normal(KEY, (density.dim,))

    @jax.jit
    def evaluate(z):
        weights = prior.to_weights(z)
        return prior.to_standard(weights), density.log_prior(z), prior.log_density(weights)

    again, white, log_density = evaluate(z)
    np.testing.assert_allclose(again, z, rtol=1e-12)
    np.testing.assert_allclose(white, log_density + np.sum(np.log(prior.scale)), rtol=1e-12)


def test_precision_is_as_asked():
    for kind in ("given", "inferred", "memory", "inferred memory"):
        problem, data, _ = case(kind)
        density = whiten(problem, data, jnp.float32)
        z = jnp.zeros(density.dim, jnp.float32)
        found = jax.eval_shape(lambda z, d=density: (d.log_posterior(z), d.residual(z)), z)
        assert all(value.dtype == jnp.float32 for value in found)


def test_a_population_has_no_likelihood():
    data = data_with_replicates()
    problem = problem_of(noises(data)["given"], Population("energy", 1e-4))
    with pytest.raises(ValueError, match="needs a likelihood of one weight vector"):
        whiten(problem, data, float)


def test_inferred_noise_uses_one_row_a_case():
    _, data, density = case("inferred")
    term = density.log_likelihood.__self__
    assert isinstance(term, InferredNoise)
    assert float(term.num_replicates.sum()) == data.mask.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_to_a_size_class_changes_no_likelihood(kind):
    problem, data, density = case(kind)
    padded = whiten(problem, data, float, in_class=True)
    assert padded.log_likelihood.__self__.cases.times.shape == class_of(
        *density.log_likelihood.__self__.cases.times.shape
    )
    evaluate = jax.jit(jax.vmap(lambda z: (density.log_likelihood(z), padded.log_likelihood(z))))
    found, expected = evaluate(jax.random.normal(KEY, (4, density.dim)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
