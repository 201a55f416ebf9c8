"""Langevin paths steered to a posterior by a control that is computed, not trained.

The reference is the OU process whose stationary law is the prior, whitened to N(0, I). Its optimal control needs the
law of the end point given the state and the data; Gauss-Newton gives it about (`gaussnewton`). With `rho = e^-(T-tau)`,
`v = 1 - rho^2` and primes for the next knot, a step is the exact OU bridge to an uncertain end point `N(x, C)`:

    w' = a w + s n,    n ~ N(g (x - rho w), R),    a = rho/rho', s^2 = 1 - a^2, g = rho' s/v,
    R = (v'/v) I + (1 - v'/v) (I + t v J'J)^-1,    t = 1/(1 + eta v)

which is `N(al w + be x, sb2 I + be^2 C)` in the usual constants. Paths begin at draws of a mixture about modes of the
posterior (`starts`), weighed by its density. Then the log weight of a path grows by `log N(n; 0, I) - log N(n; g (x -
rho w), R)` at each step and by the log-likelihood at the end, exact for the chain that is run: weighted end points
target the posterior and the mean weight is the evidence at any number of steps. For a linear model and eta = 0 all
weights are equal. The Jacobian must be fresh: one that is four steps old costs nine tenths of the ancestors of a
25-weight neural ODE.

Resampling multiplies the weights by the twisting function `-t |r|^2/2 - |x - rho w|^2/(2 v) - log det(I + t v J'J)/2`,
an estimate of the log-likelihood still to come. After it the effective sample size certifies nothing: look at the
share of ancestors that survive. A path heads for one mode, which its state must make likely: a short horizon keeps
modes apart from the start on, a long one lets paths stand for one of several modes that their state does not tell
apart, and the evidence comes out low.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.density import Sampled
from langenode.posteriors.particles import Trust, judge, relative_ess, summarise, systematic
from langenode.samplers.gauss_newton import (
    STEP_LENGTHS,
    Factor,
    Form,
    Found,
    Residual,
    factorise,
    improve,
    smaller_form,
)
from langenode.samplers.guided.bridges import Level, LogLikelihood, Target, end_point, in_groups, make_levels, path_keys
from langenode.samplers.guided.starts import begin, num_modes, search_cost
from langenode.samplers.moves import NUM_LEAPFROG, Moved, hamiltonian_moves

HORIZON = 0.25
ETAS = (1.0, 3.0, 10.0, 30.0, 100.0)
PILOT_PATHS, PILOT_STEPS, PILOT_ITERATIONS = 128, 24, 20  # enough to tell candidates apart
LINEAR_ESS = 0.9  # a pilot without softening that has this relative ESS, or more, needs none
CHUNK_CELLS = 2**18  # cells of the Jacobians in work at once: more leave the processor's cache


class GuidedDraws(NamedTuple):
    """Weighted draws in whitened coordinates, and what tells how good they are.

    The log of the mean of `exp(log_weights)` is `log_evidence`, with or without resampling. `lineage` is the path each
    draw descends from, `ancestors` the share of paths that have descendants. `acceptance` is that of the final moves,
    `num_evaluations` how often the model was run, a Jacobian counting as its columns or rows.
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
    num_evaluations: int
    trust: Trust

    def sampled(self, **more: Any) -> Sampled:
        """As every sampler gives its draws, with `more` diagnostics."""
        numbers = {
            "log_evidence": self.log_evidence,
            "log_evidence_se": self.log_evidence_error,
            "relative_ess": self.relative_ess,
            "ancestors": self.ancestors,
            "num_resamplings": self.num_resamplings,
            "eta": self.eta,
            "acceptance": self.acceptance,
            "num_evaluations": self.num_evaluations,
        } | more
        told = {name: value for name, value in numbers.items() if value is not None}
        return Sampled(self.draws, self.log_weights, told, self.trust)


class Pilot(NamedTuple):
    """The chosen eta; at each candidate the score, a bound of the log-evidence, and its standard error.

    The only candidate is 0 where the model proved to be nearly linear.
    """

    eta: float
    etas: tuple[float, ...]
    scores: tuple[float, ...]
    standard_errors: tuple[float, ...]

    @property
    def num_runs(self) -> int:
        """How many candidates were tried, 0 among them in any case."""
        return len({0.0, *self.etas})


class _Path(NamedTuple):
    """A path: state w, what was found at the estimate x of its end, log weight, and the path it descends from."""

    w: Float[Array, "*path dim"]
    end: Found
    log_weight: Float[Array, "*path"]
    ancestor: Int[Array, "*path"]


class _Aim(NamedTuple):
    """A path that knows where to go: the factor of the law of its end, and the twisting function."""

    path: _Path
    factor: Factor
    log_twist: Float[Array, "*path"]


class _Options(NamedTuple):
    """The sizes of a run."""

    dim: int
    num_paths: int
    resample_below: float
    num_start_iterations: int
    chunk: int

    def checked(self) -> "_Options":
        """These, or an error that names what is too small."""
        counts = {"dim": self.dim, "num_paths": self.num_paths - 1, "chunk": self.chunk}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(
                    f"{name} is too small; got {getattr(self, name)}; use {1 + (name == 'num_paths')} or more"
                )
        return self


def guided_langevin(
    residual: Residual,
    dim: int,
    *,
    num_paths: int = 1024,
    num_steps: int = 64,
    horizon: float = HORIZON,
    eta: float | None = None,
    log_likelihood: LogLikelihood | None = None,
    log_constant: float = 0.0,
    num_start_iterations: int = 40,
    resample_below: float = 0.5,
    num_moves: int = 0,
    chunk: int | None = None,
    form: Form | None = None,
    dtype: Any = float,
    key: PRNGKeyArray,
) -> GuidedDraws:
    """Weighted draws of the posterior of `z ~ N(0, I)` given `residual(z) = (observed - predicted(z)) / sigma`.

    The log-likelihood is `log_constant - |residual|^2 / 2`, or the function given; a tempered one has its residuals
    divided by the root of the temperature. `eta` softens the data far from the end (0 for a linear model; None: chosen
    by `choose_eta`). Paths are resampled where the relative effective sample size falls below `resample_below` (0:
    never), and moved `num_moves` times by HMC at the end. `chunk` paths at a time bound the memory (None: as many as
    suit the processor's cache); each has its own key, so the result does not depend on it but for rounding.
    """
    target = _target(residual, log_likelihood, log_constant, dim, form, dtype)
    chunk = _chunk(residual, dim, dtype) if chunk is None else chunk
    key_pilot, key_paths, key_moves = jax.random.split(key, 3)
    options = _Options(dim, num_paths, resample_below, num_start_iterations, chunk).checked()
    cost = _cost(target, options, num_steps, dtype) + num_paths * num_moves * (NUM_LEAPFROG + 1)
    if eta is None:
        levels = make_levels(PILOT_STEPS, horizon, dtype)
        trial = options._replace(num_paths=PILOT_PATHS, num_start_iterations=PILOT_ITERATIONS)
        pilot = _pilot(target, trial, ETAS, levels, key=key_pilot)
        eta = pilot.eta
        cost += pilot.num_runs * _cost(target, trial, PILOT_STEPS, dtype)
    paths, num_resamplings = _run(
        target, options, make_levels(num_steps, horizon, dtype), jnp.asarray(eta, dtype), key=key_paths
    )
    draws, acceptance = paths.w, None
    if num_moves:
        moved = _polish(target, draws, paths.log_weight, num_moves, chunk, key=key_moves)
        draws, acceptance = moved.draws, float(moved.acceptance)
    summary = summarise(paths.log_weight, paths.ancestor)
    return GuidedDraws(
        draws=draws,
        log_weights=paths.log_weight,
        **summary._asdict(),
        lineage=paths.ancestor,
        num_resamplings=int(num_resamplings),
        eta=float(eta),
        acceptance=acceptance,
        num_evaluations=cost,
        trust=judge(summary),
    )


def choose_eta(
    residual: Residual,
    dim: int,
    *,
    etas: Sequence[float] = ETAS,
    num_paths: int = PILOT_PATHS,
    num_steps: int = PILOT_STEPS,
    horizon: float = HORIZON,
    log_likelihood: LogLikelihood | None = None,
    log_constant: float = 0.0,
    num_start_iterations: int = PILOT_ITERATIONS,
    chunk: int | None = None,
    form: Form | None = None,
    dtype: Any = float,
    key: PRNGKeyArray,
) -> Pilot:
    """The eta with the best score less its standard error, *without resampling*.

    The score is `2 log mean exp(log_weight / 2)`, a bound of the log-evidence that forgives the paths in poor modes,
    which resampling ends anyway; the mean log weight does not. The median candidate where its error exceeds one nat:
    then the pilot tells nothing. The resampled log-evidence is never a score: it is noisiest, and highest, where the
    weights collapse. A model for which eta = 0 gives nearly equal weights is linear and takes it; for others 0 is no
    candidate, since it may score well while one path in thousands has a huge weight.
    """
    target = _target(residual, log_likelihood, log_constant, dim, form, dtype)
    chunk = _chunk(residual, dim, dtype) if chunk is None else chunk
    options = _Options(dim, num_paths, 0.0, num_start_iterations, chunk).checked()
    return _pilot(target, options, etas, make_levels(num_steps, horizon, dtype), key=key)


def _pilot(target: Target, options: _Options, etas: Sequence[float], levels: Level, *, key: PRNGKeyArray) -> Pilot:
    options = options._replace(resample_below=0.0)

    def log_weights(eta: float) -> Array:  # the same key: candidates share their noise
        return _run(target, options, levels, jnp.asarray(eta, levels.rho.dtype), key=key)[0].log_weight

    plain = log_weights(0.0)
    if relative_ess(plain) >= LINEAR_ESS:
        return Pilot(0.0, (0.0,), *zip(_score(plain), strict=True))
    scores, errors = zip(*(_score(log_weights(eta)) for eta in etas), strict=True)
    return Pilot(_choose(etas, scores, errors), tuple(etas), scores, errors)


def _score(weights: Float[Array, " path"]) -> tuple[float, float]:
    """`2 log mean exp(log_weight / 2)` and its standard error."""
    log_weights = np.asarray(weights, float)
    highest = float(np.max(log_weights))
    if not math.isfinite(highest):
        return -math.inf, math.inf
    roots = np.exp(0.5 * (log_weights - highest))
    error = 2.0 * float(np.std(roots, ddof=1)) / float(np.mean(roots)) / math.sqrt(len(roots))
    return highest + 2.0 * math.log(float(np.mean(roots))), error


def _choose(etas: Sequence[float], scores: Sequence[float], errors: Sequence[float]) -> float:
    best = int(np.argmax(np.asarray(scores) - np.asarray(errors)))
    return sorted(etas)[len(etas) // 2] if errors[best] > 1.0 else etas[best]


@eqx.filter_jit
def _run(
    target: Target, options: _Options, levels: Level, eta: Float[Array, ""], *, key: PRNGKeyArray
) -> tuple[_Path, Int[Array, ""]]:
    """The algorithm: begin; then aim, resample where needed, move, to the end."""
    key_start, key_move, key_resample = jax.random.split(key, 3)
    num, later = options.num_paths, levels.between(1, None)

    def each(function, *batched):
        size = jax.tree.leaves(batched)[0].shape[0]
        groups = in_groups(batched, size, options.chunk)
        made = jax.lax.map(lambda group: jax.vmap(function)(*group), groups)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size], made)

    def step(carry, inputs):
        paths, count = carry
        index, level = inputs
        keys = path_keys(jax.random.fold_in(key_move, index), num)
        aims = each(lambda path: _aim(target, level, eta, path), paths)
        aims, is_new = _resample(aims, options.resample_below, key=jax.random.fold_in(key_resample, index))
        return (each(lambda aim, key: _move(level, aim, key), aims, keys), count + is_new), None

    start = begin(target, levels, eta, (num, options.dim), options.num_start_iterations, each, key=key_start)
    paths = _Path(*start, jnp.arange(num))
    (paths, count), _ = jax.lax.scan(step, (paths, jnp.zeros((), int)), (jnp.arange(later.rho.shape[0]), later))
    log_weight = paths.log_weight + each(target.log_likelihood, paths.w)
    return paths._replace(log_weight=jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)), count


def _aim(target: Target, level: Level, eta: Array, path: _Path) -> _Aim:
    """One Gauss-Newton step of x, and the law of the end about the new one."""
    objective, end = end_point(target, level, eta, path.w), path.end
    end = end._replace(value=objective.value(end.x, end.here.residuals))
    end, _ = improve(objective, end, target.form)
    factor = factorise(end.here.curvature, objective.strength)
    return _Aim(path._replace(end=end), factor, end.value - factor.half_log_det)


def _move(level: Level, aim: _Aim, key: PRNGKeyArray) -> _Path:
    """One step of the bridge, and the log ratio of the reference's density to ours."""
    path = aim.path
    white = jax.random.normal(key, path.w.shape, path.w.dtype)
    noise, log_det = aim.factor.colour(white, level.kept)
    jump = level.gain * (path.end.x - level.rho * path.w) + noise
    log_ratio = 0.5 * (jnp.sum(white**2) - jnp.sum(jump**2)) + log_det
    return path._replace(w=level.decay * path.w + level.scale * jump, log_weight=path.log_weight + log_ratio)


def _resample(aims: _Aim, threshold: float, *, key: PRNGKeyArray) -> tuple[_Aim, Int[Array, ""]]:
    """Systematic resampling by weight times twist where the relative ESS is low; the mean weight stays the evidence."""
    if threshold <= 0.0:
        return aims, jnp.zeros((), int)
    score = aims.path.log_weight + aims.log_twist
    score = jnp.where(jnp.isnan(score), -jnp.inf, score)

    def draw(aims):
        chosen = systematic(score, key=key)
        aims = jax.tree.map(lambda leaf: leaf[chosen], aims)
        log_mean = jax.nn.logsumexp(score) - jnp.log(score.shape[0]).astype(score.dtype)
        return aims._replace(path=aims.path._replace(log_weight=log_mean - aims.log_twist))

    is_low = relative_ess(score) < threshold
    return jax.lax.cond(is_low, draw, lambda aims: aims, aims), is_low.astype(int)


@eqx.filter_jit
def _polish(
    target: Target, draws: Array, log_weights: Array, num_moves: int, chunk: int, *, key: PRNGKeyArray
) -> Moved:
    def log_density(z):
        return target.log_likelihood(z) - 0.5 * jnp.sum(z**2)

    return hamiltonian_moves(log_density, draws, log_weights, num_moves=num_moves, chunk=chunk, key=key)


def _target(
    residual: Residual,
    log_likelihood: LogLikelihood | None,
    log_constant: float,
    dim: int,
    form: Form | None,
    dtype: Any,
) -> Target:
    """What is sampled, once the residuals are known to be a vector."""
    shape = _shape(residual, dim, dtype)
    if len(shape) != 1:
        raise ValueError(f"residual must give one vector of all cells; got shape {shape}; ravel it")
    if log_likelihood is None:
        log_likelihood = eqx.Partial(_gaussian_log_likelihood, residual, jnp.asarray(log_constant, dtype))
    return Target(residual, log_likelihood, form or smaller_form(shape[0], dim))


def _shape(residual: Residual, dim: int, dtype: Any) -> tuple[int, ...]:
    return jax.eval_shape(residual, jax.ShapeDtypeStruct((dim,), jnp.zeros((), dtype).dtype)).shape


def _cost(target: Target, options: _Options, num_steps: int, dtype: Any) -> int:
    """Runs of the model: each step and iteration takes a Jacobian and tries some lengths."""
    num_cells = _shape(target.residual, options.dim, dtype)[0]
    num_points = options.num_paths * (num_steps + search_cost(options.num_start_iterations))
    num_points += num_modes(options.num_paths) * (options.num_start_iterations + 1)
    num_passes = options.dim if target.form == "weights" else num_cells
    return num_points * (num_passes + len(STEP_LENGTHS)) + options.num_paths


def _chunk(residual: Residual, dim: int, dtype: Any) -> int:
    """How many paths at a time suit the cache: between 16 and 256."""
    return min(256, max(16, CHUNK_CELLS // (dim * max(1, math.prod(_shape(residual, dim, dtype))))))


def _gaussian_log_likelihood(residual: Residual, constant: Array, z: Float[Array, " dim"]) -> Float[Array, ""]:
    return constant - 0.5 * jnp.sum(residual(z) ** 2)
