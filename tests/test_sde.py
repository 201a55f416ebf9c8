"""A hidden state with intrinsic noise: its moments, its transition density, and its restrictions."""

# pyright: reportArgumentType=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from langenode.data import Dataset
from langenode.inference.objectives import objective
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle
from langenode.inference.predictions import predict
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem, simulate
from langenode.inference.targets import Population, Posterior
from langenode.inference.training import TrainSettings, train
from langenode.models import NeuralSDE
from langenode.models.networks import MLP
from langenode.models.sde import SMALLEST_DIFFUSION, PositiveOnConcatenation
from langenode.posteriors import Langevin, Reference, langevin, point

KEY = jax.random.key(3)
TIMES = np.linspace(0.0, 2.0, 41)


class Decay(eqx.Module):
    rate: jax.Array

    def __call__(self, hidden, inputs):
        return -self.rate * hidden + inputs.sum()


class Constant(eqx.Module):
    log_value: jax.Array

    def __call__(self, hidden, inputs):
        return jnp.exp(self.log_value) * jnp.ones_like(hidden)


def ou_model(rate=1.5, diffusion=0.4):
    return NeuralSDE(Decay(jnp.asarray(rate)), Constant(jnp.log(jnp.asarray(diffusion))))


def problem_of(model, target=None, **options):
    partition = Partition.of(model, "none")
    prior = GaussianPrior(jnp.zeros(0), jnp.ones(0))
    return Problem(model, partition, prior, None, target or Population("quantile", **options), point(jnp.float64))


def condition(outputs, times=TIMES):
    return Dataset.from_arrays(times, outputs, initial=outputs[:, :1])


def paths(num, model=None, key=KEY):
    start = condition(np.full((1, len(TIMES)), 1.0))
    return predict(problem_of(model or ou_model()), start, num, key=key).outputs[:, 0, :, 0]


def test_moments_are_those_of_the_euler_chain():
    """x_{n+1} = a x_n + g sqrt(dt) xi with a = 1 - rate dt: mean a^n, variance g^2 dt (1 - a^2n) / (1 - a^2)."""
    num, dt = 20_000, TIMES[1]
    found, a, steps = paths(num), 1.0 - 1.5 * TIMES[1], np.arange(len(TIMES))
    std = 0.4 * np.sqrt(dt * (1 - a ** (2 * steps)) / (1 - a**2))
    assert np.all(np.abs(found.mean(0) - a**steps) <= 5 * std / np.sqrt(num) + 1e-12)
    np.testing.assert_allclose(found[:, 1:].std(0), std[1:], rtol=5 / np.sqrt(2 * num))


def test_without_a_key_there_is_no_noise_and_with_one_every_replica_and_condition_has_its_own():
    model, partition = ou_model(), Partition.of(ou_model(), "none")
    times, inputs = jnp.tile(jnp.asarray(TIMES), (2, 1)), jnp.zeros((2, len(TIMES), 0))
    start, weights = jnp.ones((2, 1)), jnp.zeros((3, 0))
    still = simulate(model, partition, weights, times, inputs, start)
    assert np.ptp(np.asarray(still), axis=(0, 1)).max() == 0.0
    noisy = np.asarray(simulate(model, partition, weights, times, inputs, start, jax.random.split(KEY, 3)))[..., -1, 0]
    assert len(np.unique(noisy)) == 6


def test_the_transition_density_is_normal_and_skips_what_is_missing():
    model = ou_model()
    outputs = np.random.default_rng(0).normal(size=(6, 1))
    times, mask = np.array([0.0, 0.1, 0.3, 0.35, 0.5, 0.5]), np.ones((6, 1), bool)
    mask[3] = False
    used = [(0, 1), (1, 2)]  # (2, 3) and (3, 4) touch the missing reading, (4, 5) is padding
    expected = [
        stats.norm.logpdf(
            outputs[b, 0], outputs[a, 0] * (1 - 1.5 * (times[b] - times[a])), 0.4 * np.sqrt(times[b] - times[a])
        )
        for a, b in used
    ]
    found = model.transition_log_density(jnp.asarray(times), jnp.zeros((6, 0)), jnp.asarray(outputs), jnp.asarray(mask))
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-12)


def test_maximum_likelihood_recovers_rate_and_diffusion():
    """Regression of increments on states has the maximum in closed form."""
    data = condition(paths(400))
    fitted = fit_mle(ou_model(0.5, 1.0), data, num_adam=0, num_lbfgs=60).model
    used = data.outputs[:: max(1, 400 // 256), :, 0]
    x, dx, dt = used[:, :-1].ravel(), np.diff(used, axis=1).ravel(), TIMES[1]
    rate = -(x @ dx) / (x @ x * dt)
    variance = np.mean((dx + rate * dt * x) ** 2) / dt
    assert float(fitted.dynamics.rate) == pytest.approx(rate, rel=1e-4)
    assert float(jnp.exp(fitted.diffusion.log_value)) == pytest.approx(np.sqrt(variance), rel=1e-4)


@pytest.mark.slow
def test_training_on_the_population_refits_all_and_no_weight_is_random():
    """From a wrong diffusion the quantile loss and the transition likelihood lead to the right one."""
    data = condition(paths(400))
    problem = problem_of(ou_model(1.5, 0.8), transition_weight=1.0)
    settings = TrainSettings(num_updates=150, num_samples=64, learning_rate=2e-2, refit_rest=True, average=0.9)
    result = train(problem, objective(problem, data, jnp.float64), settings, key=KEY)
    assert float(jnp.exp(result.problem.model.diffusion.log_value)) == pytest.approx(0.4, rel=0.05)
    assert np.all(np.asarray(result.state.history)[:, 2] == 0.0)  # no weight is random


def test_what_makes_no_sense_is_refused():
    model = ou_model()
    with pytest.raises(ValueError, match="use target='population'"):
        problem_of(model, Posterior())
    partition = Partition.of(model, "all")
    chain: Langevin = langevin(Reference(jnp.zeros(2), jnp.ones(2)), num_steps=2, key=KEY)
    with pytest.raises(ValueError, match="transition_weight=0"):
        Problem(
            model, partition, GaussianPrior(jnp.zeros(2), jnp.ones(2)), None, Population(transition_weight=1.0), chain
        )


def test_a_learned_diffusion_is_positive():
    network = PositiveOnConcatenation(MLP((1, 4, 1), key=KEY))
    low = eqx.tree_at(lambda n: n.network.layers[-1].bias, network, jnp.array([-200.0]))
    assert float(low(jnp.ones(1), jnp.zeros(0))[0]) == pytest.approx(SMALLEST_DIFFUSION)
    assert float(network(jnp.ones(1), jnp.zeros(0))[0]) > SMALLEST_DIFFUSION
