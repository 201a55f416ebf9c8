"""The OU demonstration against NUTS, quadrature, and the weights that the generator drew."""

# Tests know more about their objects than the declared types.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalSubscript=false
# pyright: reportCallIssue=false

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Scaling
from langenode.experiments.ou import EXPERIMENT
from langenode.fitting import build
from langenode.fitting.choose import configure
from langenode.inference.importance import log_weights
from langenode.inference.objectives import objective
from langenode.inference.point_fit import fit_mle
from langenode.inference.predictions import predict, sample_weights
from langenode.inference.training import train
from langenode.posteriors import cast
from langenode.scores import floors, metrics

POSTERIOR = {"method": "langevin", "target": "posterior", "precision": "float64"}


def fitted(*layers) -> Any:
    """Run the experiment from configuration to fit, in memory."""
    config = configure("ou", list(layers))
    keys = build.Streams.of(config.seed)
    splits = EXPERIMENT.simulate(config, keys.data)
    dtype = jnp.dtype(config.precision)
    model = cast(EXPERIMENT.build_model(config, keys.model), dtype)
    model = fit_mle(model, splits.train, num_adam=200, num_lbfgs=30, learning_rate=0.3).model
    prepared = build.Prepared(splits.train, None, Scaling.identity(splits.train))
    problem = build.assemble(config, model, prepared).problem
    data = objective(problem, splits.train, dtype, explained=config.population.explained)
    return train(problem, data, build.train_settings(config), key=keys.training).problem, data, splits, keys


def log_joint(problem, data):
    def value(weights):
        model = problem.partition.combine(problem.model, weights)
        outputs = jax.vmap(model)(data.batch.times, data.batch.inputs, data.batch.initial)
        density = data.likelihood.log_density(outputs[None], data.batch.outputs, data.batch.mask, data.batch.times)
        return density.sum() + problem.prior.log_density(weights)

    return value


def nuts(log_density, start, *, num_chains, num_draws, key):
    """Reference draws, (chain, draw, dim), by blackjax."""
    import blackjax

    key_warm, key_run = jax.random.split(key)
    warm = blackjax.window_adaptation(blackjax.nuts, log_density)
    (state, parameters), _ = warm.run(key_warm, start, 500)
    kernel = blackjax.nuts(log_density, **parameters)

    def chain(key):
        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, num_draws))[1]

    return jax.jit(jax.vmap(chain))(jax.random.split(key_run, num_chains))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_the_posterior_of_five_noisy_trajectories_matches_nuts(seed):
    problem, data, splits, keys = fitted(
        {"method": "langevin", "target": "posterior", "seed": seed, "precision": "float64"}
    )
    draws, logs = log_weights(problem, splits.train, 4096, key=keys.evaluation)
    draws, logs = np.asarray(draws), np.asarray(logs)
    reference = np.asarray(
        nuts(log_joint(problem, data), problem.posterior.reference.mean, num_chains=8, num_draws=1500, key=keys.data)
    )
    chains = reference[:, 300:]
    mean, std = chains.mean((0, 1)), chains.std((0, 1))
    # The reference's own error: from the spread of the chains' means.
    reference_error = chains.mean(1).std(0) / np.sqrt(len(chains))
    assert (reference_error < 0.05 * std).all()
    assert metrics.relative_ess(logs) > 0.9
    assert (np.abs(draws.mean(0) - mean) < 0.1 * std).all()
    assert (np.abs(draws.std(0) / std - 1.0) < 0.05).all()


@pytest.mark.slow
def test_the_log_evidence_of_the_two_weight_model_equals_quadrature():
    problem, data, splits, keys = fitted(
        {"method": "langevin", "target": "posterior", "seed": 104, "precision": "float64"}
    )
    _, logs = log_weights(problem, splits.train, 4096, key=keys.evaluation)
    found = metrics.log_evidence(np.asarray(logs))
    # Integrate in the reference's coordinates, where the posterior is round.
    axis = jnp.linspace(-7.0, 7.0, 141)
    z = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)
    values = jax.lax.map(
        lambda z: log_joint(problem, data)(problem.posterior.reference.to_weights(z)), z, batch_size=500
    )
    log_cell = 2 * jnp.log(axis[1] - axis[0]) + problem.posterior.reference.log_det
    exact = float(jax.nn.logsumexp(values) + log_cell)
    assert abs(found.value - exact) < max(5 * found.standard_error, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202])
def test_the_population_fit_has_the_spread_that_was_drawn(seed):
    problem, _, splits, keys = fitted({"seed": seed})
    weights = np.asarray(sample_weights(problem.posterior, 4096, key=keys.evaluation))
    drawn = np.stack([splits.train.attributes["W"], splits.train.attributes["b"]], axis=1)
    np.testing.assert_allclose(weights.std(0), drawn.std(0), rtol=0.04)
    assert abs(np.corrcoef(weights.T)[0, 1] - np.corrcoef(drawn.T)[0, 1]) < 0.04
    replicates = splits.train.replicates()
    floor = floors.w1_floor_from_data(replicates.outputs, 1024, rng=np.random.default_rng(seed)).median
    distances = []
    for key in jax.random.split(keys.prediction, 20):
        outputs, _ = predict(problem, splits.train, 1024, key=key)
        distances.append(metrics.w1(np.asarray(outputs, float), replicates.outputs).mean())
    assert np.median(distances) < 1.25 * floor
