"""The numbers of metrics.json: distances, scores, bands, diagnostics and the verdict. Nothing here reads a file."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep
from langenode.data import MOST_AT_ONCE, Dataset, has_replicates, some_of
from langenode.experiments import own
from langenode.experiments.base import Experiment, Results, Splits
from langenode.fitting import build, methods, perfect, skill
from langenode.fitting.build import Streams
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units import scoring, views
from langenode.fitting.units.scoring import HeldOut
from langenode.inference.density import whiten
from langenode.inference.predictions import Prediction, observable, predict, with_noise
from langenode.inference.problem import Problem
from langenode.inference.quadrature import QuadratureError, integrate
from langenode.models import num_parameters
from langenode.posteriors import cast
from langenode.scores import floors, metrics, thresholds, verdict
from langenode.scores.npde import npde_summary

MOST_CORRELATED = 16
# Diagnostics of a fit that are sections of their own; the others are of its samples.
SECTIONS = ("mle", "calibration", "cross_validation", "hierarchical")
# Distances of all pairs of trajectories, twenty times over: with a thousand members they cost more than they tell.
LARGEST_ENERGY = 256


def evaluate(
    experiment: Experiment,
    results: Results,
    training: Mapping[str, Any],
    diagnostics: Mapping[str, Any],
    *,
    held_out_units: Sequence[HeldOut] | None = None,
    reporter: Reporter = QUIET,
) -> Results:
    """The results with their metrics, the verdict last; `training` and `diagnostics` are those of the fit.

    Where units differ, `held_out_units` are the fits of folds with what each did not see.
    """
    training, diagnostics = in_order(training), in_order(diagnostics)
    with reporter.task("scores") as task:
        found = common_metrics(results, Streams.of(results.config.seed), on_step=task.at)
    if training:
        found["training"] = training_state(results.history, training)
    apart = {key: value for key, value in diagnostics.items() if key in SECTIONS}
    if of_samples := {key: value for key, value in diagnostics.items() if key not in apart}:
        found["posterior"] = of_samples
    if results.folds is None:  # scores are on other data than those that were held out in folds
        apart.pop("cross_validation", None)
    found |= apart
    if results.config.target == "hierarchical":
        with reporter.task("units") as task:
            results = _with_units(results, found, held_out_units, task.at)
    if experiment.has_exact_posterior(results.config) and results.splits.train.num_trajectories:
        with reporter.task("exact posterior"):
            found |= _exact_posterior(results)
    if experiment.name == own.NAME:
        with reporter.task("plain predictors") as task:
            found["skill"] = skill.skill_of(_held_out(results), seed=results.config.seed, on_step=task.at)
    results = results._replace(metrics=found)
    with reporter.task(f"metrics of {experiment.name}"):
        found |= experiment.metrics(results)
    found["verdict"] = verdict.judge(found)
    return results


def in_order(record: Any) -> Any:
    """The record with its keys sorted, as a file has them: a fit that was read makes the same metrics.json."""
    return {key: in_order(record[key]) for key in sorted(record)} if isinstance(record, Mapping) else record


def _with_units(
    results: Results, found: dict[str, Any], held_out: Sequence[HeldOut] | None, on_step: OnStep
) -> Results:
    """Add scores of held-out units and errors of training units to the metrics; the results with what figures show."""
    train, test = results.splits.train, results.splits.test
    if held_out is None:
        held_out = [HeldOut(results.problem, results.config, results.rule, test)]
    found |= scoring.score_units(held_out, on_step=on_step)
    if not train.num_trajectories:
        return results
    shown = views.unit_views(results.problem, results.config, train, results.rule)
    errors = shown.npde[np.isfinite(shown.npde)]
    found["hierarchical"] = {**found.get("hierarchical", {}), "npde": npde_summary(errors)}
    return results._replace(views=shown)


def _held_out(results: Results) -> list[skill.Fold]:
    """What was fitted, what was held out and what was predicted there; once for each fold where there are folds."""
    train, test, fold = results.splits.train, results.splits.test, results.folds
    if fold is None:
        if isinstance(results.config, own.OwnConfig):  # plain predictors use some hundred trajectories of many
            train = some_of(train, MOST_AT_ONCE, seed=results.config.seed)
        return [skill.Fold(train, test, results.observable)]
    found = []
    for number in range(int(fold.max()) + 1):
        part, conditions = test.select(fold == number), np.unique(test.condition[fold == number])
        samples = results.observable[:, conditions, : part.num_times]
        found.append(skill.Fold(train.select(fold != number), part, samples))
    return found


def common_metrics(results: Results, keys: Streams, *, on_step: OnStep | None = None) -> dict[str, Any]:
    """What was asked, and W1, scores, coverage and moments of the weights; W1 is None where there are no replicates."""
    config, splits = results.config, results.splits
    found: dict[str, Any] = {
        name: getattr(config, name) for name in ("experiment", "method", "target", "stochastic", "rest", "seed")
    }
    found["method_summary"] = methods.find(config.method).summary
    found["problem"] = _problem_size(results.problem, splits)
    found |= _distances(results, keys, on_step)
    found |= _held_out_scores(results)
    factors = np.broadcast_to(results.rule.noise_factor, splits.test.num_outputs)
    found["noise_factor"] = dict(zip(splits.test.output_names, factors, strict=True))
    if results.weights.shape[1] == 0:
        return found
    found["weights"] = metrics.weight_moments(results.weights)
    if results.weights.shape[1] > MOST_CORRELATED:
        del found["weights"]["corr"]  # a matrix that nobody reads
    return found


def _distances(results: Results, keys: Streams, on_step: OnStep | None) -> dict[str, Any]:
    """W1 and energy distance where there are replicates. Where conditions are held out, `w1` is to those."""
    splits = results.splits
    found: dict[str, Any] = {"w1": None, "w1_held_out": None, "energy_distance": None}
    if has_replicates(splits.test):
        found["w1_held_out"] = _w1(results, splits.test, keys, on_step) | {"to": "test", "data": _data_w1(results)}
        found["energy_distance"] = _energy_distance(results, on_step)
    if splits.train.num_conditions > 1 and found["w1_held_out"]:
        found["w1"] = found["w1_held_out"]
    elif has_replicates(splits.train):
        found["w1"] = _w1(results, splits.train, keys, on_step) | {"to": "training"}
    return found


def _energy_distance(results: Results, on_step: OnStep | None) -> dict[str, Any] | None:
    """Squared energy distance of whole trajectories to test data, at equal sizes, and its floor."""
    replicates = results.splits.test.replicates()
    num = len(replicates.outputs)
    if num > LARGEST_ENERGY or not (replicates.mask == replicates.mask[:1]).all() or len(results.observable) < num:
        return None
    rng = np.random.default_rng(results.config.seed)
    distances = []
    for _ in range(results.config.predict.num_w1_draws):
        pick = rng.permutation(len(results.observable))[:num]
        samples = results.observable[pick]
        distances.append(metrics.energy_distance(samples, replicates.outputs, mask=replicates.mask, fair=False))
    floor = floors.energy_floor_from_data(replicates.outputs, num, mask=replicates.mask, rng=rng)
    mean = float(np.median(distances))
    found = {"mean": mean, "floor": floor.median, "ratio": mean / floor.median, "num_samples": num}
    return found | _in_floors(perfect.energy_threshold(results, on_step), floor.median)


def _in_floors(threshold: Mapping[str, Any], floor: float) -> dict[str, Any]:
    """A threshold on a distance as one on its ratio to the floor."""
    value = threshold["value"]
    return {"threshold": None if value is None else value / floor, "false_alarm": threshold["false_alarm"]}


def _problem_size(problem: Problem, splits: Splits) -> dict[str, Any]:
    parts = {
        name: {"trajectories": part.num_trajectories, "conditions": part.num_conditions, "cells": int(part.mask.sum())}
        for name, part in splits._asdict().items()
    }
    return {
        "num_weights": num_parameters(problem.model),
        "num_stochastic": problem.partition.dim,
        "inputs": list(splits.test.input_names),
        "outputs": list(splits.test.output_names),
        "data": parts,
    }


def _data_w1(results: Results) -> float | None:
    """The training data's own distance to test data: two samplings lie between a fit and held-out data, too."""
    splits = results.splits
    if not splits.train.num_trajectories or not splits.train.is_complete or results.folds is not None:
        return None
    held_out, train = splits.test.replicates(), splits.train.replicates()
    if train.outputs.shape[1:] != held_out.outputs.shape[1:]:
        return None
    return float(np.nanmean(metrics.w1(train.outputs, held_out.outputs, mask_b=held_out.mask)))


def _w1(results: Results, data: Dataset, keys: Streams, on_step: OnStep | None) -> dict[str, Any]:
    """W1 of the marginals to a data set: the median of several draws, and the floor of two such samples."""
    replicates = data.replicates()
    size, num_draws = len(replicates.outputs), results.config.predict.num_w1_draws
    rng = np.random.default_rng(results.config.seed)
    if results.folds is not None and data is results.splits.test:
        predictions, sets = _picked(results, size, num_draws, rng)
    else:
        predictions = _repeated(results, data, size, keys, on_step)
        sets = [observable(results.problem, prediction, results.rule, rng=rng) for prediction in predictions]
    distances = [metrics.w1(samples, replicates.outputs, mask_b=replicates.mask) for samples in sets]
    threshold = perfect.w1_threshold(results, predictions[-1], np.concatenate(sets), data, on_step)
    means = [float(np.nanmean(d)) for d in distances]
    rng = np.random.default_rng(results.config.seed)
    floor = floors.w1_floor_from_data(replicates.outputs, size, mask=replicates.mask, rng=rng)
    return {
        "mean": float(np.median(means)),
        "floor": floor.median,
        "ratio": float(np.median(means)) / floor.median,
        **_in_floors(threshold, floor.median),
        "low": float(np.quantile(means, 0.1)),
        "high": float(np.quantile(means, 0.9)),
        "num_draws": num_draws,
        "num_samples": size,
        "per_time": _mean_per_time(np.stack(distances)),
    }


def _repeated(results: Results, data: Dataset, size: int, keys: Streams, on_step: OnStep | None) -> list[Prediction]:
    """Predictions of that many samples, once for every draw behind the median W1."""
    num_draws, predictions = results.config.predict.num_w1_draws, []
    for key in jax.random.split(jax.random.fold_in(keys.evaluation, 1), num_draws):
        predictions.append(predict(results.problem, data, size, results.rule, key=key))
        if on_step is not None:
            on_step(len(predictions), num_draws, "predictions for W1")
    return predictions


def _picked(
    results: Results, size: int, num_draws: int, rng: np.random.Generator
) -> tuple[list[Prediction], list[np.ndarray]]:
    """Samples for test data from those that are stored: of folds, each is from the fit that did not see the data."""
    picks = [rng.permutation(len(results.observable))[:size] for _ in range(num_draws)]
    weights = jnp.asarray(results.prediction_weights)
    predictions = [Prediction(results.predictions[pick], weights[pick]) for pick in picks]
    return predictions, [results.observable[pick] for pick in picks]


def _mean_per_time(distances: np.ndarray) -> np.ndarray:
    """Mean over conditions and outputs, median over draws; NaN at times that nobody observed."""
    seen = ~np.all(np.isnan(distances), axis=(0, 1, 3))
    per_time = np.full(distances.shape[2], np.nan)
    per_time[seen] = np.nanmedian(np.nanmean(distances[:, :, seen], axis=(1, 3)), axis=0)
    return per_time


def _held_out_scores(results: Results) -> dict[str, Any]:
    """Scores of the predictive distribution on test trajectories; both bands where there is a likelihood."""
    replicates = results.splits.test.replicates()
    outputs, mask = replicates.outputs, replicates.mask
    found: dict[str, Any] = {
        "energy_score": metrics.energy_score(results.observable, outputs, mask=mask),
        "crps": metrics.crps(results.observable, outputs, mask=mask),
        "coverage": metrics.coverage(results.observable, outputs, mask=mask),
        "coverage_check": perfect.coverage_check(
            [perfect.HeldOut(fold.samples, fold.test) for fold in _held_out(results)],
            is_posterior=results.config.target == "posterior",
        ),
    }
    if results.config.target != "population":
        found["coverage_model"] = metrics.coverage(results.predictions, outputs, mask=mask)
        found["coverage_noise"] = metrics.coverage(_with_noise(results), outputs, mask=mask)
    return found


def _with_noise(results: Results) -> np.ndarray:
    """Predictions of new readings; a tempered fit's observable has no noise in it, so it is added here."""
    if results.config.target in ("posterior", "hierarchical"):
        return results.observable
    prediction = Prediction(results.predictions, jnp.asarray(results.prediction_weights))
    return with_noise(results.problem, prediction, results.rule, rng=np.random.default_rng(results.config.seed))


def training_state(history: Mapping[str, np.ndarray], counts: Mapping[str, int]) -> dict[str, Any]:
    """Whether training had come to rest: what its last fifth still brought, relative to the loss's whole fall.

    A change within the scatter of the loss itself counts for nothing: a loss at rest seems to fall in
    `thresholds.FALSE_ALARM` of all runs.
    """
    losses = history["loss"][np.isfinite(history["loss"])]
    if len(losses) < 20:
        return {**counts, "loss_start": None, "loss_end": None, "late_change": None}
    tenth = max(1, len(losses) // 10)
    start, end = float(np.median(losses[:tenth])), float(np.median(losses[-tenth:]))
    before, last = losses[-3 * tenth : -2 * tenth], losses[-tenth:]
    change = float(np.median(before)) - end if thresholds.has_fallen(before, last) else 0.0
    late = min(max(0.0, change) / max(abs(start - end), 1e-300), 1.0)
    return {
        **counts,
        "loss_start": start,
        "loss_end": end,
        "late_change": late,
        "false_alarm": thresholds.FALSE_ALARM,
    }


def _exact_posterior(results: Results) -> dict[str, Any]:
    """Of the problem itself, whatever the method made of it."""
    config, scaling = results.config, results.rule.scaling
    assert scaling is not None
    train = build.scaled(config, scaling, results.splits.train)
    data = build.Prepared(train, None, scaling)
    try:
        found = exact_posterior(build.assemble(config, results.mle, data, with_posterior=False).problem, train)
    except QuadratureError as error:
        warnings.warn(f"no exact posterior: {error}", stacklevel=2)
        return {}
    return {"reference_posterior": found}


def exact_posterior(problem: Problem, train: Dataset) -> dict[str, Any]:
    """The posterior of one or two weights by sums over a grid: what samplers of it should find. `train` is scaled."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    prior = cast(problem.prior, dtype)
    start = prior.to_standard(problem.partition.flatten(problem.model))
    found = integrate(whiten(problem, train, dtype), start, prior.to_weights)
    spread = np.sqrt(np.diag(found.covariance))
    moments: dict[str, Any] = {"how": "quadrature", "mean": found.mean, "std": spread}
    if len(spread) > 1:
        moments["corr"] = float(found.covariance[0, 1] / np.prod(spread))
    return moments | {"log_evidence": found.log_evidence, "log_evidence_error": found.error}
