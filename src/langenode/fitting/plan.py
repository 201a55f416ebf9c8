"""What will be done with a user's data or model, before any work: choices from the data below what the user asked."""

import contextlib
import functools
import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langenode.config import Config, ConfigError, merge
from langenode.data import (
    Columns,
    DataError,
    Dataset,
    Doubt,
    Reading,
    has_replicates,
    read_data,
    read_whole,
    separate_by_start,
    table_files,
)
from langenode.experiments import choices, own
from langenode.experiments.base import Experiment, Splits, as_configured, no_folds
from langenode.fitting import build, choose
from langenode.fitting.fit import USER_MODEL
from langenode.fitting.priors import check_leaves
from langenode.fitting.units.predicting import with_doses_at_once
from langenode.inference.partition import Partition, Where, network_positions
from langenode.models import UnitModel, has_own_noise

# Parts that several columns can play.
SEVERAL = ("inputs", "outputs", "initial")
# Effects of units whose correlations are all estimated.
MOST_CORRELATED_EFFECTS = 4
Reader = Callable[[Path, Columns], tuple[Reading, dict[str, str]]]


class FilePlan(NamedTuple):
    """What was read from a user's file, how it is divided, and what will be done with it."""

    reading: Reading
    splits: Splits
    config: own.OwnConfig
    choices: tuple[own.Choice, ...]
    source: dict[str, str]
    doubts: tuple[Doubt, ...]
    warnings: tuple[str, ...]


def read_unchanged(path: Path, given: Columns) -> tuple[Reading, dict[str, str]]:
    """Read a user's file; return the reading with the path and the hash of what was read."""
    before = None
    with contextlib.suppress(DataError):  # which reading it explains better
        before = content_hash(path)
    reading = read_data(path, given)
    source = {"path": str(path), "sha256": content_hash(path)}
    if before != source["sha256"]:
        raise DataError(f"{path} must stay as it is while it is read; it has changed meanwhile; try again")
    return reading, source


def plan_file(path: Path, layers: Sequence[Mapping[str, Any]], *, read: Reader = read_unchanged) -> FilePlan:
    """Read a user's file and choose what they left open; `layers` are their choices, later ones winning."""
    asked = choose.asked_for(layers)
    if asked.get("experiment", own.NAME) != own.NAME:
        raise ConfigError(f"data of your own are experiment {own.NAME!r}; got {asked['experiment']!r}; leave it out")
    given = {part: names(part, asked.get("data", {}).get(part)) for part in Columns._fields}
    reading, source = read(path, Columns(**given))
    try:
        suggested = own.plan(reading.data, asked)
    except DataError as error:
        raise DataError(f"{path}: {error}", reading.table_facts) from error
    own.check_sizes(reading.data, asked)
    roles = {part: value for part, value in reading.columns._asdict().items() if value is not None}
    layer = merge(suggested.layer, {"data": {**roles, "path": str(path)}})
    config, further = _own_config(layer, merge(asked, {"experiment": own.NAME, "data": {"path": str(path)}}))
    fitted = own.for_training(reading.data, config)
    splits = own.divide(fitted, config)
    made = (*suggested.choices, *further, *own.division_choice(config, fitted))
    doubts = tuple(Doubt(**doubt) for doubt in reading.table_facts.get("doubts", ()))
    return FilePlan(reading, splits, config, made, source, doubts, suggested.warnings)


def as_planned(plan: FilePlan) -> Reading:
    """The reading with its data divided into conditions as the fit does it."""
    data = choices.in_windows(plan.reading.data, plan.config.data.windows)
    is_separate = plan.config.data.separate and data.num_conditions < data.num_trajectories
    return plan.reading._replace(data=separate_by_start(data) if is_separate else data)


def plan_data(data: Dataset, asked: Mapping[str, Any]) -> tuple[Experiment, own.OwnConfig]:
    """A generic model for data that are in memory."""
    suggested = own.plan(data, asked)
    for line in suggested.warnings:
        warnings.warn(line, stacklevel=3)
    return own.EXPERIMENT, _own_config(suggested.layer, asked)[0]


def _own_config(layer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[own.OwnConfig, tuple[own.Choice, ...]]:
    """The configuration for a user's data, and the choices of method and weights with their reasons."""
    target = layer["target"]
    chosen = choose.choose_method(own.EXPERIMENT, target, asked, layer=layer)
    below = own.defaults(chosen.layer["method"], target, asked)
    config = choose.settle(own.OwnConfig, below, layer, chosen.layer, asked)
    build.structure(own.EXPERIMENT, config)  # what cannot be built is refused here
    of_units = "what a unit has of its own varies, and what all share by its uncertainty"
    usual = of_units if config.target == "hierarchical" else "there the sampler can be checked"
    why = "asked for" if "stochastic" in asked else usual
    choices = (
        own.Choice("method", config.method, chosen.why),
        own.Choice("stochastic", config.stochastic, why),
    )
    return config, choices


def plan_model(model: Any, data: Dataset, asked: Mapping[str, Any], where: Where | None) -> tuple[Experiment, Config]:
    """The user's model as an experiment; it sees the data in their own units unless scaling is asked for."""
    of_data = "population" if has_replicates(data) else "posterior"
    target = asked.get("target") or ("hierarchical" if isinstance(model, UnitModel) else of_data)
    duration = float((data.times[:, -1] - data.times[:, 0]).max())
    # Long gaps between readings are subdivided as for our own models, in the data's own unit of time; not for formulas.
    is_formula = isinstance(model, UnitModel) and model.curve is not None
    step = {"largest_step": own.LARGEST_STEP * duration} if duration > 0 and not is_formula else {}
    layer: dict[str, Any] = {"experiment": USER_MODEL, "scaling": "none", "target": target, "model": step}
    if target == "hierarchical":
        layer |= _unit_layer(model)
    if network_positions(model):  # models of few weights keep groups of units by any loss
        layer |= choices.population_loss(data, asked, target)[0]
    experiment = own.EXPERIMENT._replace(
        name=USER_MODEL,
        config=Config,
        build_model=lambda config, key: model,
        candidates=as_configured,
        folds=no_folds,
        defaults=functools.partial(_user_defaults, model),
    )
    chosen = choose.choose_method(experiment, target, asked, layer=layer, where=where)
    below = experiment.defaults(chosen.layer["method"], target, asked)
    config = choose.settle(Config, below, chosen.layer, layer, asked)
    if config.noise.kind == "inferred" and getattr(model, "log_noise", None) is None:
        raise ConfigError(
            "inferred noise is a weight of the model; yours has no log_noise; give it one, e.g. NeuralODE(..., "
            "log_noise=jnp.zeros(num_outputs)), or set noise.kind='given' with noise.sigma"
        )
    check_leaves(config, Partition.of(model, config.stochastic if where is None else where))
    return experiment, config


def _unit_layer(model: Any) -> dict[str, Any]:
    """The noise that the model has, and a method: all correlations between few effects, none between many."""
    is_proportional = getattr(model, "log_noise", None) is not None and model.log_noise.ndim == 2
    layer: dict[str, Any] = {"noise": {"kind": "inferred", "proportional": is_proportional}}
    if isinstance(model, UnitModel) and len(model.effects.random) <= MOST_CORRELATED_EFFECTS:
        layer["method"] = "gaussian-full"
    return layer


def _user_defaults(model: Any, method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """As for our own models, but all weights vary by default, and noise is inferred where the model has a place.

    The weights have units of their own, so there is no penalty on them, and search and prior have their scales.
    """
    if target == "hierarchical":
        return {"stochastic": "all", **_small_maps(model, method)}
    scales = {"mle": {"penalty": 0.0, "units": "automatic"}, "prior": {"scale": "automatic"}}
    below = merge(own.defaults(method, target, asked), {"stochastic": "all", **scales})
    if "noise" in below:  # a model of the user's has the place for noise that it has
        below["noise"] = {key: value for key, value in below["noise"].items() if key != "proportional"}
    if getattr(model, "log_noise", None) is None:
        below.pop("noise", None)
    if has_own_noise(model) and "population" in below:  # roughness is the model's own, and so are its directions
        below["population"] = {"new_units": True}
    return below


def _small_maps(model: Any, method: str) -> dict[str, Any]:
    """Maps of a few effects: the effects of every unit are integrated over, and a chain has as many per step again."""
    if method not in ("bottleneck", "langevin"):
        return {}
    num = len(model.effects.random) if isinstance(model, UnitModel) else MOST_CORRELATED_EFFECTS
    return {
        "bottleneck": {"latent_dim": num, "num_steps": 1, "layers": (8,), "decoder_layers": (8,)},
        "langevin": {"num_steps": 2, "layers": (8,)},
        "hierarchical": {"num_importance": 200},
    }


def as_fitted(data: Dataset, config: Config, model: Any = None) -> Dataset:
    """The data as they are fitted: those for a generic model have known starts, and doses are given at once."""
    data = with_doses_at_once(data, model)
    return own.for_training(data, config) if isinstance(config, own.OwnConfig) else data


def names(part: str, value: Any) -> Any:
    """The name of a column, or names for a part that several can play."""
    if value is None or isinstance(value, str):
        return (value,) if isinstance(value, str) and part in SEVERAL else value
    is_list = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    if not is_list or part not in SEVERAL:
        raise ConfigError(f"data.{part} must name columns; got {value!r}; give text, or a list of it for several")
    return tuple(value)


def content_hash(path: Path) -> str:
    """The SHA-256 of a user's data: of a file, or of the names and contents of the tables in a folder."""
    digest = hashlib.sha256()
    for file in table_files(path) if path.is_dir() else [path]:
        digest.update(os.fsencode(file.name) + b"\0" + read_whole(file))
    return digest.hexdigest()
