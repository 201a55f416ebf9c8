"""Langevin paths steered to a posterior by a control that is computed, not trained.

The reference is the OU process whose stationary law is the prior, whitened to N(0, I). Its optimal control needs the
law of the end point given the state and the data; Gauss-Newton gives it about (`gaussnewton`). With `rho = e^-(T-tau)`,
`v = 1 - rho^2` and primes for the next knot, a step is the exact OU bridge to an uncertain end point `N(x, C)`:

    w' = a w + s n,    n ~ N(g (x - rho w), R),    a = rho/rho', s^2 = 1 - a^2, g = rho' s/v,
    R = (v'/v) I + (1 - v'/v) (I + t v J'J)^-1,    t = 1/(1 + eta v)

which is `N(al w + be x, sb2 I + be^2 C)` in the usual constants. The start is the same step from the infinite past
(rho = 0, v = 1). The log weight of a path is `sum [log N(n; 0, I) - log N(n; g (x - rho w), R)] + log-likelihood`: exact
for the chain that is run, so that the weighted end points target the posterior and the mean weight is the evidence at
any number of steps. For a linear model and eta = 0 all weights are equal.

Resampling multiplies the weights by the twisting function `-t |r|^2/2 - |x - rho w|^2/(2 v) - log det(I + t v J'J)/2`,
an estimate of the log-likelihood still to come. After it the effective sample size certifies nothing: look at the
share of ancestors that survive. A path is tied to the mode its start fell into, so the weights of several modes are
only as good as the starts; and with some hundred weights few ancestors survive.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.gaussnewton import (
    Curvature,
    Factor,
    Form,
    Objective,
    Residual,
    factorise,
    improve,
    linearise,
    search,
    smaller_form,
)
from langenode.posteriors.hamiltonian import hamiltonian_moves

# Below these shares of the paths, or above this error in nats, the draws are not to be trusted.
LOWEST_RELATIVE_ESS = 0.1
LOWEST_ANCESTORS = 0.1
LARGEST_EVIDENCE_ERROR = 0.3

ETAS = (0.0, 3.0, 10.0, 30.0, 100.0)


class Trust(NamedTuple):
    """Whether the draws may stand for the posterior, and why."""

    is_trusted: bool
    reason: str


class GuidedDraws(NamedTuple):
    """Weighted draws in whitened coordinates, and what tells how good they are.

    The log of the mean of `exp(log_weights)` is `log_evidence`, with or without resampling. `lineage` is the path each
    draw descends from, `ancestors` the share of paths that have descendants. `acceptance` is that of the final moves.
    """

    draws: Float[Array, "sample dim"]
    log_weights: Float[Array, " sample"]
    log_evidence: float
    log_evidence_error: float
    relative_ess: float
    ancestors: float
    lineage: Int[Array, " sample"]
    num_resamplings: int
    eta: float
    acceptance: float | None
    trust: Trust


class Pilot(NamedTuple):
    """The chosen eta, and the mean log weight (a bound of the log-evidence) and its standard error at each candidate."""

    eta: float
    etas: tuple[float, ...]
    mean_log_weights: tuple[float, ...]
    standard_errors: tuple[float, ...]


class _Target(NamedTuple):
    """What is sampled: the residuals steer, the log-likelihood weighs."""

    residual: Residual
    log_likelihood: Callable[[Array], Array]
    form: Form


class _Level(NamedTuple):
    """The constants of a step, from `rho` and `variance` v at its beginning to its end."""

    rho: Array
    variance: Array
    decay: Array  # a
    scale: Array  # s
    gain: Array  # g
    kept: Array  # v'/v


class _Path(NamedTuple):
    """A path: state w, estimate x of its end, curvature there, log weight so far, and the path it descends from."""

    w: Float[Array, "*path dim"]
    x: Float[Array, "*path dim"]
    curvature: Curvature
    log_weight: Float[Array, "*path"]
    ancestor: Int[Array, "*path"]


class _Aim(NamedTuple):
    """A path that knows where to go: the factor of the law of its end, and the twisting function."""

    path: _Path
    factor: Factor
    log_twist: Float[Array, "*path"]


def guided_langevin(
    residual: Residual,
    dim: int,
    *,
    num_paths: int = 1024,
    num_steps: int = 128,
    horizon: float = 1.0,
    eta: float | None = None,
    log_likelihood: Callable[[Array], Array] | None = None,
    log_constant: float = 0.0,
    refresh_every: int = 4,
    num_start_iterations: int = 40,
    resample_below: float = 0.3,
    num_moves: int = 0,
    chunk: int | None = None,
    form: Form | None = None,
    dtype: Any = float,
    key: PRNGKeyArray,
) -> GuidedDraws:
    """Weighted draws of the posterior of `z ~ N(0, I)` given `residual(z) = (observed - predicted(z)) / sigma`.

    The log-likelihood is `log_constant - |residual|^2 / 2`, or the function given; a tempered one has its residuals
    divided by the root of the temperature. `eta` softens the data far from the end (0 for a linear model; None: chosen
    by `choose_eta`). The Jacobian is taken anew every `refresh_every` steps. Paths are resampled where the relative
    effective sample size falls below `resample_below` (0: never), and moved `num_moves` times by HMC at the end.
    `chunk` paths at a time bound the memory; each has its own key, so the result does not depend on it.
    """
    target = _check(residual, log_likelihood, log_constant, dim, num_paths, num_steps, form, dtype)
    key_pilot, key_paths, key_moves = jax.random.split(key, 3)
    common: dict[str, Any] = {
        "refresh_every": refresh_every,
        "num_start_iterations": num_start_iterations,
        "chunk": chunk,
    }
    if eta is None:
        options = common | {"log_likelihood": target.log_likelihood, "form": target.form, "dtype": dtype}
        eta = choose_eta(residual, dim, horizon=horizon, key=key_pilot, **options).eta
    levels = _levels(num_steps, horizon, dtype)
    run = _run(target, levels, jnp.asarray(eta, dtype), dim, num_paths, resample_below, key=key_paths, **common)
    paths, num_resamplings = run
    draws, acceptance = paths.w, None
    if num_moves:
        moved = _polish(target, draws, paths.log_weight, num_moves, chunk, key=key_moves)
        draws, acceptance = moved.draws, float(moved.acceptance)
    return _summarise(draws, paths, eta, acceptance, int(num_resamplings))


def choose_eta(
    residual: Residual,
    dim: int,
    *,
    etas: Sequence[float] = ETAS,
    num_paths: int = 128,
    num_steps: int = 64,
    horizon: float = 1.0,
    log_likelihood: Callable[[Array], Array] | None = None,
    log_constant: float = 0.0,
    refresh_every: int = 4,
    num_start_iterations: int = 40,
    chunk: int | None = None,
    form: Form | None = None,
    dtype: Any = float,
    key: PRNGKeyArray,
) -> Pilot:
    """The smallest eta whose mean log weight, *without resampling*, is within one standard error of the best.

    The median candidate where that error exceeds one nat: then the pilot tells nothing. The resampled log-evidence
    is never a score: it is noisiest, and highest, where the weights collapse.
    """
    target = _check(residual, log_likelihood, log_constant, dim, num_paths, num_steps, form, dtype)
    levels = _levels(num_steps, horizon, dtype)
    means, errors = [], []
    for eta in etas:  # the same key: candidates share their noise
        paths, _ = _run(
            target,
            levels,
            jnp.asarray(eta, dtype),
            dim,
            num_paths,
            0.0,
            refresh_every=refresh_every,
            num_start_iterations=num_start_iterations,
            chunk=chunk,
            key=key,
        )
        log_weights = np.asarray(paths.log_weight, float)
        means.append(float(np.mean(log_weights)))
        is_finite = bool(np.all(np.isfinite(log_weights)))
        errors.append(float(np.std(log_weights, ddof=1) / math.sqrt(num_paths)) if is_finite else math.inf)
    return Pilot(_choose(etas, means, errors), tuple(etas), tuple(means), tuple(errors))


def _choose(etas: Sequence[float], means: Sequence[float], errors: Sequence[float]) -> float:
    best = int(np.argmax(means))
    if not errors[best] <= 1.0:
        return sorted(etas)[len(etas) // 2]
    return min(eta for eta, mean in zip(etas, means, strict=True) if mean >= means[best] - errors[best])


def _levels(num_steps: int, horizon: float, dtype: Any) -> _Level:
    """All steps on the grid `v_k = (1 - e^-2T)(1 - k/K)^2`, after the start's from v = 1; in 64 bits, then rounded."""
    share = (1.0 - np.arange(num_steps + 1) / num_steps) ** 2
    v = np.append(1.0, -np.expm1(-2.0 * horizon) * share)
    rho = np.sqrt(1.0 - v)
    scale = np.sqrt((v[:-1] - v[1:]) / (1.0 - v[1:]))
    level = _Level(rho[:-1], v[:-1], rho[:-1] / rho[1:], scale, rho[1:] * scale / v[:-1], v[1:] / v[:-1])
    return _Level(*(jnp.asarray(column, dtype) for column in level))


@eqx.filter_jit
def _run(
    target: _Target,
    levels: _Level,
    eta: Float[Array, ""],
    dim: int,
    num_paths: int,
    resample_below: float,
    *,
    refresh_every: int,
    num_start_iterations: int,
    chunk: int | None,
    key: PRNGKeyArray,
) -> tuple[_Path, Int[Array, ""]]:
    """The algorithm: aim, resample where needed, move; from the infinite past to the end."""
    key_start, key_moves, key_resample = jax.random.split(key, 3)
    size = min(chunk or num_paths, num_paths)

    def each(function, *batched):
        return jax.lax.map(lambda one: function(*one), batched, batch_size=size)

    def keys(index):
        return jax.vmap(lambda i: jax.random.fold_in(jax.random.fold_in(key_moves, index), i))(jnp.arange(num_paths))

    def step(carry, inputs):
        paths, count = carry
        index, level = inputs
        is_due = index % refresh_every == 0
        aims = each(lambda path: _aim(target, level, eta, path, is_due), paths)
        aims, is_new = _resample(aims, resample_below, key=jax.random.fold_in(key_resample, index))
        return (each(lambda aim, key: _move(level, aim, key), aims, keys(index)), count + is_new), None

    starts = jax.vmap(lambda i: jax.random.fold_in(key_start, i))(jnp.arange(num_paths))
    first = jax.tree.map(lambda column: column[0], levels)
    paths = each(lambda i, key: _start(target, first, eta, dim, num_start_iterations, i, key), *_number(starts))
    (paths, count), _ = jax.lax.scan(step, (paths, jnp.zeros((), int)), (jnp.arange(levels.rho.shape[0]), levels))
    log_weight = paths.log_weight + each(target.log_likelihood, paths.w)
    return paths._replace(log_weight=jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)), count


def _number(keys: Array) -> tuple[Array, Array]:
    return jnp.arange(keys.shape[0]), keys


def _start(
    target: _Target, level: _Level, eta: Array, dim: int, num_iterations: int, index: Array, key: PRNGKeyArray
) -> _Path:
    """A path in the infinite past, where its state does not matter: x is the mode found from a draw of the prior."""
    x = jax.random.normal(key, (dim,), level.rho.dtype)
    objective = _objective(target, level, eta, jnp.zeros_like(x))
    x = search(objective, x, target.form, num_iterations)
    zero = jnp.zeros((), x.dtype)
    return _Path(jnp.zeros_like(x), x, linearise(target.residual, x, target.form), zero, index)


def _objective(target: _Target, level: _Level, eta: Array, w: Array) -> Objective:
    return Objective(target.residual, level.rho * w, level.variance, 1.0 / (1.0 + eta * level.variance))


def _aim(target: _Target, level: _Level, eta: Array, path: _Path, is_due: Array) -> _Aim:
    """One Gauss-Newton step of x, with the exact gradient and a curvature that may be some steps old."""
    objective = _objective(target, level, eta, path.w)
    curvature = jax.lax.cond(
        is_due, lambda: linearise(target.residual, path.x, target.form), lambda: path.curvature
    )
    factor = factorise(curvature, objective.strength)
    x, value, _ = improve(objective, path.x, factor.solve(objective.scaled_gradient(path.x)))
    return _Aim(path._replace(x=x, curvature=curvature), factor, value - factor.half_log_det)


def _move(level: _Level, aim: _Aim, key: PRNGKeyArray) -> _Path:
    """One step of the bridge, and the log ratio of the reference's density to ours."""
    path = aim.path
    white = jax.random.normal(key, path.w.shape, path.w.dtype)
    noise, log_det = aim.factor.colour(white, level.kept)
    jump = level.gain * (path.x - level.rho * path.w) + noise
    log_ratio = 0.5 * (jnp.sum(white**2) - jnp.sum(jump**2)) + log_det
    return path._replace(w=level.decay * path.w + level.scale * jump, log_weight=path.log_weight + log_ratio)


def _resample(aims: _Aim, threshold: float, *, key: PRNGKeyArray) -> tuple[_Aim, Int[Array, ""]]:
    """Systematic resampling by weight times twist where the relative ESS is low; the mean weight stays the evidence."""
    if threshold <= 0.0:
        return aims, jnp.zeros((), int)
    score = aims.path.log_weight + aims.log_twist
    score = jnp.where(jnp.isnan(score), -jnp.inf, score)

    def draw(aims):
        aims = jax.tree.map(lambda leaf: leaf[_systematic(score, key)], aims)
        log_mean = jax.nn.logsumexp(score) - jnp.log(score.shape[0]).astype(score.dtype)
        return aims._replace(path=aims.path._replace(log_weight=log_mean - aims.log_twist))

    is_low = _relative_ess(score) < threshold
    return jax.lax.cond(is_low, draw, lambda aims: aims, aims), is_low.astype(int)


def _relative_ess(log_weights: Float[Array, " sample"]) -> Float[Array, ""]:
    """`1 / (N sum W^2)` of the normalised weights."""
    return 1.0 / (log_weights.shape[0] * jnp.sum(jax.nn.softmax(log_weights) ** 2))


def _systematic(log_weights: Float[Array, " sample"], key: PRNGKeyArray) -> Int[Array, " sample"]:
    """Indices in proportion to the weights, each within one of its expected number of times."""
    num = log_weights.shape[0]
    cumulative = jnp.cumsum(jax.nn.softmax(log_weights))
    points = (jnp.arange(num) + jax.random.uniform(key, (), cumulative.dtype)) / num
    return jnp.clip(jnp.searchsorted(cumulative, points * cumulative[-1]), 0, num - 1)


@eqx.filter_jit
def _polish(target: _Target, draws: Array, log_weights: Array, num_moves: int, chunk: int | None, *, key: PRNGKeyArray):
    def log_density(z):
        return target.log_likelihood(z) - 0.5 * jnp.sum(z**2)

    return hamiltonian_moves(log_density, draws, log_weights, num_moves=num_moves, chunk=chunk, key=key)


def _summarise(draws: Array, paths: _Path, eta: float, acceptance: float | None, num_resamplings: int) -> GuidedDraws:
    """The evidence's relative variance is that of the weights summed by ancestor (Chan and Lai): `sum (W_i - 1/N)^2`."""
    log_weights, lineage = np.asarray(paths.log_weight, float), np.asarray(paths.ancestor)
    num, highest = len(log_weights), np.max(log_weights)
    weights = np.exp(log_weights - highest)
    shares = weights / weights.sum()
    families = np.bincount(lineage, shares, minlength=num)
    error = float(np.sqrt(np.sum((families - 1.0 / num) ** 2)))
    ess, ancestors = float(1.0 / (num * np.sum(shares**2))), len(np.unique(lineage)) / num
    return GuidedDraws(
        draws=draws,
        log_weights=paths.log_weight,
        log_evidence=float(highest + np.log(weights.mean())),
        log_evidence_error=error,
        relative_ess=ess,
        ancestors=ancestors,
        lineage=paths.ancestor,
        num_resamplings=num_resamplings,
        eta=float(eta),
        acceptance=acceptance,
        trust=_judge(ess, ancestors, error),
    )


def _judge(relative_ess: float, ancestors: float, error: float) -> Trust:
    """What the weights allow to say."""
    figures = f"relative ESS {relative_ess:.3f}, surviving ancestors {ancestors:.3f}, log-evidence error {error:.2g} nats"
    if not math.isfinite(relative_ess):
        return Trust(False, "no path has a finite weight: check that the residuals are finite under the prior")
    if ancestors < LOWEST_ANCESTORS:
        return Trust(False, f"too few ancestors survive, whatever the ESS says: {figures}; use more paths or steps")
    if relative_ess < LOWEST_RELATIVE_ESS:
        return Trust(False, f"a few paths carry all the weight: {figures}; use more paths or steps, or resample")
    if error > LARGEST_EVIDENCE_ERROR:
        return Trust(False, f"families of paths are too unequal: {figures}; use more paths or steps")
    return Trust(True, figures)


def _check(
    residual: Residual,
    log_likelihood: Callable[[Array], Array] | None,
    log_constant: float,
    dim: int,
    num_paths: int,
    num_steps: int,
    form: Form | None,
    dtype: Any,
) -> _Target:
    """The target, once its sizes make sense."""
    if min(dim, num_steps) < 1 or num_paths < 2:
        raise ValueError(
            f"a guided sampler needs weights, steps and two paths; got dim={dim}, num_steps={num_steps}, "
            f"num_paths={num_paths}; raise them"
        )
    shape = jax.eval_shape(residual, jax.ShapeDtypeStruct((dim,), jnp.zeros((), dtype).dtype)).shape
    if len(shape) != 1:
        raise ValueError(f"residual must give one vector of all cells; got shape {shape}; ravel it")
    if log_likelihood is None:
        log_likelihood = eqx.Partial(_gaussian_log_likelihood, residual, jnp.asarray(log_constant, dtype))
    return _Target(residual, log_likelihood, form or smaller_form(shape[0], dim))


def _gaussian_log_likelihood(residual: Residual, constant: Array, z: Float[Array, " dim"]) -> Float[Array, ""]:
    return constant - 0.5 * jnp.sum(residual(z) ** 2)
