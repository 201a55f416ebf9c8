"""Pathfinder (blackjax): the best normal along the path of an L-BFGS search, from several starts.

Draws of all paths are weighted by `p/q`, the largest weights smoothed (PSIS); `k_hat` says whether that can work.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors import Density, Sampled
from langenode.samplers.common import at_least, finish, library, log_density_of
from langenode.samplers.laplace import importance, judge_importance
from langenode.samplers.modes import prior_starts
from langenode.scores.diagnostics import log_evidence

MOST_LINE_SEARCH_STEPS = 30


class _Paths(NamedTuple):
    """Draws of every path with `log p - log q`, and the path's bound of the log-evidence."""

    draws: Float[Array, "path sample dim"]
    log_ratios: Float[Array, "path sample"]
    elbos: Float[Array, " path"]


def pathfinder(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_draws: int = 1024,
    num_paths: int = 8,
    num_iterations: int = 100,
    num_bound_draws: int = 32,
) -> Sampled:
    """Weighted draws of `num_paths` normals; `elbo` is the highest bound of the log-evidence among them."""
    blackjax = library("pathfinder")
    at_least(1, num_paths=num_paths, num_iterations=num_iterations)
    at_least(num_paths, num_draws=num_draws)
    key_start, key_paths = jax.random.split(key)
    starts = prior_starts(density, num_paths, key=key_start)
    per_path = -(-num_draws // num_paths)
    paths = _run(density, starts, per_path, num_iterations, num_bound_draws, jax.random.split(key_paths, num_paths))
    ratios = np.asarray(paths.log_ratios, float).ravel()
    draws = np.asarray(paths.draws).reshape(-1, density.dim)
    is_fine = np.isfinite(ratios) & np.all(np.isfinite(draws), axis=1)
    ratios, draws = np.where(is_fine, ratios, -np.inf)[is_fine], draws[is_fine]
    if len(ratios) == 0:
        raise ValueError(
            "pathfinder must find a normal with finite draws; none of its paths did; use more paths or another method"
        )
    found: dict[str, Any] = {"elbo": np.nanmax(np.asarray(paths.elbos, float), initial=-np.inf), **importance(ratios)}
    estimate = log_evidence(ratios)
    found |= {"log_evidence": estimate.value, "log_evidence_se": estimate.standard_error}
    # A search evaluates a point and its line search; every point of the path is scored by draws.
    found["num_evaluations"] = num_paths * ((num_iterations + 1) * (num_bound_draws + 3) + per_path)
    log_weights = np.asarray(blackjax.diagnostics.psis_weights(jnp.asarray(ratios))[0], float)
    log_weights = jnp.asarray(log_weights + estimate.value + np.log(len(ratios)), density.dtype)
    trust = judge_importance("Pathfinder", found)
    return finish("pathfinder", density, jnp.asarray(draws), log_weights, found, trust)


@eqx.filter_jit
def _run(
    density: Density, starts: Array, per_path: int, num_iterations: int, num_bound_draws: int, keys: Array
) -> _Paths:
    """The paths one after the other: each judges all its points at once, which is wide enough."""
    from blackjax.vi import pathfinder

    search: Any = pathfinder.approximate
    sample: Any = pathfinder.sample

    log_density = log_density_of(density)

    def one(inputs: tuple[Array, Array]) -> _Paths:
        start, key = inputs
        key_search, key_draws = jax.random.split(key)
        state, _ = search(
            key_search,
            log_density,
            start.astype(jnp.result_type(float)),
            num_bound_draws,
            maxiter=num_iterations,
            maxls=MOST_LINE_SEARCH_STEPS,
            ftol=1e-7,
        )
        draws, log_proposal = sample(key_draws, state, per_path)
        draws = draws.astype(density.dtype)
        log_ratios = jax.vmap(log_density)(draws) - log_proposal
        # The bound that chose the point is the best of many noisy ones: new draws give an unbiased one.
        return _Paths(draws, log_ratios, jnp.mean(log_ratios))

    return jax.lax.map(one, (starts, keys))
