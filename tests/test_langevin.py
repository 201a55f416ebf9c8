"""The Langevin chain against closed forms: OU processes, linear-Gaussian problems, Euler-Maruyama's order."""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.integrate
from jax.flatten_util import ravel_pytree

import problems
from langenode.models import num_parameters
from langenode.posteriors import Departures, Reference, graded_grid, langevin, paper_langevin, uniform_grid
from langenode.posteriors.controls import AutonomousDrift, StepControl
from langenode.posteriors.langevin import NormalStart, StepNoise, _Running
from langenode.posteriors.white_noise import white_noise, words_of
from langenode.simulators import ou

STEP_KINDS = ("exact", "euler")


def standard(dim):
    return Reference(jnp.zeros(dim), jnp.ones(dim))


def cut_into_segments(monkeypatch):
    """Make every chain keep little and recompute the rest; the module is hidden behind the function of its name."""
    monkeypatch.setattr(importlib.import_module("langenode.posteriors.langevin"), "LARGEST_PLAIN_SCAN", 0)


def normal_start(mean, scale):
    return NormalStart(jnp.asarray(mean, float), jnp.log(jnp.asarray(scale, float)))


# --- two OU processes in one dimension: everything is a closed form


class AR1(eqx.Module):
    """`z_{k+1} = decay_k z_k + shift_k + N(0, variance_k)` from `N(mean, scale^2)`, in one dimension."""

    decay: np.ndarray
    shift: np.ndarray
    variance: np.ndarray
    mean: float
    scale: float

    def joint(self):
        """Mean and covariance of (z_0, ..., z_K)."""
        num = len(self.decay) + 1
        solve = np.linalg.inv(np.eye(num) - np.diag(self.decay, -1))
        covariance = solve @ np.diag(np.append(self.scale**2, self.variance)) @ solve.T
        return solve @ np.append(self.mean, self.shift), covariance

    def last(self):
        """Mean and covariance of z_K."""
        mean, covariance = self.joint()
        return mean[-1:], covariance[-1:, -1:]


class Process(eqx.Module):
    """The OU process `dz = -rate (z - level) dtau + diffusion sqrt(2) dB` from `N(mean, scale^2)`."""

    rate: float
    level: float
    diffusion: float
    mean: float
    scale: float

    def on(self, grid, step_kind):
        """The process at the knots of a grid: as it is, or by Euler-Maruyama."""
        length = np.diff(np.asarray(grid, float))
        if step_kind == "euler":
            decay, variance = 1.0 - self.rate * length, 2.0 * self.diffusion**2 * length
        else:
            decay = np.exp(-self.rate * length)
            variance = self.diffusion**2 * -np.expm1(-2.0 * self.rate * length) / self.rate
        return AR1(decay, (1.0 - decay) * self.level, variance, self.mean, self.scale)


def chain_of(ours: Process, theirs: Process, *, num_steps, horizon, step_kind: Any, grid: Any = "uniform"):
    """The chain that is `ours` at its knots, controlled away from `theirs` (of rate diffusion^2 and level 0)."""
    chain = langevin(
        standard(1),
        num_steps=num_steps,
        horizon=horizon,
        layers=(1,),
        grid=grid,
        step_kind=step_kind,
        diffusion=ours.diffusion,
        noise="fixed" if step_kind == "euler" else "diagonal",
        key=jax.random.key(0),
    )
    process, reference = ours.on(chain.grid, step_kind), theirs.on(chain.grid, step_kind)
    # An Euler control is an addition to the drift over diffusion^2, an exact one is in units of the step's noise.
    unit = np.sqrt(reference.variance) if step_kind == "exact" else ours.diffusion**2 * np.diff(np.asarray(chain.grid))
    gain, shift = (process.decay - reference.decay) / unit, process.shift / unit
    chain = eqx.tree_at(
        lambda c: (c.control.gain, c.control.shift, c.start, c.reference_start),
        chain,
        (
            jnp.asarray(gain)[:, None, None],
            jnp.asarray(shift)[:, None],
            normal_start([ours.mean], [ours.scale]),
            normal_start([theirs.mean], [theirs.scale]),
        ),
    )
    if step_kind == "exact":
        log_scale = 0.5 * np.log(process.variance / reference.variance)
        chain = eqx.tree_at(lambda c: c.noise.log_scale, chain, jnp.asarray(log_scale)[:, None])
    return chain


@problems.quick_jit
def run_with(chain, z, white):
    """The chain's own steps from given states and with given white noise, one run a row."""

    def one(z, white):
        steps = (jnp.arange(chain.num_steps), chain._coefficients(), white)
        first = _Running(z, jnp.zeros(()), jnp.zeros(()))
        return jax.lax.scan(lambda running, xs: (chain._advance(chain, running, *xs), None), first, steps)[0]

    return jax.vmap(one)(z, white)


def expected_step_terms(chain):
    """E[kl] and E[log_ratio] of the steps of a chain in one dimension, without Monte Carlo.

    With an affine control both are quadratic in the n normal numbers that make a path, and for a quadratic f the
    expectation is `(1 - n) f(0) + 1/2 sum_i [f(e_i) + f(-e_i)]`.
    """
    num = chain.num_steps + 1
    points = jnp.concatenate([jnp.zeros((1, num)), jnp.eye(num), -jnp.eye(num)])
    weights = np.concatenate([[1.0 - num], np.full(2 * num, 0.5)])
    z = chain.start.mean + jnp.exp(chain.start.log_scale) * points[:, :1]
    last = run_with(chain, z, points[:, 1:, None])
    return weights @ np.asarray(last.kl), weights @ np.asarray(last.log_ratio)


def two_processes(diffusion):
    ours = Process(rate=2.5, level=0.8, diffusion=diffusion, mean=-0.5, scale=0.6)
    return ours, Process(rate=diffusion**2, level=0.0, diffusion=diffusion, mean=0.2, scale=1.1)


def start_kl(ours: Process, theirs: Process):
    starts = [(np.array([p.mean]), np.array([[p.scale**2]])) for p in (ours, theirs)]
    return problems.normal_kl(*starts[0], *starts[1])


@pytest.mark.parametrize("diffusion", [pytest.param(1.0, marks=[pytest.mark.slow]), 1.3])
@pytest.mark.parametrize("step_kind", STEP_KINDS)
def test_path_kl_of_two_ou_processes_is_the_kl_of_their_joint_distributions(step_kind, diffusion):
    ours, theirs = two_processes(diffusion)
    chain = chain_of(ours, theirs, num_steps=12, horizon=1.5, step_kind=step_kind, grid="graded")
    process, reference = ours.on(chain.grid, step_kind), theirs.on(chain.grid, step_kind)
    path_kl = problems.normal_kl(*process.joint(), *reference.joint())
    np.testing.assert_allclose(chain._begin(chain, jax.random.key(0)).kl, start_kl(ours, theirs), rtol=1e-8)
    np.testing.assert_allclose(expected_step_terms(chain), path_kl - start_kl(ours, theirs), rtol=1e-8)

    draws = problems.draw_many(chain, jax.random.split(jax.random.key(1), 8192))
    problems.assert_mean(draws.kl, path_kl)
    problems.assert_mean(draws.log_ratio, path_kl)
    mean, variance = process.last()
    problems.assert_mean(draws.weights, mean)
    problems.assert_mean((draws.weights - mean) ** 2, variance[0])
    np.testing.assert_allclose(chain.terminal_reference()[0], reference.last()[0], rtol=1e-8)
    np.testing.assert_allclose(chain.terminal_reference()[1] ** 2, reference.last()[1][0], rtol=1e-8)


@pytest.mark.parametrize("step_kind", STEP_KINDS)
def test_path_kl_without_feedback_is_not_random(step_kind):
    """A control that does not see the state leaves only closed forms: shifts, variance factors and the start."""
    ours, theirs = two_processes(1.0)
    chain = chain_of(ours, theirs, num_steps=12, horizon=1.5, step_kind=step_kind, grid="graded")
    chain = eqx.tree_at(lambda c: c.control.gain, chain, jnp.zeros((12, 1, 1)))
    _, push, noise = chain._coefficients()
    exact = start_kl(ours, theirs) + 0.5 * np.sum((push * chain.control.shift[:, 0] / noise) ** 2)
    if isinstance(chain.noise, StepNoise):
        factor = np.exp(2.0 * chain.noise.log_scale)
        exact += 0.5 * np.sum(factor - 1.0 - np.log(factor))
    draws = problems.draw_many(chain, jax.random.split(jax.random.key(1), 8192))
    np.testing.assert_allclose(draws.kl, exact, rtol=1e-8)
    problems.assert_mean(draws.log_ratio, exact)


@pytest.mark.parametrize("diffusion", [1.0, 1.3])
def test_path_kl_tends_to_a_quarter_of_the_squared_drift_difference(diffusion):
    """`int E|f_q - f_p|^2 / (4 gamma^2) dtau`, at first order in the step; the paper prints twice this."""
    ours, theirs = two_processes(diffusion)
    horizon, sizes = 1.5, np.array([16, 32, 64])

    def rate(tau):
        decay = np.exp(-ours.rate * tau)
        mean = ours.level + (ours.mean - ours.level) * decay
        variance = ours.scale**2 * decay**2 + diffusion**2 / ours.rate * (1.0 - decay**2)
        slope, offset = theirs.rate - ours.rate, ours.rate * ours.level
        return ((slope * mean + offset) ** 2 + slope**2 * variance) / (4.0 * diffusion**2)

    limit = scipy.integrate.quad(rate, 0.0, horizon, epsabs=1e-12)[0]
    steps = [
        expected_step_terms(chain_of(ours, theirs, num_steps=int(num), horizon=horizon, step_kind="euler"))[0]
        for num in sizes
    ]
    errors = np.abs(np.array(steps) - limit)
    assert abs(problems.fitted_order(horizon / sizes, errors) - 1.0) < 0.4
    # Two first-order results combine to a second-order one: its error is a step size smaller than theirs.
    extrapolated = 2.0 * steps[-1] - steps[-2]
    assert abs(extrapolated - limit) < ours.rate * horizon / sizes[-1] * errors[-1]


@pytest.mark.parametrize("step_kind", STEP_KINDS)
def test_kl_of_the_end_is_at_most_the_path_kl(step_kind):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        diffusion, rate, scale = np.exp(0.3 * rng.normal(size=3))
        ours = Process(rate=rate, level=rng.normal(), diffusion=diffusion, mean=rng.normal(), scale=scale)
        theirs = Process(rate=diffusion**2, level=0.0, diffusion=diffusion, mean=0.0, scale=1.0)
        chain = chain_of(ours, theirs, num_steps=12, horizon=1.5, step_kind=step_kind, grid="graded")
        path_kl = float(chain._begin(chain, jax.random.key(0)).kl) + expected_step_terms(chain)[0]
        mean, scale = chain.terminal_reference()
        end_kl = problems.normal_kl(*ours.on(chain.grid, step_kind).last(), np.asarray(mean), np.diag(scale**2))
        assert 0.0 < end_kl <= path_kl


# --- the densities of a path, and the reference's end


@pytest.mark.parametrize("step_kind", STEP_KINDS)
def test_log_ratio_is_the_ratio_of_transition_densities_along_the_path(step_kind):
    chain = langevin(
        problems.reference_of(3, rank=2), num_steps=5, layers=(4,), step_kind=step_kind, key=jax.random.key(0)
    )
    chain = eqx.tree_at(
        lambda c: (c.reference_start, c.diffusion),
        problems.perturbed(chain, 0.3),
        (normal_start([0.5, -0.3, 0.1], [0.8, 1.2, 0.9]), jnp.asarray(0.7)),
    )
    key = jax.random.key(2)
    draw, path = problems.quick_jit(lambda chain: (chain.draw(key=key), chain.path(key=key)))(chain)
    assert path.shape == (6, 3)
    np.testing.assert_array_equal(path[-1], draw.weights)

    root = problems.dense_root(chain.reference)
    z = np.linalg.solve(root, (np.asarray(path) - np.asarray(chain.reference.mean)).T).T
    starts = [(start.mean, np.diag(np.exp(2.0 * start.log_scale))) for start in (chain.start, chain.reference_start)]
    log_density = problems.log_normal
    kl, log_ratio = (
        problems.normal_kl(*starts[0], *starts[1]),
        log_density(z[0], *starts[0]) - log_density(z[0], *starts[1]),
    )
    mean, covariance = starts[1]  # of the reference, step by step
    for step, length in enumerate(0.7**2 * np.diff(chain.grid)):
        decay, variance = (1.0 - length, 2.0 * length) if step_kind == "euler" else _exact_step(length)
        push = length if step_kind == "euler" else np.sqrt(variance)
        control = np.asarray(chain.control(jnp.asarray(z[step]), jnp.asarray(step)))
        colour = np.diag(np.exp(chain.noise.log_scale[step])) + np.tril(chain.noise.lower[step], -1)
        our_step = (decay * z[step] + push * control, variance * colour @ colour.T)
        their_step = (decay * z[step], variance * np.eye(3))
        kl += problems.normal_kl(*our_step, *their_step)
        log_ratio += log_density(z[step + 1], *our_step) - log_density(z[step + 1], *their_step)
        mean, covariance = decay * mean, decay**2 * covariance + variance * np.eye(3)
    log_reference = log_density(path[-1], chain.reference.mean + root @ mean, root @ covariance @ root.T)
    np.testing.assert_allclose(draw.kl, kl, rtol=1e-8)
    np.testing.assert_allclose(draw.log_ratio, log_ratio, rtol=1e-8)
    np.testing.assert_allclose(draw.log_reference, log_reference, rtol=1e-8)


def _exact_step(length):
    return np.exp(-length), -np.expm1(-2.0 * length)


@pytest.mark.parametrize("diffusion", [1.0, 1.7])
@pytest.mark.parametrize("grid", ["graded", "uniform"])
def test_exact_reference_chain_stays_stationary(grid, diffusion):
    chain = langevin(standard(2), num_steps=7, layers=(4,), grid=grid, diffusion=diffusion, key=jax.random.key(0))
    mean, scale = chain.terminal_reference()
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(scale, 1.0, rtol=1e-14)


def test_exact_reference_chain_from_the_mle():
    """N(e^-T z_0, 1 - e^-2T + eps e^-2T), on any grid."""
    horizon, variance, z = 1.2, 1e-5, np.array([0.7, -1.5])
    for num_steps in (1, 7):
        chain = langevin(standard(2), num_steps=num_steps, horizon=horizon, layers=(4,), key=jax.random.key(0))
        chain = eqx.tree_at(lambda c: c.reference_start, chain, normal_start(z, np.full(2, np.sqrt(variance))))
        mean, scale = chain.terminal_reference()
        np.testing.assert_allclose(mean, np.exp(-horizon) * z, rtol=1e-8)
        np.testing.assert_allclose(scale**2, 1.0 - np.exp(-2 * horizon) * (1.0 - variance), rtol=1e-8)


@pytest.mark.parametrize("diffusion", [1.0, 1.7])
def test_euler_reference_chain_has_its_own_stationary_variance(diffusion):
    step = 0.02
    reference = problems.reference_of(2)
    options = {"num_steps": 2000, "pseudo_time_step": step, "diffusion": diffusion, "key": jax.random.key(0)}
    kept = paper_langevin(reference, reference.mean + 1.0, departures=Departures(annealing="time"), **options)
    mean, scale = kept.terminal_reference()
    np.testing.assert_allclose(mean, 0.0, atol=1e-14)
    np.testing.assert_allclose(scale**2, 1.0 / (1.0 - diffusion**2 * step / 2.0), rtol=1e-8)
    printed = paper_langevin(reference, reference.mean + 1.0, **options)
    np.testing.assert_allclose(printed.terminal_reference()[1] ** 2, diffusion**2 / (1.0 - step / 2.0), rtol=1e-8)


def test_paper_chain_starts_at_the_mle():
    reference = problems.reference_of(3)
    weights = jnp.array([0.4, -0.2, 2.0])
    chain = paper_langevin(reference, weights, num_steps=4, start_variance=1e-4, key=jax.random.key(0))
    start = chain.reference_start
    np.testing.assert_allclose(reference.to_weights(start.mean), weights, rtol=1e-12)
    np.testing.assert_allclose(reference.scale * jnp.exp(start.log_scale), 1e-2, rtol=1e-12)


def test_paper_chain_refuses_a_reference_with_correlated_weights():
    reference = problems.reference_of(3, rank=2)
    with pytest.raises(ValueError, match=r"diagonal covariance.*rank 2.*Reference\(mean, scale\)"):
        paper_langevin(reference, reference.mean, num_steps=4, key=jax.random.key(0))


# --- the diffusion as an argument


@pytest.mark.parametrize("step_kind", STEP_KINDS)
def test_a_draw_with_another_diffusion_is_that_of_a_chain_which_stores_it(step_kind):
    chain = langevin(standard(2), num_steps=3, layers=(4,), step_kind=step_kind, key=jax.random.key(0))
    chain = problems.perturbed(chain, 0.3)
    other, key = jnp.asarray(1.7), jax.random.key(1)
    stored = chain.with_diffusion(other)
    assert (float(chain.diffusion), float(stored.diffusion)) == (1.0, 1.7)
    given = chain.draw(key=key, diffusion=other)
    for one, two in zip(given, stored.draw(key=key), strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.all(given.weights != chain.draw(key=key).weights)


# --- grids


@pytest.mark.parametrize("has_64_bits", [True, False])
@pytest.mark.parametrize("horizon", [0.5, 3.0, 10.0, 30.0])
def test_graded_grid_follows_its_formula(horizon, has_64_bits):
    num_steps = 8
    with jax.enable_x64(has_64_bits):
        grid = np.asarray(graded_grid(num_steps, horizon))
    rounding = 4.0 * np.finfo(grid.dtype).eps
    np.testing.assert_allclose(grid[[0, -1]], [0.0, horizon], atol=rounding * horizon)
    assert np.all(np.diff(grid) > 0.0)
    remaining = -np.expm1(-2.0 * (horizon - grid.astype(float)))
    exact = -np.expm1(-2.0 * horizon) * (1.0 - np.arange(num_steps + 1) / num_steps) ** 2
    np.testing.assert_allclose(remaining, exact, atol=2.0 * rounding * horizon)


def test_uniform_grid_has_equal_steps():
    np.testing.assert_allclose(np.diff(uniform_grid(10, 2.5)), 0.25, rtol=1e-12)


@pytest.mark.parametrize("wrong", [{"grid": "log"}, {"noise": "banded"}, {"estimator": "score"}, {"step_kind": "heun"}])
def test_unknown_options_are_refused(wrong):
    jaxtyping.config.update("jaxtyping_disable", True)  # it would refuse them first, and a user has it not
    try:
        with pytest.raises(ValueError, match="choose one of them"):
            langevin(standard(2), num_steps=2, layers=(4,), key=jax.random.key(0), **wrong)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


# --- importance weights


@pytest.mark.parametrize(
    ("step_kind", "start", "rank"),
    [
        ("exact", "learned", None),
        pytest.param("euler", "learned", 2, marks=[pytest.mark.slow]),
        pytest.param("exact", "paper", 2, marks=[pytest.mark.slow]),
        ("euler", "paper", None),
    ],
)
def test_weights_of_an_untrained_chain_average_to_the_evidence(step_kind, start, rank):
    reference = problems.reference_of(3, rank=rank)
    chain = langevin(
        reference,
        num_steps=8,
        horizon=1.5,
        layers=(4,),
        grid="uniform",
        step_kind=step_kind,
        learn_start=start == "learned",
        key=jax.random.key(0),
    )
    chain = problems.perturbed(chain, 0.07)
    if start == "paper":
        mle = reference.to_standard(jnp.array([0.3, 0.6, -0.4]))
        chain = eqx.tree_at(lambda c: c.reference_start, chain, NormalStart(mle, jnp.full(3, 0.5 * np.log(1e-5))))
    other_prior = Reference(reference.mean + 0.2, 0.8 * reference.scale)
    for seed, prior in enumerate((reference, other_prior)):
        problem = problems.linear_gaussian(3, num_data=5, sigma=1.0, prior=prior)
        for diffusion in (1.0, 1.7):
            this = eqx.tree_at(lambda c: c.diffusion, chain, jnp.asarray(diffusion))
            keys = jax.random.split(jax.random.key(seed), 16384)
            problems.assert_evidence(problems.weigh(this, problem, keys)[1], problem, precision=0.05)


# --- Euler-Maruyama


class Score(eqx.Module):
    """Appendix C's score as a control of the paper's chain: the whole drift is `u - z`, with `z = w - mean`."""

    mean: jax.Array
    parameters: ou.OUParameters = eqx.field(static=True)

    def __call__(self, z, step):
        return z + ou.score(self.mean + z, self.parameters)


def test_score_is_the_gradient_of_the_log_density():
    parameters = ou.OUParameters()
    weights = jnp.asarray(np.random.default_rng(0).normal([-8.0, 8.0], [0.8, 1.1], size=(64, 2)))
    gradient = jax.grad(lambda w: ou.log_density(w, parameters))
    score, expected = problems.quick_jit(jax.vmap(lambda w: (ou.score(w, parameters), gradient(w))))(weights)
    np.testing.assert_allclose(score, expected, rtol=1e-8, atol=1e-8)


def test_langevin_sde_with_the_score_has_the_moments_of_the_weights(monkeypatch):
    cut_into_segments(monkeypatch)  # so that the noise of different segments is seen to be independent
    parameters, step = ou.OUParameters(), 0.01
    exact = ou.exact_moments(parameters)
    start = jnp.array([-7.5, 7.0])
    chain = paper_langevin(standard(2), start, num_steps=1000, pseudo_time_step=step, key=jax.random.key(0))
    chain = eqx.tree_at(lambda c: c.control, chain, Score(jnp.zeros(2), parameters))
    samples = np.asarray(problems.quick_jit(lambda c, key: c.sample(4096, key=key))(chain, jax.random.key(1)))
    standardised = (samples - exact.mean) / exact.std

    # Two systematic errors. Euler-Maruyama on a normal of precision A has covariance (A - step A^2 / 2)^-1, and
    # the chain forgets its start at the rate of A's smallest eigenvalue. Twice their sum: the weights are not normal.
    correlation = np.array([[1.0, exact.corr], [exact.corr, 1.0]])
    precision = np.linalg.inv(correlation * np.outer(exact.std, exact.std))
    discrete = np.linalg.inv(precision - 0.5 * step * precision @ precision)
    relative = discrete / np.outer(exact.std, exact.std) - correlation
    offset = np.linalg.norm((np.asarray(start) - exact.mean) / exact.std)
    forgotten = np.exp(-np.linalg.eigvalsh(precision)[0] * step * chain.num_steps) * max(offset, 1.0)
    bias = 2.0 * (np.abs(relative).max() + forgotten)
    assert bias < 0.1
    problems.assert_mean(standardised, 0.0, bias=bias)
    problems.assert_mean(standardised**2, 1.0, bias=bias)
    problems.assert_mean(standardised.prod(axis=1), exact.corr, bias=bias)


class Pull(eqx.Module):
    """A control that makes the drift `-rate (z - level) - strength sin(z)`."""

    rate: jax.Array
    level: jax.Array
    strength: jax.Array

    def __call__(self, z, step):
        return z - self.rate * (z - self.level) - self.strength * jnp.sin(z)


@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_euler_steps_converge_at_strong_order_one(strength):
    """Additive noise: order 1, not 1/2. Coarse and fine chains are driven by one Brownian path."""
    horizon, finest, sizes = 1.0, 512, np.array([8, 16, 32])
    white = jax.random.normal(jax.random.key(0), (512, finest, 1))
    z = jax.random.normal(jax.random.key(1), (512, 1))

    def end(num_steps):
        chain = paper_langevin(
            standard(1), jnp.zeros(1), num_steps=num_steps, pseudo_time_step=horizon / num_steps, key=jax.random.key(2)
        )
        chain = eqx.tree_at(lambda c: c.control, chain, Pull(*jnp.array([2.0, 0.5, strength])))
        together = finest // num_steps
        noise = white.reshape(512, num_steps, together, 1).sum(axis=2) / np.sqrt(together)
        return np.asarray(run_with(chain, z, noise).z)

    fine = end(finest)
    errors = [np.sqrt(np.mean((end(int(num)) - fine) ** 2)) for num in sizes]
    assert abs(problems.fitted_order(horizon / sizes, errors) - 1.0) < 0.4


# --- gradients


@pytest.fixture(scope="module")
def small_problem():
    return problems.linear_gaussian(2, num_data=5, sigma=0.8)


def small_chain(estimator):
    chain = langevin(standard(2), num_steps=3, layers=(4,), estimator=estimator, key=jax.random.key(0))
    return problems.perturbed(chain, 0.3)


BATCH_KEYS = jax.random.split(jax.random.key(2), (2048, 8))


@pytest.fixture(scope="module")
def reparametrised_gradients(small_problem):
    return np.asarray(problems.batch_gradients(small_chain("reparametrised"), small_problem, BATCH_KEYS))


def test_reparametrised_gradient_equals_finite_differences(small_problem, reparametrised_gradients):
    numbers, rest = eqx.partition(small_chain("reparametrised"), small_chain("reparametrised").trained())
    flat, unravel = ravel_pytree(numbers)
    step = 1e-5
    moved = flat + step * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)])

    @problems.quick_jit
    def losses(rows):
        loss = lambda row: problems.negative_bound(eqx.combine(unravel(row), rest), small_problem, BATCH_KEYS[0])  # noqa: E731
        return jax.vmap(loss)(rows)

    up, down = np.split(np.asarray(losses(moved)), 2)
    gradient = reparametrised_gradients[0]
    np.testing.assert_allclose(gradient, (up - down) / (2.0 * step), rtol=1e-5, atol=1e-7 * np.abs(gradient).max())


@pytest.mark.parametrize("estimator", ["sticking", "log_variance"])
def test_other_estimators_have_the_same_gradient_in_the_mean(estimator, small_problem, reparametrised_gradients):
    gradients = np.asarray(problems.batch_gradients(small_chain(estimator), small_problem, BATCH_KEYS))
    problems.assert_mean(gradients - reparametrised_gradients, 0.0)
    # The test has power: the gradient itself is far from zero.
    assert np.linalg.norm(gradients.mean(0)) > 10.0 * np.linalg.norm(problems.standard_error(gradients))


def test_kl_of_the_start_keeps_its_gradient_with_sticking():
    """`kl` is no part of the sticking bound, but a population target's KL term is made of it."""

    def gradient(estimator):
        chain = small_chain(estimator)

        def kl(start):
            return eqx.tree_at(lambda c: c.start, chain, start).draw(key=jax.random.key(0)).kl

        return problems.quick_jit(jax.grad(kl))(chain.start)

    expected = gradient("reparametrised")
    assert np.all(expected.mean != 0.0)
    assert eqx.tree_equal(gradient("sticking"), expected)


# --- training


@pytest.mark.parametrize(
    "horizon", [2.0, *(pytest.param(horizon, marks=pytest.mark.slow) for horizon in (1.0, 5.0, 10.0))]
)
def test_trained_chain_is_the_posterior(horizon):
    problem = problems.linear_gaussian(4, num_data=12, sigma=0.7)
    chain = langevin(
        standard(4), num_steps=32, horizon=horizon, layers=(16,), estimator="sticking", key=jax.random.key(0)
    )
    chain = problems.train(chain, problem, num_updates=1500, key=jax.random.key(1))
    num_samples = 16384
    weights, log_weights = problems.weigh(chain, problem, jax.random.split(jax.random.key(2), num_samples))

    problems.assert_evidence(log_weights, problem, precision=0.01)
    error = problems.standard_error(log_weights)
    assert -5.0 * error <= problem.log_evidence - log_weights.mean() <= 0.05 - 5.0 * error
    mean, covariance = problem.posterior()
    std = np.sqrt(np.diag(covariance))
    problems.assert_mean(weights / std, mean / std, bias=0.02)
    np.testing.assert_allclose(weights.std(0), std, rtol=0.02)


# --- size, memory, long chains


@pytest.mark.parametrize(
    ("dim", "layers", "number"),
    [(2, None, 18), (321, (101, 101), 75_566), (28, None, 2436), (4, None, 60), (119, None, 42_840)],
)
def test_paper_drift_nets_have_the_papers_sizes(dim, layers, number):
    build = lambda: paper_langevin(  # noqa: E731
        standard(dim), jnp.zeros(dim), num_steps=2, layers=layers, key=jax.random.key(0)
    )
    shapes = eqx.filter_eval_shape(build).control
    assert num_parameters(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)) == number


@pytest.mark.slow
def test_checkpointed_segments_change_nothing_but_memory(monkeypatch):
    cut_into_segments(monkeypatch)
    chain = paper_langevin(standard(2), jnp.ones(2), num_steps=256, layers=(16,), key=jax.random.key(0))
    numbers, rest = eqx.partition(problems.perturbed(chain, 0.1), chain.trained())
    keys = jax.random.split(jax.random.key(2), 4)

    def compiled():
        def loss(numbers):
            draws = jax.vmap(lambda key: eqx.combine(numbers, rest).draw(key=key))(keys)
            return jnp.mean(draws.log_ratio + draws.kl + draws.weights.sum(-1))

        return jax.jit(jax.value_and_grad(loss)).lower(numbers).compile(problems.QUICK)

    assert chain._segment_length() == 16
    recomputed = compiled()
    monkeypatch.setattr(jax, "checkpoint", lambda function: function)
    stored = compiled()
    for one, other in zip(jax.tree.leaves(recomputed(numbers)), jax.tree.leaves(stored(numbers)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    analyses: list[Any] = [program.memory_analysis() for program in (recomputed, stored)]
    memory = [analysis.temp_size_in_bytes for analysis in analyses]
    assert memory[0] < 0.5 * memory[1]


def test_papers_ten_thousand_steps_run():
    chain = paper_langevin(standard(2), jnp.ones(2), contraction=1.0, key=jax.random.key(0))
    zero = jax.tree.map(jnp.zeros_like, chain.control)  # with the reference's own pull the chain is its reference
    chain = eqx.tree_at(lambda c: c.control, chain, zero)
    assert (chain.num_steps, chain._segment_length()) == (10_000, 100)
    key = jax.random.key(1)
    draw, path = problems.quick_jit(lambda c: (c.draw(key=key), c.path(key=key)))(chain)
    assert path.shape == (10_001, 2)
    assert np.all(np.isfinite(path))
    np.testing.assert_array_equal(path[-1], draw.weights)
    np.testing.assert_array_equal([draw.kl, draw.log_ratio], 0.0)


@pytest.mark.parametrize(("num_steps", "length"), [(12, 3), (16, 4), (5, 3), (7, 3), (11, 4), (10_007, 101)])
def test_segments_are_about_the_root_of_any_number_of_steps(monkeypatch, num_steps, length):
    """A divisor where there is a good one; otherwise, as for primes, the last segment is shorter."""
    cut_into_segments(monkeypatch)
    chain = paper_langevin(standard(1), jnp.ones(1), num_steps=num_steps, key=jax.random.key(0))
    assert chain._segment_length() == length


@pytest.mark.parametrize(
    "num_steps", [pytest.param(5, marks=[pytest.mark.slow]), 7, pytest.param(12, marks=[pytest.mark.slow])]
)
def test_a_chain_in_segments_is_one_scan_over_all_steps(monkeypatch, num_steps):
    cut_into_segments(monkeypatch)
    chain = langevin(standard(2), num_steps=num_steps, layers=(4,), key=jax.random.key(0))
    chain, key = problems.perturbed(chain, 0.3), jax.random.key(1)
    key_start, key_noise = jax.random.split(key)
    white = white_noise(words_of(key_noise), jnp.arange(num_steps), 2, jnp.dtype(float))
    begin = chain._begin(chain, key_start)
    plain = run_with(chain, begin.z[None], white[None])
    draw, path = problems.quick_jit(lambda c: (c.draw(key=key), c.path(key=key)))(chain)
    assert path.shape == (num_steps + 1, 2)
    np.testing.assert_allclose(path[-1], plain.z[0], rtol=1e-12)
    np.testing.assert_allclose(draw.weights, plain.z[0], rtol=1e-12)
    np.testing.assert_allclose(draw.kl - begin.kl, plain.kl[0], rtol=1e-12)
    np.testing.assert_allclose(draw.log_ratio - begin.log_ratio, plain.log_ratio[0], rtol=1e-10)


@pytest.mark.slow
def test_a_prime_number_of_steps_needs_little_more_memory_than_a_round_one():
    def memory(num_steps):
        chain = paper_langevin(standard(2), jnp.ones(2), num_steps=num_steps, key=jax.random.key(0))
        numbers, rest = eqx.partition(chain, chain.trained())
        loss = lambda numbers: eqx.combine(numbers, rest).draw(key=jax.random.key(1)).kl  # noqa: E731
        analysis: Any = jax.jit(jax.grad(loss)).lower(numbers).compile(problems.QUICK).memory_analysis()
        return analysis.temp_size_in_bytes

    assert memory(10_007) < 1.5 * memory(10_000)


def test_controls_tell_their_width():
    assert StepControl(2, 3, (4, 5), key=jax.random.key(0)).width == 4 + 5 + 2
    assert AutonomousDrift(3, (3, 3), 1.0, key=jax.random.key(0)).width == 9


def test_control_may_be_any_function():
    """A control is `u(z, step)`: its leaves need not be arrays."""
    chain = langevin(standard(2), num_steps=3, layers=(4,), key=jax.random.key(0))
    assert eqx.tree_at(lambda c: c.control, chain, lambda z, step: 0.1 * z)._segment_length() == 3
