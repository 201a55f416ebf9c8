"""Which weights vary, by held-out score: the last layers, or all of them where these predict better."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from langenode.data import Dataset
from langenode.fitting import build, solve
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.points import PointChoice
from langenode.fitting.progress import Reporter
from langenode.inference.predictions import Rule, observable, predict
from langenode.inference.problem import Problem
from langenode.scores.skill import Scores, crps_ratio, mean_crps, pooled, scores_by_trajectory

# All weights cost more to draw and to store: they must lower the score by 1 %, and by more than a standard error.
WORTHWHILE = 0.99
CANDIDATES = {
    "last_layer": {"method": "langevin", "stochastic": "last_layer"},
    "all": {"method": "ensemble-hmc", "stochastic": "all"},
}
# Transitions of the ensemble in a fit that is only compared: enough for a score, too few for the second verdict.
MOST_TRIAL = 64


class Trial(NamedTuple):
    """A fit of one candidate to one division of the data, and its scores on what that holds out."""

    fit: Any
    scores: Scores


class InFolds(NamedTuple):
    """The fit that is kept of every fold, and what was chosen for the final one, with the CRPS of both candidates."""

    fits: list[Any]
    chosen: str
    tried: list[dict[str, Any]]


def are_open(config: Any) -> bool:
    """Whether the weights are to be chosen by score."""
    return getattr(config, "choose_weights", False) and config.target == "posterior"


def with_layer(config: Any, name: str) -> Any:
    """The configuration of a candidate."""
    return config.model_copy(update=CANDIDATES[name])


def for_trial(config: Any, name: str) -> Any:
    """The same with a bounded number of transitions, so that a run can be repeated on any machine."""
    config = with_layer(config, name)
    if name != "all":
        return config
    options, most = config.options, config.options.most_transitions
    bound = {"most_transitions": MOST_TRIAL if most is None else min(most, MOST_TRIAL)}
    return config.model_copy(update={config.method: options.model_copy(update=bound)})


def choose_weights(point: PointChoice, data: Prepared, reporter: Reporter) -> PointChoice:
    """The point with the method and the weights whose CRPS on validation data is lower; both are fitted for it."""
    assert data.validation is not None
    scores = {}
    for name in CANDIDATES:
        config = for_trial(point.config, name)
        with reporter.task(f"{name}, to be judged on validation data"), unjudged():
            solved = solve.solve(config, point.model, data, start=point.start, is_companion=True)
        scores[name] = held_out_scores(config, solved.problem, data.validation)
    chosen, told = better(scores), tried(scores)
    reporter.say(f"stochastic weights: {chosen}; CRPS on validation data (scaled): {_line(told)}")
    return point._replace(config=with_layer(point.config, chosen), tried=[*point.tried, *told])


def choose_in_folds(num: int, trial: Callable[[int, str], Trial], reporter: Reporter) -> InFolds:
    """The candidate of each fold by the scores of the other folds, and that of the final fit by all.

    All weights are fitted to the other folds only where they lower the CRPS of the first.
    """
    plain = [trial(0, "last_layer")]
    others = [trial(0, "all")]
    has_gained = mean_crps(others[0].scores) < WORTHWHILE * mean_crps(plain[0].scores)
    for number in range(1, num):
        plain.append(trial(number, "last_layer"))
        others += [trial(number, "all")] if has_gained else []
    found = {"last_layer": plain[: len(others)], "all": others}
    scores = {name: pooled([one.scores for one in trials]) for name, trials in found.items()}
    chosen, told = better(scores) if has_gained else "last_layer", tried(scores)
    of = "all folds" if has_gained else "the first fold"
    reporter.say(f"stochastic weights: {chosen}; CRPS on what {of} held out (scaled): {_line(told)}")
    if not has_gained:
        return InFolds([one.fit for one in plain], chosen, told)
    kept = []
    for number in range(num):
        rest = {name: [one.scores for index, one in enumerate(found[name]) if index != number] for name in found}
        kept.append(found[better({name: pooled(parts) for name, parts in rest.items()})][number].fit)
    return InFolds(kept, chosen, told)


@contextlib.contextmanager
def unjudged() -> Iterator[None]:
    """Without warnings that so few transitions are not to be trusted; those of the final fit are issued."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not to be trusted")
        yield


def better(scores: dict[str, Scores]) -> str:
    """All weights where they lower the CRPS by more than 1 % and by more than the standard error by trajectory."""
    ratio, error = crps_ratio(scores["all"], scores["last_layer"])
    return "all" if error is not None and ratio < WORTHWHILE and 1.0 - ratio > error else "last_layer"


def tried(scores: dict[str, Scores]) -> list[dict[str, Any]]:
    """The CRPS of both, as candidates are recorded."""
    return [{"name": f"weights: {name}", "error": mean_crps(one)} for name, one in scores.items()]


def _line(told: list[dict[str, Any]]) -> str:
    return ", ".join(f"{one['name'].removeprefix('weights: ')} {one['error']:.4g}" for one in told)


def held_out_scores(config: Any, problem: Problem, held_out: Dataset) -> Scores:
    """The scores of new observations on trajectories that were not fitted, all in scaled units."""
    rule = Rule(starts_at_reading=build.starts_at_reading(config))
    key, rng = Streams.of(config.seed).evaluation, np.random.default_rng(config.seed)
    prediction = predict(problem, held_out, config.predict.num_samples, rule, key=key)
    samples = observable(problem, prediction, rule, rng=rng)
    members = held_out.replicates()
    return scores_by_trajectory(samples, members.outputs, members.mask, np.ones(held_out.num_outputs))
