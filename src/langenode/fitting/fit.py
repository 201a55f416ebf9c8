"""A `Fit`: a fitted model with its uncertainty. It predicts, samples, scores itself, and is one file on disk."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from langenode.config import Config, ConfigError
from langenode.data import Columns, DataError, Dataset, Extent, Scaling, separate_by_start
from langenode.experiments import EXPERIMENTS, own
from langenode.experiments.base import Companion, Experiment, Results, Splits
from langenode.fitting import build, evaluation, fit_file
from langenode.fitting.build import Streams
from langenode.fitting.distilling import distil_problem, warn_of_failure
from langenode.fitting.units.predicting import Members, UnitPrediction, joined, predict_units, with_doses_at_once
from langenode.inference.density import whiten
from langenode.inference.distillation import SamplerKind
from langenode.inference.predictions import (
    Prediction,
    PredictionKeys,
    Rule,
    observable,
    predict,
    sample_weights,
)
from langenode.inference.problem import Problem
from langenode.storage.bands import prediction_dataset
from langenode.storage.folder import write_bytes, write_text
from langenode.storage.tables import HISTORY, NO_CONVERGENCE

# The experiment whose model is the user's own code: a file of it can only be read with that model at hand.
USER_MODEL = "user model"


# What a hierarchical fit takes as known of the data that it predicts: by default the first readings.
GIVEN = {None: "start", "start": "start", "readings": "all", "nothing": "none"}


def no_history() -> dict[str, np.ndarray]:
    """Of a fit that was not trained, or was read from a file."""
    return {name: np.zeros(0) for name in HISTORY}


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model with its uncertainty. It needs no data to predict, and is one file on disk."""

    problem: Problem
    config: Config
    scaling: Scaling
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    noise_factor: np.ndarray  # (out,), on the noise that was inferred, for calibrated bands
    columns: Columns = dataclasses.field(default_factory=Columns)
    extent: Extent | None = None  # what the training data cover, where they are known
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # counts of updates
    diagnostics: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # how good the samples are
    # Not in the file:
    history: Mapping[str, np.ndarray] = dataclasses.field(default_factory=no_history)  # one entry per update
    seconds: float | None = None
    train: Dataset | None = None  # what it was fitted to, in its own units
    validation: Dataset | None = None
    point_model: Any = None  # at maximum likelihood, where the fit started

    def __repr__(self) -> str:
        asked = f"method={self.config.method!r}, target={self.config.target!r}"
        num = self.problem.partition.dim
        return f"Fit({asked}, {num} stochastic weights, outputs {list(self.output_names)}, seed={self.config.seed})"

    # Using it

    def predict(
        self, data: Dataset, *, num_samples: int | None = None, seed: int | None = None, given: str | None = None
    ) -> Any:
        """Samples, mean and quantiles for every condition of `data`, as an xarray Dataset.

        Outputs in `data` are not needed, except where they tell the start of a trajectory. For a posterior every
        trajectory is predicted from its own start; for a population each condition is. A warning names what lies far
        outside of the range of the training data.

        A hierarchical fit predicts a unit given its first reading; `given="readings"` takes all readings in `data` as
        known, `given="nothing"` none. It has three bands: `unit_quantiles` (what is left open of the unit), `quantiles`
        (with the uncertainty of what all units share) and `observation_quantiles` (with noise).
        """
        if self.config.target == "hierarchical":
            return self._unit_bands(data, num_samples, seed, GIVEN[given])
        if given is not None:
            raise ConfigError(
                f"readings are taken as known by a hierarchical fit; this one has target={self.config.target!r}; fit "
                "with target='hierarchical', or leave given= out"
            )
        prediction, noisy, prepared = self._predict(data, num_samples, seed)
        self._warn_beyond(prepared)
        return prediction_dataset(
            prepared, prediction.outputs, noisy, np.asarray(prediction.weights), self.problem.partition.names
        )

    def condition(self, data: Dataset) -> "KnownUnits":
        """Units of which readings are known: `fit.condition(data).predict(new)` predicts them elsewhere."""
        return KnownUnits(self, data)

    def sample(self, num_samples: int, *, seed: int | None = None) -> Any:
        """Draws of the stochastic weights as an xarray Dataset: one variable per leaf of the model, (sample, ...).

        They are the weights behind `predict` with the same number of samples and seed. Weights, and `log_noise` among
        them, are in the fit's scaled units.
        """
        import xarray as xr

        leaves = by_leaf(self.problem, self.flat_sample(num_samples, seed=seed))
        axes = {name: ["sample", *(f"{name}_{k}" for k in range(leaf.ndim - 1))] for name, leaf in leaves.items()}
        return xr.Dataset({name: (axes[name], leaf) for name, leaf in leaves.items()})

    def flat_sample(self, num_samples: int, *, seed: int | None = None) -> np.ndarray:
        """The same draws as one array, (sample, weight); `fit.problem.partition.names` names the columns."""
        key = PredictionKeys.of(self._key(seed)).weights
        return np.asarray(sample_weights(self.problem.posterior, num_samples, key=key))

    def distil(
        self,
        kind: SamplerKind = "bottleneck",
        *,
        num_updates: int = 3000,
        train: Dataset | None = None,
        seed: int | None = None,
    ) -> "Fit":
        """The same fit with a trained sampler in place of its draws: a small file that samples at once.

        `bottleneck` is matched to what the draws predict, `langevin` to the weights themselves, which suits weights
        that the data determine. `diagnostics["distilled"]` say how near it is to the draws; a warning where it is not
        near inside the data. A fit from a file needs its training data as `train`.
        """
        train = self.train if train is None else train
        if train is None:
            raise DataError("draws are distilled at the training data; a fit from a file has none; give them as train=")
        data = build.scaled(self.config, self.scaling, train)
        density = whiten(self.problem, data, self.problem.prior.mean.dtype)
        key = Streams.of(self.config.seed if seed is None else seed).sampler
        problem, found = distil_problem(self.problem, density, kind, num_updates, key=key)
        warn_of_failure(found, "keep the draws, or try the other kind")
        record = {**self.diagnostics, "distilled": {**found.record, "is_used": True}}
        return dataclasses.replace(self, problem=problem, diagnostics=record)

    def save(self, path: str | Path) -> None:
        """Write one .langenode file: whole or not at all."""
        write_bytes(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file."""
        header = {
            "scaling": self.scaling.to_dict(),
            "noise_factor": self.noise_factor.tolist(),
            "input_names": list(self.input_names),
            "output_names": list(self.output_names),
            "extent": None if self.extent is None else self.extent.to_dict(),
            "columns": {part: names for part, names in self.columns._asdict().items() if names is not None},
            "training": dict(self.training),
            "diagnostics": dict(self.diagnostics),
        }
        return fit_file.fit_bytes(self.problem, self.config, header)

    def to_arviz(self, data: Dataset | None = None, *, num_samples: int = 1000, seed: int | None = None) -> Any:
        """An arviz InferenceData: `posterior`, `posterior_predictive` and `observed_data` of the training data.

        For a posterior or tempered fit there is a `log_likelihood` too, one value per observed cell, for `az.loo` and
        `az.compare`. It is that of the model as fitted, not tempered, and without the factor that calibrates bands,
        which `posterior_predictive` has; in the data's own units. A fit that was read from a file has no training
        data: give them, or others, as `data`; without them there is the posterior alone. Draws are equally weighted
        and form one chain; the method's diagnostics are in the attributes of `posterior`. Weights, and `log_noise`
        among them, are in the fit's scaled units.
        """
        from langenode.fitting.arviz import inference_data

        return inference_data(self, self.train if data is None else data, num_samples=num_samples, seed=seed)

    # Judging it

    def evaluate(self, test: Dataset, *, train: Dataset | None = None) -> dict[str, Any]:
        """Scores on held-out data, diagnostics and the verdict: the numbers of a run's metrics.json.

        A fit that was read from a file has no training data; scores that need them are left out, unless they are
        given as `train`.
        """
        return dict(self._judged(test, train).metrics)

    def report(self, path: str | Path, test: Dataset, *, train: Dataset | None = None) -> dict[str, Any]:
        """Write one self-contained HTML page with the verdict, the figures and all numbers; returns the numbers."""
        from langenode.fitting.report import fit_report

        results = self._judged(test, train)
        write_text(Path(path), fit_report(self, results, self.experiment.figures(results)))
        return dict(results.metrics)

    def _judged(self, test: Dataset, train: Dataset | None) -> Results:
        train = self.train if train is None else train
        if train is None and not isinstance(self.config, own.OwnConfig) and self.config.experiment != USER_MODEL:
            raise DataError(
                f"scores of {self.config.experiment} compare with the training data; a fit from a file has none; give "
                "them as train="
            )
        prediction, noisy, prepared = self._predict(test, None, None)
        nothing = prepared.select(np.zeros(0, int))
        known, held_out = (nothing if part is None else self.prepared(part) for part in (train, self.validation))
        splits = Splits(known, held_out, prepared)
        results = self.results(splits, prediction, noisy)
        return evaluation.evaluate(self.experiment, results, self.training, self.diagnostics)

    def results(
        self,
        splits: Splits,
        prediction: Prediction,
        noisy: np.ndarray,
        *,
        companions: Mapping[str, Companion] | None = None,
        convergence: Mapping[str, np.ndarray] = NO_CONVERGENCE,
        folds: np.ndarray | None = None,
    ) -> Results:
        """What metrics and figures are made of, before there are metrics.

        `folds` number the fold of every test trajectory where predictions are those of fits to the other folds.
        """
        key, num = Streams.of(self.config.seed).evaluation, self.config.predict.num_weights
        return Results(
            config=self.config,
            problem=self.problem,
            splits=splits,
            rule=self.rule,
            predictions=prediction.outputs,
            prediction_weights=np.asarray(prediction.weights),
            observable=noisy,
            weights=np.asarray(sample_weights(self.problem.posterior, num, key=key)),
            companions=companions or {},
            mle=self.point_model,
            history=self.history,
            convergence=convergence,
            metrics={},
            key=key,
            folds=folds,
        )

    # How it predicts

    @property
    def experiment(self) -> Experiment:
        """Its experiment; that of own data for a model of the user's own."""
        name = self.config.experiment
        return EXPERIMENTS["own" if name == USER_MODEL else name]

    @property
    def rule(self) -> Rule:
        """How this fit predicts: units, grid and noise."""
        return build.prediction_rule(self.config, self.scaling, self.noise_factor)

    def prepared(self, data: Dataset) -> Dataset:
        """The data as they are predicted: separated by their starts, which are known and masked among the outputs."""
        if self.config.target != "population" and data.num_conditions < data.num_trajectories:
            data = separate_by_start(data)
        data = with_doses_at_once(data, self.problem.model)
        return own.prepare(data, self.config) if isinstance(self.config, own.OwnConfig) else data

    def _predict(
        self, data: Dataset, num_samples: int | None, seed: int | None
    ) -> tuple[Prediction, np.ndarray, Dataset]:
        self._check_columns(data)
        prepared = self.prepared(data)
        rule = self.rule
        if data.initial is not None and isinstance(self.config, own.OwnConfig):
            rule = rule._replace(starts_at_reading=False)  # given, though those of the fit were read
        return *self.predict_prepared(prepared, num_samples, seed, rule=rule), prepared

    def predict_prepared(
        self, data: Dataset, num_samples: int | None = None, seed: int | None = None, *, rule: Rule | None = None
    ) -> tuple[Prediction, np.ndarray]:
        """The model's outputs, and new observations of them, for data as the fit sees them."""
        num = self.config.predict.num_samples if num_samples is None else num_samples
        if self.config.target == "hierarchical":
            found = self._predict_units(data, num, seed, given="start")
            return found.prediction, found.observed
        prediction = predict(self.problem, data, num, self.rule if rule is None else rule, key=self._key(seed))
        rng = np.random.default_rng(self.config.seed if seed is None else seed)
        return prediction, observable(self.problem, prediction, self.rule, rng=rng)

    def _predict_units(
        self, data: Dataset, num: int, seed: int | None, *, given: Any, which: Members = "drawn"
    ) -> UnitPrediction:
        """Samples of units given some of their readings; `data` are as the fit sees them."""
        rng = np.random.default_rng(self.config.seed if seed is None else seed)
        return predict_units(
            self.problem,
            self.config,
            data,
            num,
            self.rule,
            key=self._key(seed),
            rng=rng,
            given=given,
            which=which,
            # Scores of a fit go without: its programs would be compiled for a few units of each fold.
            has_fallback=given != "start",
        )

    def _unit_bands(self, data: Dataset, num_samples: int | None, seed: int | None, given: str) -> Any:
        self._check_columns(data)
        num = self.config.predict.num_samples if num_samples is None else num_samples
        prepared = self.prepared(data)
        self._warn_beyond(prepared)
        found = self._predict_units(prepared, num, seed, given=given)
        known = self._predict_units(prepared, num, seed, given=given, which="estimate")
        prediction = found.prediction
        return prediction_dataset(
            prepared,
            prediction.outputs,
            found.observed,
            np.asarray(prediction.weights),
            self.problem.partition.names,
            unit_outputs=known.prediction.outputs,
        )

    def _check_columns(self, data: Dataset) -> None:
        for what, fitted, found in (
            ("inputs", self.input_names, data.input_names),
            ("outputs", self.output_names, data.output_names),
        ):
            if tuple(found) != tuple(fitted):
                raise DataError(
                    f"new data must have the {what} of the fit, {list(fitted)}; found {list(found)}; name the columns "
                    "in this order"
                )

    def _warn_beyond(self, data: Dataset) -> None:
        found = [] if self.extent is None else self.extent.beyond(data)
        if found:
            warnings.warn(
                "bands can be relied on only near the training data; these predictions extrapolate to "
                f"{', '.join(found)}; add training data there, or do not rely on these bands",
                stacklevel=3,
            )

    def _key(self, seed: int | None) -> Any:
        return Streams.of(self.config.seed if seed is None else seed).prediction


class KnownUnits:
    """Units of a hierarchical fit with known readings, which `predict` takes as given."""

    def __init__(self, fit: Fit, known: Dataset):
        if fit.config.target != "hierarchical":
            raise ConfigError(
                f"units can be conditioned on in a hierarchical fit; this one has target={fit.config.target!r}; fit "
                "with target='hierarchical'"
            )
        fit._check_columns(known)
        self.fit, self.known = fit, known

    def predict(self, data: Dataset | None = None, *, num_samples: int | None = None, seed: int | None = None) -> Any:
        """Bands as of `Fit.predict`, at the rows of `data`, whose units are known by name; by default at the same rows.

        Readings in `data` itself are not used.
        """
        if data is None:
            return self.fit.predict(self.known, num_samples=num_samples, seed=seed, given="readings")
        self.fit._check_columns(data)
        return known_unit_bands(self.fit, self.known, data, num_samples, seed)


def known_unit_bands(fit: Fit, known: Dataset, data: Dataset, num_samples: int | None, seed: int | None) -> Any:
    """Bands at the rows of `data` for units whose readings are in `known`."""
    hidden = dataclasses.replace(data, mask=np.zeros_like(data.mask))
    both, is_new = joined(known, hidden)
    bands = fit.predict(both, num_samples=num_samples, seed=seed, given="readings")
    return bands.isel(condition=np.flatnonzero(is_new))


def by_leaf(problem: Problem, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Flat draws as one array per leaf of the model, (sample, ...)."""
    partition, leaves, offset = problem.partition, {}, 0
    for name, shape, size in zip(partition.leaf_names, partition.shapes, partition.sizes, strict=True):
        leaves[name] = weights[:, offset : offset + size].reshape(-1, *shape)
        offset += size
    return leaves
