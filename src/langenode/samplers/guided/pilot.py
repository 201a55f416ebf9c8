"""How guided paths are steered: the horizon and eta are chosen by short trial runs."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._types import PRNGKeyArray
from langenode.posteriors.density import Density
from langenode.posteriors.particles import relative_ess
from langenode.samplers.guided.bridges import make_levels
from langenode.samplers.guided.paths import HORIZON, GuidedSettings, Plan, run_paths

ETAS = (1.0, 3.0, 10.0, 30.0, 100.0)
SHORTER = 0.2  # of the horizon: what a path does not cover there, the mixture of starts does
PILOT_PATHS, PILOT_STEPS, PILOT_ITERATIONS = 128, 24, 20  # enough to distinguish candidates
LINEAR_ESS = 0.9  # a pilot without softening that has this relative ESS, or more, needs none
NEGLIGIBLE = 1e-3  # nats: a difference of scores that may be rounding


class Trial(NamedTuple):
    """The log weights of a short run, and how often it ran the model."""

    log_weights: np.ndarray
    num_evaluations: int


class Trials(NamedTuple):
    """Short runs without resampling, which share one compiled program."""

    plan: Plan
    num_steps: int
    dtype: Any

    @classmethod
    def of(cls, density: Density, settings: GuidedSettings) -> "Trials":
        """Those of a density."""
        return cls(Plan.of(density, settings._replace(resample_below=0.0)), settings.num_steps, density.dtype)

    def run(self, horizon: float, eta: float, *, key: PRNGKeyArray) -> Trial:
        """One of them."""
        levels = make_levels(self.num_steps, horizon, self.dtype)
        outcome = run_paths(self.plan.target, self.plan.sizes, levels, jnp.asarray(eta, self.dtype), key=key)
        return Trial(np.asarray(outcome.paths.log_weight, float), self.plan.cost(outcome))


class Candidate(NamedTuple):
    """A horizon and an eta, their score, a bound of the log-evidence, its standard error, and each path's part in it.

    The parts are `exp(log_weight / 2)` over their mean, or zero where no path has a weight.
    """

    horizon: float
    eta: float
    score: float
    standard_error: float
    parts: np.ndarray


class Pilot(NamedTuple):
    """What was chosen, among what, and how often the model was run.

    The only eta is 0 where the model proved to be nearly linear.
    """

    horizon: float
    eta: float
    candidates: tuple[Candidate, ...]
    num_evaluations: int


def pilot_settings(settings: GuidedSettings) -> GuidedSettings:
    """Those of a trial run: fewer and shorter paths."""
    return settings._replace(
        num_paths=PILOT_PATHS, num_steps=PILOT_STEPS, num_start_iterations=PILOT_ITERATIONS, num_moves=0
    )


def run_pilot(density: Density, settings: GuidedSettings, etas: Sequence[float] = ETAS, *, key: PRNGKeyArray) -> Pilot:
    """The eta with the best score less its standard error, and the shorter horizon where it scores better still.

    The score is `2 log mean exp(log_weight / 2)` *without resampling*, a bound of the log-evidence that forgives the
    paths in poor modes, which resampling ends anyway; the mean log weight does not. The resampled log-evidence is never
    a score: it is noisiest, and highest, where the weights collapse. A model for which eta = 0 gives nearly equal
    weights is linear and takes it; for others 0 is no candidate, since it may score well while one path in thousands
    has a huge weight. Nearly equal weights do not show the mass that no path reaches; the scores of two horizons do.
    """
    trials, costs = Trials.of(density, settings), []
    horizon = HORIZON if settings.horizon is None else settings.horizon

    def candidate(horizon: float, eta: float) -> Candidate:  # the same key: candidates share their noise
        trial = trials.run(horizon, eta, key=key)
        costs.append(trial.num_evaluations)
        return _scored(horizon, eta, trial.log_weights)

    tried = [candidate(horizon, 0.0)]
    if not _relative_ess(tried[0]) >= LINEAR_ESS:  # nor where it is no number
        tried = [candidate(horizon, eta) for eta in etas]
    best = _best(tried)
    if settings.horizon is None:
        shorter = [candidate(SHORTER * horizon, eta) for eta in sorted({best.eta, min(best.eta, *etas)})]
        tried, best = tried + shorter, _better(best, _best(shorter))
    return Pilot(best.horizon, best.eta, tuple(tried), sum(costs))


def _relative_ess(candidate: Candidate) -> float:
    return float(relative_ess(2.0 * jnp.log(candidate.parts)))


def _scored(horizon: float, eta: float, log_weights: np.ndarray) -> Candidate:
    """`2 log mean exp(log_weight / 2)` and its standard error."""
    highest = float(np.max(log_weights))
    if not math.isfinite(highest):
        return Candidate(horizon, eta, -math.inf, math.inf, np.zeros_like(log_weights))
    roots = np.exp(0.5 * (log_weights - highest))
    parts = roots / roots.mean()
    error = 2.0 * float(np.std(parts, ddof=1)) / math.sqrt(len(parts))
    return Candidate(horizon, eta, highest + 2.0 * math.log(float(np.mean(roots))), error, parts)


def _best(tried: Sequence[Candidate]) -> Candidate:
    """The candidate with the best score less its error; the median eta where that error exceeds one nat.

    There the pilot shows nothing.
    """
    best = tried[int(np.argmax([one.score - one.standard_error for one in tried]))]
    return sorted(tried, key=lambda one: one.eta)[len(tried) // 2] if best.standard_error > 1.0 else best


def _better(long: Candidate, short: Candidate) -> Candidate:
    """The shorter horizon where its score is higher by more than the standard error of the difference, path by path."""
    if not math.isfinite(short.score):
        return long
    error = 2.0 * float(np.std(short.parts - long.parts, ddof=1)) / math.sqrt(len(long.parts))
    return short if short.score - long.score > max(error, NEGLIGIBLE) else long
