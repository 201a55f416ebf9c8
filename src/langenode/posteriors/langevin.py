"""THE METHOD: a Langevin chain over the weights, pulled away from its reference by a learned control.

State z, weights `w = mean + L z`. Reference: the OU process `dz = -gamma^2 z dtau + gamma sqrt(2) dB`, whose
stationary distribution is N(0, I) for every gamma. On the grid `0 = tau_0 < ... < tau_K = T`:

    reference step   N(a_k z, s_k^2)                      exact: a = exp(-gamma^2 D), s^2 = 1 - a^2
    our step         N(a_k z + c_k u(z, k), s_k^2 V_k)    u and V_k learned, zero and the identity at the start
    KL of the paths  KL(q_0, p_0) + E sum_k 1/2 [ |c_k u / s_k|^2 + tr V_k - dim - log det V_k ]

V_k is diagonal, or full for a few weights: the noise of a step bounds the variance of what follows from below, and a
diagonal one cannot follow correlated weights. With V = I and small steps the sum is the integral of |f_q - f_p|^2 /
(4 gamma^2): the SDE's covariance is 2 gamma^2 (the paper's main text has 1/2 in place of 1/4). The Radon-Nikodym
weight is the ratio of these same discrete densities, so bounds and importance weights are exact for the chain that is
run, at any number of steps.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed, zeros
from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import (
    AbstractVariational,
    BoundTerms,
    Draw,
    Estimator,
    Reference,
    cast,
    check_estimator,
    normal_kl,
    normal_log_density,
    only,
)
from langenode.posteriors.controls import LARGEST_FULL_MATRIX, StepControl
from langenode.posteriors.many_paths import Ends, Memory, Rates, run_paths
from langenode.posteriors.networks import NetworkFactory, NetworkName
from langenode.posteriors.white_noise import white_noise, words_of

StepKind = Literal["exact", "euler"]
NoiseKind = Literal["full", "diagonal", "fixed"]

# Numbers kept per sample for back-propagation above which the scan is cut into recomputed segments (METHOD: 681 MiB
# for a plain scan against 15 MiB for two levels, at 1.5 times the time).
LARGEST_PLAIN_SCAN = 65_536
# The same for all samples of the form that `many_paths` runs.
LARGEST_PLAIN_BYTES = 2**25


class NormalStart(eqx.Module):
    """A diagonal normal distribution of the first state, in z."""

    mean: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]

    def at(self, white: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The state that white noise becomes."""
        return self.mean + jnp.exp(self.log_scale) * white

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of a first state."""
        return normal_log_density(z, self.mean, jnp.exp(self.log_scale))

    def kl(self, other: "NormalStart") -> Float[Array, ""]:
        """KL of this distribution from another."""
        shift = (self.mean - other.mean) / jnp.exp(other.log_scale)
        return normal_kl(shift, jnp.exp(2.0 * (self.log_scale - other.log_scale)))


class StepNoise(eqx.Module):
    """The learned root of V_k: `diag(exp(log_scale_k))` plus a strictly lower triangle, absent for many weights."""

    log_scale: Float[Array, "step dim"]
    lower: Float[Array, "step dim dim"] | None

    def kl(self, step: Array) -> Float[Array, ""]:
        """`1/2 [ tr V - dim - log det V ]`."""
        log_scale = self.log_scale[step]
        value = 0.5 * jnp.sum(jnp.exp(2.0 * log_scale) - 1.0 - 2.0 * log_scale)
        return value if self.lower is None else value + 0.5 * jnp.sum(jnp.tril(self.lower[step], -1) ** 2)

    def colour(self, step: Array, white: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Noise with covariance V from white noise."""
        coloured = jnp.exp(self.log_scale[step]) * white
        return coloured if self.lower is None else coloured + jnp.tril(self.lower[step], -1) @ white

    def log_density(self, step: Array, coloured: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of N(0, V)."""
        scale = jnp.exp(self.log_scale[step])
        if self.lower is None:
            return normal_log_density(coloured, 0.0, scale)
        root = jnp.diag(scale) + jnp.tril(self.lower[step], -1)
        white = jax.scipy.linalg.solve_triangular(root, coloured, lower=True)
        return normal_log_density(white, 0.0, 1.0) - jnp.sum(self.log_scale[step])


class UnitNoise(eqx.Module):
    """V_k = I: the reference's own noise in every step."""

    def kl(self, step: Array) -> float:
        """None: the reference has the same noise."""
        del step
        return 0.0

    def colour(self, step: Array, white: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """White noise as it is."""
        del step
        return white

    def log_density(self, step: Array, coloured: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of N(0, I)."""
        del step
        return normal_log_density(coloured, 0.0, 1.0)


class _Coefficients(NamedTuple):
    decay: Float[Array, " step"]
    push: Float[Array, " step"]
    noise: Float[Array, " step"]


class _Running(NamedTuple):
    """The state of the chain and what it has gathered so far."""

    z: Float[Array, " dim"]
    kl: Float[Array, ""]
    log_ratio: Float[Array, ""]


class Langevin(AbstractVariational):
    """The controlled chain. Make one with `langevin` (ours) or `paper.paper_langevin` (the paper's choices).

    `start` is q_0; `reference_start` is p_0. With `learn_start=False` the chain starts from p_0 itself.
    `diffusion` (gamma) is shared with the reference, else the KL is infinite; `draw` takes another one, so that
    training can follow a schedule. The reference has unit variance for every gamma; without `keeps_variance` its drift
    is -z and its variance gamma^2, as printed in the paper. `loss_terms` are what training uses. `control` is
    `u(z, step)`; its `width`, where it has one, is the number of intermediate results that back-propagation keeps per
    evaluation. `memory` is what is kept for gradients; None chooses by the size.
    """

    reference: Reference
    control: Callable[[Array, Array], Array]
    start: NormalStart
    reference_start: NormalStart
    noise: StepNoise | UnitNoise
    grid: Float[Array, " knot"]
    diffusion: Float[Array, ""]
    step_kind: StepKind = eqx.field(static=True, default="exact")
    learn_start: bool = eqx.field(static=True, default=True)
    estimator: Estimator = eqx.field(static=True, default="reparametrised")
    keeps_variance: bool = eqx.field(static=True, default=True)
    loss_terms: BoundTerms = eqx.field(static=True, default=BoundTerms())
    memory: Memory | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_estimator(self.estimator)
        if self.step_kind not in ("exact", "euler"):
            raise ValueError(f"step_kind must be 'exact' or 'euler'; got {self.step_kind!r}; choose one of them")

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.reference.mean.shape[0]

    @property
    def num_steps(self) -> int:
        """K, the number of steps of the chain."""
        return self.grid.shape[0] - 1

    @property
    def bound_terms(self) -> BoundTerms:
        """How the training loss uses its draws."""
        return self.loss_terms

    def trained(self) -> Any:
        """The control and the noise of the steps, and the start where it is learned."""
        return only(self, "control", "noise", *(("start",) if self.learn_start else ()))

    def with_diffusion(self, diffusion: Float[Array, ""]) -> "Langevin":
        """The same chain with another stored gamma."""
        return eqx.tree_at(lambda chain: chain.diffusion, self, self._gamma(diffusion))

    def with_memory(self, memory: Memory | None) -> "Langevin":
        """The same chain, which keeps more or less for its gradient (`many_paths`); its draws are the same."""
        return dataclasses.replace(self, memory=memory)

    def is_long(self, num_samples: int) -> bool:
        """Whether a gradient that keeps everything would keep more than `LARGEST_PLAIN_BYTES`."""
        width = getattr(self.control, "width", 0)
        kept = self.num_steps * (3 * self.dim + 2 * width) * self.reference.mean.dtype.itemsize
        return self._is_for_many() and num_samples * kept > LARGEST_PLAIN_BYTES

    def _is_for_many(self) -> bool:
        """Whether the chain has the form of `run_paths`."""
        form = getattr(self.control, "for_many", lambda: None)
        return eqx.filter_eval_shape(form) is not None and self._noise_scale() is not None

    def make_draw(self, density: "Langevin", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """Run the chain once."""
        last, _ = self._run(density, key, diffusion)
        return self._finished(*last, diffusion)

    def make_draws(self, density: "Langevin", keys: Array, diffusion: Float[Array, ""] | None) -> Draw:
        """Run the chain for every key: all together where it has the form of `run_paths` and one gradient."""
        form, scale = getattr(self.control, "for_many", lambda: None)(), self._noise_scale()
        if form is None or scale is None or density is not self:
            return super().make_draws(density, keys, diffusion)
        memory = self.memory or ("two_level" if self.is_long(len(keys)) else "plain")
        (matrices, rows), coefficients = form, self._coefficients(diffusion)
        keys_start, keys_noise = jax.vmap(jax.random.split, out_axes=1)(keys)
        begin = jax.vmap(lambda key: self._begin(self, key))(keys_start)
        rates = Rates(coefficients.decay, coefficients.push / coefficients.noise, coefficients.noise)
        rows = rows._replace(scale=jnp.exp(scale))
        ends: Ends = run_paths(matrices, rows, rates, begin.z, words_of(keys_noise), memory)
        # What does not depend on the state: the KL of the noise, and its part in the ratio of densities.
        noise_kl = 0.5 * jnp.sum(jnp.exp(2.0 * scale) - 1.0 - 2.0 * scale)
        noise_log_det = jnp.sum(scale)
        log_ratio = begin.log_ratio + ends.log_ratio - noise_log_det
        return jax.vmap(lambda z, kl, ratio: self._finished(z, kl, ratio, diffusion))(
            ends.z, begin.kl + ends.kl + noise_kl, log_ratio
        )

    def _noise_scale(self) -> Float[Array, "step #dim"] | None:
        """The log scale of the noise of every step, or one row for all; None where it is correlated."""
        if isinstance(self.noise, UnitNoise):
            return jnp.zeros((1, 1), self.reference_start.mean.dtype)
        return self.noise.log_scale if self.noise.lower is None else None

    def _finished(self, z: Array, kl: Array, log_ratio: Array, diffusion: Float[Array, ""] | None) -> Draw:
        mean, scale = self.terminal_reference(diffusion)
        log_reference = normal_log_density(z, mean, scale) - self.reference.log_det
        return Draw(self.reference.to_weights(z), kl, log_ratio, log_reference)

    @property
    def num_noise(self) -> int:
        """One number per weight for the start and for every step."""
        return (self.num_steps + 1) * self.dim

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """Run the chain with this noise, the start's first; return the weights at its end."""
        noise = white.reshape(self.num_steps + 1, self.dim)
        first = self.start if self.learn_start else self.reference_start

        def step(z, xs):
            index, coefficients, white = xs
            jump = self._shift(z, index, coefficients) + self.noise.colour(index, white)
            return coefficients.decay * z + coefficients.noise * jump, None

        steps = (jnp.arange(self.num_steps), self._coefficients(), noise[1:])
        return self.reference.to_weights(jax.lax.scan(step, first.at(noise[0]), steps)[0])

    def path(self, *, key: PRNGKeyArray) -> Float[Array, "knot dim"]:
        """The weights along one run of the chain, start and end included. The same key gives the same run as `draw`."""
        _, path = self._run(self, key, keep_path=True)
        assert path is not None
        return jax.vmap(self.reference.to_weights)(path)

    def log_end_density(self, points: Float[Array, "n dim"], before: Float[Array, "m dim"]) -> Float[Array, " n"]:
        """Log density of the chain's end: a mixture of last steps, from the weights of many runs `before` that step."""
        last, coefficients = jnp.asarray(self.num_steps - 1), jax.tree.map(lambda x: x[-1], self._coefficients())
        previous = jax.vmap(self.reference.to_standard)(before)
        centres = jax.vmap(lambda z: self._shift(z, last, coefficients))(previous)
        centres += coefficients.decay * previous / coefficients.noise

        def log_density(weights):
            jumps = self.reference.to_standard(weights) / coefficients.noise - centres
            return jax.nn.logsumexp(jax.vmap(lambda jump: self.noise.log_density(last, jump))(jumps))

        scale = math.log(len(before)) + self.dim * jnp.log(coefficients.noise) + self.reference.log_det
        return jax.lax.map(log_density, points, batch_size=16) - scale

    def terminal_reference(
        self, diffusion: Float[Array, ""] | None = None
    ) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """Mean and scale, in z, of the *discrete* reference chain's last state."""
        decay, _, noise = self._coefficients(diffusion)
        start = self.reference_start

        def step(moments, coefficients):
            mean, variance = moments
            a, s = coefficients
            return (a * mean, a**2 * variance + s**2), None

        (mean, variance), _ = jax.lax.scan(step, (start.mean, jnp.exp(2.0 * start.log_scale)), (decay, noise))
        return mean, jnp.sqrt(variance)

    def _gamma(self, diffusion: Float[Array, ""] | None) -> Float[Array, ""]:
        return self.diffusion if diffusion is None else jnp.asarray(diffusion, self.diffusion.dtype)

    def _coefficients(self, diffusion: Float[Array, ""] | None = None) -> _Coefficients:
        gamma, length = self._gamma(diffusion), jnp.diff(self.grid)
        if self.keeps_variance:  # then gamma is a matter of pseudo-time alone
            gamma, length = jnp.ones_like(gamma), gamma**2 * length
        if self.step_kind == "euler":
            return _Coefficients(1.0 - length, length, gamma * jnp.sqrt(2.0 * length))
        noise = gamma * jnp.sqrt(-jnp.expm1(-2.0 * length))
        # The control is in units of the step's own noise, so that |u|^2 / 2 is its KL on a grid of any grading.
        return _Coefficients(jnp.exp(-length), noise, noise)

    def _begin(self, density: "Langevin", key: PRNGKeyArray) -> _Running:
        """The first state, with its KL and its log ratio under `density`."""
        theirs = self.reference_start
        white = jax.random.normal(key, (self.dim,), theirs.mean.dtype)
        if not self.learn_start:
            zero = jnp.zeros((), theirs.mean.dtype)
            return _Running(theirs.at(white), zero, zero)
        z = self.start.at(white)
        log_ratio = density.start.log_density(z) - theirs.log_density(z)
        return _Running(z, self.start.kl(theirs), log_ratio)

    def _advance(
        self, density: "Langevin", running: _Running, index: Array, coefficients: _Coefficients, white: Array
    ) -> _Running:
        """One controlled step, with its KL and its log ratio under `density`."""
        z = running.z
        a, _, s = coefficients
        shift = self._shift(z, index, coefficients)
        jump = shift + self.noise.colour(index, white)
        kl = running.kl + 0.5 * jnp.sum(shift**2) + self.noise.kl(index)
        # The control costs most of a step, forwards and backwards: evaluate it once where the two are one.
        centre = shift if density is self else density._shift(z, index, coefficients)
        log_ratio = density.noise.log_density(index, jump - centre) - normal_log_density(jump, 0.0, 1.0)
        return _Running(a * z + s * jump, kl, running.log_ratio + log_ratio)

    def _shift(self, z: Array, index: Array, coefficients: _Coefficients) -> Array:
        """The mean of a step beyond the reference's, in units of the step's noise."""
        return coefficients.push * self.control(z, index) / coefficients.noise

    def _run(
        self,
        density: "Langevin",
        key: PRNGKeyArray,
        diffusion: Float[Array, ""] | None = None,
        *,
        keep_path: bool = False,
    ) -> tuple[_Running, Float[Array, "knot dim"] | None]:
        """The end of a run with what it has gathered, and all its states where they are wanted."""
        key_start, key_noise = jax.random.split(key)
        begin, words = self._begin(density, key_start), words_of(key_noise)

        def step(running, xs):
            index, coefficients, white = xs
            running = self._advance(density, running, index, coefficients, white)
            return running, running.z if keep_path else None

        def run_segment(running, xs):
            indices, coefficients = xs
            # Random numbers in bulk, a segment at a time: cheaper than a call per step, and never all of them at once.
            white = white_noise(words, indices, self.dim, running.z.dtype)
            return jax.lax.scan(step, running, (indices, coefficients, white))

        steps = (jnp.arange(self.num_steps), self._coefficients(diffusion))
        last, path = scan_segments(run_segment, begin, steps, self._segment_length())
        return last, None if path is None else jnp.concatenate([begin.z[None], path])

    def _segment_length(self) -> int:
        """Steps whose intermediates are kept together: all of them, or about the square root of K.

        The divisor of K nearest to its root, where one is within a factor of two; otherwise the last segment is
        shorter than the others.
        """
        num, width = self.num_steps, getattr(self.control, "width", 0)
        if num * (3 * self.dim + 2 * width) <= LARGEST_PLAIN_SCAN:
            return num
        root = math.sqrt(num)
        divisors = [d for d in range(1, num + 1) if num % d == 0 and 0.5 * root <= d <= 2.0 * root]
        return min(divisors, key=lambda d: abs(math.log(d) - 0.5 * math.log(num)), default=math.ceil(root))


def scan_segments(run_segment: Callable, carry: Any, steps: Any, length: int) -> tuple[Any, Any]:
    """Scan over segments of steps: `run_segment(carry, steps) -> carry, outputs`.

    Of several segments back-propagation keeps only the ends and recomputes the rest. The last one may be shorter.
    """
    num_steps = jax.tree.leaves(steps)[0].shape[0]
    num, rest = divmod(num_steps, length)
    folded = jax.tree.map(lambda x: x[: num * length].reshape(num, length), steps)
    if num_steps > length:
        run_segment = jax.checkpoint(run_segment)
    carry, outputs = jax.lax.scan(run_segment, carry, folded)
    outputs = jax.tree.map(lambda y: y.reshape(num * length, *y.shape[2:]), outputs)
    if rest:
        carry, last = run_segment(carry, jax.tree.map(lambda x: x[num * length :], steps))
        outputs = jax.tree.map(lambda y, end: jnp.concatenate([y, end]), outputs, last)
    return carry, outputs


def graded_grid(num_steps: int, horizon: float) -> Float[Array, " knot"]:
    """Pseudo-times graded towards the end: `v_k = (1 - e^-2T)(1 - k/K)^2` with `v = 1 - e^-2(T - tau)`.

    A step's noise floors the conditional variance of what follows, so the last steps must be short.
    """
    share = (1.0 - np.arange(num_steps + 1) / num_steps) ** 2
    # This is log(1 - v). In terms of v, which rounds to 1 at a long horizon, tau_0 would be minus infinity.
    return placed(horizon + 0.5 * np.log((1.0 - share) + share * math.exp(-2.0 * horizon)))


def uniform_grid(num_steps: int, horizon: float) -> Float[Array, " knot"]:
    """Equal steps."""
    return jnp.linspace(0.0, horizon, num_steps + 1)


def langevin(
    reference: Reference,
    *,
    num_steps: int = 16,
    horizon: float = 3.0,
    layers: Sequence[int] = (32, 32),
    network: NetworkName | NetworkFactory = "mlp",
    grid: Literal["graded", "uniform"] = "graded",
    step_kind: StepKind = "exact",
    diffusion: float = 1.0,
    noise: NoiseKind = "full",
    learn_start: bool = True,
    estimator: Estimator = "reparametrised",
    key: PRNGKeyArray,
) -> Langevin:
    """Our sampler: time-dependent control, learned step variances and start, a short graded grid.

    `network` is the kind of the control's net, or a function `(num_inputs, num_outputs, key=key)` that makes one.
    """
    if grid not in ("graded", "uniform"):
        raise ValueError(f"grid must be 'graded' or 'uniform'; got {grid!r}; choose one of them")
    dim, dtype = reference.mean.shape[0], reference.mean.dtype
    knots = graded_grid(num_steps, horizon) if grid == "graded" else uniform_grid(num_steps, horizon)
    sampler = Langevin(
        reference=reference,
        control=StepControl(dim, num_steps, layers, network=network, key=key),
        start=NormalStart(zeros(dim), zeros(dim)),
        reference_start=NormalStart(zeros(dim), zeros(dim)),
        noise=step_noise(noise, num_steps, dim),
        grid=knots,
        diffusion=placed(diffusion, float),
        step_kind=step_kind,
        learn_start=learn_start,
        estimator=estimator,
    )
    return cast(sampler, dtype)


def step_noise(kind: NoiseKind, num_steps: int, dim: int) -> StepNoise | UnitNoise:
    """The noise of the steps before training: that of the reference."""
    if kind not in ("full", "diagonal", "fixed"):
        raise ValueError(f"noise must be 'full', 'diagonal' or 'fixed'; got {kind!r}; choose one of them")
    if kind == "fixed":
        return UnitNoise()
    is_full = kind == "full" and dim <= LARGEST_FULL_MATRIX
    return StepNoise(zeros((num_steps, dim)), zeros((num_steps, dim, dim)) if is_full else None)
