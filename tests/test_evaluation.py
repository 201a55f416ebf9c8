"""Importance diagnostics of a fit where the model breaks under some of its draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset
from langenode.fitting.evaluation import in_order
from langenode.fitting.solve import importance_diagnostics
from langenode.inference.errors import FitError
from langenode.inference.importance import log_weights
from langenode.inference.likelihood import given_noise
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Posterior
from langenode.posteriors import Reference, gaussian

KEY, NUM = jax.random.key(0), 4096


class Level(eqx.Module):
    """A constant; no number from `limit` on."""

    value: jax.Array
    limit: float = eqx.field(static=True)

    def __call__(self, times, inputs, initial=None, *, key=None):
        return jnp.full((times.shape[0], 1), jnp.where(self.value < self.limit, self.value, jnp.nan))


DATA = Dataset.from_arrays(np.arange(5.0), np.random.default_rng(0).normal(0.7, 0.3, size=(2, 5, 1)))


def problem_with(limit):
    model = Level(jnp.asarray(0.5), limit)
    partition = Partition.of(model)
    centre = partition.flatten(model)
    posterior = gaussian(Reference(centre, jnp.full(1, 0.2)), key=KEY)
    return Problem(model, partition, GaussianPrior(centre, jnp.ones(1)), given_noise(0.3, DATA), Posterior(), posterior)


def diagnostics_of(problem):
    return importance_diagnostics(problem, DATA, NUM, key=KEY)


def test_one_diverged_draw_has_no_weight_and_ends_nothing():
    weights, whole = (np.asarray(part, float) for part in log_weights(problem_with(np.inf), DATA, NUM, key=KEY))
    worst = int(np.argmax(weights[:, 0]))
    problem = problem_with(float(weights[worst, 0]))
    logs = np.asarray(log_weights(problem, DATA, NUM, key=KEY)[1])
    assert np.flatnonzero(~np.isfinite(logs)).tolist() == [worst] and logs[worst] == -np.inf
    others = np.delete(whole, worst)
    np.testing.assert_allclose(np.delete(logs, worst), others, rtol=1e-12)

    found = diagnostics_of(problem)
    assert found["non_finite"] == 1 and diagnostics_of(problem_with(np.inf))["non_finite"] == 0
    shares = np.exp(others)
    np.testing.assert_allclose(found["log_evidence"], np.log(shares.sum() / NUM), rtol=1e-10)
    np.testing.assert_allclose(found["relative_ess"], shares.sum() ** 2 / np.sum(shares**2) / NUM, rtol=1e-10)
    np.testing.assert_allclose(found["elbo"], others.mean(), rtol=1e-10)
    assert np.isfinite(found["k_hat"]) and np.isfinite(found["elbo_se"])


def test_a_fit_without_any_finite_draw_is_an_error():
    with pytest.raises(FitError, match="finite likelihood; none does"):
        diagnostics_of(problem_with(-np.inf))


def test_records_of_a_fit_have_the_order_of_its_file():
    """Else metrics.json of a resumed run would have other bytes."""
    found = in_order({"b": 1, "a": {"d": [2, 1], "c": 3}})
    assert str(found) == "{'a': {'c': 3, 'd': [2, 1]}, 'b': 1}"
