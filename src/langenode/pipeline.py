"""The stages of a run: simulate, fit, predict, evaluate. Each reads files of earlier ones and writes its own.

`run` does the stages whose files are missing, so an interrupted run goes on where it was; within the fit stage
training goes on from its last checkpoint, bit for bit.
"""

import contextlib
import io
import json
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode import _version, assembly, evaluation, fitfile, metrics, runfiles
from langenode.config import Config, resolve, to_toml
from langenode.data import Dataset, Scaling, load_data, save_data
from langenode.experiments import EXPERIMENTS, Experiment, Results, Splits
from langenode.inference import FitResult, TrainState, initial_state, train
from langenode.mle import fit_mle
from langenode.posteriors import cast
from langenode.problem import Problem, predict, sample_weights, view
from langenode.progress import Reporter
from langenode.runfolder import RunFolder, write_bytes, write_json, write_text
from langenode.targets import Population

# At so many moments of training the W1 to the data is recorded, for the convergence figure.
NUM_CONVERGENCE_POINTS = 8
CHECKPOINT_SECONDS = 20.0


class Run:
    """One run folder with its resolved configuration; the stages are its methods."""

    def __init__(self, folder: RunFolder, config: Any, reporter: Reporter):
        self.folder = folder
        self.config = config
        self.reporter = reporter
        self.experiment: Experiment = EXPERIMENTS[config.experiment]
        self.keys = assembly.Streams.of(config.seed)
        self.dtype = jnp.dtype(config.precision)

    @classmethod
    def start(cls, path: Path, config: Config, reporter: Reporter, *, force: bool) -> "Run":
        """A new run in an empty folder (or one whose run `force` may remove)."""
        folder = RunFolder(path)
        folder.create(force=force)
        write_json(folder.provenance, _provenance(config))
        write_text(folder.config, to_toml(config))  # last: a folder with a configuration is a run
        return cls(folder, config, reporter)

    # Stages

    def complete(self) -> dict[str, Any]:
        """Do every stage whose files are missing; returns the metrics."""
        stages = (
            (self.folder.test, self.simulate),
            (self.folder.fit, self.fit),
            (self.folder.predictions, self.predict),
            (self.folder.metrics, self.evaluate),
        )
        for product, stage in stages:
            if not product.exists():
                with self.reporter.stage(stage.__name__):
                    stage()
        return json.loads(self.folder.metrics.read_text())

    def simulate(self) -> None:
        """Make the data; the test set is written last, so its presence means that all are there."""
        begin = time.perf_counter()
        splits = self.experiment.simulate(self.config, self.keys.data)
        for path, data in zip(self._split_paths(), splits, strict=True):
            save_data(data, path)
        self._record(simulate=time.perf_counter() - begin)

    def fit(self) -> None:
        """Maximum likelihood, then Algorithm 1; and the same for the companion of the figures, if there is one."""
        scaling = self._new_scaling()
        splits = Splits(*(data.scaled(scaling) for data in self.splits()))
        model = self._mle(splits.train)
        if self.config.method != "paper":  # whose scales are the paper's, on purpose
            assembly.warn_of_scales(self.config, splits.train)
        result = self._train(self.config, model, splits, scaling, checkpoint=self.folder.checkpoint, show=True)
        companion = self.experiment.companion(self.config)
        if companion is not None:
            other = self._train(companion, model, splits, scaling, checkpoint=None, show=False)
            write_bytes(self._companion_path(), assembly.fit_bytes(other.problem, self._header(companion, scaling)))
        state, options = result.state, self.config.training
        rows, scores = np.asarray(state.history)[: int(state.step)], np.asarray(state.validation)
        runfiles.write_history(self.folder.history, rows, scores, options.block)
        self._record(fit=result.seconds)
        write_bytes(self.folder.fit, assembly.fit_bytes(result.problem, self._header(self.config, scaling)))
        self.folder.checkpoint.unlink(missing_ok=True)

    def predict(self) -> None:
        """Samples of the outputs for the test conditions, in a NetCDF file with the weights that made them."""
        begin = time.perf_counter()
        problem, test = self.problem(), self.splits().test
        num = self.config.predict.num_samples
        outputs, weights = predict(problem, test, num, key=self.keys.prediction, scaling=self.scaling())
        runfiles.write_predictions(self.folder.predictions, test, outputs, np.asarray(weights))
        self._record(predict=time.perf_counter() - begin)

    def evaluate(self) -> None:
        """metrics.json and the figures."""
        results = self._results()
        header = fitfile.read_header(self.folder.fit)
        found = evaluation.common_metrics(results, header["noise_sigma"], self.keys)
        if self.config.target != "population":
            found["posterior"] = self._posterior_diagnostics(results)
        found["seconds"] = json.loads(self.folder.provenance.read_text())["seconds"]
        results = results._replace(metrics=found)
        found |= self.experiment.metrics(results)
        for name, figure in self.experiment.figures(results).items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png")
            write_bytes(self.folder.figures / f"{name}.png", buffer.getvalue())
        write_json(self.folder.metrics, found)

    def _posterior_diagnostics(self, results: Results) -> dict[str, Any]:
        train = results.splits.train.scaled(results.scaling)
        noise = assembly.make_likelihood(self.config, self._mle(train), train, results.scaling)
        num = self.config.predict.num_weights
        return evaluation.posterior_diagnostics(results.problem, noise, train, num, key=self.keys.evaluation)

    # What stages share

    def splits(self) -> Splits:
        """The run's data."""
        return Splits(*(load_data(path) for path in self._split_paths()))

    def problem(self) -> Problem:
        """The fitted problem."""
        return assembly.read_fit(self.folder.fit, self.config, self._untrained())

    def scaling(self) -> Scaling:
        """The scaling that the fit was made with."""
        return Scaling.from_dict(fitfile.read_header(self.folder.fit)["scaling"])

    def _new_scaling(self) -> Scaling:
        """From the training data alone; the experiments' states are observed directly, so starts scale like outputs."""
        train = load_data(self.folder.data)
        if self.config.scaling == "none":
            return Scaling.identity(train)
        return Scaling.standardise(train, initial_like_outputs=train.initial is not None)

    def _split_paths(self) -> tuple[Path, Path, Path]:
        return self.folder.data, self.folder.validation, self.folder.test

    def _companion_path(self) -> Path:
        return self.folder.path / "companion.langenode"

    def _untrained(self) -> Any:
        return cast(self.experiment.build_model(self.config, self.keys.model), self.dtype)

    def _mle(self, train: Dataset) -> Any:
        if self.folder.mle.exists():
            return fitfile.read_tree(self.folder.mle, self._untrained())
        begin = time.perf_counter()
        options = self.config.mle
        point = fit_mle(
            self._untrained(),
            train,
            num_adam=options.num_adam,
            num_lbfgs=options.num_lbfgs,
            learning_rate=options.learning_rate,
            penalty=options.penalty,
        )
        self._record(mle=time.perf_counter() - begin)
        if len(point.losses):
            self.reporter.say(f"maximum likelihood: loss {point.losses[-1]:.4g}")
        write_bytes(self.folder.mle, fitfile.to_bytes({"experiment": self.experiment.name}, point.model))
        return point.model

    def _train(
        self, config: Any, model: Any, splits: Splits, scaling: Scaling, *, checkpoint: Path | None, show: bool
    ) -> FitResult:
        problem = assembly.assemble(config, model, splits.train, scaling)
        settings = assembly.train_settings(config)
        options = {"explained": config.population.explained, "max_components": config.population.max_components}
        data = view(problem, splits.train, self.dtype, **options)
        validation = view(problem, splits.validation, self.dtype, **options) if _can_validate(problem) else None
        state = None
        if checkpoint is not None and checkpoint.exists():
            state = fitfile.read_tree(checkpoint, initial_state(problem, settings))
            self.reporter.say(f"resuming at update {int(state.step)}")
        watch = _Watch(self, splits.train, scaling, checkpoint) if show else None
        title = f"{config.method}, {config.target}"
        with self.reporter.training(title) if show else contextlib.nullcontext():
            return train(
                problem,
                data,
                settings,
                key=self.keys.training,
                validation=validation,
                state=state,
                on_block=watch,
            )

    def _header(self, config: Config, scaling: Scaling) -> dict[str, Any]:
        return {
            "experiment": self.experiment.name,
            "config": config.model_dump(mode="json"),
            "scaling": scaling.to_dict(),
            "version": _version.__version__,
        }

    def _record(self, **seconds: float) -> None:
        provenance = json.loads(self.folder.provenance.read_text())
        provenance["seconds"] = {**provenance.get("seconds", {}), **seconds}
        write_json(self.folder.provenance, provenance)

    def _results(self) -> Results:
        splits, problem = self.splits(), self.problem()
        scaling = self.scaling()
        companion = companion_predictions = companion_weights = None
        other = self.experiment.companion(self.config)
        if other is not None:
            companion = assembly.read_fit(self._companion_path(), other, self._untrained())
            num = self.config.predict.num_samples
            companion_predictions, _ = predict(companion, splits.train, num, key=self.keys.evaluation, scaling=scaling)
            companion_weights = np.asarray(
                sample_weights(companion.posterior, self.config.predict.num_weights, key=self.keys.evaluation)
            )
        weights = sample_weights(problem.posterior, self.config.predict.num_weights, key=self.keys.evaluation)
        return Results(
            config=self.config,
            problem=problem,
            splits=splits,
            scaling=scaling,
            predictions=runfiles.read_predictions(self.folder.predictions),
            weights=np.asarray(weights),
            companion_predictions=companion_predictions,
            companion_weights=companion_weights,
            history=runfiles.read_history(self.folder.history),
            convergence=runfiles.read_convergence(self.folder.convergence),
            metrics={},
            key=self.keys.evaluation,
        )


class _Watch:
    """Called after every block: shows progress, stores a checkpoint now and then, records W1 on the way.

    The training data are scaled; W1 is recorded in the data's own units.
    """

    def __init__(self, run: Run, train: Dataset, scaling: Scaling, checkpoint: Path | None):
        self.run, self.train, self.scaling, self.checkpoint = run, train, scaling, checkpoint
        options = run.config.training
        marks = np.unique(np.geomspace(options.block, options.num_updates, NUM_CONVERGENCE_POINTS).astype(int))
        self.marks = [int(mark) for mark in marks]
        self.last_save = time.monotonic()

    def __call__(self, state: TrainState, progress: Any, problem: Problem) -> None:
        self.run.reporter.update(progress)
        if self.marks and progress.step >= self.marks[0]:
            self.marks = [mark for mark in self.marks if mark > progress.step]
            self._record_w1(progress.step, problem)
        if self.checkpoint is not None and time.monotonic() - self.last_save > CHECKPOINT_SECONDS:
            write_bytes(self.checkpoint, fitfile.to_bytes({"step": progress.step}, state))
            self.last_save = time.monotonic()

    def _record_w1(self, step: int, problem: Problem) -> None:
        replicates = self.train.replicates()
        key = jax.random.fold_in(self.run.keys.evaluation, step)
        outputs, _ = predict(problem, self.train, len(replicates.outputs), key=key)
        distance = metrics.w1(outputs.astype(float), replicates.outputs, mask_b=replicates.mask)
        per_time = np.nanmean(self.scaling.unscale_spread(distance), axis=(0, 2))
        runfiles.add_convergence(self.run.folder.convergence, step, per_time)


def _can_validate(problem: Problem) -> bool:
    """Noise stored per trajectory does not carry over to other trajectories; populations need none."""
    if isinstance(problem.target, Population):
        return True
    return problem.likelihood is not None and problem.likelihood.sigma is None


def open_run(path: Path, config: Any, reporter: Reporter, *, force: bool) -> Run:
    """Go on with an unfinished run of the same configuration, or start a new one."""
    folder = RunFolder(path)
    if not force and folder.config.exists() and folder.config.read_text() == to_toml(config):
        reporter.say(f"going on with the run in {path}")
        return Run(folder, config, reporter)
    return Run.start(path, config, reporter, force=force)


def configure(experiment: str, layers: list[dict[str, Any]]) -> Any:
    """Resolve a configuration: the experiment's defaults for the method and target, then the user's layers."""
    known = EXPERIMENTS[experiment]
    chosen: dict[str, Any] = {}
    for layer in layers:
        chosen |= {name: layer[name] for name in ("method", "target") if name in layer}
    method = chosen.get("method", "langevin")
    target = chosen.get("target", known.default_target(method))
    top = {"experiment": experiment, "method": method, "target": target}
    return resolve(known.config, top, known.defaults(method, target), *layers, {"experiment": experiment})


def _provenance(config: Config) -> dict[str, Any]:
    packages = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy", "scipy")
    return {
        "seed": config.seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"langenode": _version.__version__, **{name: metadata.version(name) for name in packages}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seconds": {},
    }
