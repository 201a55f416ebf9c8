"""The facade: `fit`, `load_fit` and the `Fit` they give, and the plan for a file of a user's own."""

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode.config import Config, ConfigError, merge, resolve
from langenode.data import (
    Columns,
    DataError,
    Dataset,
    Reading,
    Scaling,
    has_replicates,
    read_data,
    separate_by_start,
)
from langenode.experiments import EXPERIMENTS, Experiment, own
from langenode.experiments.base import as_configured
from langenode.fitting import build, choose, fit_file, solve
from langenode.fitting.fit_file import Solved
from langenode.inference.algorithm1 import train
from langenode.inference.partition import Where
from langenode.inference.predictions import (
    Prediction,
    PredictionKeys,
    Rule,
    noise_scales,
    observable,
    predict,
    sample_weights,
)
from langenode.inference.problem import Problem
from langenode.posteriors import cast
from langenode.storage import container
from langenode.storage.bands import prediction_dataset
from langenode.storage.folder import write_bytes

# The experiment whose model is the user's own code: a file of it can only be read with that model at hand.
USER_MODEL = "user model"


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
    history: np.ndarray | None = None  # (update, [loss, data term, KL]); None where it came from a file
    seconds: float | None = None
    diagnostics: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of training or of drawing
    train: Dataset | None = None  # what it was fitted to; no part of its file

    def __repr__(self) -> str:
        asked = f"method={self.config.method!r}, target={self.config.target!r}"
        num = self.problem.partition.dim
        return f"Fit({asked}, {num} stochastic weights, outputs {list(self.output_names)}, seed={self.config.seed})"

    def predict(self, data: Dataset, *, num_samples: int | None = None, seed: int | None = None) -> Any:
        """Samples, mean and quantiles for every condition of `data`, as an xarray Dataset.

        Outputs in `data` are not needed but where they tell the start of a trajectory. For a posterior every
        trajectory is predicted from its own start; for a population each condition is.
        """
        prediction, noisy, prepared = self._predict(data, num_samples, seed)
        weights, names = np.asarray(prediction.weights), self.problem.partition.names
        return prediction_dataset(prepared, prediction.outputs, noisy, weights, names)

    def sample(self, num_samples: int, *, seed: int | None = None) -> np.ndarray:
        """Draws of the stochastic weights, (sample, weight); `fit.problem.partition.names` names them.

        They are the weights behind `predict` with the same number of samples and seed.
        """
        key = PredictionKeys.of(self._key(seed)).weights
        return np.asarray(sample_weights(self.problem.posterior, num_samples, key=key))

    def save(self, path: str | Path) -> None:
        """Write one .langenode file: whole or not at all."""
        names = (self.input_names, self.output_names)
        header = fit_file.fit_header(self.scaling, self.noise_factor, *names, self.columns._asdict())
        kind = "sampling" if self.config.is_drawn else "training"
        header |= {kind: dict(self.diagnostics)} if self.diagnostics else {}
        write_bytes(Path(path), fit_file.fit_bytes(self.problem, self.config, header))

    def to_arviz(self, data: Dataset | None = None, *, num_samples: int = 1000, seed: int | None = None) -> Any:
        """An arviz InferenceData: `posterior`, `posterior_predictive` and `observed_data` of the training data.

        For a posterior or tempered fit there is a `log_likelihood` too, a value an observed cell, for `az.loo` and
        `az.compare`. A fit that was read from a file has no training data: give them, or others, as `data`; without
        there is the posterior alone. Draws are equally weighted and of one chain; what the method says of itself is in
        the attributes of `posterior`. Weights, and `log_noise` among them, are in the fit's scaled units.
        """
        try:
            import arviz as az
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("to_arviz needs the arviz package; pip install 'langenode[arviz]'") from error
        weights = self.sample(num_samples, seed=seed)
        leaves = _by_leaf(self.problem, weights)
        groups: dict[str, Any] = {"posterior": {name: values[None] for name, values in leaves.items()}}
        data = self.train if data is None else data
        if data is not None:
            groups |= self._arviz_predictions(data, num_samples, seed)
        said = {key: value if isinstance(value, str) else float(value) for key, value in self.diagnostics.items()}
        return az.from_dict(**groups, posterior_attrs={"method": self.config.method, **said})

    def _arviz_predictions(self, data: Dataset, num_samples: int, seed: int | None) -> dict[str, Any]:
        prediction, noisy, prepared = self._predict(data, num_samples, seed)
        members = prepared.replicates()
        # A cell that nobody observed has no place in these groups: they are flat over the observed ones.
        trajectory, condition, time, out = np.nonzero(members.mask)
        cells = (slice(None), condition, time, out)
        groups: dict[str, Any] = {
            "posterior_predictive": {"outputs": noisy[cells][None]},
            "observed_data": {"outputs": members.outputs[trajectory, condition, time, out]},
        }
        if self.config.target != "population":
            scale = self.rule.unscaled_noise(noise_scales(self.problem, prediction.weights))[:, out]
            outputs = self._from_known_starts(prepared, num_samples, seed)[cells]
            error = (groups["observed_data"]["outputs"] - outputs) / scale
            density = -0.5 * error**2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi)
            groups["log_likelihood"] = {"outputs": density[None]}
        return groups

    def _from_known_starts(self, prepared: Dataset, num_samples: int, seed: int | None) -> np.ndarray:
        """Outputs as the likelihood has them: it takes a trajectory's start as known."""
        rule = self.rule._replace(starts_at_reading=False)
        return predict(self.problem, prepared, num_samples, rule, key=self._key(seed)).outputs

    @property
    def rule(self) -> Rule:
        """How this fit predicts: units, grid and noise."""
        return build.prediction_rule(self.config, self.scaling, self.noise_factor)

    def _predict(
        self, data: Dataset, num_samples: int | None, seed: int | None
    ) -> tuple[Prediction, np.ndarray, Dataset]:
        self._check_columns(data)
        prepared = self.prepared(data)
        num = self.config.predict.num_samples if num_samples is None else num_samples
        rule = self.rule
        if data.initial is not None and isinstance(self.config, own.OwnConfig):
            rule = rule._replace(starts_at_reading=False)  # given, though those of the fit were read
        prediction = predict(self.problem, prepared, num, rule, key=self._key(seed))
        rng = np.random.default_rng(self.config.seed if seed is None else seed)
        noisy = observable(self.problem, prediction, self.rule, rng=rng)
        return prediction, noisy, prepared

    def prepared(self, data: Dataset) -> Dataset:
        """The data as they are predicted: told apart by their starts, which are known and masked among the outputs."""
        if self.config.target != "population" and data.num_conditions < data.num_trajectories:
            data = separate_by_start(data)
        return own.prepare(data, self.config) if isinstance(self.config, own.OwnConfig) else data

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

    def _key(self, seed: int | None) -> Any:
        return build.Streams.of(self.config.seed if seed is None else seed).prediction


def _by_leaf(problem: Problem, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Flat draws as one array a leaf of the model, (sample, ...)."""
    partition, leaves, offset = problem.partition, {}, 0
    for name, shape, size in zip(partition.leaf_names, partition.shapes, partition.sizes, strict=True):
        leaves[name] = weights[:, offset : offset + size].reshape(-1, *shape)
        offset += size
    return leaves


def fit(
    data: Dataset,
    *,
    validation: Dataset | None = None,
    model: Any = None,
    method: str | None = None,
    target: str | None = None,
    stochastic: Where | None = None,
    rest: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Fit:
    """Fit a model to data and learn how uncertain it is.

    **Arguments:**

    - `data`: training trajectories; `validation`: others, by which the kind of model and the noise are judged.
    - `model`: your own, `model(times, inputs, initial) -> outputs` of arrays (an Equinox module, e.g. a `NeuralODE`
      with a right-hand side in plain JAX), in the data's own units; or None for a generic neural ODE.
    - `method`, `target`, `stochastic`, `rest`: the four questions of the README; None leaves them to the data.
      `stochastic` may be a function of the model that returns the parts to vary, e.g. `lambda m: m.dynamics`.
    - `options`: further sections of a configuration, e.g. `{"training": {"num_updates": 500}}`.
    """
    where = stochastic if callable(stochastic) else None
    named = {"method": method, "target": target, "rest": rest, "seed": seed}
    named["stochastic"] = stochastic if where is None else "function"
    asked = merge(dict(options or {}), {key: value for key, value in named.items() if value is not None})
    if model is None:
        config, _ = _own_config(own.plan(data, asked).layer, asked)
        validation = None if validation is None else own.prepare(validation, config)
        found = _fit(own.EXPERIMENT, config, own.prepare(data, config), validation, where)
    else:
        experiment, config = _user_experiment(model, data, asked, where)
        found = _fit(experiment, config, data, validation, where)
    return dataclasses.replace(found, train=data)


def _own_config(layer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[own.OwnConfig, tuple[own.Choice, ...]]:
    """The configuration for a user's data, and the choices of method and weights with their reasons."""
    target = layer["target"]
    chosen = choose.choose_method(own.EXPERIMENT, target, asked, layer=layer)
    below = own.defaults(chosen.layer["method"], target, asked)
    config = resolve(own.OwnConfig, below, layer, chosen.layer, asked)
    why = "asked for" if "stochastic" in asked else "there the sampler can be checked"
    choices = (
        own.Choice("method", config.method, chosen.why),
        own.Choice("stochastic", config.stochastic, why),
    )
    return config, choices


def _user_experiment(
    model: Any, data: Dataset, asked: Mapping[str, Any], where: Where | None
) -> tuple[Experiment, Config]:
    """The user's model as an experiment; it sees the data in their own units unless scaling is asked for."""
    target = asked.get("target") or ("population" if has_replicates(data) else "posterior")
    duration = float((data.times[:, -1] - data.times[:, 0]).max())
    # Long gaps between readings are cut as for our own models; in the data's own unit of time.
    step = {"largest_step": own.LARGEST_STEP * duration} if duration > 0 else {}
    layer: dict[str, Any] = {"experiment": USER_MODEL, "scaling": "none", "target": target, "model": step}
    experiment = own.EXPERIMENT._replace(
        name=USER_MODEL,
        config=Config,
        build_model=lambda config, key: model,
        candidates=as_configured,
        defaults=functools.partial(_user_defaults, model),
    )
    chosen = choose.choose_method(experiment, target, asked, layer=layer, where=where)
    below = experiment.defaults(chosen.layer["method"], target, asked)
    config = resolve(Config, below, layer, chosen.layer, asked)
    if config.noise.kind == "inferred" and getattr(model, "log_noise", None) is None:
        raise ConfigError(
            "inferred noise is a weight of the model; yours has no log_noise; give it one, e.g. NeuralODE(..., "
            "log_noise=jnp.zeros(num_outputs)), or set noise.kind='given' with noise.sigma"
        )
    return experiment, config


def _user_defaults(model: Any, method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """As for our own models, but all weights vary unless told otherwise, and noise is inferred where it has a place."""
    below = own.defaults(method, target, asked) | {"stochastic": "all"}
    if getattr(model, "log_noise", None) is None:
        below.pop("noise", None)
    return below


def _fit(
    experiment: Experiment, config: Config, train_data: Dataset, validation: Dataset | None, where: Where | None
) -> Fit:
    scaling = build.new_scaling(config, train_data)
    data = build.prepare(config, scaling, train_data, validation)
    choice = build.choose_model(experiment, config, data)
    config = choice.config
    problem = build.assemble(config, choice.model, data.train, scaling, where=where)
    result = _solve(config, problem, data)
    factor = build.calibrated_noise_factor(config, result.problem, data)
    return Fit(
        problem=result.problem,
        config=config,
        scaling=scaling,
        input_names=train_data.input_names,
        output_names=train_data.output_names,
        noise_factor=factor,
        history=result.history,
        seconds=result.seconds,
        diagnostics=next(iter(result.record.values())),
    )


def _solve(config: Config, problem: Problem, data: build.Prepared) -> Solved:
    key = build.Streams.of(config.seed).training
    if config.is_drawn:
        drawn = solve.draw(config, problem, data.train, key=key)
        for line in solve.warnings(drawn.record):
            warnings.warn(line, stacklevel=4)
        return Solved.drawn(drawn)
    train_view, validation_view = build.training_views(config, problem, data)
    settings = build.train_settings(config)
    result = train(problem, train_view, settings, key=key, validation=validation_view, budget=config.budget)
    return Solved.trained(result, settings.num_updates)


def load_fit(path: str | Path, *, model: Any = None) -> Fit:
    """Read a fit from its file. A model of your own code must be given again: a file never carries code."""
    path = Path(path)
    header = container.read_header(path)
    wanted = {"experiment", "config", "scaling", "input_names", "output_names", "noise_factor", "positions"}
    if not wanted <= set(header) or not isinstance(header["config"], dict):
        raise container.FitFileError(f"{path} must hold a whole fit; it holds a part of one; give fit.langenode")
    has_user_model = header.get("experiment") == USER_MODEL
    if has_user_model and model is None:
        raise container.FitFileError(
            f"{path} was fitted with a model of your own code, which a file never carries; none was given; "
            "use load_fit(path, model=...)"
        )
    name = header["experiment"]
    if not has_user_model and name not in EXPERIMENTS:
        raise container.FitFileError(f"a fit must be of a known experiment; {path} is of {name!r}; upgrade langenode")
    config = resolve(Config if has_user_model else EXPERIMENTS[name].config, header["config"])
    if has_user_model:
        structure = cast(model, jnp.dtype(config.precision))
    else:
        structure = build.untrained(EXPERIMENTS[name], config)
    columns: dict[str, Any] = {part: _names(part, value) for part, value in header.get("columns", {}).items()}
    return Fit(
        problem=fit_file.read_fit(path, config, structure),
        config=config,
        scaling=Scaling.from_dict(header["scaling"]),
        input_names=tuple(header["input_names"]),
        output_names=tuple(header["output_names"]),
        noise_factor=np.asarray(header["noise_factor"], float),
        columns=Columns(**columns),
        diagnostics=header.get("sampling", header.get("training", {})),
    )


class FilePlan(NamedTuple):
    """What was read from a user's file, and what will be done with it."""

    reading: Reading
    config: own.OwnConfig
    choices: tuple[own.Choice, ...]
    source: dict[str, str]


def plan_file(path: Path, layers: Sequence[Mapping[str, Any]]) -> FilePlan:
    """Read a user's file and choose what they left open; `layers` are their choices, later ones winning."""
    asked: dict[str, Any] = {}
    for layer in layers:
        if not isinstance(layer.get("data", {}), Mapping):
            raise ConfigError(f"data must be a section of a configuration; got data={layer['data']!r}; set data.KEY")
        asked = merge(asked, layer)
    if asked.get("experiment", own.NAME) != own.NAME:
        raise ConfigError(f"data of your own are experiment {own.NAME!r}; got {asked['experiment']!r}; leave it out")
    given = {part: _names(part, asked.get("data", {}).get(part)) for part in Columns._fields}
    reading = read_data(path, Columns(**given))
    try:
        plan = own.plan(reading.data, asked)
    except DataError as error:
        raise DataError(f"{path}: {error}", reading.table_facts) from error
    roles = {part: value for part, value in reading.columns._asdict().items() if value is not None}
    layer = merge(plan.layer, {"data": {**roles, "path": str(path)}})
    config, choices = _own_config(layer, merge(asked, {"experiment": own.NAME, "data": {"path": str(path)}}))
    own.check_sizes(reading.data, config)
    own.divide(own.prepare(reading.data, config), config)  # refused here, before a folder is made
    return FilePlan(reading, config, (*plan.choices, *choices), {"path": str(path), "sha256": _sha256(path)})


def _names(part: str, value: Any) -> Any:
    """The name of a column, or names for a part that several can play."""
    if value is None or isinstance(value, str):
        return (value,) if isinstance(value, str) and part in ("inputs", "outputs", "initial") else value
    is_list = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    if not is_list or part not in ("inputs", "outputs", "initial"):
        raise ConfigError(f"data.{part} must name columns; got {value!r}; give text, or a list of it for several")
    return tuple(value)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
