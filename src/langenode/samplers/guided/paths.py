"""The algorithm of guided paths: begin, then aim, resample where needed and move, to the end.

The reference is the OU process whose stationary distribution is the prior, whitened to N(0, I). Its optimal control
needs the distribution of the end point given the state and the data; Gauss-Newton approximates it (`gauss_newton`).
With `rho = e^-(T-tau)`, `v = 1 - rho^2` and primes for the next knot, a step is the exact OU bridge to an uncertain end
point `N(x, C)`:

    w' = a w + s n,    n ~ N(g (x - rho w), R),    a = rho/rho', s^2 = 1 - a^2, g = rho' s/v,
    R = (v'/v) I + (1 - v'/v) (I + t v J'J)^-1,    t = 1/(1 + eta v)

which is `N(al w + be x, sb2 I + be^2 C)` in the usual constants. Paths begin at draws of a mixture about modes of the
posterior (`starts`), weighted by its density. Then the log weight of a path grows by `log N(n; 0, I) - log N(n; g (x -
rho w), R)` at each step and by the log-likelihood at the end, exact for the chain that is run: weighted end points
target the posterior and the mean weight is the evidence at any number of steps. For a linear model and eta = 0 all
weights are equal. The Jacobian must be fresh: one that is four steps old costs nine tenths of the ancestors of a
25-weight neural ODE.

Resampling multiplies the weights by the twisting function `-t |r|^2/2 - |x - rho w|^2/(2 v) - log det(I + t v J'J)/2`,
an estimate of the log-likelihood still to come. After it the effective sample size certifies nothing: look at the
share of ancestors that survive. A path heads for one mode, which its state must make likely. A short horizon keeps
modes apart from the start; with a long one, paths stand for one of several modes that their state does not
distinguish, and the evidence is too low. The pilot therefore chooses the horizon (`pilot`), and short runs at a yet
shorter one check the result (`check`).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.density import Density
from langenode.posteriors.particles import relative_ess, systematic
from langenode.samplers.common import at_least
from langenode.samplers.gauss_newton import Factor, Form, Found, improve, num_passes, smaller_form, step_cost
from langenode.samplers.guided.bridges import Level, Target, end_point, in_groups, path_keys
from langenode.samplers.guided.starts import begin

HORIZON = 0.25
CHUNK_CELLS = 2**18  # cells of the Jacobians in work at once: more leave the processor's cache


class GuidedSettings(NamedTuple):
    """How paths are run.

    `eta` softens the data far from the end (0 for a linear model; None: chosen by `run_pilot`). The `horizon` is the
    pseudo-time of a path (None: chosen together with eta, 0.25 where eta is given). `num_checks` short runs at a fifth
    of the horizon find out whether paths miss a part of the posterior (0: no check). Paths are resampled where the
    relative effective sample size falls below `resample_below` (0: never), and moved `num_moves` times by HMC at the
    end. `chunk` paths at a time bound the memory (None: as many as suit the processor's cache); each path has its own
    key, so the result depends on the chunk by rounding only. `form` is that of the Gauss-Newton algebra (None: the one
    with the smaller matrices).
    """

    num_paths: int = 1024
    num_steps: int = 64
    horizon: float | None = None
    eta: float | None = None
    num_start_iterations: int = 40
    resample_below: float = 0.5
    num_moves: int = 0
    num_checks: int = 2
    chunk: int | None = None
    form: Form | None = None


class Sizes(NamedTuple):
    """What one compiled program of paths is made for."""

    dim: int
    num_paths: int
    resample_below: float
    num_start_iterations: int
    chunk: int


class Path(NamedTuple):
    """A path: state w, what was found at the estimate x of its end, log weight, and the path it descends from."""

    w: Float[Array, "*path dim"]
    end: Found
    log_weight: Float[Array, "*path"]
    ancestor: Int[Array, "*path"]


class Outcome(NamedTuple):
    """Paths at their end, and how often they were resampled and took a Gauss-Newton step, all paths together."""

    paths: Path
    num_resamplings: Int[Array, ""]
    num_steps: Int[Array, ""]


class _Aim(NamedTuple):
    """A path with its aim: the factor of the distribution of its end, the twisting function, the steps this took."""

    path: Path
    factor: Factor
    log_twist: Float[Array, "*path"]
    num_steps: Int[Array, "*path"]


class Plan(NamedTuple):
    """What is sampled, in programs of which sizes, and what a Jacobian costs in runs of the model."""

    target: Target
    sizes: Sizes
    num_passes: int

    @classmethod
    def of(cls, density: Density, settings: GuidedSettings) -> "Plan":
        """The plan for a density, or an error that names what is wrong with it or the settings."""
        if density.residual is None:
            raise ValueError("guided paths need residuals to steer by; this density has none; choose another method")
        point = jax.ShapeDtypeStruct((density.dim,), jnp.zeros((), density.dtype).dtype)
        shape = jax.eval_shape(density.residual, point).shape
        if len(shape) != 1:
            raise ValueError(f"residual must give one vector of all cells; got shape {shape}; ravel it")
        chunk = _suitable_chunk(density.dim * shape[0]) if settings.chunk is None else settings.chunk
        at_least(1, dim=density.dim, chunk=chunk)
        at_least(2, num_paths=settings.num_paths)
        form = settings.form or smaller_form(shape[0], density.dim)
        resample_below, num_iterations = settings.resample_below, settings.num_start_iterations
        return cls(
            Target(density.residual, density.log_likelihood, form),
            Sizes(density.dim, settings.num_paths, resample_below, num_iterations, chunk),
            num_passes(density.residual, point, form),
        )

    def cost(self, outcome: Outcome) -> int:
        """Runs of the model: in Gauss-Newton steps, and once at the end of every path."""
        return int(outcome.num_steps) * step_cost(self.num_passes) + self.sizes.num_paths


def _suitable_chunk(num_cells: int) -> int:
    """How many paths at a time suit the cache, of that many cells in a Jacobian: between 16 and 256."""
    return min(256, max(16, CHUNK_CELLS // max(1, num_cells)))


@eqx.filter_jit
def run_paths(target: Target, sizes: Sizes, levels: Level, eta: Float[Array, ""], *, key: PRNGKeyArray) -> Outcome:
    """The algorithm: begin; then aim, resample where needed, move, to the end."""
    key_start, key_move, key_resample = jax.random.split(key, 3)
    num, later = sizes.num_paths, levels.between(1, None)

    def each(function, *batched):
        size = jax.tree.leaves(batched)[0].shape[0]
        groups = in_groups(batched, size, sizes.chunk)
        made = jax.lax.map(lambda group: jax.vmap(function)(*group), groups)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size], made)

    def step(carry, inputs):
        paths, num_resamplings, num_steps = carry
        index, level = inputs
        keys = path_keys(jax.random.fold_in(key_move, index), num)
        aims = each(lambda path: _aim(target, level, eta, path), paths)
        num_steps = num_steps + jnp.sum(aims.num_steps)
        aims, is_new = _resample(aims, sizes.resample_below, key=jax.random.fold_in(key_resample, index))
        paths = each(lambda aim, key: _move(level, aim, key), aims, keys)
        return (paths, num_resamplings + is_new, num_steps), None

    start = begin(target, levels, eta, (num, sizes.dim), sizes.num_start_iterations, each, key=key_start)
    paths = Path(start.w, start.end, start.log_weight, jnp.arange(num))
    carry = (paths, jnp.zeros((), int), start.num_steps)
    (paths, num_resamplings, num_steps), _ = jax.lax.scan(step, carry, (jnp.arange(later.rho.shape[0]), later))
    # A likelihood may have constants in 64 bits: the weights stay in the precision of the paths.
    log_weight = paths.log_weight + each(target.log_likelihood, paths.w).astype(paths.log_weight.dtype)
    log_weight = jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)
    return Outcome(paths._replace(log_weight=log_weight), num_resamplings, num_steps)


def _aim(target: Target, level: Level, eta: Array, path: Path) -> _Aim:
    """One Gauss-Newton step of x, and the distribution of the end about the new one."""
    objective, end = end_point(target, level, eta, path.w), path.end
    end = end._replace(value=objective.value(end.x, end.here.residuals))
    end, _, num_steps = improve(objective, end, target.form)
    factor = end.here.curvature.factorise(objective.strength)
    return _Aim(path._replace(end=end), factor, end.value - factor.half_log_det, num_steps)


def _move(level: Level, aim: _Aim, key: PRNGKeyArray) -> Path:
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
