"""Samplers that are trained on draws: the bound of given draws, what is stored, and how near the draws they are."""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.inference.distillation import distil, moment_reference
from langenode.inference.errors import FitError
from langenode.models import MLP, NeuralODE, OnConcatenation
from langenode.posteriors import Density, Distilled, Reference, langevin
from langenode.posteriors.distilled import empty, rescaled, small_bottleneck
from langenode.posteriors.reversed_paths import log_density_bound


def reference(dim: int = 3) -> Reference:
    rng = np.random.default_rng(0)
    return Reference(*(jnp.asarray(part) for part in (rng.normal(size=dim), np.exp(rng.normal(size=dim)))))


def test_the_bound_is_exact_on_every_path_before_training():
    chain = langevin(reference(), num_steps=4, key=jax.random.key(0))
    w = jnp.asarray([0.3, -1.0, 2.0])
    exact = jax.scipy.stats.norm.logpdf(w, chain.reference.mean, chain.reference.scale).sum()
    found = [log_density_bound(chain, w, key=jax.random.key(seed)) for seed in range(3)]
    np.testing.assert_allclose(found, float(exact), rtol=1e-9)


def affine_chain() -> tuple[Any, np.ndarray, np.ndarray]:
    """A chain with an affine control, whose end is Gaussian, and the mean and covariance of that in z."""
    chain = langevin(reference(2), num_steps=3, horizon=1.0, key=jax.random.key(0))
    rng = np.random.default_rng(1)
    parts = lambda c: (c.control.gain, c.control.shift, c.noise.log_scale, c.noise.lower)  # noqa: E731
    new = [jnp.asarray(0.2 * rng.normal(size=part.shape)) for part in parts(chain)]
    chain = eqx.tree_at(parts, chain, new)
    decay, _, noise = (np.asarray(part) for part in chain._coefficients())
    mean, covariance = np.zeros(2), np.eye(2)
    for k, (gain, shift, log_scale, lower) in enumerate(zip(*(np.asarray(part) for part in new), strict=True)):
        turn = decay[k] * np.eye(2) + noise[k] * gain
        root = noise[k] * (np.diag(np.exp(log_scale)) + np.tril(lower, -1))
        mean, covariance = turn @ mean + noise[k] * shift, turn @ covariance @ turn.T + root @ root.T
    return chain, mean, covariance


def test_the_mean_ratio_of_reversed_paths_is_the_density_of_the_chain():
    chain, mean, covariance = affine_chain()
    z = np.array([0.4, -0.7])
    exact = -0.5 * (z - mean) @ np.linalg.solve(covariance, z - mean) - 0.5 * np.linalg.slogdet(covariance)[1]
    exact -= math.log(2.0 * math.pi) + float(chain.reference.log_det)
    keys = jax.random.split(jax.random.key(1), 4000)
    w = chain.reference.to_weights(jnp.asarray(z))
    ratios = np.exp(np.asarray(jax.vmap(lambda key: log_density_bound(chain, w, key=key))(keys)) - exact)
    assert abs(ratios.mean() - 1.0) < 5.0 * ratios.std() / math.sqrt(len(ratios))
    assert ratios.std() < 1.0


def test_the_reference_has_the_moments_of_the_draws():
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(500, 5)) @ rng.normal(size=(5, 5)) + rng.normal(size=5)
    found = moment_reference(jnp.asarray(draws))
    root = jax.jacfwd(found.to_weights)(jnp.zeros(5))
    np.testing.assert_allclose(root @ root.T, np.cov(draws, rowvar=False), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.mean, draws.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("kind", ["langevin", "bottleneck"])
def test_a_sampler_is_moved_to_other_units_and_rebuilt_from_its_sizes(kind: str):
    key, mean, scale = jax.random.key(0), jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([0.1, 1.0, 10.0])
    factor = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    first = Reference(mean, scale, factor)
    sampler = langevin(first, key=key) if kind == "langevin" else small_bottleneck(mean, 2, key=key)
    moved = rescaled(sampler, mean, scale)
    plain, there = (Distilled(one).sample(4, key=key) for one in (sampler, moved))
    np.testing.assert_allclose(there, mean + scale * plain, rtol=1e-9)
    again = empty(Distilled(moved).sizes(), mean)
    assert jax.tree.structure(again) == jax.tree.structure(Distilled(moved))
    assert [a.shape for a in jax.tree.leaves(again)] == [a.shape for a in jax.tree.leaves(Distilled(moved))]


def banana(num: int) -> np.ndarray:
    white = np.random.default_rng(5).normal(size=(num, 2))
    return np.stack([white[:, 0], 0.5 * white[:, 0] ** 2 + 0.3 * white[:, 1]], axis=1)


def banana_density() -> Density:
    def log_likelihood(z: Any) -> Any:
        x, y = z[0], (z[1] - 0.5 * z[0] ** 2) / 0.3
        return -0.5 * y**2 - math.log(0.3) + 0.5 * z[1] ** 2 + 0.0 * x

    return Density(log_likelihood, None, None, dim=2, dtype=jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["langevin", "bottleneck"])
def test_a_banana_is_distilled_within_standard_errors(kind: Any):
    draws = banana(4096)
    found = distil(banana_density(), jnp.asarray(draws), kind, key=jax.random.key(2), num_updates=3000)
    samples = np.asarray(found.sampler.sample(4096, key=jax.random.key(3)), float)

    def statistics(z: np.ndarray) -> np.ndarray:
        return np.stack([z[:, 0], z[:, 1], z[:, 0] ** 2, z[:, 1] ** 2, z[:, 0] ** 2 * z[:, 1]], axis=1)

    ours, theirs = statistics(samples), statistics(draws)
    errors = np.sqrt((ours.var(axis=0) + theirs.var(axis=0)) / len(draws))
    # Training has an error of its own, which Monte Carlo does not show: a twentieth of a standard deviation.
    assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < 4.0 * errors + 0.05 * theirs.std(axis=0))
    assert found.is_near
    assert (kind == "langevin") == ("relative_ess" in found.record)
    if kind == "langevin":
        assert found.record["relative_ess"] > 0.5


def line_fit(**options: Any) -> tuple[ln.Fit, ln.Dataset, Any]:
    """A fit of two weights, `dh/dt = a h + b`, by ensemble-hmc, with its data and its model."""
    rng = np.random.default_rng(0)
    times, start = np.linspace(0.0, 1.0, 11), rng.uniform(0.5, 2.0, (8, 1))
    outputs = start * np.exp(-2.0 * times) + 0.05 * rng.normal(size=(8, 11))
    data = ln.Dataset.from_arrays(times, outputs[..., None], initial=start)
    model = NeuralODE(OnConcatenation(MLP((1, 1), key=jax.random.key(0))), num_hidden=1)
    chosen = {"ensemble-hmc": {"num_leapfrog": 16, **options}, "noise": {"kind": "given", "sigma": 0.05}}
    chosen["model"] = {"largest_step": 0.1}
    fit = ln.fit(data, model=model, method="ensemble-hmc", target="posterior", stochastic="all", seed=1, options=chosen)
    return fit, data, model


@pytest.mark.slow
def test_a_fit_is_distilled_to_a_small_file(tmp_path: Path):
    fit, data, model = line_fit()
    matched = fit.distil("bottleneck", num_updates=2100)
    drawn, *_ = line_fit(distil="langevin", distil_updates=600)
    for kind, small in (("bottleneck", matched), ("langevin", drawn)):
        assert isinstance(small.problem.posterior, Distilled)
        record = small.diagnostics["distilled"]
        assert record["kind"] == kind and record["is_used"] and record["mean_in"] < 0.1
        small.save(tmp_path / "small.langenode")
        again = ln.load_fit(tmp_path / "small.langenode", model=model)
        np.testing.assert_array_equal(again.flat_sample(5), small.flat_sample(5))
        bands = [one.predict(data)["quantiles"].sel(level=[0.05, 0.5, 0.95]).to_numpy() for one in (fit, again)]
        width = np.mean(bands[0][2] - bands[0][0])
        assert np.abs(bands[1] - bands[0]).mean() < 0.1 * width
        assert len(small.to_bytes()) < len(fit.to_bytes())
    with pytest.raises(FitError, match="only stored draws"):
        matched.distil()
