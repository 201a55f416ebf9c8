"""Interacting Langevin particles: each is preconditioned by the covariance C of the others (Garbuno-Inigo et al. 2020).

Of N particles, with m their mean and D the d x N matrix of their deviations over sqrt(N), so that C = D D':

    dz_i = [C grad log p(z_i) + (d + 1)/N (z_i - m)] dt + sqrt(2) D dB_i,    B_i of N dimensions

The second term (Nuesken and Reich 2019) is the divergence of C: with it the particles are independent draws of the
posterior at rest, for every N > d + 1. No coordinates are preferred: an affine change of the weights changes the
particles accordingly, whatever the condition of the posterior. In steps of length e (Euler-Maruyama, `is_adjusted`
False) the variance of a normal posterior is too large by the factor `(1 - sqrt(1 - 2 e))/e`, about 1 + e/2.

By default the steps are corrected instead: the particles are two halves, each moved by the covariance of the other, on
which its moves do not depend; each proposal is accepted or rejected by Metropolis and Hastings. Then the particles'
distribution is exact for any step, and the term above is not needed. In both, gradients more than ten times as long as
those of a normal posterior are shortened.
"""

import math
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, OnStep, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import (
    LONGEST_GRADIENT,
    agreement,
    at_least,
    describe_r_hat,
    finish,
    judged_r_hat,
    library,
)
from langenode.samplers.laplace import laplace_fit, start_about

NAME = "interacting"
# Of Metropolis-adjusted Langevin proposals in many dimensions.
WANTED_ACCEPTANCE, LOWEST_ACCEPTANCE = 0.574, 0.1
LARGEST_R_HAT = 1.05
# Length of uncorrected steps: the variance is 2.6 % too large.
UNADJUSTED_STEP = 0.05
# States that are kept of every particle, for draws and for R-hat.
NUM_KEPT = 64


class Particles(NamedTuple):
    """Where the particles are, with the log posterior and its gradient there."""

    z: Float[Array, "particle dim"]
    value: Float[Array, " particle"]
    slope: Float[Array, "particle dim"]


class _Moved(NamedTuple):
    particles: Particles
    log_step: Float[Array, ""]
    acceptance: Float[Array, ""]


def interacting(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_draws: int = 4096,
    num_particles: int | None = None,
    num_warmup: int = 160,
    num_steps: int = 640,
    step_size: float | None = None,
    is_adjusted: bool = True,
    budget: float | None = None,
    on_step: OnStep | None = None,
) -> Sampled:
    """Draws of all particles at times after the warm-up, which begins about the mode.

    Without a step size it is adapted during the warm-up, if steps are adjusted. By default there are 64 particles and
    four per weight. `budget` is in seconds.
    """
    library(NAME)
    at_least(2, num_draws=num_draws)
    at_least(1, num_steps=num_steps)
    num_particles = 64 + 4 * density.dim if num_particles is None else num_particles + num_particles % 2
    least = 2 * (density.dim + 1) if is_adjusted else density.dim + 2
    if num_particles < least:
        raise ValueError(
            f"interacting particles must be at least {least} for {density.dim} weights, else their covariance is "
            f"singular; got {num_particles}; raise num_particles, or make fewer weights stochastic"
        )
    deadline = None if budget is None else time.monotonic() + budget
    key_fit, key_start, key_run = jax.random.split(key, 3)
    fit = laplace_fit(density, key=key_fit)
    z = jax.vmap(fit)(start_about(density, fit, num_particles, key=key_start))
    first = step_size or (density.dim ** (-1.0 / 3.0) if is_adjusted else UNADJUSTED_STEP)
    moved = _Moved(_at(density, z), jnp.log(jnp.asarray(first, density.dtype)), jnp.ones((), density.dtype))
    length = -(-num_steps // NUM_KEPT)
    plan = [is_adjusted and step_size is None] * -(-num_warmup // length)  # whether a block adapts the step
    num_warm = len(plan)
    plan += [False] * (num_steps // length)
    kept, acceptances = [], []
    for block, is_adapting in enumerate(plan):
        if len(kept) > 1 and deadline is not None and time.monotonic() > deadline:
            break
        moved = _block(density, moved, length, jnp.asarray(block), is_adjusted, jnp.asarray(is_adapting), key_run)
        if block >= num_warm:
            kept.append(np.asarray(moved.particles.z))
            acceptances.append(float(moved.acceptance))
        if on_step is not None:
            on_step((block + 1) * length, len(plan) * length, "steps")
    points = np.swapaxes(np.stack(kept), 0, 1)
    found = agreement(density, jnp.asarray(points)) | {
        "step_size": math.exp(float(moved.log_step)),
        "acceptance": float(np.mean(acceptances)),
        "num_particles": num_particles,
        "stopped": num_warm + len(kept) < len(plan),
        "num_evaluations": fit.num_evaluations + num_particles * (1 + length * (num_warm + len(kept))),
    }
    trust = _judge(found, is_adjusted)
    return finish(NAME, density, jnp.asarray(_thinned(points, num_draws)), None, found, trust)


def _thinned(points: np.ndarray, num: int) -> np.ndarray:
    """As many draws, evenly over the times and then over the particles."""
    flat = np.swapaxes(points, 0, 1).reshape(-1, points.shape[2])
    return flat[np.linspace(0, len(flat) - 1, num).round().astype(int)] if num < len(flat) else flat


@eqx.filter_jit
def _at(density: Density, z: Float[Array, "particle dim"]) -> Particles:
    value, slope = jax.vmap(jax.value_and_grad(density.log_posterior))(z)
    return Particles(z, value.astype(z.dtype), slope)


@eqx.filter_jit
def _block(
    density: Density, moved: _Moved, num: int, block: Array, is_adjusted: bool, is_adapting: Array, key: PRNGKeyArray
) -> _Moved:
    """Some steps of all particles, with the mean probability of acceptance."""

    def step(moved: _Moved, index: Array) -> tuple[_Moved, Array]:
        number = block * num + index
        particles, acceptance = advance(
            density, moved.particles, jnp.exp(moved.log_step), is_adjusted, key=jax.random.fold_in(key, number)
        )
        change = 2.0 * (acceptance - WANTED_ACCEPTANCE) / jnp.sqrt(1.0 + number)
        log_step = moved.log_step + jnp.where(is_adapting, change, 0.0).astype(moved.log_step.dtype)
        return _Moved(particles, log_step, acceptance), acceptance

    moved, acceptances = jax.lax.scan(step, moved, jnp.arange(num))
    return moved._replace(acceptance=jnp.mean(acceptances))


def advance(
    density: Density, particles: Particles, step_size: Float[Array, ""], is_adjusted: bool, *, key: PRNGKeyArray
) -> tuple[Particles, Float[Array, ""]]:
    """One step of all particles, and the mean probability of acceptance (one where nothing can be rejected)."""
    num, dim = particles.z.shape
    if not is_adjusted:
        others = _Others.of(particles.z)
        noise = jax.random.normal(key, (num, num), particles.z.dtype)
        spreading = (dim + 1.0) / num * (particles.z - jnp.mean(particles.z, axis=0))
        drift = jax.vmap(others.drift)(particles.slope) + spreading
        z = particles.z + step_size * drift + jnp.sqrt(2.0 * step_size) * noise @ others.deviations
        return _at(density, z), jnp.ones((), z.dtype)
    half = num // 2
    first, second = (jax.tree.map(lambda leaf, s=part: leaf[s], particles) for part in (slice(half), slice(half, None)))
    key_first, key_second = jax.random.split(key)
    first, one = _move(density, first, _Others.of(second.z), step_size, key=key_first)
    second, two = _move(density, second, _Others.of(first.z), step_size, key=key_second)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), first, second), jnp.mean(jnp.concatenate([one, two]))


class _Others(eqx.Module):
    """The particles whose covariance C steers: their deviations over sqrt(N), and R with `C = R' R`."""

    deviations: Float[Array, "particle dim"]
    root: Float[Array, "dim dim"]

    @classmethod
    def of(cls, z: Float[Array, "particle dim"]) -> "_Others":
        deviations = (z - jnp.mean(z, axis=0)) / math.sqrt(z.shape[0])
        # By QR, not from C: squares would lose half of the digits of an ill-conditioned posterior.
        return cls(deviations, jnp.linalg.qr(deviations, mode="r"))

    def drift(self, slope: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """`C slope`, of bounded length in units of C: a wild gradient must not throw a particle out."""
        pull = self.root @ jnp.where(jnp.all(jnp.isfinite(slope)), slope, 0.0)
        limit = LONGEST_GRADIENT * math.sqrt(slope.shape[0])
        return self.root.T @ (pull * jnp.minimum(1.0, limit / jnp.maximum(jnp.linalg.norm(pull), 1e-30)))

    def squared_length(self, vector: Float[Array, " dim"]) -> Float[Array, ""]:
        """`vector' C^-1 vector`."""
        return jnp.sum(jax.scipy.linalg.solve_triangular(self.root, vector, trans=1) ** 2)


def _move(
    density: Density, particles: Particles, others: _Others, step_size: Float[Array, ""], *, key: PRNGKeyArray
) -> tuple[Particles, Float[Array, " particle"]]:
    """Langevin proposals of particles on which `others` do not depend, accepted or rejected one by one."""
    key_noise, key_accept = jax.random.split(key)
    num, dtype = particles.z.shape[0], particles.z.dtype
    noise = jax.random.normal(key_noise, (num, others.deviations.shape[0]), dtype) @ others.deviations
    there = particles.z + step_size * jax.vmap(others.drift)(particles.slope) + jnp.sqrt(2.0 * step_size) * noise
    new = _at(density, there)

    def log_proposal(start: Particles, end: Particles) -> Array:
        away = end.z - start.z - step_size * jax.vmap(others.drift)(start.slope)
        return -jax.vmap(others.squared_length)(away) / (4.0 * step_size)

    gain = new.value - particles.value + log_proposal(new, particles) - log_proposal(particles, new)
    acceptance = jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0)))
    is_accepted = jax.random.uniform(key_accept, (num,), dtype) < acceptance
    chosen = jax.tree.map(
        lambda one, two: jnp.where(is_accepted.reshape(-1, *[1] * (one.ndim - 1)), one, two), new, particles
    )
    return chosen, acceptance


def _judge(found: dict[str, Any], is_adjusted: bool) -> Trust:
    figures = f"{describe_r_hat(found)}, acceptance {found['acceptance']:.2f}, step {found['step_size']:.2g}"
    if is_adjusted and found["acceptance"] < LOWEST_ACCEPTANCE:
        return Trust(False, f"few moves are accepted: {figures}; use more warm-up, or a smaller step_size")
    if not judged_r_hat(found) <= LARGEST_R_HAT:
        return Trust(False, f"particles disagree: {figures}; use more steps")
    bias = "" if is_adjusted else "; the bias of the step is not checked"
    return Trust(True, f"{figures}{bias}")
