"""The stages of a run: simulate, fit, predict, evaluate, report. Each reads files of earlier ones and writes its own.

`complete` does the stages whose files are missing, so an interrupted run goes on where it was; within the fit stage
training goes on from its last checkpoint, bit for bit.
"""

import contextlib
import hashlib
import io
import platform
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np

from langenode import _version
from langenode.fitting import build
from langenode.runs import evaluation
from langenode.storage import container
from langenode.fitting import fit_file
from langenode.reports import run_page
from langenode.storage import tables
from langenode.fitting import solve
from langenode.scores import verdict
from langenode.fitting.build import Prepared
from langenode.config import Config, ConfigError, read_toml, resolve, to_toml
from langenode.data import Dataset, Scaling, load_data, save_data
from langenode.experiments import EXPERIMENTS, Companion, Drawing, Experiment, Results, Splits
from langenode.fitting.fit_file import Solved
from langenode.inference.algorithm1 import initial_state, train
from langenode.inference.predictions import Prediction, Rule, observable, predict, sample_weights
from langenode.inference.problem import Problem
from langenode.runs.progress import Reporter
from langenode.inference.quadrature import QuadratureError
from langenode.storage.folder import RunFolder, RunFolderError, read_record, write_bytes, write_json, write_text
from langenode.runs.watch import Watch

Stage = Literal["simulate", "fit", "predict", "evaluate", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class Run:
    """One run folder with its resolved configuration; the stages are its methods."""

    def __init__(self, folder: RunFolder, config: Any, reporter: Reporter):
        self.folder = folder
        self.experiment: Experiment = EXPERIMENTS[config.experiment]
        self.config = self._settled(config)
        self.reporter = reporter
        self.keys = build.Streams.of(config.seed)
        self._asked, self._is_refitting = config, False

    @classmethod
    def start(
        cls, path: Path, config: Config, reporter: Reporter, *, force: bool, facts: Mapping[str, Any] | None = None
    ) -> "Run":
        """A new run in an empty folder (or one whose run `force` may remove); `facts` are added to the provenance."""
        folder = RunFolder(path)
        folder.create(force=force)
        write_json(folder.provenance, _provenance(config) | dict(facts or {}))
        write_text(folder.config, to_toml(config))  # last: a folder with a configuration is a run
        return cls(folder, config, reporter)

    def complete(self, last: Stage = "report") -> None:
        """Do every stage up to `last` whose files are missing."""
        for stage in STAGES[: STAGES.index(last) + 1]:
            if not self.product(stage).exists():
                is_reading = stage == "simulate" and "source" in self._read_provenance()
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
            self.config, self._is_refitting = self._asked, True
        with self.reporter.stage(stage):
            getattr(self, stage)()
        self._is_refitting = False
        for later in STAGES[STAGES.index(stage) + 1 :]:
            self.product(later).unlink(missing_ok=True)

    # Stages

    def simulate(self) -> None:
        """Make (or read) the data; the test set is written last, so its presence means that all are there."""
        begin = time.perf_counter()
        splits = self.experiment.simulate(self.config, self.keys.data)
        for path, data in zip(self._split_paths(), splits, strict=True):
            save_data(data, path)
        self._record(simulate=time.perf_counter() - begin)

    def fit(self) -> None:
        """Maximum likelihood, then the method; and the same for the companions of the figures, if there are any."""
        splits = self.splits()
        scaling = build.new_scaling(self.config, splits.train)
        data = build.prepare(self.config, scaling, splits.train, splits.validation)
        model = self._mle(data)
        if self.config.method != "paper":  # whose scales are the paper's, on purpose
            build.warn_of_scales(self.config, data.train)
        result = self._solve(self.config, model, data, scaling, checkpoint=self.folder.checkpoint)
        for name, config in self.experiment.companions(self.config).items():
            other = self._solve(config, model, data, scaling, checkpoint=None)
            header = self._header(other, scaling, data.train, np.ones(data.train.num_outputs))
            write_bytes(self.folder.companion(name), fit_file.fit_bytes(other.problem, config, header))
        tables.write_history(self.folder.history, result.history, result.validation, self.config.training.block)
        self._record(fit=result.seconds)
        factor = build.calibrated_noise_factor(self.config, result.problem, data)
        header = self._header(result, scaling, data.train, factor)
        write_bytes(self.folder.fit, fit_file.fit_bytes(result.problem, self.config, header))
        self.folder.checkpoint.unlink(missing_ok=True)

    def predict(self) -> None:
        """Samples of the outputs for the test conditions, in a NetCDF file with the weights that made them."""
        begin = time.perf_counter()
        problem, test = self.problem(), self.splits().test
        prediction = self._predict(problem, test, self.config.predict.num_samples, self.keys.prediction)
        noisy = observable(problem, prediction, self.rule(), rng=self._rng())
        names = problem.partition.names
        tables.write_predictions(self.folder.predictions, test, prediction, noisy, names)
        self._record(predict=time.perf_counter() - begin)

    def evaluate(self) -> None:
        """metrics.json and the figures."""
        begin = time.perf_counter()
        results = self._results()
        found = evaluation.common_metrics(results, self.keys)
        header = self._fit_header()
        if "training" in header:
            found["training"] = evaluation.training_state(results.history, header["training"])
        found["data_id"] = hashlib.sha256(self.folder.test.read_bytes()).hexdigest()
        if "sampling" in header:
            found["posterior"] = header["sampling"]
        elif self.config.target != "population":
            found["posterior"] = self._posterior_diagnostics(results)
        if self.experiment.has_exact_posterior(self.config):
            found |= self._exact_posterior(results)
        results = results._replace(metrics=found)
        found |= self.experiment.metrics(results)
        found["verdict"] = verdict.judge(found)
        if choices := self._choices():
            found["choices"] = choices
        self._draw(self.experiment.figures(results))
        self._record(evaluate=time.perf_counter() - begin)
        found["seconds"] = self._read_provenance()["seconds"]
        write_json(self.folder.metrics, found)

    def report(self) -> None:
        """The page that shows it all."""
        run_page.write_report(self.folder)

    # What stages share

    def splits(self) -> Splits:
        """The run's data."""
        return Splits(*(load_data(path) for path in self._split_paths()))

    def problem(self) -> Problem:
        """The fitted problem."""
        return fit_file.read_fit(self.folder.fit, self.config, build.untrained(self.experiment, self.config))

    def rule(self) -> Rule:
        """How the fit predicts."""
        header = self._fit_header()
        factor = np.asarray(header["noise_factor"], float)
        return build.prediction_rule(self.config, Scaling.from_dict(header["scaling"]), factor)

    def _settled(self, config: Any) -> Any:
        """The configuration with the model that was chosen among candidates, once it has been."""
        if not self.folder.mle.exists():
            return config
        model = type(config.model).model_validate(container.read_header(self.folder.mle)["model"])
        return config.model_copy(update={"model": model})

    def _mle(self, data: Prepared) -> Any:
        if self.folder.mle.exists() and not self._is_refitting:
            return container.read_tree(self.folder.mle, build.untrained(self.experiment, self.config))
        begin = time.perf_counter()
        choice = build.choose_model(self.experiment, self.config, data)
        self._record(mle=time.perf_counter() - begin)
        for tried in choice.tried:
            self.reporter.say(f"maximum likelihood: {tried['name']}, validation error {tried['error']:.4g} (scaled)")
        header = {"model": choice.config.model.model_dump(mode="json"), "chosen": choice.name, "tried": choice.tried}
        write_bytes(self.folder.mle, container.to_bytes(header, choice.model))
        self.config = choice.config
        return choice.model

    def _solve(self, config: Any, model: Any, data: Prepared, scaling: Scaling, *, checkpoint: Path | None) -> Solved:
        problem = build.assemble(config, model, data.train, scaling)
        if not config.is_drawn:
            return self._train(config, problem, data, scaling, checkpoint)
        self.reporter.say(f"{config.method}, {config.target}: drawing {problem.partition.dim} weights")
        drawn = solve.draw(config, problem, data.train, key=self.keys.training)
        for line in solve.warnings(drawn.record):
            self.reporter.say(f"warning: {line}")
        return Solved.drawn(drawn)

    def _train(
        self, config: Any, problem: Problem, data: Prepared, scaling: Scaling, checkpoint: Path | None
    ) -> Solved:
        """Algorithm 1; with a checkpoint it is shown, stored on the way and can be resumed."""
        settings = build.train_settings(config)
        train_view, validation_view = build.training_views(config, problem, data)
        state = None
        if checkpoint is not None and checkpoint.exists():
            state = container.read_tree(checkpoint, initial_state(problem, settings))
            self.reporter.say(f"resuming at update {int(state.step)}")
        watch = None
        if checkpoint is not None:
            options = (self.reporter, config.training, data.train, scaling)
            watch = Watch(self.folder, *options, key=self.keys.evaluation)
        title = f"{config.method}, {config.target}"
        with contextlib.nullcontext() if checkpoint is None else self.reporter.training(title):
            result = train(
                problem,
                train_view,
                settings,
                key=self.keys.training,
                validation=validation_view,
                state=state,
                on_block=watch,
                budget=config.budget,
            )
        return Solved.trained(result, settings.num_updates)

    def _predict(self, problem: Problem, data: Dataset, num_samples: int, key: Any) -> Prediction:
        return predict(problem, data, num_samples, self.rule(), key=key)

    def _posterior_diagnostics(self, results: Results) -> dict[str, Any]:
        scaling = results.rule.scaling
        assert scaling is not None
        data = build.prepare(self.config, scaling, results.splits.train, None)
        noise = build.make_likelihood(self.config, self._mle(data), data.train, scaling)
        num = self.config.predict.num_weights
        return evaluation.posterior_diagnostics(results.problem, noise, data.train, num, key=self.keys.evaluation)

    def _exact_posterior(self, results: Results) -> dict[str, Any]:
        """Of the problem itself, whatever the method made of it."""
        scaling = results.rule.scaling
        assert scaling is not None
        train = build.prepare(self.config, scaling, results.splits.train, None).train
        plain = self.config.model_copy(update={"method": "map"})
        try:
            found = evaluation.exact_posterior(build.assemble(plain, results.mle, train, scaling), train)
        except QuadratureError as error:
            self.reporter.say(f"no exact posterior: {error}")
            return {}
        return {"reference_posterior": found}

    def _header(self, result: Solved, scaling: Scaling, train: Dataset, factor: np.ndarray) -> dict[str, Any]:
        names, columns = (train.input_names, train.output_names), self._read_provenance().get("columns", {})
        return fit_file.fit_header(scaling, factor, *names, columns) | result.record

    def _draw(self, drawings: Mapping[str, Drawing]) -> None:
        """The figures, and an index with the words beside them."""
        index = []
        for name, drawing in drawings.items():
            buffer = io.BytesIO()
            drawing.figure.savefig(buffer, format="png")
            write_bytes(self.folder.figures / f"{name}.png", buffer.getvalue())
            words = {key: value for key, value in drawing._asdict().items() if key != "figure"}
            index.append({"name": name, "file": f"{name}.png", **words})
        write_json(self.folder.figures / "index.json", index)

    def _choices(self) -> list[dict[str, str]]:
        """What was chosen for the user: from the data, and the model among its candidates."""
        made = list(self._read_provenance().get("choices", []))
        tried = container.read_header(self.folder.mle)["tried"]
        if len(tried) > 1:
            errors = ", ".join(f"{one['name']} {one['error']:.3g}" for one in tried)
            why = f"the plainest with a good error on validation data, in units of the spread: {errors}"
            made.append({"what": "kind of model", "chosen": container.read_header(self.folder.mle)["chosen"], "why": why})
        if self.config.noise.calibrate:
            why = "makes 90 % bands hold 90 % of training and validation readings, an output"
            factors = ", ".join(f"{factor:.3g}" for factor in self._fit_header()["noise_factor"])
            made.append({"what": "noise factor", "chosen": factors, "why": why})
        return made

    def _results(self) -> Results:
        splits, problem, rule = self.splits(), self.problem(), self.rule()
        weights = sample_weights(problem.posterior, self.config.predict.num_weights, key=self.keys.evaluation)
        stored = tables.read_predictions(self.folder.predictions)
        prediction = Prediction(stored.outputs, jnp.asarray(stored.weights))
        noisy = observable(problem, prediction, rule, rng=self._rng())
        return Results(
            config=self.config,
            problem=problem,
            splits=splits,
            rule=rule,
            predictions=stored.outputs,
            prediction_weights=stored.weights,
            observable=noisy,
            weights=np.asarray(weights),
            companions=self._companions(splits.test),
            mle=container.read_tree(self.folder.mle, build.untrained(self.experiment, self.config)),
            history=tables.read_history(self.folder.history),
            convergence=tables.read_convergence(self.folder.convergence),
            metrics={},
            key=self.keys.evaluation,
        )

    def _companions(self, test: Dataset) -> dict[str, Companion]:
        found, options, key = {}, self.config.predict, self.keys.evaluation
        for name, config in self.experiment.companions(self.config).items():
            path = self.folder.companion(name)
            other = fit_file.read_fit(path, config, build.untrained(self.experiment, config))
            predictions = self._predict(other, test, options.num_samples, key).outputs
            weights = np.asarray(sample_weights(other.posterior, options.num_weights, key=key))
            found[name] = Companion(predictions, weights)
        return found

    def _split_paths(self) -> tuple[Path, Path, Path]:
        return self.folder.data, self.folder.validation, self.folder.test

    def _fit_header(self) -> dict[str, Any]:
        return container.read_header(self.folder.fit)

    def _rng(self) -> np.random.Generator:
        """The same noise for the stored bands and for the scores."""
        return np.random.default_rng(self.config.seed)

    def _read_provenance(self) -> dict[str, Any]:
        return read_record(self.folder.provenance)

    def _record(self, **seconds: float) -> None:
        provenance = self._read_provenance()
        provenance["seconds"] = {**provenance.get("seconds", {}), **seconds}
        write_json(self.folder.provenance, provenance)


def open_run(
    path: Path, config: Any, reporter: Reporter, *, force: bool, facts: Mapping[str, Any] | None = None
) -> Run:
    """Go on with an unfinished run of the same configuration, or start a new one."""
    refuse_function(config)
    folder = RunFolder(path)
    if not force and folder.config.exists() and folder.config.read_text() == to_toml(config):
        reporter.say(f"going on with the run in {path}")
        return Run(folder, config, reporter)
    return Run.start(path, config, reporter, force=force, facts=facts)


def refuse_function(config: Any) -> None:
    """A run folder keeps no code."""
    if config.stochastic == "function":
        raise ConfigError("a file cannot hold a function; got stochastic='function'; use all or last_layer, or Python")


def existing_run(path: Path, reporter: Reporter) -> Run:
    """The run in a folder, with the configuration that is stored there."""
    folder = RunFolder(path)
    if not folder.config.is_file():
        found = "it has no config.toml" if path.is_dir() else "there is no such folder"
        raise RunFolderError(f"{path} must be a run folder; {found}; name the folder of a run, e.g. runs/ou-langevin")
    stored = read_toml(folder.config)
    name = stored.get("experiment")
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"experiment in {folder.config} must be one of {known}; got {name!r}; correct it")
    return Run(folder, resolve(EXPERIMENTS[name].config, stored), reporter)


def _provenance(config: Config) -> dict[str, Any]:
    packages = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy", "scipy")
    return {
        "seed": config.seed,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"langenode": _version.__version__, **{name: metadata.version(name) for name in packages}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seconds": {},
    }
