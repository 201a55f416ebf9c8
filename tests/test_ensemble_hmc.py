"""The annealed ensemble: exact posteriors, the integrator's order and reversibility, failures, and going on."""

import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode._types import Array
from langenode.fitting import checkpoints
from langenode.inference.probes import outside
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Density
from langenode.samplers.ensemble_hmc import State, annealing, ensemble_hmc, kernel, sampler
from langenode.samplers.ensemble_hmc.state import Trace, fresh
from langenode.scores import chains
from langenode.storage.container import FitFileError

SMALL: dict[str, Any] = {"num_members": 8, "num_leapfrog": 32, "num_warmup": 8, "most_transitions": 64}


def small(**more: Any) -> dict[str, Any]:
    return {**SMALL, **more}


class Linear(eqx.Module):
    """`design @ z` with unit noise: its posterior and evidence are normal integrals."""

    design: Array
    outputs: Array

    def residual(self, z: Array) -> Array:
        return self.outputs - self.design @ z

    def log_likelihood(self, z: Array) -> Array:
        return -0.5 * jnp.sum(self.residual(z) ** 2) - 0.5 * len(self.outputs) * math.log(2.0 * math.pi)

    def density(self, dtype: Any = np.float64) -> Density:
        return Density(self.log_likelihood, self.residual, None, self.design.shape[1], np.dtype(dtype))


def linear(dim: int = 4, num: int = 12, dtype: Any = np.float64, seed: int = 0) -> Linear:
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(num, dim)) * np.linspace(0.5, 3.0, dim)
    outputs = design @ rng.normal(size=dim) + rng.normal(size=num)
    return Linear(jnp.asarray(design, dtype), jnp.asarray(outputs, dtype))


def exact(model: Linear) -> tuple[np.ndarray, np.ndarray, float]:
    design, outputs = np.asarray(model.design, float), np.asarray(model.outputs, float)
    covariance = np.linalg.inv(np.eye(design.shape[1]) + design.T @ design)
    marginal = design @ design.T + np.eye(len(outputs))
    evidence = -0.5 * outputs @ np.linalg.solve(marginal, outputs) - 0.5 * np.linalg.slogdet(2 * np.pi * marginal)[1]
    return covariance @ design.T @ outputs, covariance, float(evidence)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_gaussian_posterior_is_found_with_its_evidence(dtype):
    model = linear(dtype=dtype)
    options = small(num_members=32, num_leapfrog=64, least_transitions=64, with_evidence=True)
    found = ensemble_hmc(model.density(dtype), key=jax.random.key(3), **options)
    mean, covariance, evidence = exact(model)
    draws = np.asarray(found.draws, float)
    # Trajectories are long against the posterior: transitions are nearly independent, members are so entirely.
    by_member = draws.reshape(64, 32, 4).mean(axis=0)
    error = by_member.std(axis=0, ddof=1) / math.sqrt(32)
    assert found.draws.dtype == dtype and found.trust.is_trusted and len(draws) == 64 * 32
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5.0 * error)
    scaled = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T)
    squares = (scaled @ scaled.T / len(draws)).ravel()
    by_member = np.stack([np.outer(*[scaled[:, i]] * 2).ravel() for i in range(len(draws))]).reshape(64, 32, 16).mean(0)
    error = by_member.std(axis=0, ddof=1) / math.sqrt(32)
    np.testing.assert_array_less(np.abs(squares - np.eye(4).ravel()), 5.0 * error)
    assert found.diagnostics["log_evidence_se"] < 1.5
    assert abs(found.diagnostics["log_evidence"] - evidence) < 5.0 * found.diagnostics["log_evidence_se"]


@pytest.mark.slow
def test_the_ensemble_agrees_in_a_diagonal_metric_above_fifty_weights():
    model = linear(dim=60, num=20)
    found = ensemble_hmc(model.density(), key=jax.random.key(4), **small(num_members=16, num_leapfrog=64))
    mean, covariance, _ = exact(model)
    draws = np.asarray(found.draws, float)
    standard = (draws.mean(0) - mean) / np.sqrt(np.diag(covariance))
    by_member = draws.reshape(-1, 16, 60).mean(axis=0)
    error = (by_member.std(axis=0, ddof=1) / np.sqrt(np.diag(covariance)) / 4.0).mean()
    assert np.abs(standard).max() < 5.0 * error
    np.testing.assert_allclose(np.median(draws.var(0) / np.diag(covariance)), 1.0, atol=5.0 * math.sqrt(2 / len(draws)))


class Curved(eqx.Module):
    def log_likelihood(self, z: Array) -> Array:
        return -0.5 * jnp.sum((jnp.sin(2.0 * z) + z**2 - 0.5) ** 2) - 0.1 * jnp.sum(z[1:] * z[:-1])

    def density(self) -> Density:
        return Density(self.log_likelihood, None, None, 3, np.dtype(np.float64))


def trajectory(density: Density, momentum: Array, step: float, num: int) -> tuple[kernel.Members, Array]:
    member = kernel.evaluated(density, jnp.array([0.3, -0.5, 0.8]))
    for _ in range(num):
        member, momentum = kernel.leapfrog(
            density, member, momentum, root=jnp.array([1.0, 0.7, 1.3]), power=jnp.array(0.8), step_size=jnp.array(step)
        )
    return member, momentum


def test_leapfrog_steps_can_be_reversed():
    density, momentum = Curved().density(), jnp.array([0.4, 1.0, -0.7])
    end, last = trajectory(density, momentum, 0.1, 20)
    back = -last
    for _ in range(20):
        end, back = kernel.leapfrog(
            density, end, back, root=jnp.array([1.0, 0.7, 1.3]), power=jnp.array(0.8), step_size=jnp.array(0.1)
        )
    np.testing.assert_allclose(end.points, [0.3, -0.5, 0.8], rtol=1e-10)
    np.testing.assert_allclose(-back, momentum, rtol=1e-10)


def test_the_energy_error_of_leapfrog_is_of_second_order():
    density, momentum = Curved().density(), jnp.array([0.4, 1.0, -0.7])
    start = kernel.log_target(kernel.evaluated(density, jnp.array([0.3, -0.5, 0.8])), momentum, jnp.array(0.8))
    steps = np.array([0.1, 0.05, 0.025, 0.0125])
    errors = []
    for step in steps:
        end = trajectory(density, momentum, float(step), round(0.5 / step))
        errors.append(abs(float(kernel.log_target(*end, jnp.array(0.8)) - start)))
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert abs(slope - 2.0) < 0.4


class Broken(eqx.Module):
    """A normal likelihood that gives no number left of a wall, which cuts through the posterior."""

    def residual(self, z: Array) -> Array:
        return jnp.where(z[0] > 0.0, 2.0 * z, jnp.nan)

    def log_likelihood(self, z: Array) -> Array:
        return -0.5 * jnp.sum(self.residual(z) ** 2)

    def density(self) -> Density:
        return Density(self.log_likelihood, self.residual, None, 2, np.dtype(np.float64))


def test_models_that_give_no_number_are_rejected_and_never_crash():
    found = ensemble_hmc(Broken().density(), key=jax.random.key(1), **small(num_members=16, num_leapfrog=8))
    draws = np.asarray(found.draws)
    assert (draws[:, 0] > 0.0).all() and found.diagnostics["dropped"] == 0
    # A half normal of variance 1/5: its mean is sqrt(2 / pi) of the standard deviation.
    by_member = draws.reshape(-1, 16, 2).mean(axis=0)[:, 0]
    error = by_member.std(ddof=1) / 4.0
    assert abs(by_member.mean() - math.sqrt(2.0 / (5.0 * math.pi))) < 5.0 * error


class Nowhere(eqx.Module):
    def log_likelihood(self, z: Array) -> Array:
        return jnp.nan * z[0]


def test_a_model_that_never_gives_a_number_is_refused():
    density = Density(Nowhere().log_likelihood, None, None, 2, np.dtype(np.float64))
    with pytest.raises(ValueError, match="must be finite somewhere under the prior"):
        ensemble_hmc(density, key=jax.random.key(0), **SMALL)


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one():
    density, states = linear(dtype=np.float32).density(np.float32), []
    options = small(least_transitions=64)
    whole = ensemble_hmc(density, key=jax.random.key(5), on_state=states.append, **options)
    num_powers = len(states[-1].powers)
    for stored in (states[0], states[num_powers // 2], states[num_powers + 3], states[-10]):
        assert isinstance(stored, State)
        again = ensemble_hmc(density, key=jax.random.key(5), state=jax.tree.map(jnp.asarray, stored), **options)
        np.testing.assert_array_equal(again.draws, whole.draws)
        assert again.diagnostics == whole.diagnostics


def test_a_budget_that_has_ended_leaves_some_draws_and_says_so():
    found = ensemble_hmc(linear().density(), key=jax.random.key(6), budget=1e-9, **SMALL)
    assert found.diagnostics["stopped"] and found.diagnostics["num_transitions"] == 16 and len(found.draws) == 16 * 8


def test_powers_are_not_set_by_one_lost_member():
    values = np.append(np.random.default_rng(0).normal(-50.0, 5.0, 15), -1e6)
    power = annealing.next_power(0.1, values)
    assert power > 0.15
    weights = np.exp((power - 0.1) * (annealing.clipped(values) - values.max()))
    np.testing.assert_allclose(weights.sum() ** 2 / np.sum(weights**2) / 16, 0.5, rtol=1e-6)
    assert annealing.next_power(0.9, np.full(16, -3.0)) == 1.0


def test_lost_members_are_found_though_they_are_most_and_others_are_not():
    rng = np.random.default_rng(3)
    healthy = rng.normal(-50.0, 10.0, (500, 16))
    assert not any(sampler.lost(values).any() for values in healthy)
    for num in (1, 6, 11):
        values = np.concatenate([healthy[0, num:], rng.uniform(-1e4, -1e3, num)])
        np.testing.assert_array_equal(sampler.lost(values), values < -500.0)


def test_powers_rise_where_most_members_are_lost():
    values = np.concatenate([np.full(6, -50.0), np.full(10, -1e6)])
    np.testing.assert_allclose(annealing.next_power(0.01, values), 0.01 * annealing.LEAST_RISE)


def test_split_r_hat_is_its_formula_and_finds_a_trend_within_chains():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4, 50, 1))
    halves = np.concatenate([values[:, :25], values[:, 25:]])[..., 0]
    within, between = halves.var(1, ddof=1).mean(), halves.mean(1).var(ddof=1)
    np.testing.assert_allclose(chains.split_r_hat(values), [math.sqrt(24 / 25 + between / within)], rtol=1e-12)
    trend = values + np.linspace(0.0, 3.0, 50)[:, None]
    assert chains.split_r_hat(trend)[0] > 1.2 > 1.1 > chains.split_r_hat(values)[0]
    assert np.isinf(chains.split_r_hat(values[:, :3])).all()


def test_the_error_of_means_is_that_of_independent_draws():
    num_chains, num, size = 16, 100, 400
    inside = np.random.default_rng(3).normal(2.0, 5.0, (num_chains, num, size))
    inside[..., -1] = 7.0  # a prediction that does not vary is not counted
    found = chains.agreement(inside, inside, inside[..., 0], inside[..., 1]).mean_error
    spread = math.sqrt(2.0 / (num_chains - 1) / (size - 1))  # relative, of the mean of the squares
    assert abs(found**2 * num_chains * num - 1.0) < 5.0 * spread
    assert math.isnan(chains.agreement(inside[..., -1:], inside, inside[..., 0], inside[..., 1]).mean_error)


@pytest.mark.parametrize(
    ("num_members", "offset", "is_done_at"),
    # Known soon; known only in the extension; members that nearly agree; members that do not.
    [(16, 0.0, 128), (8, 0.0, 256), (16, 0.08, 320), (16, 3.0, 192)],
)
def test_draws_end_when_means_are_known_or_members_are_far_apart(num_members, offset, is_done_at):
    rng = np.random.default_rng(5)
    inside = rng.standard_normal((320, num_members, 400)) + offset * np.arange(num_members)[:, None]
    numbers = rng.standard_normal((3, 320, num_members))
    start = fresh(linear().density(), jnp.asarray(numbers[0, :1].T))
    limits = sampler._Limits(least=64, most=192, longest=320, mean_error=0.025)

    def is_done(num: int) -> bool:
        trace = Trace(numbers[0, :num, :, None], inside[:num], inside[:num], *(part[:num] for part in numbers))
        return sampler._is_done(start._replace(trace=trace), limits, False)

    assert next(num for num in range(1, 321) if is_done(num)) == is_done_at


def test_effective_size_is_that_of_an_autoregression():
    rng, rho = np.random.default_rng(2), 0.8
    noise = rng.normal(size=(16, 2000, 8))
    values = np.zeros_like(noise)
    for i in range(1, 2000):
        values[:, i] = rho * values[:, i - 1] + math.sqrt(1 - rho**2) * noise[:, i]
    np.testing.assert_allclose(chains.effective_size(values), 16 * 2000 * (1 - rho) / (1 + rho), rtol=0.15)


def test_chains_that_differ_outside_the_data_only_are_distrusted_there():
    rng = np.random.default_rng(3)
    inside, outside = rng.normal(size=(2, 16, 400, 5))
    outside = outside + np.linspace(-1.0, 1.0, 16)[:, None, None]
    found = chains.agreement(inside, outside, rng.normal(size=(16, 400)), rng.normal(size=(16, 400)))
    record = found.record()
    assert found.is_trusted_inside and not found.is_trusted_outside
    assert record["trusted_in"] and not record["trusted_out"] and record["rhat_out"]["max"] > 1.1
    drifting = rng.normal(size=(16, 400)) + np.linspace(0.0, 2.0, 400)
    assert chains.agreement(inside, inside, drifting[:, ::-1], drifting).drift > 3.0


SIZES: dict[str, Any] = {
    "num_members": 4,
    "num_leapfrog": 8,
    "num_warmup": 4,
    "least_transitions": 16,
    "most_transitions": 16,
}


def relaxing_fit(tmp_path, seed=3):
    """A fit of two weights by the ensemble, with a checkpoint after every transition."""
    rng = np.random.default_rng(0)
    times, starts = np.linspace(0.0, 1.0, 6), np.linspace(-1.0, 1.0, 5)
    outputs = starts[:, None] * np.exp(-2.0 * times) + 0.05 * rng.normal(size=(5, 6))
    data = ln.Dataset.from_arrays(times, outputs[..., None], initial=starts[:, None], condition=np.arange(5))
    model = NeuralODE(OnConcatenation(MLP((1, 1), key=jax.random.key(0))), num_hidden=1)
    options = {"ensemble-hmc": SIZES, "noise": {"kind": "given", "sigma": 0.05}, "mle": {"num_adam": 50}}
    path = tmp_path / "checkpoint.langenode"
    fixed = {"model": model, "target": "posterior", "stochastic": "all", "method": "ensemble-hmc", "seed": seed}
    return ln.fit(data, **fixed, options=options, checkpoint=path), path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not to be trusted")  # so few transitions
def test_an_interrupted_fit_resumes_at_its_checkpoint(tmp_path, monkeypatch):
    whole, path = relaxing_fit(tmp_path)
    assert not path.exists()
    monkeypatch.setattr(checkpoints, "SECONDS", -1.0)
    write, count = checkpoints.DrawCheckpoint.write, itertools.count()

    def interrupted(self, state, sizes):
        write(self, state, sizes)
        if next(count) == 12:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.DrawCheckpoint, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            relaxing_fit(tmp_path)
    assert path.exists()
    with pytest.raises(FitFileError, match="must be of the same fit"):
        relaxing_fit(tmp_path, seed=4)
    steps = []
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.DrawCheckpoint, "write", lambda self, state, sizes: steps.append(int(state.step)))
        again, _ = relaxing_fit(tmp_path)
    assert steps[0] == 14  # after the thirteen that were stored
    draws = [getattr(fit.problem.posterior, "draws") for fit in (again, whole)]  # noqa: B009
    np.testing.assert_array_equal(*draws)


@pytest.mark.filterwarnings("ignore:.*not to be trusted")
def test_a_fit_records_both_verdicts_and_where_predictions_disagree(tmp_path):
    record = relaxing_fit(tmp_path)[0].diagnostics
    for name in ("rhat_in", "rhat_out"):
        assert 0.9 < record[name]["median"] <= record[name]["max"]
    assert {"trusted_in", "trusted_out", "rhat_log_likelihood"} <= set(record)
    inside, outside = (record["rhat_profile"][name] for name in ("inside", "outside"))
    # Starts are known: every trajectory has five predictions that vary. Probes are on the integrator's finer grid.
    assert len(inside["rhat"]) == len(inside["time"]) == 25 < len(outside["rhat"]) == len(outside["time"])
    np.testing.assert_allclose(np.unique(inside["time"]), np.linspace(0.2, 1.0, 5), rtol=1e-6)
    np.testing.assert_allclose(max(inside["rhat"]), record["rhat_in"]["max"], atol=1e-4)


def test_probes_lie_beyond_the_data():
    data = ln.Dataset.from_arrays(
        np.linspace(0, 1, 3), np.zeros((20, 3, 1)), initial=np.linspace(1.0, 3.0, 20)[:, None], condition=np.arange(20)
    )
    found = outside(data.arrays(np.float32))
    starts = np.asarray(found.initial)[:, 0]
    assert len(starts) == 12 and starts.min() == pytest.approx(0.5) and starts.max() == pytest.approx(3.5)
    same = ln.Dataset.from_arrays(np.linspace(0, 1, 3), np.zeros((1, 3, 1)), initial=np.ones((1, 1)))
    np.testing.assert_allclose(np.asarray(outside(same.arrays(np.float32)).initial)[:, 0], [0.0, 2.0])


DEVICES = """
import sys

import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
from test_ensemble_hmc import SMALL, linear
from langenode.samplers import ensemble_hmc
states = []
density = linear(dtype=np.float32).density(np.float32)
found = ensemble_hmc(density, key=jax.random.key(5), on_state=states.append, **SMALL)
assert len(states[-1].members.points.sharding.device_set) == 2
np.save(sys.argv[1], np.asarray(found.draws))
"""


@pytest.mark.slow
def test_members_are_divided_over_devices(tmp_path: Path):
    """All draws of two devices are those of one, to rounding: trajectories of a quadratic energy are not chaotic."""
    path = tmp_path / "draws.npy"
    command = [sys.executable, "-c", DEVICES, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd="tests", check=False)
    assert found.returncode == 0, found.stderr
    alone = ensemble_hmc(linear(dtype=np.float32).density(np.float32), key=jax.random.key(5), **SMALL)
    np.testing.assert_allclose(np.load(path), np.asarray(alone.draws), atol=2e-3)
