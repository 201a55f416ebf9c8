"""The stages of a run: simulate, fit, predict, evaluate, report. Each reads files of earlier ones and writes its own.

`complete` does the stages whose files are missing, so an interrupted run resumes where it was; within the fit stage
training resumes from its last checkpoint, bit for bit.
"""

import dataclasses
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np

from langenode.config import Config, ConfigError, read_toml, to_toml
from langenode.data import Columns, save_data
from langenode.experiments import EXPERIMENTS
from langenode.experiments.base import Companion, Drawing, Experiment, Splits
from langenode.fitting import build, cross, evaluation, headers, plan, solve
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.choose import settle
from langenode.fitting.cross import Crossed
from langenode.fitting.fit import Fit
from langenode.fitting.points import PointChoice
from langenode.fitting.progress import Reporter
from langenode.fitting.provenance import provenance_of
from langenode.fitting.report import drawn
from langenode.fitting.units.candidates import score_list
from langenode.fitting.units.scoring import HeldOut
from langenode.inference.predictions import Prediction, predict, sample_weights
from langenode.reports import run_page
from langenode.runs import sources, stored
from langenode.runs.folds import FoldFiles
from langenode.runs.watch import Watch
from langenode.storage import container, interrupts, tables
from langenode.storage.folder import RunFolder, RunFolderError, read_provenance, write_bytes, write_json

Stage = Literal["simulate", "fit", "predict", "evaluate", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Run:
    """One run folder with its resolved configuration; the stages are its methods.

    What a stage has made is kept in memory for the next; a later process reads it from the folder.
    """

    def __init__(self, folder: RunFolder, config: Any, reporter: Reporter, splits: Splits | None = None):
        self.folder = folder
        self.experiment: Experiment = EXPERIMENTS[config.experiment]
        self.config = config
        self.reporter = reporter
        self.keys = Streams.of(config.seed)
        self._given = splits
        self._provenance = read_provenance(folder.provenance)
        self._made = _Made()

    @classmethod
    def start(
        cls,
        path: Path,
        config: Config,
        reporter: Reporter,
        *,
        force: bool,
        facts: Mapping[str, Any] | None = None,
        splits: Splits | None = None,
    ) -> "Run":
        """A new run in an empty folder (or one whose run `force` may remove).

        `facts` are added to the provenance; `splits` are data that have been read already.
        """
        folder = RunFolder(path)
        folder.begin(to_toml(config), provenance_of(config) | dict(facts or {}), force=force)
        return cls(folder, config, reporter, splits)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the run came from, and the seconds of its stages."""
        return self._provenance

    def complete(self, last: Stage = "report") -> None:
        """Do every stage up to `last` whose files are missing."""
        for stage in STAGES[: STAGES.index(last) + 1]:
            interrupts.check()
            if not self.product(stage).exists():
                is_reading = stage == "simulate" and "source" in self._provenance
                with self.reporter.stage("read" if is_reading else stage):
                    getattr(self, stage)()

    def product(self, stage: Stage) -> Path:
        """The file whose presence means that a stage is done; it is written last."""
        folder = self.folder
        files = (folder.test, folder.fit, folder.predictions, folder.metrics, folder.report)
        return dict(zip(STAGES, files, strict=True))[stage]

    def redo(self, stage: Stage) -> None:
        """Do a stage again. Its results are replaced, and what was made from them removed, only once it is done."""
        if stage != STAGES[0]:
            self.complete(STAGES[STAGES.index(stage) - 1])
        if stage == "fit":
            self.folder.checkpoint.unlink(missing_ok=True)
        with self.reporter.stage(stage):
            self.fit(anew=True) if stage == "fit" else getattr(self, stage)()
        for later in STAGES[STAGES.index(stage) + 1 :]:
            self.product(later).unlink(missing_ok=True)
        if stage in ("simulate", "fit"):
            self.folder.bands.unlink(missing_ok=True)

    # Stages

    def simulate(self) -> None:
        """Make (or read) the data; the test set is written last, so its presence means that all are there."""
        begin = time.perf_counter()
        if self._given is None:
            sources.refuse_changed(self.folder, self._provenance)
        splits = self._given or self.experiment.simulate(self.config, self.keys.data)
        for path, data in zip(self._split_paths(), splits, strict=True):
            if data.num_trajectories:  # with folds there are no validation data
                save_data(data, path)
        self._made = _Made(splits=splits)
        self._record(simulate=time.perf_counter() - begin)

    def fit(self, *, anew: bool = False) -> None:
        """Maximum likelihood, then the method; and the same for the companions of the figures, if there are any."""
        splits = self.splits()
        crossed = self._crossed(anew=anew)
        data = build.prepare(self.config, splits.train, splits.validation) if crossed is None else crossed.whole
        point = self._new_point(data, crossed) if anew or not self.folder.mle.exists() else self._stored_point()
        watch = Watch(self.folder, point.config.training, data, key=self.keys.evaluation)
        found = solve.solve(
            point.config,
            point.model,
            data,
            reporter=self.reporter,
            checkpoint=self.folder.checkpoint,
            on_block=watch,
        )
        found = found if crossed is None else crossed.finished(found)
        for name, config in self.experiment.companions(point.config).items():
            with self.reporter.task(f"{name}, for comparison"):
                other = solve.solve(config, point.model, data, is_companion=True)
            fit = self._fit_of(other, point._replace(config=config), data)
            write_bytes(self.folder.companion(name), fit.to_bytes())
        tables.write_history(self.folder.history, found.history)
        self._record(fit=found.seconds)
        fit = self._fit_of(found, point, data)
        write_bytes(self.folder.fit, fit.to_bytes())
        self.folder.checkpoint.unlink(missing_ok=True)
        self._made = _Made(splits=splits, point=point, fit=fit, crossed=crossed)

    def predict(self) -> None:
        """Samples of outputs and observations for the test conditions (NetCDF), and their bands as a table (CSV)."""
        begin = time.perf_counter()
        fit, test = self.fitted(), self.splits().test
        crossed = self._crossed()
        prediction, noisy = fit.predict_prepared(test) if crossed is None else cross.predict_folds(crossed, fit, test)
        names, time_name = fit.problem.partition.names, fit.columns.time
        tables.write_predictions(self.folder, test, prediction, noisy, names, time_name=time_name)
        self._made = self._made._replace(predictions=(prediction, noisy))
        self._record(predict=time.perf_counter() - begin)

    def evaluate(self) -> None:
        """metrics.json and the figures."""
        begin = time.perf_counter()
        fit, splits = self.fitted(), self.splits()
        results = fit.results(
            splits,
            *self._predictions(),
            companions=self._companions(splits),
            convergence=tables.read_convergence(self.folder.convergence),
            folds=stored.folds_of(self.experiment, self.config, splits),
        )
        reporter = self.reporter
        results = evaluation.evaluate(
            self.experiment,
            results,
            fit.training,
            fit.diagnostics,
            held_out_units=self._units_held_out(),
            reporter=reporter,
        )
        found = dict(results.metrics)
        found["data_id"] = hashlib.sha256(self.folder.test.read_bytes()).hexdigest()
        if choices := self._choices(fit):
            found["choices"] = choices
        with reporter.task("figures"):
            self._draw(self.experiment.figures(results))
        self._record(evaluate=time.perf_counter() - begin)
        write_json(self.folder.metrics, found | {"seconds": self._provenance["seconds"]})

    def report(self) -> None:
        """The page that shows it all."""
        run_page.write_report(self.folder)

    # What stages share: from memory where an earlier stage has just made it, else from its file

    def splits(self) -> Splits:
        """The run's data."""
        if self._made.splits is None:
            self._made = self._made._replace(
                splits=stored.read_splits(self._split_paths(), self.experiment, self.config)
            )
        assert self._made.splits is not None
        return self._made.splits

    def point(self) -> PointChoice:
        """The model at its maximum likelihood, and the configuration that was settled with it."""
        if self._made.point is None:
            self._made = self._made._replace(point=self._stored_point())
        assert self._made.point is not None
        return self._made.point

    def fitted(self) -> Fit:
        """The fit."""
        if self._made.fit is None:
            headers.read_fit_header(self.folder.fit)  # what is wrong with the fit is said before its start is looked at
            point = self.point()
            fit = self._read_fit(self.folder.fit, point.config)
            fit = dataclasses.replace(fit, history=tables.read_history(self.folder.history), point_model=point.model)
            self._made = self._made._replace(fit=fit)
        assert self._made.fit is not None
        return self._made.fit

    def _predictions(self) -> tuple[Prediction, np.ndarray]:
        if self._made.predictions is None:
            dim = self.fitted().problem.partition.dim
            found = stored.predictions_for(self.folder.predictions, self.splits().test, dim)
            prediction = Prediction(found.outputs, jnp.asarray(found.weights))
            self._made = self._made._replace(predictions=(prediction, found.observable))
        assert self._made.predictions is not None
        return self._made.predictions

    def _crossed(self, *, anew: bool = False) -> Crossed | None:
        """The fits of all folds; None where the data are divided once."""
        if self._made.crossed is None or anew:
            train = self.splits().train
            fold = stored.folds_of(self.experiment, self.config, self.splits())
            if fold is None:
                return None
            begin = time.perf_counter()
            kept = FoldFiles(self.folder, self.experiment, self.config, train, anew=anew)
            found = cross.cross_validate(self.experiment, self.config, train, fold, reporter=self.reporter, kept=kept)
            if "folds" not in self._provenance.get("seconds", {}):
                self._record(folds=time.perf_counter() - begin)
            self._made = self._made._replace(crossed=found)
        return self._made.crossed

    def _units_held_out(self) -> list[HeldOut] | None:
        """The fits of folds with the units that each did not see; None where the final fit predicts test data."""
        crossed = self._crossed() if self.config.target == "hierarchical" else None
        return None if crossed is None else cross.units_held_out(crossed)

    def _new_point(self, data: Prepared, crossed: Crossed | None) -> PointChoice:
        begin = time.perf_counter()
        if crossed is None:
            point = solve.find_point(self.experiment, self.config, data, reporter=self.reporter)
        else:
            point = cross.final_point(self.experiment, self.config, crossed)
        self._record(mle=time.perf_counter() - begin)
        header = {"model": point.config.model.model_dump(mode="json"), "chosen": point.name, "tried": point.tried}
        header["noise"] = point.config.noise.model_dump(mode="json")
        if getattr(self.config, "choose_weights", False):
            header |= {"method": point.config.method, "stochastic": point.config.stochastic}
        write_bytes(self.folder.mle, container.to_bytes(header, point.model))
        return point

    def _stored_point(self) -> PointChoice:
        return stored.read_point(self.folder.mle, self.experiment, self.config)

    def _fit_of(self, solved: solve.Solved, point: PointChoice, data: Prepared) -> Fit:
        splits, columns = self.splits(), self._provenance.get("columns", {})
        named = Columns(**{part: plan.names(part, value) for part, value in columns.items()})
        return solve.fit_of(solved, point, data, train=splits.train, validation=splits.validation, columns=named)

    def _read_fit(self, path: Path, config: Any) -> Fit:
        return stored.read_fit(path, self.experiment, config, self.splits().train)

    def _companions(self, splits: Splits) -> dict[str, Companion]:
        found, options, key = {}, self.config.predict, self.keys.evaluation
        for name, config in self.experiment.companions(self.point().config).items():
            other = self._read_fit(self.folder.companion(name), config)
            predictions = predict(other.problem, splits.test, options.num_samples, self.fitted().rule, key=key).outputs
            weights = np.asarray(sample_weights(other.problem.posterior, options.num_weights, key=key))
            found[name] = Companion(predictions, weights)
        return found

    def _draw(self, drawings: Mapping[str, Drawing]) -> None:
        """The figures, and an index with the words beside them; it comes first, since it says which are the run's."""
        found = drawn(drawings)
        before = set(self.folder.figure_files())
        write_json(self.folder.figure_index, [entry for entry, _ in found])
        for name in before - {entry["file"] for entry, _ in found}:
            (self.folder.figures / name).unlink(missing_ok=True)
        for entry, content in found:
            write_bytes(self.folder.figures / entry["file"], content)

    def _choices(self, fit: Fit) -> list[dict[str, str]]:
        """What was chosen for the user: from the data, and the model among its candidates."""
        made, point = list(self._provenance.get("choices", [])), self.point()
        weights = [one for one in point.tried if one["name"].startswith("weights: ")]
        models = [one for one in point.tried if one not in weights]
        if weights:
            scores = ", ".join(f"{one['name'].removeprefix('weights: ')} {one['error']:.4g}" for one in weights)
            on = "held-out trajectories" if "cross_validation" in fit.diagnostics else "validation data"
            why = f"all where they lower the CRPS on {on} by 1 % and a standard error: {scores}"
            made.append({"what": "stochastic weights", "chosen": point.config.stochastic, "why": why})
        if len(models) > 1:
            errors = ", ".join(f"{one['name']} {one['error']:.3g}" for one in models)
            on = "held-out trajectories" if "cross_validation" in fit.diagnostics else "validation data"
            why = f"the plainest with a good error on {on}, in units of the spread: {errors}"
            if self.config.target == "hierarchical":
                why = f"the plainest with a good log density of a held-out reading, in nats: {score_list(point.tried)}"
            made.append({"what": "kind of model", "chosen": point.name, "why": why})
        if self.config.noise.proportional == "auto" and point.config.noise.proportional is True:
            why = "the residuals of the fit at maximum likelihood grow with the level"
            made.append({"what": "noise", "chosen": "a constant and a proportional part", "why": why})
        if self.config.noise.calibrate:
            on = "training and validation" if "cross_validation" not in fit.diagnostics else "held-out"
            why = f"makes 90 % bands cover 90 % of {on} readings, per output"
            factors = ", ".join(f"{factor:.3g}" for factor in fit.noise_factor)
            made.append({"what": "noise factor", "chosen": factors, "why": why})
        return made

    def _split_paths(self) -> tuple[Path, Path, Path]:
        return self.folder.data, self.folder.validation, self.folder.test

    def _record(self, **seconds: float) -> None:
        self._provenance["seconds"] = {**self._provenance.get("seconds", {}), **seconds}
        write_json(self.folder.provenance, self._provenance)


class _Made(NamedTuple):
    """What stages of this process have made or read so far."""

    splits: Splits | None = None
    point: PointChoice | None = None
    fit: Fit | None = None
    predictions: tuple[Prediction, np.ndarray] | None = None
    crossed: Crossed | None = None


def open_run(
    path: Path,
    config: Any,
    reporter: Reporter,
    *,
    force: bool,
    facts: Mapping[str, Any] | None = None,
    splits: Splits | None = None,
) -> Run:
    """Resume an unfinished run of the same configuration and data, or start a new one."""
    refuse_function(config)
    folder = RunFolder(path)
    if not force and folder.is_run and stored.has_config(folder, config):
        sources.refuse_other(folder, facts or {})
        reporter.say(f"resuming the run in {path}")
        return Run(folder, config, reporter, splits)
    return Run.start(path, config, reporter, force=force, facts=facts, splits=splits)


def refuse_function(config: Any) -> None:
    """A run folder keeps no code."""
    if config.stochastic == "function":
        raise ConfigError("a file cannot hold a function; got stochastic='function'; use all or last_layer, or Python")


def existing_run(path: Path, reporter: Reporter) -> Run:
    """The run in a folder, with the configuration that is stored there."""
    folder = RunFolder(path)
    remedy = "name the folder of a run, e.g. runs/ou-langevin"
    if not folder.config.is_file():
        found = "it has no config.toml" if path.is_dir() else "there is no such folder"
        raise RunFolderError(f"{path} must be a run folder; {found}; {remedy}")
    read_provenance(folder.provenance)
    if not folder.is_run:  # a config.toml may be the user's, and what lies beside it, too
        raise RunFolderError(f"{path} must be a run folder; its config.toml is no run's (no provenance.json); {remedy}")
    read = read_toml(folder.config)
    name = str(read.get("experiment"))
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"experiment in {folder.config} must be one of {known}; got {name[:60]!r}; correct it")
    try:
        config = settle(EXPERIMENTS[name].config, read)
    except ConfigError as error:
        raise ConfigError(f"{folder.config}: {error}") from None
    run = Run(folder, config, reporter)
    sources.note_changed(folder, run.provenance, reporter)
    return run
