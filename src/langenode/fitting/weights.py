"""Which weights vary, by held-out score: the last layers, or all of them where these predict better."""

from typing import Any

import numpy as np

from langenode.fitting import build, solve
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.points import PointChoice
from langenode.fitting.progress import Reporter
from langenode.inference.predictions import Rule, observable, predict
from langenode.scores import metrics

# All weights cost more to draw and to store: they must lower the score by this much.
WORTHWHILE = 0.99
CANDIDATES = {
    "last_layer": {"method": "langevin", "stochastic": "last_layer"},
    "all": {"method": "ensemble-hmc", "stochastic": "all"},
}


def choose_weights(point: PointChoice, data: Prepared, reporter: Reporter) -> PointChoice:
    """The point with the method and the weights whose CRPS on validation data is lower; both are fitted for it."""
    scores = {}
    for name, layer in CANDIDATES.items():
        config = point.config.model_copy(update=layer)
        with reporter.task(f"{name}, to be judged on validation data"):
            solved = solve.solve(config, point.model, data, start=point.start, is_companion=True)
        scores[name] = held_out_crps(config, solved, data)
    chosen = "all" if scores["all"] < WORTHWHILE * scores["last_layer"] else "last_layer"
    told = ", ".join(f"{name} {score:.4g}" for name, score in scores.items())
    reporter.say(f"stochastic weights: {chosen}; CRPS on validation data (scaled): {told}")
    tried = [*point.tried, *({"name": f"weights: {name}", "error": score} for name, score in scores.items())]
    return point._replace(config=point.config.model_copy(update=CANDIDATES[chosen]), tried=tried)


def held_out_crps(config: Any, solved: solve.Solved, data: Prepared) -> float:
    """The CRPS of new observations on validation data, all in scaled units."""
    assert data.validation is not None
    rule = Rule(starts_at_reading=build.starts_at_reading(config))
    key, rng = Streams.of(config.seed).evaluation, np.random.default_rng(config.seed)
    prediction = predict(solved.problem, data.validation, config.predict.num_samples, rule, key=key)
    samples = observable(solved.problem, prediction, rule, rng=rng)
    members = data.validation.replicates()
    return metrics.crps(samples, members.outputs, mask=members.mask)
