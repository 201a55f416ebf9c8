"""The usual samplers against closed forms, through one contract, and what they say when they fail."""

import itertools
import json
import sys
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import problems
from langenode import samplers
from langenode.posteriors import Density, Sampled
from langenode.samplers.common import bounded_gradient
from langenode.samplers.gauss_newton import has_forward_mode, linearise
from langenode.samplers.guided import GuidedSettings, guided_langevin
from langenode.samplers.modes import find_modes, prior_starts


def guided(density, *, key, **options):
    return guided_langevin(density, GuidedSettings(num_checks=0, **options), key=key).sampled()


METHODS: dict[str, Callable[..., Sampled]] = {
    "guided": guided,
    "nuts": samplers.nuts,
    "smc": samplers.smc,
    "sgld": samplers.sgld,
    "interacting": samplers.interacting,
    "svgd": samplers.svgd,
    "pathfinder": samplers.pathfinder,
    "laplace": samplers.laplace,
    "ensemble": samplers.ensemble,
    "map": samplers.map_estimate,
}
NEED_BLACKJAX = ("nuts", "smc", "sgld", "interacting", "svgd", "pathfinder")

# Small, and the same in most tests: what costs time here is compiling.
SMALL: dict[str, dict] = {
    "guided": {"num_paths": 64, "num_steps": 4, "num_start_iterations": 10, "eta": 0.0, "num_moves": 1},
    "nuts": {"num_chains": 32, "num_warmup": 160, "num_draws": 2048, "thinning": 2, "max_doublings": 5},
    "smc": {"num_draws": 512, "num_islands": 16, "num_moves": 2, "num_leapfrog": 6, "num_last_moves": 4},
    "sgld": {"num_chains": 64, "num_warmup": 30, "num_draws": 512, "thinning": 10, "step_size": 0.2},
    "interacting": {"num_draws": 512, "num_particles": 32, "num_warmup": 40, "num_steps": 128},
    "svgd": {"num_draws": 64, "num_steps": 100},
    "pathfinder": {"num_draws": 512, "num_paths": 4, "num_iterations": 20},
    "laplace": {"num_draws": 64},
    "ensemble": {"num_members": 8},
    "map": {},
}


class Linear(eqx.Module):
    """A linear problem with prior N(0, I) as a density's callables."""

    design: jax.Array
    outputs: jax.Array
    sigma: float = eqx.field(static=True)

    def residual(self, z):
        return (self.outputs - self.design @ z) / self.sigma

    def log_likelihood(self, z):
        constant = len(self.outputs) * (np.log(self.sigma) + 0.5 * np.log(2.0 * np.pi))
        return -0.5 * jnp.sum(self.residual(z) ** 2) - constant

    def minibatch(self, z, key):
        """Half of the data, chosen at random, counted twice."""
        rows = jax.random.choice(key, len(self.outputs), (len(self.outputs) // 2,), replace=False)
        constant = len(self.outputs) * (np.log(self.sigma) + 0.5 * np.log(2.0 * np.pi))
        return -jnp.sum(self.residual(z)[rows] ** 2) - constant


def linear_density(problem, dtype=np.float64, *, has_residual=True, has_minibatch=False):
    model = Linear(jnp.asarray(problem.design, dtype), jnp.asarray(problem.outputs, dtype), float(problem.sigma))
    return Density(
        model.log_likelihood,
        model.residual if has_residual else None,
        model.minibatch if has_minibatch else None,
        problem.design.shape[1],
        np.dtype(dtype),
    )


def squares_density(residual, dim, *, has_residual=True):
    def log_likelihood(z):
        return -0.5 * jnp.sum(residual(z) ** 2)

    return Density(log_likelihood, residual if has_residual else None, None, dim, np.dtype(float))


def two_valleys(z):
    """Equal modes about z = 1 and -1 and no way between; no number right of 1.3, infinity left of -1.3."""
    broken = jnp.sqrt(1.3 - z) * jnp.where(z < -1.3, jnp.inf, 1.0)
    return (z**2 - 1.0) / 0.05 + 0.0 * broken


# Made once: the functions of a density are part of what a program is known by.
VALLEYS = squares_density(two_valleys, 1)
MISSING = squares_density(lambda z: jnp.sqrt(-1.0 - z**2), 2)


@pytest.fixture(scope="module")
def problem():
    return problems.linear_gaussian(3, num_data=6, sigma=0.3)


def whiten(draws, problem):
    mean, covariance = problem.posterior()
    return np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(draws) - mean).T).T


def moments(white):
    """First and second moments of white draws, `(draw, number)`, and their exact values."""
    dim = white.shape[-1]
    rows, columns = np.triu_indices(dim)
    second = white[..., rows] * white[..., columns]
    return np.concatenate([white, second], axis=-1), np.concatenate([np.zeros(dim), (rows == columns).astype(float)])


# --- exact methods


def test_nuts_has_the_moments_of_a_linear_posterior(problem):
    found = samplers.nuts(linear_density(problem), key=jax.random.key(0), **SMALL["nuts"])
    values, exact = moments(whiten(found.draws, problem))
    # Chains are independent: their means have honest errors, whatever the correlation within.
    problems.assert_mean(values.reshape(-1, 32, len(exact)).mean(0), exact)
    error = np.abs(values[:, :3].mean(0))
    assert np.all(error < 5.0 / np.sqrt(found.diagnostics["ess"] / 2))  # half of the transitions are kept
    assert found.trust.is_trusted, found.trust.reason
    assert found.diagnostics["r_hat"] < 1.05 and not found.diagnostics["stopped"]
    assert 0.6 < found.diagnostics["acceptance"] < 0.99


def test_smc_has_the_moments_and_the_evidence_of_a_linear_posterior(problem):
    num_islands = 16
    found = samplers.smc(linear_density(problem), key=jax.random.key(1), **SMALL["smc"])
    # Five standard deviations of a normal, as a quantile of Student's t for few islands.
    quantile = scipy.stats.t.isf(scipy.stats.norm.sf(5.0), num_islands - 1)
    difference = found.diagnostics["log_evidence"] - problem.log_evidence
    assert found.diagnostics["log_evidence_se"] < 0.2
    assert abs(difference) < quantile * found.diagnostics["log_evidence_se"]
    log_mean = jax.nn.logsumexp(found.log_weights) - np.log(len(found.log_weights))
    np.testing.assert_allclose(log_mean, found.diagnostics["log_evidence"], rtol=1e-8)

    values, exact = moments(whiten(found.draws, problem))
    by_island = values.reshape(num_islands, -1, len(exact)).mean(1)
    weights = np.exp(np.asarray(found.log_weights)[:: len(values) // num_islands] - problem.log_evidence)
    centred = weights[:, None] * (by_island - exact) / weights.mean()
    assert np.all(np.abs(centred.mean(0)) < quantile * problems.standard_error(centred))
    assert found.trust.is_trusted, found.trust.reason


# --- approximations, in the sense they promise


def test_laplace_is_exact_for_a_linear_model(problem):
    density = linear_density(problem)
    fit = samplers.laplace_fit(density, key=jax.random.key(2))
    mean, covariance = problem.posterior()
    np.testing.assert_allclose(fit.mode, mean, rtol=1e-8)
    np.testing.assert_allclose(fit.root @ fit.root.T, covariance, rtol=1e-8)
    np.testing.assert_allclose(fit.log_evidence, problem.log_evidence, rtol=1e-8)

    found = samplers.laplace(density, key=jax.random.key(2), num_draws=2048)
    values, exact = moments(whiten(found.draws, problem))
    problems.assert_mean(values, exact)
    assert found.diagnostics["relative_ess"] > 0.9999 and "k_hat" not in found.diagnostics
    assert np.all(np.asarray(found.log_weights) == 0.0) and found.trust.is_trusted


def test_laplace_without_residuals_takes_the_hessian(problem):
    fit = samplers.laplace_fit(linear_density(problem, has_residual=False), key=jax.random.key(3))
    mean, covariance = problem.posterior()
    np.testing.assert_allclose(fit.root @ fit.root.T, covariance, rtol=1e-8)
    # L-BFGS ends where the objective's rounding does: the square root of it in the point.
    np.testing.assert_allclose(fit.mode, mean, atol=1e-6)
    np.testing.assert_allclose(fit.log_evidence, problem.log_evidence, rtol=1e-8)


def test_laplace_says_when_it_is_far_off():
    def residual(z):  # a thin banana
        return jnp.stack([(z[1] - 3.0 * z[0] ** 2) / 0.05, (z[0] - 0.5) / 1.0])

    found = samplers.laplace(squares_density(residual, 2), key=jax.random.key(4))
    assert not found.trust.is_trusted and "k-hat" in found.trust.reason


@pytest.mark.slow
def test_pathfinder_weighs_its_draws(problem):
    found = samplers.pathfinder(linear_density(problem), key=jax.random.key(5), **SMALL["pathfinder"])
    values, exact = moments(whiten(found.draws, problem))
    shares = np.asarray(jax.nn.softmax(found.log_weights))
    error = np.sqrt((shares[:, None] ** 2 * (values - exact) ** 2).sum(0))
    assert np.all(np.abs(shares @ values - exact) < 5.0 * error)
    assert found.diagnostics["relative_ess"] > 0.5 and found.trust.is_trusted, found.trust.reason
    difference = found.diagnostics["log_evidence"] - problem.log_evidence
    assert abs(difference) < 5.0 * found.diagnostics["log_evidence_se"]
    # A path has 128 draws, and a normal that is nearly right has log weights of a standard deviation below one.
    assert found.diagnostics["elbo"] < problem.log_evidence + 5.0 / np.sqrt(128)


@pytest.mark.slow
def test_sgld_has_the_distribution_of_its_discretisation(problem):
    step_size, num_chains = SMALL["sgld"]["step_size"], SMALL["sgld"]["num_chains"]
    found = samplers.sgld(linear_density(problem), key=jax.random.key(6), **SMALL["sgld"])
    values, exact = moments(whiten(found.draws, problem))
    # In white coordinates `u <- (1 - e) u + sqrt(2 e) n` has variance 1/(1 - e/2): biased, and by exactly this.
    exact[3:] = exact[3:] / (1.0 - 0.5 * step_size)
    problems.assert_mean(values.reshape(-1, num_chains, len(exact)).mean(0), exact)
    assert found.diagnostics["bounded"] == 0.0 and "not checked" in found.trust.reason


def minibatch_covariance(problem, step_size):
    """Covariance of SGLD in white coordinates: `S = E[(I - e A) S (I - e A)'] + e^2 E[b b'] + 2 e I` over batches."""
    mean, covariance = problem.posterior()
    design, outputs, root = np.asarray(problem.design), np.asarray(problem.outputs), np.linalg.cholesky(covariance)
    eye, maps, noises = np.eye(3), [], []
    for batch in itertools.combinations(range(len(design)), len(design) // 2):
        rows = design[list(batch)]
        curvature = root.T @ (eye + 2.0 * rows.T @ rows / problem.sigma**2) @ root
        pull = root.T @ (2.0 * rows.T @ (outputs[list(batch)] - rows @ mean) / problem.sigma**2 - mean)
        maps.append(np.kron(eye - step_size * curvature, eye - step_size * curvature))
        noises.append(step_size**2 * np.outer(pull, pull) + 2.0 * step_size * eye)
    return np.linalg.solve(np.eye(9) - np.mean(maps, 0), np.mean(noises, 0).ravel()).reshape(3, 3)


@pytest.mark.slow
def test_sgld_with_minibatches_has_the_spread_of_their_noise(problem):
    step_size, num_chains = SMALL["sgld"]["step_size"], SMALL["sgld"]["num_chains"]
    found = samplers.sgld(linear_density(problem, has_minibatch=True), key=jax.random.key(7), **SMALL["sgld"])
    values, exact = moments(whiten(found.draws, problem))
    covariance = minibatch_covariance(problem, step_size)
    exact[3:] = covariance[np.triu_indices(3)]
    assert np.trace(covariance) > 1.05 * 3.0 / (1.0 - 0.5 * step_size)  # else minibatches do nothing here
    problems.assert_mean(values.reshape(-1, num_chains, len(exact)).mean(0), exact)


def test_svgd_rests_near_the_posterior(problem):
    found = samplers.svgd(linear_density(problem), key=jax.random.key(8), **SMALL["svgd"])
    values, exact = moments(whiten(found.draws, problem))
    # Particles that repel each other stand no worse than as many independent draws would.
    problems.assert_mean(values, exact)
    assert found.trust == (True, "not checked: svgd has no diagnostic of its own", False)


@pytest.mark.parametrize("has_residual", [True, False])
def test_point_estimates_find_the_mode(problem, has_residual):
    density = linear_density(problem, has_residual=has_residual)
    members = samplers.ensemble(density, key=jax.random.key(9), num_members=8)
    mean, _ = problem.posterior()
    tolerance = 1e-8 if has_residual else 1e-6
    np.testing.assert_allclose(members.draws, np.tile(mean, (8, 1)), atol=tolerance)
    best = samplers.map_estimate(density, key=jax.random.key(9))
    np.testing.assert_allclose(best.draws, mean[None], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("has_residual", [True, False])
def test_an_ensemble_finds_both_modes(has_residual):
    density = VALLEYS if has_residual else squares_density(two_valleys, 1, has_residual=False)
    members = np.asarray(samplers.ensemble(density, key=jax.random.key(10), num_members=8).draws)[:, 0]
    exact = np.sqrt(1.0 - 0.5 * 0.05**2)  # where the derivative of |r|^2/2 + z^2/2 vanishes
    np.testing.assert_allclose(np.abs(members), exact, rtol=1e-6)
    assert {-1.0, 1.0} == set(np.sign(members))
    best = samplers.map_estimate(density, key=jax.random.key(10))
    np.testing.assert_allclose(np.abs(best.draws), [[exact]], rtol=1e-6)


# --- one contract

# To compile; their moments, budgets and failures are tested elsewhere in this file, guided's in test_guided.py.
CONTRACT_SLOW = ("guided", "nuts", "sgld", "interacting", "svgd", "pathfinder", "smc")


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=[pytest.mark.slow])])
@pytest.mark.parametrize(
    "method", [pytest.param(n, marks=[pytest.mark.slow] if n in CONTRACT_SLOW else []) for n in METHODS]
)
def test_contract(method, dtype, problem):
    """With residuals in double, without them (if it can) in single precision: shapes, types, finite, repeatable."""
    density = linear_density(problem, dtype, has_residual=dtype == np.float64 or method == "guided")
    found = METHODS[method](density, key=jax.random.key(11), **SMALL[method])
    again = METHODS[method](density, key=jax.random.key(11), **SMALL[method])
    np.testing.assert_array_equal(found.draws, again.draws)
    np.testing.assert_array_equal(found.log_weights, again.log_weights)
    assert found.diagnostics == again.diagnostics

    expected = {"guided": 64, "ensemble": 8, "map": 1}.get(method, SMALL[method].get("num_draws"))
    assert found.draws.shape == (expected, 3) and found.log_weights.shape == (expected,)
    assert found.draws.dtype == found.log_weights.dtype == dtype
    assert np.all(np.isfinite(np.asarray(found.draws))) and np.all(np.isfinite(np.asarray(found.log_weights)))
    parts = [value.values() if isinstance(value, dict) else [value] for value in found.diagnostics.values()]
    assert all(type(value) in (bool, int, float) for part in parts for value in part)
    assert json.loads(json.dumps(dict(found.diagnostics), allow_nan=False)) == found.diagnostics
    assert found.diagnostics["num_evaluations"] > 0 and found.diagnostics["dropped"] == 0
    assert isinstance(found.trust.is_trusted, bool) and len(found.trust.reason) > 10


BREAKABLE = [name for name in METHODS if name != "map"]


# The ensemble's modes of this model, nuts' chains on it and a like model of guided are in other tests.
@pytest.mark.parametrize(
    "method", [pytest.param(n, marks=[] if n == "ensemble" else [pytest.mark.slow]) for n in BREAKABLE]
)
def test_a_model_that_breaks_leaves_finite_draws(method):
    density = VALLEYS
    found = METHODS[method](density, key=jax.random.key(12), **SMALL[method])
    assert np.all(np.isfinite(np.asarray(found.draws))) and np.all(np.isfinite(np.asarray(found.log_weights)))
    assert np.all(np.isfinite(np.asarray(jax.vmap(density.log_posterior)(found.draws))))


@pytest.mark.parametrize(
    "method", [pytest.param(n, marks=[] if n in ("map", "smc") else [pytest.mark.slow]) for n in METHODS]
)
def test_a_model_without_any_number_is_an_error(method):
    with pytest.raises(ValueError, match="must be finite somewhere"):
        METHODS[method](MISSING, key=jax.random.key(13), **SMALL[method])


@pytest.mark.parametrize("method", NEED_BLACKJAX)
def test_without_blackjax_one_line_says_what_to_do(method, problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    message = f"method {method} needs the blackjax package; it is not installed; pip install 'langenode"
    with pytest.raises(ModuleNotFoundError, match=message):
        METHODS[method](linear_density(problem), key=jax.random.key(14))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("guided", {"num_paths": 1}, "num_paths must be 2 or more; got 1;"),
        ("nuts", {"num_chains": 1}, "num_chains must be 2 or more; got 1;"),
        ("nuts", {"num_draws": 0}, "num_draws must be 1 or more; got 0;"),
        ("smc", {"num_islands": 1}, "num_islands must be 2 or more; got 1;"),
        ("smc", {"num_islands": 5, "num_draws": 19}, "num_draws must be 20 or more; got 19;"),
        ("sgld", {"num_chains": 1}, "num_chains must be 2 or more; got 1;"),
        ("svgd", {"num_draws": 1}, "num_draws must be 2 or more; got 1;"),
        ("pathfinder", {"num_paths": 8, "num_draws": 7}, "num_draws must be 8 or more; got 7;"),
        ("pathfinder", {"num_paths": 0}, "num_paths must be 1 or more; got 0;"),
        ("laplace", {"num_draws": 0}, "num_draws must be 1 or more; got 0;"),
        ("ensemble", {"num_members": 0}, "num_members must be 1 or more; got 0;"),
        ("map", {"num_starts": 0}, "num_starts must be 1 or more; got 0;"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(method, options, message, problem):
    with pytest.raises(ValueError, match=message):
        METHODS[method](linear_density(problem), key=jax.random.key(15), **options)


# --- budgets and verdicts


@pytest.mark.slow
def test_a_budget_ends_nuts_and_sgld_early(problem):
    density = linear_density(problem)
    found = samplers.nuts(density, key=jax.random.key(16), **SMALL["nuts"], budget=0.0)
    assert found.diagnostics["stopped"] and found.draws.shape == (32 * 16, 3)  # a block of 32 transitions, halved
    assert "stopped by the budget" in found.trust.reason
    found = samplers.sgld(density, key=jax.random.key(16), **SMALL["sgld"], budget=0.0)
    assert found.diagnostics["stopped"] and found.draws.shape == (64, 3)
    assert not found.trust.is_trusted


@pytest.mark.slow
def test_nuts_reports_chains_that_stay_in_their_modes():
    density = VALLEYS
    found = samplers.nuts(density, key=jax.random.key(17), **SMALL["nuts"])
    assert found.diagnostics["r_hat"] > 1.5
    assert found.diagnostics["r_hat_predictions"] < 1.5
    # The modes predict the same, so the predictions decide, and both numbers are told.
    assert found.trust.is_trusted and found.diagnostics["trusted_in"]
    assert "R-hat 1.7" in found.trust.reason and "of the predictions" in found.trust.reason


def hidden_spike(z):
    """A wide mode at the origin, and a spike with fifty times its mass that an island of 32 particles may miss."""
    spike = np.log(50.0 / 0.05) + 0.5 * 1.8**2 - 0.5 * jnp.sum(((z - 1.8) / 0.05) ** 2)
    return jnp.logaddexp(-0.5 * jnp.sum(z**2), spike)


@pytest.mark.slow
def test_smc_reports_islands_that_disagree():
    density = Density(hidden_spike, None, None, 1, np.dtype(float))
    found = samplers.smc(density, key=jax.random.key(18), **SMALL["smc"])
    assert found.diagnostics["evidence_spread"] > 0.5
    assert not found.trust.is_trusted and "islands disagree" in found.trust.reason


# --- parts


@jax.custom_vjp
def _reverse_only(z):
    return jnp.sin(z)


_reverse_only.defvjp(lambda z: (jnp.sin(z), z), lambda z, cotangent: (cotangent * jnp.cos(z),))


@pytest.mark.slow
def test_a_model_that_goes_backwards_only_has_the_same_curvature():
    mix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    point = jnp.asarray([0.3, -0.4])
    assert has_forward_mode(lambda z: mix @ jnp.sin(z), point)
    assert not has_forward_mode(lambda z: mix @ _reverse_only(z), point)

    @jax.jit
    def gram_matrices(point):
        functions = (lambda z: mix @ _reverse_only(z), lambda z: mix @ jnp.sin(z))
        return [[linearise(f, point, form).curvature.gram for f in functions] for form in ("weights", "data")]

    for backwards, both in gram_matrices(point):
        np.testing.assert_allclose(backwards, both, rtol=1e-8)
    fits = [
        samplers.laplace_fit(squares_density(lambda z, f=f: (mix @ f(z) - 0.5) / 0.1, 2), key=jax.random.key(19))
        for f in (jnp.sin, _reverse_only)
    ]
    np.testing.assert_allclose(fits[1].mode, fits[0].mode, rtol=1e-8)
    np.testing.assert_allclose(fits[1].log_evidence, fits[0].log_evidence, rtol=1e-8)


def test_starts_are_draws_of_the_prior_where_the_model_gives_numbers():
    density = VALLEYS
    starts = np.asarray(prior_starts(density, 64, key=jax.random.key(20)))
    assert np.all(np.abs(starts) <= 1.3) and len(np.unique(starts)) == 64
    modes = find_modes(density, jnp.asarray(starts), num_iterations=20)
    assert np.all(np.asarray(modes.log_posteriors) >= np.asarray(jax.vmap(density.log_posterior)(jnp.asarray(starts))))


def test_gradients_are_bounded_and_never_missing():
    u = jnp.asarray([3.0, 4.0])
    np.testing.assert_array_equal(bounded_gradient(jnp.asarray([1.0, 2.0]), u)[0], [1.0, 2.0])
    long, is_bounded = bounded_gradient(jnp.asarray([3e8, 4e8]), u)
    np.testing.assert_allclose(jnp.linalg.norm(long), 10.0 * np.sqrt(2.0), rtol=1e-8)
    assert bool(is_bounded)
    missing, is_bounded = bounded_gradient(jnp.asarray([jnp.nan, 1.0]), u)
    np.testing.assert_array_equal(missing, -u)
    assert bool(is_bounded)
