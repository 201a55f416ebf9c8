"""What all methods share: the library they need, safe log densities and gradients, plain and finite results."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.posteriors import Density, Sampled, Trust
from langenode.scores import chains

# Log-likelihood of a model that gives no number; finite, so that its power zero is one.
LOWEST_LOG_LIKELIHOOD = -1e30
# Gradients in whitened coordinates are about sqrt(dim) long; longer ones than this many times that are bounded.
LONGEST_GRADIENT = 10.0
# R-hat is computed from this many predictions at most.
MOST_PREDICTIONS = 256


def library(method: str) -> Any:
    """The blackjax package, or the one error that says how to get it."""
    try:
        import blackjax
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"method {method} needs the blackjax package; it is not installed; pip install 'langenode[baselines]'",
            name="blackjax",
        ) from error
    return blackjax


def at_least(least: int, **sizes: int) -> None:
    """Refuse a size below `least`."""
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} must be {least} or more; got {size}; raise it")


def log_density_of(density: Density) -> Callable[[Array], Array]:
    """The log posterior computed in the density's precision, taken and given in the default one, as libraries want."""
    return lambda z: density.log_posterior(z.astype(density.dtype)).astype(jnp.result_type(float))


def settle(tree: Any) -> Any:
    """A state as the library made it, in the default precision and without Python numbers: it compiles once."""

    def one(leaf: Any) -> Array:
        leaf = jnp.asarray(leaf)
        is_real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.lax.convert_element_type(leaf, jnp.result_type(float) if is_real else leaf.dtype)

    return jax.tree.map(one, tree)


def bounded_gradient(gradient: Float[Array, " dim"], u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Array]:
    """A gradient of bounded length, the prior's where the model gives no number; and whether it was changed.

    A method without rejection cannot return from one wild step.
    """
    is_finite = jnp.all(jnp.isfinite(gradient))
    gradient = jnp.where(is_finite, gradient, -u)
    limit = LONGEST_GRADIENT * math.sqrt(u.shape[0])
    length = jnp.sqrt(jnp.sum(gradient**2))
    return gradient * jnp.minimum(1.0, limit / jnp.maximum(length, 1e-30)), (length > limit) | ~is_finite


def agreement(density: Density, points: Float[Array, "chain draw dim"]) -> dict[str, Any]:
    """The largest R-hat (rank-normalised, split) of a weight, and of a prediction where there are residuals; bulk ESS.

    Networks have equal modes, since hidden units can be exchanged: chains that never leave theirs disagree in the
    weights and may agree in all predictions. With residuals the numbers of both verdicts (`scores.chains`) follow.
    """
    if points.shape[1] < 4:  # halves of two are the least that have a variance
        return {}
    r_hat, ess = _read_chains(points)
    found: dict[str, Any] = {"r_hat": r_hat, "ess": ess}
    if density.residual is None:
        return found
    seen = in_function_space(density, points)
    # A known start depends on no weight: it has neither spread nor R-hat.
    varies = np.ptp(seen[0], axis=(0, 1)) > 0.0
    if varies.any():
        found["r_hat_predictions"] = _read_chains(jnp.asarray(seen[0][:, :, varies]))[0]
    return found | chains.agreement(*seen).record()


def _read_chains(values: Float[Array, "chain draw number"]) -> tuple[float, float]:
    import blackjax

    r_hat, ess = (np.asarray(jax.jit(read)(values), float) for read in (blackjax.rhat, blackjax.ess_bulk))
    return float(np.max(np.where(np.isnan(r_hat), np.inf, r_hat))), float(np.min(np.where(np.isnan(ess), 0.0, ess)))


def in_function_space(density: Density, points: Float[Array, "chain draw dim"]) -> tuple[np.ndarray, ...]:
    """Predictions inside and outside the data, log-likelihoods and |z|^2, `(chain, draw, ...)`."""
    norms = np.sum(np.asarray(points) ** 2, axis=2)
    inside, values = (np.asarray(_at_draws(density, kind, points)) for kind in ("residual", "log_likelihood"))
    nothing = np.zeros((*points.shape[:2], 0))
    outside = nothing if density.probe is None else np.asarray(_at_draws(density, "probe", points))
    return inside, outside, values[..., 0], norms


@eqx.filter_jit
def _at_draws(density: Density, kind: str, points: Array) -> Array:
    """At most `MOST_PREDICTIONS` numbers of one of the density's functions at every draw."""
    function = getattr(density, kind)
    flat = points.reshape(-1, density.dim).astype(density.dtype)
    values = jax.lax.map(lambda z: jnp.ravel(function(z)), flat, batch_size=256)
    return values[:, :: -(-values.shape[1] // MOST_PREDICTIONS)].reshape(*points.shape[:2], -1)


def judged_r_hat(found: Mapping[str, Any]) -> float:
    """The R-hat that decides: that of the predictions where it is known, since weights may be exchanged."""
    return found.get("r_hat_predictions", found.get("r_hat", math.inf))


def describe_r_hat(found: Mapping[str, Any]) -> str:
    """Both R-hats in words."""
    text = f"R-hat {found.get('r_hat', math.nan):.3f} of the weights"
    return text + (f", {found['r_hat_predictions']:.3f} of the predictions" if "r_hat_predictions" in found else "")


def unchecked(method: str) -> Trust:
    """The verdict of a method that has no diagnostic: not known to have failed."""
    return Trust(True, f"not checked: {method} has no diagnostic of its own", is_checked=False)


def finish(
    method: str,
    density: Density,
    draws: Float[Array, "sample dim"],
    log_weights: Float[Array, " sample"] | None,
    diagnostics: Mapping[str, Any],
    trust: Trust,
    *,
    values: Float[np.ndarray, " sample"] | None = None,
) -> Sampled:
    """The result without draws that are not finite; numbers that are not are left out of the diagnostics.

    `values` are the draws' log posteriors (up to a constant) where they are known.
    """
    draws = jnp.asarray(draws, density.dtype)
    log_weights = jnp.zeros(len(draws), density.dtype) if log_weights is None else log_weights
    values = np.asarray(evaluate(density, draws)) if values is None else values
    is_fine = np.all(np.isfinite(np.asarray(draws)), axis=1) & np.isfinite(values)
    if not np.any(is_fine & np.isfinite(np.asarray(log_weights))):
        raise ValueError(
            f"method {method} must find draws with a finite posterior; it found none of {len(draws)}; check that the "
            "model gives numbers under the prior, or use more draws"
        )
    num_dropped = int(np.sum(~is_fine))
    found = _finite({**diagnostics, "dropped": num_dropped})
    return Sampled(draws[is_fine], jnp.asarray(log_weights, density.dtype)[is_fine], found, trust)


def _finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Plain numbers, those in groups too, without any that is not finite."""
    groups = {name: _finite(value) for name, value in numbers.items() if isinstance(value, Mapping)}
    plain = {name: _plain(value) for name, value in numbers.items() if name not in groups}
    return {name: value for name, value in plain.items() if math.isfinite(value)} | groups


def _plain(value: Any) -> bool | int | float:
    value = np.asarray(value).item()
    return value if isinstance(value, bool | int) else float(value)


@eqx.filter_jit
def evaluate(density: Density, draws: Float[Array, "sample dim"]) -> Float[Array, " sample"]:
    """The log posterior of every draw."""
    return jax.vmap(density.log_posterior)(draws)
