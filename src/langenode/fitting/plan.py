"""What will be done with a user's data or model, before any work: choices from the data below what the user asked."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langenode.config import Config, ConfigError, merge, merge_all
from langenode.data import Columns, DataError, Dataset, Reading, has_replicates, read_data
from langenode.experiments import own
from langenode.experiments.base import Experiment, Splits, as_configured
from langenode.fitting import choose
from langenode.fitting.fit import USER_MODEL
from langenode.fitting.priors import check_leaves
from langenode.inference.partition import Partition, Where

# Parts that several columns can play.
SEVERAL = ("inputs", "outputs", "initial")


class FilePlan(NamedTuple):
    """What was read from a user's file, how it is divided, and what will be done with it."""

    reading: Reading
    splits: Splits
    config: own.OwnConfig
    choices: tuple[own.Choice, ...]
    source: dict[str, str]


def plan_file(path: Path, layers: Sequence[Mapping[str, Any]]) -> FilePlan:
    """Read a user's file and choose what they left open; `layers` are their choices, later ones winning."""
    for layer in layers:
        if not isinstance(layer.get("data", {}), Mapping):
            raise ConfigError(f"data must be a section of a configuration; got data={layer['data']!r}; set data.KEY")
    asked = merge_all(layers)
    if asked.get("experiment", own.NAME) != own.NAME:
        raise ConfigError(f"data of your own are experiment {own.NAME!r}; got {asked['experiment']!r}; leave it out")
    given = {part: names(part, asked.get("data", {}).get(part)) for part in Columns._fields}
    reading = read_data(path, Columns(**given))
    try:
        suggested = own.plan(reading.data, asked)
    except DataError as error:
        raise DataError(f"{path}: {error}", reading.table_facts) from error
    roles = {part: value for part, value in reading.columns._asdict().items() if value is not None}
    layer = merge(suggested.layer, {"data": {**roles, "path": str(path)}})
    config, choices = _own_config(layer, merge(asked, {"experiment": own.NAME, "data": {"path": str(path)}}))
    own.check_sizes(reading.data, config)
    splits = own.divide(own.prepare(reading.data, config), config)
    source = {"path": str(path), "sha256": _sha256(path)}
    return FilePlan(reading, splits, config, (*suggested.choices, *choices), source)


def plan_data(data: Dataset, asked: Mapping[str, Any]) -> tuple[Experiment, own.OwnConfig]:
    """A generic model for data that are in memory."""
    return own.EXPERIMENT, _own_config(own.plan(data, asked).layer, asked)[0]


def _own_config(layer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[own.OwnConfig, tuple[own.Choice, ...]]:
    """The configuration for a user's data, and the choices of method and weights with their reasons."""
    target = layer["target"]
    chosen = choose.choose_method(own.EXPERIMENT, target, asked, layer=layer)
    below = own.defaults(chosen.layer["method"], target, asked)
    config = choose.settle(own.OwnConfig, below, layer, chosen.layer, asked)
    why = "asked for" if "stochastic" in asked else "there the sampler can be checked"
    choices = (
        own.Choice("method", config.method, chosen.why),
        own.Choice("stochastic", config.stochastic, why),
    )
    return config, choices


def plan_model(model: Any, data: Dataset, asked: Mapping[str, Any], where: Where | None) -> tuple[Experiment, Config]:
    """The user's model as an experiment; it sees the data in their own units unless scaling is asked for."""
    target = asked.get("target") or ("population" if has_replicates(data) else "posterior")
    duration = float((data.times[:, -1] - data.times[:, 0]).max())
    # Long gaps between readings are subdivided as for our own models; in the data's own unit of time.
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
    config = choose.settle(Config, below, layer, chosen.layer, asked)
    if config.noise.kind == "inferred" and getattr(model, "log_noise", None) is None:
        raise ConfigError(
            "inferred noise is a weight of the model; yours has no log_noise; give it one, e.g. NeuralODE(..., "
            "log_noise=jnp.zeros(num_outputs)), or set noise.kind='given' with noise.sigma"
        )
    check_leaves(config, Partition.of(model, config.stochastic if where is None else where))
    return experiment, config


def _user_defaults(model: Any, method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """As for our own models, but all weights vary by default, and noise is inferred where the model has a place.

    The weights have units of their own, so there is no penalty on them, and search and prior have their scales.
    """
    scales = {"mle": {"penalty": 0.0, "units": "automatic"}, "prior": {"scale": "automatic"}}
    below = merge(own.defaults(method, target, asked), {"stochastic": "all", **scales})
    if getattr(model, "log_noise", None) is None:
        below.pop("noise", None)
    return below


def as_fitted(data: Dataset, config: Config) -> Dataset:
    """The data as they are fitted: those for a generic model have known starts."""
    return own.prepare(data, config) if isinstance(config, own.OwnConfig) else data


def names(part: str, value: Any) -> Any:
    """The name of a column, or names for a part that several can play."""
    if value is None or isinstance(value, str):
        return (value,) if isinstance(value, str) and part in SEVERAL else value
    is_list = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    if not is_list or part not in SEVERAL:
        raise ConfigError(f"data.{part} must name columns; got {value!r}; give text, or a list of it for several")
    return tuple(value)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
