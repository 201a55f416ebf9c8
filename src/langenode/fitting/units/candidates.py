"""Candidates of a hierarchical fit, judged by the log density of held-out units: how many latent inputs units have."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from langenode.config import Config
from langenode.data import Dataset, Scaling
from langenode.experiments.base import Experiment
from langenode.fitting import build
from langenode.fitting.units import solving
from langenode.fitting.units.errors import error_from_start
from langenode.inference.point_fit import fit_mle
from langenode.models import LatentCurve, LatentODE, SmoothCurve, UnitModel
from langenode.posteriors import cast

# A less plain candidate must raise the log density of a held-out reading by this much to be kept.
WORTHWHILE_GAIN = 0.05
# The largest number that a file stores for a candidate that is no use at all.
MOST_ERROR = 1e9


class Judged(NamedTuple):
    """Candidates by name with their models, and `exp(-log score)`: the less the better; a ratio is a gain in nats.

    `starts` are the models where their searches began, and `scores` are by unit.
    """

    models: dict[str, Any]
    errors: dict[str, float]
    starts: dict[str, Any]
    scores: dict[str, solving.LogScore]

    @property
    def best(self) -> str:
        """The plainest candidate that no later one replaces: one must gain something worthwhile, beyond chance."""
        names = list(self.errors)
        kept = names[0]
        for name in names[1:]:
            gain = log_score_of(self.errors[name]) - log_score_of(self.errors[kept])
            is_better = gain > WORTHWHILE_GAIN and gain > self.scores[name].error_of_gain(self.scores[kept])
            kept = name if is_better else kept
        return kept


def error_of(log_score: float) -> float:
    """What is stored of a log score: within the numbers that a file can hold, whatever a candidate says."""
    if not np.isfinite(log_score):
        return MOST_ERROR
    most = math.log(MOST_ERROR)
    return math.exp(-min(max(log_score, -most), most))


def log_score_of(error: float) -> float:
    """The log density of a held-out reading behind a stored error."""
    return -math.log(error)


def score_list(tried: Sequence[Mapping[str, Any]]) -> str:
    """Candidates with their log scores, for people."""
    return ", ".join(f"{one['name']} {log_score_of(one['error']):.3f}" for one in tried)


def starting_point(experiment: Experiment, config: Config, untrained: Any, train: Dataset) -> Any:
    """One model for all units: at least squares where it has rates; a user's equations stay where they are.

    Latent inputs are zero meanwhile: they have no meaning before units differ. The noise is that of the residuals. A
    curve is fitted as well from where it is.
    """
    del experiment
    if isinstance(untrained, LatentCurve | SmoothCurve):
        return untrained
    if isinstance(untrained, UnitModel):
        return fit_mle(untrained, train, num_adam=0, num_lbfgs=0).model
    options = config.mle
    model = untrained
    if isinstance(model, LatentODE):
        model = eqx.tree_at(lambda m: m.unit, model, jnp.zeros(model.unit.shape, int))
    found = fit_mle(
        model,
        train,
        num_adam=options.num_adam,
        num_lbfgs=options.num_lbfgs,
        learning_rate=options.learning_rate,
        penalty=options.penalty,
    ).model
    if isinstance(model, LatentODE):
        found = eqx.tree_at(lambda m: m.unit, found, jnp.zeros_like(untrained.unit))
    return found


def judge_candidates(
    experiment: Experiment, config: Config, train: Dataset, held_out: Dataset | None, scaling: Scaling
) -> Judged:
    """Fit candidates in turn, the plainest first, until one after the first two brings nothing; the data are scaled."""
    models: dict[str, Any] = {}
    errors: dict[str, float] = {}
    begun: dict[str, Any] = {}
    scores: dict[str, solving.LogScore] = {}
    starts: dict[str, Any] = {}  # by kind: one serves all candidates that differ in their number of latent inputs
    families: dict[str, Any] = {}
    judged = train if held_out is None else held_out
    candidates = experiment.candidates(config)
    num_fitted = len(np.unique(train.unit[train.mask.any(axis=(1, 2))]))
    for name, config in candidates.items():
        kind = getattr(config.model, "units", "")
        if kind not in starts:
            starts[kind] = starting_point(experiment, config, build.untrained(experiment, config), train)
        family = solving.fit_candidate(config, starts[kind], train, scaling)
        middle = family.effects.from_noise(jnp.zeros(family.effects.num_noise))
        model = family.partition.combine(family.model, middle)
        begun[name] = starts[kind]
        models[name] = cast(model, jnp.dtype(config.precision))
        families[name] = config, family
        score = solving.log_score(config, family, judged, scaling, num_fitted)
        best = min(errors.values(), default=MOST_ERROR)
        scores[name], errors[name] = score, error_of(score.mean)
        is_useful = errors[name] < math.exp(-WORTHWHILE_GAIN) * best
        if len(errors) > 2 and not is_useful:
            break
    return Judged(models, _without_poor_means(families, errors, judged, scaling), begun, scores)


def _without_poor_means(
    families: Mapping[str, tuple[Config, Any]], errors: dict[str, float], judged: Dataset, scaling: Scaling
) -> dict[str, float]:
    """The errors, in which networks that predict worse from the first reading than smooth curves gain nothing.

    The joint density of a unit's readings can be higher although each of them is predicted less well.
    """
    first, *others = families
    if not isinstance(families[first][1].model, SmoothCurve):
        return errors
    better = [name for name in others if errors[name] < errors[first]]
    if not better:
        return errors
    found = {name: error_from_start(*families[name], judged, scaling) for name in [first, *better]}
    raised = {name: max(errors[first], errors[name]) for name in better if found[name] > found[first]}
    return errors | raised
