"""Where guided paths begin: at draws of a mixture about modes of the posterior.

Modes are searched from draws of the prior (a quarter as many as paths), then chosen in proportion to their evidence by
Laplace's method (and a tenth of them evenly, since Laplace may be wrong). About each the start is the bridge's step
from the infinite past, `w ~ N(rho x, v I + rho^2 C)`. It is weighted by the density of the *mixture* of its group, not
of its own mode: otherwise every path would stand for its own mode alone, and the evidence would be too low by the
number of modes that do not overlap.

Its own end point is then searched anew from the start's state and from its mode, and the better of both is kept: of
several modes a path should head for the one that its state makes likely.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.particles import systematic
from langenode.samplers.gauss_newton import Factor, Found, search
from langenode.samplers.guided.bridges import Level, Target, end_point, in_groups, path_keys

EVEN_SHARE = 0.1  # of the modes, chosen whatever their evidence
GROUP = 256  # paths whose starts are weighted together
END_SHARE = 4  # the searches for end points begin near: they take this part of the iterations
Each = Callable[..., Any]


class Start(NamedTuple):
    """The first state w of every path, the estimate of its end, its log weight, and the searches' steps in all."""

    w: Float[Array, "path dim"]
    end: Found
    log_weight: Float[Array, " path"]
    num_steps: Int[Array, ""]


class _Modes(NamedTuple):
    x: Float[Array, "*path dim"]
    factor: Factor
    log_evidence: Float[Array, "*path"]
    num_steps: Int[Array, "*path"]


def begin(
    target: Target,
    levels: Level,
    eta: Float[Array, ""],
    shape: tuple[int, int],
    num_iterations: int,
    each: Each,
    *,
    key: PRNGKeyArray,
) -> Start:
    """The starts of `shape = (number of paths, dimensions)`; `each` maps a function over paths."""
    key_modes, key_choice, key_draw = jax.random.split(key, 3)
    num, dim = shape
    past, first = levels.at(0), levels.at(1)
    keys = path_keys(key_modes, num_modes(num))
    modes = _Modes(*each(lambda k: _mode(target, past, eta, dim, num_iterations, k), keys))
    num_steps = jnp.sum(modes.num_steps)
    modes = _choose(modes, num, key=key_choice)
    w = each(lambda x, factor, k: _draw(past, x, factor, k), modes.x, modes.factor, path_keys(key_draw, num))
    log_density = mixture_log_density(w, past.gain * modes.x, modes.factor, past.kept)
    end, more = each(lambda w, x: _end(target, first, eta, num_iterations // END_SHARE, w, x), w, modes.x)
    return Start(w, end, -0.5 * jnp.sum(w**2, axis=1) - log_density, num_steps + jnp.sum(more))


def num_modes(num_paths: int) -> int:
    """How many searches there are: fewer than paths, since the best modes are chosen many times."""
    return max(min(num_paths, 64), num_paths // 4)


def _mode(target: Target, past: Level, eta: Array, dim: int, num_iterations: int, key: PRNGKeyArray) -> _Modes:
    """A mode found from a draw of the prior."""
    x = jax.random.normal(key, (dim,), past.rho.dtype)
    objective = end_point(target, past, eta, jnp.zeros_like(x))
    found, num_steps = search(objective, x, target.form, num_iterations)
    factor = found.here.curvature.factorise(objective.strength)
    return _Modes(found.x, factor, found.value - factor.half_log_det, num_steps)


def _choose(modes: _Modes, num: int, *, key: PRNGKeyArray) -> _Modes:
    """One mode per path, by their evidence, in random order so that groups of paths are alike."""
    num_found = modes.log_evidence.shape[0]
    key_draw, key_order = jax.random.split(key)
    shares = jax.nn.softmax(jnp.where(jnp.isnan(modes.log_evidence), -jnp.inf, modes.log_evidence))
    shares = jnp.where(jnp.all(jnp.isfinite(shares)), shares, 1.0 / num_found)  # none is finite: all alike
    chosen = systematic(jnp.log((1.0 - EVEN_SHARE) * shares + EVEN_SHARE / num_found), num, key=key_draw)
    chosen = jax.random.permutation(key_order, chosen)
    return jax.tree.map(lambda leaf: leaf[chosen], modes)


def _draw(past: Level, x: Array, factor: Factor, key: PRNGKeyArray) -> Float[Array, " dim"]:
    return past.gain * x + factor.colour(jax.random.normal(key, x.shape, x.dtype), past.kept)[0]


def _end(
    target: Target, level: Level, eta: Array, num_iterations: int, w: Array, mode: Array
) -> tuple[Found, Int[Array, ""]]:
    """The end point that the state and the data make likely, by Laplace's evidence of two searches; their steps."""
    objective = end_point(target, level, eta, w)

    def search_from(x):
        found, num_steps = search(objective, x, target.form, num_iterations)
        return found, found.value - found.here.curvature.factorise(objective.strength).half_log_det, num_steps

    ends, log_evidence, num_steps = jax.vmap(search_from)(jnp.stack([level.rho * w, mode]))
    end = jax.tree.map(lambda leaf: jnp.where(log_evidence[0] > log_evidence[1], *leaf), ends)
    return end, jnp.sum(num_steps)


def mixture_log_density(
    draws: Float[Array, "path dim"], centres: Float[Array, "path dim"], factors: Factor, kept: Float[Array, ""]
) -> Float[Array, " path"]:
    """Log density of each draw under the even mixture of its group's normals, without the constant `-(dim/2) log 2 pi`.

    One draw was taken from each component, so weights by the mixture are unbiased whatever the components are.
    """
    num = draws.shape[0]

    def of_group(group):
        mine, centres, factors, first = group
        values: Array = jax.lax.map(lambda part: part[1].log_density(mine - part[0], kept), (centres, factors))
        is_real = first + jnp.arange(mine.shape[0]) < num  # the last group may be filled up
        values = jnp.where(is_real[:, None], values, -jnp.inf)
        return jax.nn.logsumexp(values, axis=0) - jnp.log(jnp.sum(is_real)).astype(draws.dtype)

    groups = in_groups((draws, centres, factors), num, GROUP)
    firsts = jnp.arange(groups[0].shape[0]) * groups[0].shape[1]
    return jax.lax.map(of_group, (*groups, firsts)).ravel()[:num]
