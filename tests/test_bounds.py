"""Bounds on weights: the map and its Jacobian, and evidences of truncated priors in closed form."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import langenode as ln
import problems
from commands import done, options
from langenode.config import ConfigError
from langenode.fitting.choose import configure
from langenode.inference.errors import FitError
from langenode.inference.priors import GaussianPrior
from langenode.inference.quadrature import integrate
from langenode.posteriors import Density, Reference, Truncation, bottleneck, bounded, gaussian, langevin
from langenode.posteriors.bounds import UNBOUNDED

KEY = jax.random.key(0)
# An interval about the mean, one beside it, one bound below, one above, none.
MEAN, SCALE = np.array([0.2, -1.0, 0.5, 0.0, 0.3]), np.array([1.0, 0.7, 2.0, 0.5, 1.5])
LOWER = np.array([-0.8, 0.1, 0.0, -UNBOUNDED, -UNBOUNDED])
UPPER = np.array([1.2, 0.9, UNBOUNDED, -0.1, UNBOUNDED])


def truncation(dtype=float):
    return Truncation(*(jnp.asarray(part, dtype) for part in (MEAN, SCALE, LOWER, UPPER)))


def truncated_normal() -> Any:
    return scipy.stats.truncnorm((LOWER - MEAN) / SCALE, (UPPER - MEAN) / SCALE, MEAN, SCALE)


# --- the map


def test_a_normal_variable_becomes_a_truncated_one():
    """Quantile by quantile, with the density of the textbook; and back."""
    bend, exact = truncation(), truncated_normal()
    for z in np.linspace(-4.0, 4.0, 17):
        free = jnp.asarray(MEAN + SCALE * z)
        weights = bend.to_weights(free)
        np.testing.assert_allclose(weights, exact.ppf(scipy.stats.norm.cdf(z)), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(bend.to_free(weights), free, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(bend.log_density(weights), exact.logpdf(np.asarray(weights)).sum(), rtol=1e-9)
    assert bend.log_density(jnp.asarray(UPPER + 0.1)) == -np.inf


def test_the_jacobian_is_that_of_the_map():
    bend, step = truncation(), 1e-5
    for z in (-2.5, -0.3, 1.0, 3.0):
        free = jnp.asarray(MEAN + SCALE * z)
        slope = np.diag(jax.jacfwd(bend.to_weights)(free))
        difference = (bend.to_weights(free + step) - bend.to_weights(free - step)) / (2 * step)
        np.testing.assert_allclose(slope, difference, rtol=1e-6)
        np.testing.assert_allclose(bend.log_slope(free), np.log(slope).sum(), rtol=1e-10)
        curvature = np.diag(jax.hessian(lambda v: bend.to_weights(v).sum())(free))
        slopes = [np.diag(jax.jacfwd(bend.to_weights)(free + s * step)) for s in (1.0, -1.0)]
        np.testing.assert_allclose(curvature, (slopes[0] - slopes[1]) / (2 * step), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_weight_leaves_its_bounds_and_none_is_lost(dtype):
    bend = truncation(dtype)
    free = jnp.asarray(MEAN + SCALE * np.linspace(-30.0, 30.0, 241)[:, None], dtype)
    weights = np.asarray(bend.to_weights(free))
    assert weights.dtype == dtype and np.all((weights >= bend.lower) & (weights <= bend.upper))
    slopes = jax.vmap(jax.grad(lambda v: bend.log_slope(v)))(free)
    assert np.all(np.isfinite(weights)) and np.all(np.isfinite(slopes))
    assert np.all(np.isfinite(bend.to_free(jnp.asarray(np.maximum(weights, LOWER), dtype))))
    np.testing.assert_array_equal(weights[:, -1], free[:, -1])  # without bounds nothing changes


# --- exact in the path weight: one reading y_i = w_i + noise of each weight, and a truncated prior

READINGS, NOISE = np.array([0.6, 0.0, 1.0, 0.2, 0.9]), np.array([0.5, 0.4, 1.0, 0.3, 0.8])


def prior():
    return GaussianPrior(*(jnp.asarray(part) for part in (MEAN, SCALE, LOWER, UPPER)))


def log_likelihood(weights):
    return jnp.sum(jax.scipy.stats.norm.logpdf(READINGS, weights, NOISE))


def exact():
    """The log-evidence in closed form, and mean and standard deviation of the posterior, also a truncated normal."""
    normal = scipy.stats.norm
    precision = SCALE**-2 + NOISE**-2
    mean, std = (MEAN / SCALE**2 + READINGS / NOISE**2) / precision, precision**-0.5
    after = normal.cdf((UPPER - mean) / std) - normal.cdf((LOWER - mean) / std)
    before = normal.cdf((UPPER - MEAN) / SCALE) - normal.cdf((LOWER - MEAN) / SCALE)
    log_evidence = normal.logpdf(READINGS, MEAN, np.hypot(SCALE, NOISE)) + np.log(after) - np.log(before)
    found = scipy.stats.truncnorm((LOWER - mean) / std, (UPPER - mean) / std, mean, std)
    return log_evidence.sum(), found.mean(), found.std()


def sampler_of(kind):
    """A sampler in free weights that is neither its reference nor the posterior; the reference is not the prior."""
    reference = Reference(jnp.asarray(MEAN + 0.2), jnp.asarray(1.1 * SCALE))
    if kind == "gaussian":
        return gaussian(reference, key=KEY)
    return langevin(reference, num_steps=4, layers=(4,), key=KEY)


@pytest.mark.parametrize("kind", ["langevin", pytest.param("gaussian", marks=[pytest.mark.slow])])
def test_importance_weights_average_to_the_evidence_of_a_truncated_prior(kind):
    posterior = bounded(problems.perturbed(sampler_of(kind), 0.05), truncation())
    draws = problems.draw_many(posterior, jax.random.split(jax.random.key(1), 32768))
    prior_density = jax.vmap(prior().log_density)(draws.weights)
    logs = jax.vmap(log_likelihood)(draws.weights) + prior_density - draws.log_reference - draws.log_ratio
    log_evidence, mean, std = exact()
    ratio = np.exp(np.asarray(logs) - log_evidence)
    assert problems.standard_error(ratio) < 0.02  # else the test has no power
    problems.assert_mean(ratio, 1.0)
    weights = np.asarray(draws.weights)
    problems.assert_mean(ratio[:, None] * (weights - mean), 0.0)
    problems.assert_mean(ratio[:, None] * ((weights - mean) ** 2 - std**2), 0.0)


@pytest.mark.slow
def test_training_within_bounds_finds_the_posterior():
    """The bound is below the log-evidence and near it; the loss is that of every trained sampler."""

    class Truncated(eqx.Module):
        log_evidence: float

        def log_joint(self, weights):
            return log_likelihood(weights) + prior().log_density(weights)

        def log_target(self, draw):
            return self.log_joint(draw.weights) - draw.log_reference

    log_evidence, mean, std = exact()
    posterior = bounded(sampler_of("langevin"), truncation())
    problem = Truncated(log_evidence)
    trained = problems.train(posterior, problem, num_updates=600, key=KEY)
    weights, logs = problems.weigh(trained, problem, jax.random.split(jax.random.key(2), 16384))
    gap = log_evidence - logs.mean()
    assert -5 * problems.standard_error(logs) < gap < 0.05
    np.testing.assert_allclose(weights.mean(0), mean, atol=0.1 * std.max())


def test_a_bottleneck_within_bounds_still_has_no_density():
    inner = bottleneck(jnp.asarray(MEAN), latent_dim=2, num_steps=2, key=KEY)
    posterior = bounded(inner, truncation())
    assert not posterior.has_density and posterior.chain.dim == 2
    weights = problems.quick_jit(lambda p: p.sample(64, key=KEY))(posterior)
    assert np.all((weights >= LOWER) & (weights <= UPPER))
    path = problems.quick_jit(lambda p: p.path(key=KEY))(posterior)
    assert path.shape == (3, 5)
    assert not hasattr(bounded(sampler_of("gaussian"), truncation()), "path")  # nor has it one without bounds


# --- through `ln.fit`: a line with a slope that may not exceed a bound


class Line(eqx.Module):
    slope: jax.Array

    def __call__(self, times, inputs, initial=None):
        return (self.slope * times)[:, None]


TIMES, SIGMA = np.linspace(0.1, 1.0, 8), 0.5


def lines():
    outputs = 1.0 * TIMES + SIGMA * np.random.default_rng(0).standard_normal((3, 8))
    return ln.Dataset.from_arrays(TIMES, outputs, condition=np.arange(3))


def exact_line(centre, scale, lower, upper):
    """Log-evidence, mean and standard deviation of the slope."""
    outputs = np.asarray(lines().outputs)[..., 0]
    precision = 3 * (TIMES @ TIMES) / SIGMA**2
    estimate = (outputs @ TIMES).sum() / (3 * TIMES @ TIMES)
    normal = scipy.stats.norm
    at_best = normal.logpdf(outputs, estimate * TIMES, SIGMA).sum()
    std = (precision + scale**-2) ** -0.5
    mean = std**2 * (precision * estimate + centre / scale**2)
    log_evidence = at_best + 0.5 * np.log(2 * np.pi / precision) + normal.logpdf(
        estimate, centre, np.hypot(scale, precision**-0.5)
    )  # fmt: skip
    log_evidence += np.log(np.diff(normal.cdf(np.array([lower, upper]), mean, std))[0])
    log_evidence -= np.log(np.diff(normal.cdf(np.array([lower, upper]), centre, scale))[0])
    after = scipy.stats.truncnorm((lower - mean) / std, (upper - mean) / std, mean, std)
    return log_evidence, after.mean(), after.std()


def fitted(method, *, upper=0.9, **options):
    given = {"prior": {"means": {"slope": 0.5}, "scales": {"slope": 0.6}, "lower": 0.0, "upper": {"slope": upper}}}
    given |= {"noise": {"kind": "given", "sigma": SIGMA}, "precision": "float64"}
    given |= {"predict": {"num_samples": 16, "num_weights": 8192}, **options}
    return ln.fit(lines(), model=Line(jnp.asarray(0.5)), method=method, target="posterior", options=given,
                  progress=False)  # fmt: skip


SMALL = {"training": {"num_updates": 40, "num_samples": 64, "block": 40}, "langevin": {"num_steps": 4, "layers": (4,)}}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the point estimate must lie within")
@pytest.mark.parametrize("method", ["langevin", "gaussian-full"])
def test_a_trained_fit_has_the_evidence_of_its_truncated_prior(method, tmp_path):
    fit = fitted(method, **SMALL)
    log_evidence, _, _ = exact_line(0.5, 0.6, 0.0, 0.9)
    found = fit.diagnostics
    assert found["log_evidence_se"] < 0.05
    assert abs(found["log_evidence"] - log_evidence) < 5 * found["log_evidence_se"]
    slopes = fit.flat_sample(512)
    assert np.all((slopes >= 0.0) & (slopes <= 0.9))
    fit.save(tmp_path / "fit.langenode")
    again = ln.load_fit(tmp_path / "fit.langenode", model=Line(jnp.asarray(0.5)))
    np.testing.assert_array_equal(again.flat_sample(16), fit.flat_sample(16))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the point estimate must lie within")
@pytest.mark.parametrize("method", ["guided", "smc"])
def test_draws_know_the_bounds_through_the_prior(method):
    sizes = {"guided": {"num": 2048, "num_steps": 16, "eta": 0.0, "num_checks": 0}, "smc": {"num": 2048}}
    fit = fitted(method, **{method: sizes[method]})
    log_evidence, mean, std = exact_line(0.5, 0.6, 0.0, 0.9)
    found = fit.diagnostics
    assert abs(found["log_evidence"] - log_evidence) < 5 * found["log_evidence_se"]
    draws = fit.flat_sample(2048)
    assert np.all((draws >= 0.0) & (draws <= 0.9))
    error = 5.0 / np.sqrt(2048 * min(found.get("relative_ess", 1.0), found.get("ancestors", 1.0)))
    assert draws.mean() == pytest.approx(mean, abs=error * std) and draws.std() == pytest.approx(std, rel=error)
    with pytest.raises(FitError, match="a distilled sampler knows no bounds"):
        fit.distil("langevin", num_updates=1)


def test_the_grid_has_the_moments_and_the_evidence_of_a_posterior_cut_in_its_middle():
    """A prior a hundred times wider than the posterior, whose upper half is cut away: the truth for samplers."""
    sigma, reading, wide = 0.05, 0.3, 5.0
    bound = GaussianPrior(*(jnp.asarray([part]) for part in (0.0, wide, -UNBOUNDED, reading)))

    def likelihood(z):
        return jnp.sum(jax.scipy.stats.norm.logpdf(reading, bound.to_weights(z), sigma))

    density = Density(likelihood, None, None, 1, np.dtype(float))
    found = integrate(density, bound.to_standard(jnp.asarray([0.28])), bound.to_weights)
    std = (sigma**-2 + wide**-2) ** -0.5
    mean = reading * std**2 / sigma**2
    after = scipy.stats.truncnorm(-np.inf, (reading - mean) / std, mean, std)
    normal = scipy.stats.norm
    log_evidence = normal.logpdf(reading, 0.0, np.hypot(sigma, wide)) + normal.logcdf(reading, mean, std)
    log_evidence -= normal.logcdf(reading, 0.0, wide)
    np.testing.assert_allclose(found.log_evidence, log_evidence, atol=1e-5)
    np.testing.assert_allclose([found.mean[0], found.covariance[0, 0] ** 0.5], [after.mean(), after.std()], rtol=1e-4)


@pytest.mark.slow
def test_a_point_estimate_outside_the_bounds_is_moved_and_said_so():
    with pytest.warns(UserWarning, match=r"that of slope does not \(1 of 1\); it is moved to the bound"):
        fit = fitted("laplace", upper=0.5, laplace={"num": 64})
    draws = fit.flat_sample(64)
    assert np.all((draws >= 0.0) & (draws <= 0.5))


# --- what cannot be


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"prior": {"lower": 0.0}, "target": "hierarchical", "method": "langevin"}, "bounds belong to one prior"),
        ({"prior": {"lower": {"nothing": [0.0, "x"]}}}, r"prior\.lower"),
    ],
)
def test_a_configuration_with_impossible_bounds_is_refused(asked, reason):
    with pytest.raises(ConfigError, match=reason):
        configure("ou", [asked])


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"lower": 1.0, "upper": 0.9}, "a lower bound must be below the upper one; that of slope"),
        ({"lower": {"slop": 1.0}}, "did you mean 'slope'"),
        ({"lower": 50.0}, "bounds must leave something of the prior; those of slope begin 8"),
    ],
)
@pytest.mark.filterwarnings("ignore:the point estimate must lie within")
def test_bounds_that_make_no_sense_are_refused(bounds, reason):
    options = {"prior": {"means": {"slope": 0.5}, "scales": {"slope": 0.6}, **bounds}}
    options |= {"noise": {"kind": "given", "sigma": SIGMA}}
    with pytest.raises(ConfigError, match=reason):
        ln.fit(lines(), model=Line(jnp.asarray(0.5)), method="map", target="posterior", options=options, progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # few updates of few samples: the verdict is that of a bad fit
@pytest.mark.parametrize("words", ["--method langevin", "--method gaussian-full", "--method paper", "--method laplace"])
def test_a_run_within_bounds_comes_to_its_report(words, tmp_path):
    sizes = "data.num_trajectories=12 data.num_validation=4 data.num_test=12 data.num_times=8 paper.num_steps=4 "
    sizes += "training.num_updates=4 training.num_samples=8 training.block=2 mle.num_adam=20 mle.num_lbfgs=5 "
    sizes += "predict.num_samples=32 predict.num_weights=64 predict.num_w1_draws=2 prior.lower=-1.2 prior.upper=0.9"
    target = (
        "posterior" if "laplace" in words or "gaussian" in words else "tempered" if "paper" in words else "population"
    )
    done("run", "ou", "--out", "run", *words.split(), "--target", target, *options(sizes), cwd=tmp_path)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert np.all(np.abs(found["weights"]["mean"]) < 1.2) and (tmp_path / "run" / "report.html").exists()
