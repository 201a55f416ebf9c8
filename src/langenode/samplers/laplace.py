"""Laplace's approximation: a normal at the highest mode, with the Gauss-Newton curvature there.

`q = N(m, P^-1)` with `P = I + J'J` from the residuals, or minus the Hessian of the log posterior where there are none,
its eigenvalues raised to a floor. Exact for a linear model. `log evidence = log p(m) + (d/2) log 2 pi - log det(P)/2`.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import at_least, evaluate, finish
from langenode.samplers.gauss_newton import has_forward_mode, jacobian_at
from langenode.samplers.modes import find_modes, jittered, passes, prior_starts
from langenode.scores.diagnostics import is_k_hat_telling, k_hat, relative_ess

# Curvatures below this, against the prior's of one, are no sign of a mode.
LOWEST_CURVATURE = 1e-2
LARGEST_K_HAT = 0.7


class LaplaceFit(NamedTuple):
    """The mode and a root of the covariance, `root root' = P^-1`: enough to linearise a model there."""

    mode: Float[Array, " dim"]
    root: Float[Array, "dim dim"]
    log_evidence: float
    num_evaluations: int

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The point `mode + root u`: u ~ N(0, I) gives a draw."""
        return self.mode + self.root @ u

    def draws(self, num: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws of the normal."""
        return self.mode + jax.random.normal(key, (num, len(self.mode)), self.mode.dtype) @ self.root.T


def laplace(
    density: Density, *, key: PRNGKeyArray, num_draws: int = 1024, num_starts: int = 8, num_iterations: int = 60
) -> Sampled:
    """Equally weighted draws of `laplace_fit`; importance weights, for diagnostics only, say how far off it is."""
    at_least(1, num_draws=num_draws, num_starts=num_starts)
    key_fit, key_draws = jax.random.split(key)
    fit = laplace_fit(density, key=key_fit, num_starts=num_starts, num_iterations=num_iterations)
    draws = fit.draws(num_draws, key=key_draws)
    log_weights = _log_ratio(density, fit, draws)
    diagnostics = {
        "log_evidence": fit.log_evidence,
        "num_evaluations": fit.num_evaluations + num_draws,
        **importance(log_weights),
    }
    found = finish("laplace", density, draws, None, diagnostics, judge_importance("Laplace", diagnostics))
    return found._replace(centre=fit.mode)


def laplace_fit(density: Density, *, key: PRNGKeyArray, num_starts: int = 8, num_iterations: int = 60) -> LaplaceFit:
    """The highest of the modes found from draws of the prior, and the curvature there.

    The algebra is in 64 bits: in 32 the small curvatures are lost beside the large ones.
    """
    modes = find_modes(density, prior_starts(density, num_starts, key=key), num_iterations=num_iterations)
    mode = modes.best()
    precision = np.asarray(_precision(density, mode), float)
    if density.residual is not None:
        precision = np.eye(density.dim) + precision.T @ precision
    values, vectors = np.linalg.eigh(0.5 * (precision + precision.T))
    values = np.maximum(values, LOWEST_CURVATURE)
    log_evidence = float(density.log_posterior(mode)) + 0.5 * float(np.sum(np.log(2.0 * math.pi / values)))
    cost = density.dim if density.residual is None else passes(density).num
    root = jnp.asarray(vectors / np.sqrt(values), density.dtype)
    return LaplaceFit(mode, root, log_evidence, modes.num_evaluations + cost + 1)


@eqx.filter_jit
def start_about(density: Density, fit: LaplaceFit, num: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
    """Coordinates `u` of starts about the mode."""
    return jax.vmap(lambda key: jittered(density, fit, key=key))(jax.random.split(key, num))


@eqx.filter_jit
def _precision(density: Density, mode: Array) -> Array:
    """The Jacobian of the predictions, or minus the Hessian where there are no residuals."""
    if density.residual is not None:
        return jacobian_at(density.residual, mode, passes(density).form)[0]
    slope = jax.grad(density.log_posterior)
    hessian: Array = -(jax.jacfwd(slope) if has_forward_mode(slope, mode) else jax.jacrev(slope))(mode)
    return jnp.where(jnp.all(jnp.isfinite(hessian)), hessian, jnp.eye(density.dim, dtype=mode.dtype))


def _log_ratio(density: Density, fit: LaplaceFit, draws: Array) -> np.ndarray:
    """`log p - log q` of every draw, in 64 bits."""
    root = np.asarray(fit.root, float)
    white = np.linalg.solve(root, (np.asarray(draws, float) - np.asarray(fit.mode, float)).T)
    log_proposal = -0.5 * np.sum(white**2, axis=0) - np.linalg.slogdet(root)[1]
    log_proposal = log_proposal - 0.5 * density.dim * math.log(2.0 * math.pi)
    return np.asarray(evaluate(density, draws), float) - log_proposal


def importance(log_weights: np.ndarray) -> dict[str, float]:
    """Relative ESS and k-hat of a proposal's log importance weights; no k-hat where none is finite."""
    if not np.any(np.isfinite(log_weights)):
        return {"relative_ess": 0.0}
    ess = relative_ess(log_weights)
    return {"relative_ess": ess, "k_hat": k_hat(log_weights) if is_k_hat_telling(ess) else math.nan}


def judge_importance(name: str, diagnostics: dict[str, float]) -> Trust:
    """Whether a proposal is near the posterior, by its importance weights."""
    ess, shape = diagnostics["relative_ess"], diagnostics.get("k_hat", math.nan)
    figures = f"relative ESS {ess:.3f}" + ("" if math.isnan(shape) else f", k-hat {shape:.2f}")
    if not is_k_hat_telling(ess):
        return Trust(True, f"the {name} approximation is nearly the posterior: {figures}")
    if shape <= LARGEST_K_HAT:
        return Trust(True, f"importance weights of the {name} approximation behave: {figures}")
    return Trust(False, f"the {name} approximation is far from the posterior: {figures}; use nuts or smc")
