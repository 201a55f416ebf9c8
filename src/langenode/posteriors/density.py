"""What a sampler is given and what it gives: a posterior in whitened coordinates, and weighted draws of it.

The prior is N(0, I). A log density `log p(z)` without data has the log-likelihood `log p(z) - log N(z; 0, I)`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import normal_log_density
from langenode.posteriors.particles import Trust


class Density(eqx.Module):
    """The unnormalised posterior of z: `N(z; 0, I) exp(log_likelihood(z))`.

    `residual` are standardised residuals whose half squares are the (tempered) negative log-likelihood up to a
    constant, exactly or nearly: they steer, the log-likelihood decides. None where there are no data. `minibatch(z,
    key)` is an unbiased estimate of the log-likelihood from some of the data. `probe(z)` are predictions outside the
    data, at inputs or starts beyond their range: where chains agree in them, bands can be believed there. Callables
    are pytrees (bound methods of Equinox modules), so that the data they hold are arguments of compiled programs, not
    constants in them.
    """

    log_likelihood: Callable[[Array], Array]
    residual: Callable[[Array], Array] | None
    minibatch: Callable[[Array, PRNGKeyArray], Array] | None
    dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    probe: Callable[[Array], Array] | None = None

    def log_prior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log N(z; 0, I)."""
        return normal_log_density(z, 0.0, 1.0)

    def log_posterior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log-likelihood plus log prior; minus infinity where the model gives no number."""
        value = self.log_likelihood(z) + self.log_prior(z)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)


class Sampled(NamedTuple):
    """Draws in whitened coordinates with their log weights, and the diagnostics of their quality.

    `diagnostics` hold plain numbers under common names, where a method has them: `log_evidence`, `log_evidence_se`,
    `relative_ess`, `ancestors`, `k_hat`, `r_hat`, `ess`, `divergences`, `acceptance`, and `num_evaluations`: how often
    the model was run on all data, a gradient counting as one and a Jacobian as its rows or columns. `centre` is the
    mode of an approximation about it. `r_hats` are those of single predictions inside and outside the data.
    """

    draws: Float[Array, "sample dim"]
    log_weights: Float[Array, " sample"]
    diagnostics: Mapping[str, Any]
    trust: Trust
    centre: Float[Array, " dim"] | None = None
    r_hats: tuple[Any, Any] | None = None
