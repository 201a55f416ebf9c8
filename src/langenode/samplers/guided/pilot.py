"""How much guided paths soften the data far from their end: eta is chosen by short trial runs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.density import Density
from langenode.posteriors.particles import relative_ess
from langenode.samplers.guided.bridges import make_levels
from langenode.samplers.guided.paths import GuidedSettings, Plan, run_paths

ETAS = (1.0, 3.0, 10.0, 30.0, 100.0)
PILOT_PATHS, PILOT_STEPS, PILOT_ITERATIONS = 128, 24, 20  # enough to distinguish candidates
LINEAR_ESS = 0.9  # a pilot without softening that has this relative ESS, or more, needs none


class Pilot(NamedTuple):
    """The chosen eta; for each candidate the score, a bound of the log-evidence, and its standard error.

    The only candidate is 0 where the model proved to be nearly linear. `num_evaluations` counts runs of the model.
    """

    eta: float
    etas: tuple[float, ...]
    scores: tuple[float, ...]
    standard_errors: tuple[float, ...]
    num_evaluations: int


def pilot_settings(settings: GuidedSettings) -> GuidedSettings:
    """Those of a trial run: fewer and shorter paths."""
    return settings._replace(
        num_paths=PILOT_PATHS, num_steps=PILOT_STEPS, num_start_iterations=PILOT_ITERATIONS, num_moves=0
    )


def choose_eta(density: Density, settings: GuidedSettings, etas: Sequence[float] = ETAS, *, key: PRNGKeyArray) -> Pilot:
    """The eta with the best score less its standard error, *without resampling*.

    The score is `2 log mean exp(log_weight / 2)`, a bound of the log-evidence that forgives the paths in poor modes,
    which resampling ends anyway; the mean log weight does not. Where the best candidate's error exceeds one nat the
    pilot shows nothing, and the median candidate is taken. The resampled log-evidence is never a score: it is noisiest,
    and highest, where the weights collapse. A model for which eta = 0 gives nearly equal weights is linear and takes
    it; for others 0 is no candidate, since it may score well while one path in thousands has a huge weight.
    """
    plan = Plan.of(density, settings._replace(resample_below=0.0))
    levels = make_levels(settings.num_steps, settings.horizon, density.dtype)
    costs = []

    def log_weights(eta: float) -> Array:  # the same key: candidates share their noise
        outcome = run_paths(plan.target, plan.sizes, levels, jnp.asarray(eta, density.dtype), key=key)
        costs.append(plan.cost(outcome))
        return outcome.paths.log_weight

    plain = log_weights(0.0)
    if relative_ess(plain) >= LINEAR_ESS:
        score, error = _score(plain)
        return Pilot(0.0, (0.0,), (score,), (error,), sum(costs))
    scores, errors = zip(*(_score(plain if eta == 0.0 else log_weights(eta)) for eta in etas), strict=True)
    return Pilot(_best(etas, scores, errors), tuple(etas), scores, errors, sum(costs))


def _score(weights: Float[Array, " path"]) -> tuple[float, float]:
    """`2 log mean exp(log_weight / 2)` and its standard error."""
    log_weights = np.asarray(weights, float)
    highest = float(np.max(log_weights))
    if not math.isfinite(highest):
        return -math.inf, math.inf
    roots = np.exp(0.5 * (log_weights - highest))
    error = 2.0 * float(np.std(roots, ddof=1)) / float(np.mean(roots)) / math.sqrt(len(roots))
    return highest + 2.0 * math.log(float(np.mean(roots))), error


def _best(etas: Sequence[float], scores: Sequence[float], errors: Sequence[float]) -> float:
    """The candidate with the best score less its error; the median one where that error exceeds one nat."""
    best = int(np.argmax(np.asarray(scores) - np.asarray(errors)))
    return sorted(etas)[len(etas) // 2] if errors[best] > 1.0 else etas[best]
