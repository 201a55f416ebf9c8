"""Whether guided paths miss a part of the posterior: short runs at a shorter horizon find it.

A path heads for one mode. From a state that does not distinguish two of them it hardly ever reaches the other, and what
is never reached shows in no weight: the log-evidence is too low, with a small error. The shorter the horizon, the fewer
such states there are, and the more the mixture of starts has to cover. An estimate that misses a part is low, so only a
*higher* log-evidence at the shorter horizon counts against the run; a lower one says that the short paths miss
something.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from langenode._types import PRNGKeyArray
from langenode.posteriors.density import Density
from langenode.posteriors.particles import Summary, Trust, summarise
from langenode.samplers.guided.paths import GuidedSettings
from langenode.samplers.guided.pilot import SHORTER, Trials

MOST_ERRORS = 3.0  # of the difference: beyond, the run is not to be trusted
NEGLIGIBLE = 0.02  # nats: a difference that is never held against a run


class Check(NamedTuple):
    """The log-evidence at the shorter horizon and its error, and how often the model was run for it."""

    horizon: float
    log_evidence: float
    log_evidence_error: float
    num_evaluations: int


class Gap(NamedTuple):
    """By how much the check exceeds the run's log-evidence, and the error of this difference."""

    value: float
    error: float

    @property
    def excess(self) -> float:
        """What it adds to the error of the log-evidence: all of it where it is positive, chance included."""
        return max(0.0, self.value)

    @property
    def is_large(self) -> bool:
        """Whether it is beyond chance."""
        return self.value > max(MOST_ERRORS * self.error, NEGLIGIBLE)


def run_check(
    density: Density, settings: GuidedSettings, horizon: float, eta: float, *, num: int, key: PRNGKeyArray
) -> Check:
    """`num` short runs at a fifth of the horizon, their paths together."""
    trials, shorter = Trials.of(density, settings), SHORTER * horizon
    done = [trials.run(shorter, eta, key=jax.random.fold_in(key, i)) for i in range(num)]
    log_weights = jnp.concatenate([jnp.asarray(trial.log_weights) for trial in done])
    found = summarise(log_weights, jnp.arange(len(log_weights)))
    cost = sum(trial.num_evaluations for trial in done)
    return Check(shorter, found.log_evidence, found.log_evidence_error, cost)


def compare(summary: Summary, check: Check) -> Gap | None:
    """The difference; None where one of them found nothing."""
    value = check.log_evidence - summary.log_evidence
    if not math.isfinite(value):
        return None
    return Gap(value, math.hypot(check.log_evidence_error, summary.log_evidence_error))


def judge_gap(trust: Trust, gap: Gap | None, horizon: float) -> Trust:
    """The verdict on the weights, unless the check found what they miss."""
    if not trust.is_trusted or gap is None or not gap.is_large:
        return trust
    return Trust(
        False,
        f"paths of horizon {horizon:.2g} miss a part of the posterior: shorter ones find {gap.value:.2g} nats more, "
        f"{gap.value / gap.error:.1f} errors; {trust.reason}; use a shorter horizon",
    )
