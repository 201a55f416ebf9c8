"""Guided paths as a sampler: from a density to weighted draws, and how good they are."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.density import Density, Sampled
from langenode.posteriors.particles import Trust, judge, summarise
from langenode.samplers.guided.bridges import Target, make_levels
from langenode.samplers.guided.check import Gap, compare, judge_gap, run_check
from langenode.samplers.guided.paths import HORIZON, GuidedSettings, Plan, run_paths
from langenode.samplers.guided.pilot import pilot_settings, run_pilot
from langenode.samplers.modes import prior_starts
from langenode.samplers.moves import Moved, hamiltonian_moves

DEFAULTS = GuidedSettings()


class GuidedDraws(NamedTuple):
    """Weighted draws in whitened coordinates, and how good they are.

    The log of the mean of `exp(log_weights)` is `log_evidence`, with or without resampling; its error consists of
    `sampling_error` and of `gap`, how much more a check at a shorter horizon found. `lineage` is the path each draw
    descends from, `ancestors` the share of paths that have descendants. `acceptance` is that of the final moves,
    `num_evaluations` how often the model was run, a Jacobian counting as its columns or rows.
    """

    draws: Float[Array, "sample dim"]
    log_weights: Float[Array, " sample"]
    log_evidence: float
    log_evidence_error: float
    sampling_error: float
    relative_ess: float
    ancestors: float
    lineage: Int[Array, " sample"]
    num_resamplings: int
    horizon: float
    eta: float
    gap: Gap | None
    acceptance: float | None
    num_evaluations: int
    trust: Trust

    def sampled(self, **more: Any) -> Sampled:
        """The result in the form that every sampler has, with `more` diagnostics; draws of weight zero are dropped.

        Where no draw has a weight all are kept, and they are not trusted.
        """
        is_fine = np.isfinite(np.asarray(self.log_weights))
        is_fine = is_fine if is_fine.any() else ~is_fine
        numbers = {
            "log_evidence": self.log_evidence,
            "log_evidence_se": self.log_evidence_error,
            "relative_ess": self.relative_ess,
            "ancestors": self.ancestors,
            "num_resamplings": self.num_resamplings,
            "horizon": self.horizon,
            "eta": self.eta,
            "horizon_gap": None if self.gap is None else self.gap.value,
            "horizon_gap_se": None if self.gap is None else self.gap.error,
            "acceptance": self.acceptance,
            "num_evaluations": self.num_evaluations,
            "dropped": int(np.sum(~is_fine)),
        } | more
        present = {name: value for name, value in numbers.items() if value is not None}
        return Sampled(self.draws[is_fine], self.log_weights[is_fine], present, self.trust)


def guided_langevin(density: Density, settings: GuidedSettings = DEFAULTS, *, key: PRNGKeyArray) -> GuidedDraws:
    """Weighted draws of a posterior by Langevin paths whose control is computed, not trained.

    The density's residuals, `(observed - predicted(z)) / sigma`, steer; its log-likelihood gives the weights.
    """
    key_pilot, key_paths, key_moves, key_check = jax.random.split(key, 4)
    plan, short = Plan.of(density, settings), pilot_settings(settings)
    horizon = HORIZON if settings.horizon is None else settings.horizon
    eta, cost = settings.eta, 0
    if eta is None:
        pilot = run_pilot(density, short, key=key_pilot)
        horizon, eta, cost = pilot.horizon, pilot.eta, pilot.num_evaluations
    levels = make_levels(settings.num_steps, horizon, density.dtype)
    outcome = run_paths(plan.target, plan.sizes, levels, jnp.asarray(eta, density.dtype), key=key_paths)
    paths = outcome.paths
    if not np.any(np.isfinite(np.asarray(paths.log_weight))):
        prior_starts(density, settings.num_paths, key=key_check)  # an error where the model gives no number at all
    draws, acceptance, cost = paths.w, None, cost + plan.cost(outcome)
    if settings.num_moves:
        moved = _polish(plan.target, draws, paths.log_weight, settings.num_moves, plan.sizes.chunk, key=key_moves)
        draws, acceptance, cost = moved.draws, float(moved.acceptance), cost + moved.num_evaluations
    summary, gap = summarise(paths.log_weight, paths.ancestor), None
    if settings.num_checks:
        check = run_check(density, short, horizon, eta, num=settings.num_checks, key=key_check)
        gap, cost = compare(summary, check), cost + check.num_evaluations
    error = float(np.hypot(summary.log_evidence_error, 0.0 if gap is None else gap.excess))
    return GuidedDraws(
        draws=draws,
        log_weights=paths.log_weight,
        **summary._replace(log_evidence_error=error)._asdict(),
        sampling_error=summary.log_evidence_error,
        lineage=paths.ancestor,
        num_resamplings=int(outcome.num_resamplings),
        horizon=horizon,
        eta=float(eta),
        gap=gap,
        acceptance=acceptance,
        num_evaluations=cost,
        trust=judge_gap(judge(summary), gap, horizon),
    )


@eqx.filter_jit
def _polish(
    target: Target, draws: Array, log_weights: Array, num_moves: int, chunk: int, *, key: PRNGKeyArray
) -> Moved:
    def log_density(z):
        return target.log_likelihood(z) - 0.5 * jnp.sum(z**2)

    return hamiltonian_moves(log_density, draws, log_weights, num_moves=num_moves, chunk=chunk, key=key)
