"""Weighted paths: effective size, systematic resampling, the evidence and its error, and whether to trust them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray

# Below these shares of the paths, or above this error in nats, weighted draws are not to be trusted.
LOWEST_RELATIVE_ESS = 0.1
LOWEST_ANCESTORS = 0.1
LARGEST_EVIDENCE_ERROR = 0.3


class Trust(NamedTuple):
    """Whether the draws may stand for the posterior, and why; unchecked where the method has no diagnostic."""

    is_trusted: bool
    reason: str
    is_checked: bool = True


class Summary(NamedTuple):
    """Numbers computed from the weights: `ancestors` is the share of paths that have descendants."""

    log_evidence: float
    log_evidence_error: float
    relative_ess: float
    ancestors: float


def relative_ess(log_weights: Float[Array, " sample"]) -> Float[Array, ""]:
    """`1 / (N sum W^2)` of the normalised weights, inside compiled programs, which resample by it.

    On the host `scores.diagnostics.relative_ess` computes it in 64 bits.
    """
    return 1.0 / (log_weights.shape[0] * jnp.sum(jax.nn.softmax(log_weights) ** 2))


def systematic(
    log_weights: Float[Array, " sample"], num: int | None = None, *, key: PRNGKeyArray
) -> Int[Array, " drawn"]:
    """Indices in proportion to the weights, each within one of its expected number of times; by default as many."""
    num = log_weights.shape[0] if num is None else num
    cumulative = jnp.cumsum(jax.nn.softmax(log_weights))
    points = (jnp.arange(num) + jax.random.uniform(key, (), cumulative.dtype)) / num
    return jnp.clip(jnp.searchsorted(cumulative, points * cumulative[-1]), 0, log_weights.shape[0] - 1)


def summarise(log_weights: Float[Array, " sample"], lineage: Int[Array, " sample"]) -> Summary:
    """The log of the mean weight, and its error from the normalised weights summed by ancestor: `sum (W_i - 1/N)^2`.

    Without resampling this is the usual relative variance of a mean; with it, the estimate of Chan and Lai (2013),
    which tends to one as one ancestor takes over.
    """
    values = np.asarray(log_weights, float)
    num, highest = len(values), np.max(values)
    if not np.isfinite(highest):
        return Summary(float("nan"), float("nan"), float("nan"), 0.0)
    weights = np.exp(values - highest)
    shares = weights / weights.sum()
    families = np.bincount(np.asarray(lineage), shares, minlength=num)
    return Summary(
        log_evidence=float(highest + np.log(weights.mean())),
        log_evidence_error=float(np.sqrt(np.sum((families - 1.0 / num) ** 2))),
        relative_ess=float(1.0 / (num * np.sum(shares**2))),
        ancestors=len(np.unique(lineage)) / num,
    )


def judge(summary: Summary) -> Trust:
    """The verdict: after resampling a healthy ESS says nothing where few ancestors survive."""
    ess, ancestors, error = summary.relative_ess, summary.ancestors, summary.log_evidence_error
    if not math.isfinite(ess):
        return Trust(False, "no path has a finite weight; check that the residuals are finite under the prior")
    figures = f"relative ESS {ess:.3f}, surviving ancestors {ancestors:.3f}, log-evidence error {error:.2g} nats"
    if ancestors < LOWEST_ANCESTORS:
        return Trust(False, f"too few ancestors survive, whatever the ESS says: {figures}; use more steps or paths")
    if ess < LOWEST_RELATIVE_ESS:
        return Trust(False, f"few paths carry all the weight: {figures}; use more steps or paths, or resample")
    if error > LARGEST_EVIDENCE_ERROR:
        return Trust(False, f"a few families carry the weight: {figures}; use more steps or paths")
    return Trust(True, figures)
