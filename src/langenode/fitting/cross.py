"""Cross-validation over trajectories: each is predicted by a fit that did not see it, and the final fit sees all.

    folds -> candidates at maximum likelihood in every fold -> kinds of model -> one fit per fold -> calibration

A fold's fit is trained on the readings of the other folds alone: units, point estimate and posterior are bit for bit
the same whatever was held out. Two decisions have to be made on held-out readings: the kind of model and the noise
factor. Those for a fold come from the errors of the *other* folds, so that its scores are not optimistic; those for the
final fit come from the errors of all.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.config import Config
from langenode.data import Dataset, Scaling, padded, refine
from langenode.experiments.base import Experiment
from langenode.fitting import build, points, solve, weights
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.fit import Fit
from langenode.fitting.points import PointChoice
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units.candidates import WORTHWHILE_GAIN, judge_candidates, score_list, starting_point
from langenode.fitting.units.errors import unit_errors
from langenode.fitting.units.predicting import predict_units, stack_of
from langenode.fitting.units.scoring import HeldOut
from langenode.fitting.units.solving import with_first_noise
from langenode.inference.calibration import (
    Calibration,
    Errors,
    calibrate,
    calibration_of,
    is_at_limit,
    prediction_errors,
)
from langenode.inference.point_fit import replicates_mean, rms_error
from langenode.inference.predictions import Prediction, Rule, observable, predict, sample_weights
from langenode.inference.predictions import PredictionKeys as Keys

# The error of a model that diverges on what was held out, in spreads of the data; files hold finite numbers.
DIVERGED = 1e9


class FoldData(NamedTuple):
    """What a fold's fit sees and what it predicts, both in the units of the former; `test` are the latter as given."""

    train: Dataset
    held_out: Dataset
    scaling: Scaling
    test: Dataset


class FoldPoints(NamedTuple):
    """Candidates of one fold at maximum likelihood, by name, the plainest first, and their errors on held-out data."""

    models: dict[str, Any]
    errors: dict[str, float]
    num_cells: int


class Kept:
    """What has been made for every fold: nothing is stored here; a run folder keeps files."""

    def points(self, number: int, make: Callable[[], FoldPoints]) -> FoldPoints:
        """The candidates of a fold."""
        del number
        return make()

    def fit(self, number: int, make: Callable[[], Fit], name: str = "") -> Fit:
        """The fit of a fold; `name` is that of another one with other stochastic weights."""
        del number, name
        return make()


class Crossed(NamedTuple):
    """Fits of all folds, and what they say about the final one: its kind of model and its calibration."""

    fold: Int[np.ndarray, " traj"]
    folds: Sequence[FoldData]
    fits: Sequence[Fit]
    kinds: Sequence[str]
    factors: Sequence[Float[np.ndarray, " out"]]  # on the noise of every fold's fit
    calibration: Calibration | None
    chosen: str
    tried: list[dict[str, Any]]
    whole: Prepared
    is_cut: bool  # what was held out are windows of trajectories that the fit saw
    weights: str | None = None  # which vary, where that was chosen by score

    def record(self) -> dict[str, Any]:
        """What was done, for people and for JSON."""
        return {
            "folds": len(self.folds),
            "sizes": [fold.test.num_trajectories for fold in self.folds],
            "kinds": list(self.kinds),
            "noise_factors": [factor.tolist() for factor in self.factors],
        }

    def finished(self, solved: solve.Solved) -> solve.Solved:
        """The final fit, calibrated by the errors on held-out trajectories."""
        solved = solve.with_calibration(solved, self.calibration)
        record = {**solved.diagnostics, "cross_validation": self.record()}
        if self.calibration is not None:
            at_limit = sum(is_at_limit(factor) for factor in self.factors)
            record["calibration"] |= {"folds_at_limit": at_limit, "from_windows": self.is_cut}
        return solved._replace(diagnostics=record)


def cross_validate(
    experiment: Experiment,
    config: Any,
    data: Dataset,
    fold: Int[np.ndarray, " traj"],
    *,
    reporter: Reporter = QUIET,
    kept: Kept | None = None,
) -> Crossed:
    """Fit every fold. `data` are as they are fitted, in their own units; `fold` numbers the fold of each trajectory."""
    kept = Kept() if kept is None else kept
    folds, whole = divide(config, data, fold)
    found = []
    for number, part in enumerate(folds):
        found.append(kept.points(number, lambda part=part: find_points(experiment, config, part)))
        reporter.say(f"fold {number + 1} of {len(folds)}: {_candidates_line(config, found[-1])}")
    names = tried_everywhere(found)
    kinds = [choose_kind(_without(found, number), config, names)[0] for number in range(len(folds))]

    def fit_of(number: int, config: Any = config, name: str = "") -> Fit:
        part, kind = folds[number], kinds[number]
        what = f"{kind}, {name} weights" if name else kind
        reporter.say(
            f"fold {number + 1} of {len(folds)}: {what}, held out: {part.test.num_trajectories} of {len(fold)}"
        )
        make = lambda: fit_fold(experiment, config, part, found[number], kind, reporter)  # noqa: E731
        return kept.fit(number, make, name)

    def trial(number: int, name: str) -> weights.Trial:
        with weights.unjudged():
            fit = fit_of(number, weights.for_trial(config, name), "" if name == "last_layer" else name)
        return weights.Trial(fit, weights.held_out_scores(fit.config, fit.problem, folds[number].held_out))

    chosen, tried = choose_kind(found, config)
    varying = None
    if weights.are_open(config):
        varying = weights.choose_in_folds(len(folds), trial, reporter)
        fits, tried = varying.fits, [*tried, *varying.tried]
    else:
        fits = [fit_of(number) for number in range(len(folds))]
    calibration, factors = calibrate_folds(config, folds, fits)
    is_cut = getattr(config.data, "windows", None) is not None
    layer = None if varying is None else varying.chosen
    return Crossed(fold, folds, fits, kinds, factors, calibration, chosen, tried, whole, is_cut, layer)


def _candidates_line(config: Any, found: FoldPoints) -> str:
    if config.target == "hierarchical":
        tried = [{"name": name, "error": error} for name, error in found.errors.items()]
        return f"log density of a held-out reading: {score_list(tried)}"
    errors = ", ".join(f"{name} {error:.4g}" for name, error in found.errors.items())
    return f"maximum likelihood, error on what is held out: {errors}"


def _without(items: Sequence[Any], number: int) -> list[Any]:
    return [item for index, item in enumerate(items) if index != number]


def divide(config: Any, data: Dataset, fold: Int[np.ndarray, " traj"]) -> tuple[list[FoldData], Prepared]:
    """The data of every fold, scaled by what its fit sees, and all data for the final fit.

    All have one shape where nothing depends on the number of trajectories: their programs are then compiled once.
    """
    whole = build.prepare(config, data, None)
    folds = []
    for number in range(int(fold.max()) + 1):
        test = data.select(fold == number)
        scaled = build.prepare(config, data.select(fold != number), test)
        assert scaled.validation is not None
        folds.append(FoldData(scaled.train, scaled.validation, scaled.scaling, test))
    if config.target not in ("posterior", "hierarchical") or config.noise.kind != "inferred":
        return folds, whole
    lengths = {whole.train.num_times, *(size.num_times for part in folds for size in (part.train, part.held_out))}
    more, times = int(len(lengths) > 1), max(lengths)  # longer data need one more trajectory
    num, largest = data.num_trajectories + more, max(part.test.num_trajectories for part in folds) + more
    shaped = [
        part._replace(train=padded(part.train, num, times), held_out=padded(part.held_out, largest, times))
        for part in folds
    ]
    return shaped, whole._replace(train=padded(whole.train, num, times))


# The kind of model


def find_points(experiment: Experiment, config: Any, fold: FoldData) -> FoldPoints:
    """Candidates at maximum likelihood; none is tried after one that is as good as held-out replicates can show."""
    if config.target == "hierarchical":
        return _unit_points(experiment, config, fold)
    models, errors, held_out = {}, {}, fold.held_out
    enough = replicates_mean(held_out).standard_error
    if config.target == "posterior" and held_out.num_times == fold.train.num_times:  # the program of the fit serves it
        held_out = padded(held_out, max(held_out.num_trajectories, fold.train.num_trajectories), held_out.num_times)
    for name, candidate in experiment.candidates(config).items():
        models[name] = points.fit_point(candidate, build.untrained(experiment, candidate), fold.train, fold.scaling)
        errors[name] = min(rms_error(models[name], held_out), DIVERGED)
        if errors[name] < enough:
            break
    return FoldPoints(models, errors, int(fold.held_out.mask.sum()))


def _unit_points(experiment: Experiment, config: Any, fold: FoldData) -> FoldPoints:
    """The same for units that differ: candidates are judged by the log score of held-out units."""
    found = judge_candidates(experiment, config, fold.train, fold.held_out, fold.scaling)
    return FoldPoints(found.models, found.errors, int(fold.held_out.mask.sum()))


def tried_everywhere(folds: Sequence[FoldPoints]) -> list[str]:
    """Candidates that every fold has tried: a fold stops where a further one brings nothing."""
    return [name for name in folds[0].errors if all(name in fold.errors for fold in folds)]


def choose_kind(
    folds: Sequence[FoldPoints], config: Config | None = None, names: Sequence[str] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The plainest candidate whose error on held-out data is good, and the pooled errors of all that were tried.

    `names` are the candidates that can be chosen, by default those that all these folds have tried.
    """
    names = tried_everywhere(folds) if names is None else names
    errors = {name: np.array([fold.errors[name] for fold in folds]) for name in names}
    if config is not None and config.target == "hierarchical":
        return _choose_units(errors, has_smooth=getattr(config.model, "units", "") == "auto")
    cells = np.array([fold.num_cells for fold in folds], float)
    shares = cells / max(cells.sum(), 1.0)
    tried = [{"name": name, "error": float(np.sqrt((shares * errors[name] ** 2).sum()))} for name in names]
    return points.plainest(tried, points.WORTHWHILE), tried


def _choose_units(
    errors: dict[str, Float[np.ndarray, " fold"]], *, has_smooth: bool
) -> tuple[str, list[dict[str, Any]]]:
    """The same for units that differ, whose errors are `exp(-log score)`.

    Of log scores the median over folds counts: one unit that is least like the others should not call for units that
    differ. Smooth curves are of such units already, and are only replaced by what is better on average, too, by more
    than a standard error over folds: a network that fails on one unit in ten is no gain.
    """
    tried = [{"name": name, "error": float(np.median(values))} for name, values in errors.items()]
    if not has_smooth:
        return points.plainest(tried, math.exp(-WORTHWHILE_GAIN)), tried
    kept = tried[0]
    for one in tried[1:]:
        gains = np.log(errors[kept["name"]]) - np.log(errors[one["name"]])
        error = gains.std(ddof=1) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0
        is_better = one["error"] < math.exp(-WORTHWHILE_GAIN) * kept["error"] and gains.mean() > error
        kept = one if is_better else kept
    return kept["name"], tried


def final_point(experiment: Experiment, config: Any, crossed: Crossed) -> PointChoice:
    """The chosen kind at its maximum likelihood for all data, with the weights that were chosen to vary."""
    config = config if crossed.weights is None else weights.with_layer(config, crossed.weights)
    candidate = experiment.candidates(config)[crossed.chosen]
    start = build.untrained(experiment, candidate)
    if config.target == "hierarchical":
        train = crossed.whole.train
        model = starting_point(experiment, candidate, start, train)
        return PointChoice(crossed.chosen, candidate, with_first_noise(model), crossed.tried, start)
    model = points.fit_point(candidate, start, crossed.whole.train, crossed.whole.scaling)
    return points.settle_noise(PointChoice(crossed.chosen, candidate, model, crossed.tried, start), crossed.whole)


# Fits and their calibration


def fit_fold(
    experiment: Experiment, config: Any, fold: FoldData, found: FoldPoints, kind: str, reporter: Reporter = QUIET
) -> Fit:
    """The fit to what the fold does not hold out; its noise is not calibrated."""
    candidate = experiment.candidates(config)[kind]
    start, data = build.untrained(experiment, candidate), Prepared(fold.train, None, fold.scaling)
    point = points.settle_noise(PointChoice(kind, candidate, found.models[kind], [], start), data)
    solved = solve.solve(point.config, point.model, data, start=start, reporter=reporter, is_companion=True)
    return solve.fit_of(solved, point, data, train=fold.test.select([]), validation=None)


def calibrate_folds(
    config: Config, folds: Sequence[FoldData], fits: Sequence[Fit]
) -> tuple[Calibration | None, list[Float[np.ndarray, " out"]]]:
    """The calibration by the errors on all held-out trajectories, and every fold's noise factor by those of the others.

    Where predictions start at a reading with noise, all errors are those at the common factor.
    """
    num_outputs = folds[0].test.num_outputs
    if not build.wants_calibration(config):
        return None, [np.ones(num_outputs) for _ in folds]

    def errors_at(factor: np.ndarray) -> list[Errors]:
        return [held_out_errors(config, fold, fit, factor) for fold, fit in zip(folds, fits, strict=True)]

    found, errors = calibrate(errors_at, num_outputs, starts_at_reading=build.starts_at_reading(config))
    return found, [calibration_of(_without(errors, number)).factor for number in range(len(folds))]


def held_out_errors(config: Config, fold: FoldData, fit: Fit, factor: np.ndarray) -> Errors:
    """Errors of a fold's fit on the trajectories that it did not see."""
    key = Streams.of(config.seed).evaluation
    if config.target == "hierarchical":
        stack, num = stack_of(fit.problem), config.predict.num_samples
        return unit_errors(fit.config, stack, fold.held_out, fold.scaling, num, key=key)
    rule = Rule(noise_factor=factor, starts_at_reading=build.starts_at_reading(config))
    return prediction_errors(fit.problem, fold.held_out, config.predict.num_samples, rule, key=key)


# Predictions


def predict_folds(crossed: Crossed, final: Fit, test: Dataset) -> tuple[Prediction, np.ndarray]:
    """Outputs and new observations for every condition of `test`, from the fit that did not see it.

    `test` are all data with conditions divided by fold. The weights are draws of the final fit: each fold has others.
    """
    num = final.config.predict.num_samples
    shape = (num, *test.cases().times.shape, test.num_outputs)
    outputs, noisy = np.empty(shape), np.empty(shape)
    for number in range(len(crossed.folds)):
        here = np.unique(test.condition[crossed.fold == number])
        for whole, part in zip((outputs, noisy), _predict_fold(crossed, number, num), strict=True):
            missing = shape[2] - part.shape[2]  # the longest of a fold may end before the longest of all
            whole[:, here] = np.pad(part, ((0, 0), (0, 0), (0, missing), (0, 0)), mode="edge")
    key = Keys.of(Streams.of(final.config.seed).prediction).weights
    return Prediction(outputs, sample_weights(final.problem.posterior, num, key=key)), noisy


def _predict_fold(crossed: Crossed, number: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    fold, config, problem = crossed.folds[number], crossed.fits[number].config, crossed.fits[number].problem
    rule = build.prediction_rule(config, fold.scaling, crossed.factors[number])
    keys = Streams.of(config.seed)
    if config.target == "hierarchical":
        rng = np.random.default_rng([config.seed, number])
        found = predict_units(problem, config, fold.test, num, rule, key=keys.prediction, rng=rng)
        return found.prediction.outputs, found.observed
    # The data are scaled and on the integrator's grid already.
    scaled = predict(problem, fold.held_out, num, rule._replace(scaling=None, largest_step=None), key=keys.prediction)
    values = scaled.outputs[:, : fold.test.num_conditions]
    step = config.model.largest_step
    if step is not None:
        rows = refine(fold.test.scaled(fold.scaling), step).rows
        values = np.take_along_axis(values, rows[None, :, :, None], axis=2)
    prediction = Prediction(rule.unscaled(values), scaled.weights)
    rng = np.random.default_rng([config.seed, number])
    return prediction.outputs, observable(problem, prediction, rule, rng=rng)


def units_held_out(crossed: Crossed) -> list[HeldOut]:
    """The fit of every fold with the units that it did not see."""
    parts = []
    for fold, fit, factor in zip(crossed.folds, crossed.fits, crossed.factors, strict=True):
        rule = build.prediction_rule(fit.config, fold.scaling, factor)
        parts.append(HeldOut(fit.problem, fit.config, rule, fold.test))
    return parts
