"""Stored draws, weighted or not: the results of NUTS, SMC, ensembles and importance sampling."""

import jax

from langenode._arrays import zeros
from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractPosterior
from langenode.posteriors.particles import systematic


class Empirical(AbstractPosterior):
    """Draws with log weights; sampling is with replacement, in proportion to the weights."""

    draws: Float[Array, "stored dim"]
    log_weights: Float[Array, " stored"]

    def __init__(self, draws: Float[Array, "stored dim"], log_weights: Float[Array, " stored"] | None = None):
        self.draws = draws
        self.log_weights = zeros(draws.shape[0], draws.dtype) if log_weights is None else log_weights

    def __check_init__(self):
        if self.draws.shape[0] == 0:
            raise ValueError("an empirical posterior needs at least one draw; got none; run the sampler first")

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.draws.shape[1]

    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Systematic resampling, shuffled: each draw appears within one of its expected number of times."""
        key_offset, key_order = jax.random.split(key)
        index = systematic(self.log_weights, num_samples, key=key_offset)
        return self.draws[jax.random.permutation(key_order, index)]
