"""A user's own data: model, target and method are chosen from the data, each with its reason.

The choices are a layer of configuration below the user's own, so any of them can be changed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from langenode._types import PRNGKeyArray
from langenode.config import AtLeastTwo, Config, ConfigError, Count, ModelConfig, Section, merge
from langenode.data import (
    FEWEST_REPLICATES,
    Columns,
    DataError,
    Dataset,
    assign_folds,
    by_fold,
    check_fittable,
    from_first_complete_row,
    has_replicates,
    num_folds,
    read_data,
    separate_by_start,
    starts_agree,
    with_observed_start,
)
from langenode.experiments import beyond, choices, unit_choices
from langenode.experiments import figures as shared
from langenode.experiments.base import Drawing, Experiment, Results, Splits, chain, sticking_chain
from langenode.experiments.choices import Choice, Plan
from langenode.experiments.unit_choices import MOST_LATENT
from langenode.experiments.unit_figures import held_out_bands, unit_figures
from langenode.models import LatentCurve, LatentODE, NeuralODE, SmoothCurve, generic_model, make_solver

NAME = "own"
LARGEST_STEP = 0.02  # of the longest duration
# The fewest conditions of which some can be held out.
FEWEST_CONDITIONS = 5
# Widths of networks where units differ: their data are few.
UNITS_LAYERS = (8,)

Fraction = Annotated[float, Field(ge=0, le=1)]


class OwnData(Section):
    """The file, the roles of its columns, and the split of its trajectories.

    `separate` makes every trajectory a condition of its own, where equal times and inputs do not mean replicates.
    """

    path: str = ""
    """the file"""
    trajectory: str | None = None
    """column that distinguishes trajectories"""
    time: str | None = None
    """column of the time"""
    inputs: tuple[str, ...] | None = None
    """columns that drive the process"""
    outputs: tuple[str, ...] | None = None
    """columns to predict"""
    initial: tuple[str, ...] | None = None
    """columns of a known start"""
    condition: str | None = None
    """column that says which trajectories are replicates"""
    unit: str | None = None
    """column of the specimen"""
    separate: bool = False
    """every trajectory is a condition of its own, predicted from its own start"""
    windows: Count | None = None
    """every trajectory is cut into this many windows; chosen where there are fewer than three trajectories"""
    split: tuple[Fraction, Fraction, Fraction] = (0.6, 0.2, 0.2)
    """fractions for training, validation and test, by trajectory or condition, where there are no folds"""
    most_held_out: Count | None = None
    """validation and test trajectories at most, each; the others train; chosen above 1000 trajectories"""
    folds: AtLeastTwo | Literal["auto"] | None = "auto"
    """parts that are held out in turn while the final fit uses all data; auto: 5 below 40 trajectories, else none"""


class OwnModel(ModelConfig):
    """A generic model: `auto` tries the kinds of `models.generic` and keeps the best on validation data.

    The sizes are filled in from the data; `num_known` numbers of a trajectory's start are known.
    """

    kind: Literal["auto", "state", "hidden", "observation"] = "auto"
    """state (the outputs are the state), hidden (with hidden state), observation (a read-out); auto tries all three"""
    num_hidden: Count = 2
    """hidden components of the kinds hidden and observation"""
    layers: tuple[Count, ...] = (16,)
    """widths of the hidden layers of each network"""
    largest_step: Annotated[float, Field(gt=0)] | None = LARGEST_STEP
    """intervals longer than this, in scaled time, are subdivided"""
    num_inputs: int = Field(default=0, ge=0)
    """filled in from the data"""
    num_outputs: Count = 1
    """filled in from the data"""
    num_latent: Annotated[int, Field(ge=0, le=MOST_LATENT)] | Literal["auto"] = "auto"
    """latent inputs in which units differ (target hierarchical); auto tries 0 to 4 on held-out units"""
    units: Literal["auto", "smooth", "curve", "rates"] = "rates"
    """a unit's model (target hierarchical): smooth (a smooth curve over time), curve (a network of time and latent
    inputs), rates (a neural ODE, for inputs that vary), or auto (smooth or curve, by held-out units); chosen from the
    data"""
    clock: float = Field(default=0.0, ge=0, le=1e6)
    """a curve is a function of log(1 + clock t), or of the time t itself at 0; chosen from the times of the readings"""
    num_known: int = Field(default=1, ge=0)
    """known numbers of a trajectory's start, filled in from the data"""


class OwnConfig(Config):
    """The configuration of a fit to a user's own data."""

    experiment: str = NAME
    data: OwnData = OwnData()
    model: OwnModel = OwnModel()  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)
    choose_weights: bool = False
    """all weights vary, drawn by ensemble-hmc, where last layers predict what is held out worse; both are fitted"""

    @pydantic.model_validator(mode="after")
    def _has_a_start_already(self) -> "OwnConfig":
        if self.model.trainable_start:
            raise ValueError(
                "hidden states of a generic model have a start that is trained already, and outputs start where they "
                "were read; found model.trainable_start=true; leave it out, or give ln.fit a model of your own"
            )
        return self


def columns_of(config: OwnConfig) -> Columns:
    """Return the column roles that a configuration names."""
    return Columns(**{name: getattr(config.data, name) for name in Columns._fields})


def plan(data: Dataset, asked: Mapping[str, Any]) -> Plan:
    """Plan the fit to these data, given what the user asked for (`target` and `data.separate`, if anything)."""
    warnings = choices.outlier_warnings(data)
    scale_layer, scale_choices = choices.scales(data, asked)
    windows, windows_choice = choices.windows(data, asked)
    data = choices.in_windows(data, windows)
    check_fittable(data)
    separate, replicates_choice = _replicates(data, asked)
    is_crossed = data.has_crossed_units and data.num_units >= FEWEST_REPLICATES
    is_population = not separate and (has_replicates(data) or is_crossed)
    units = unit_choices.for_units(data, asked, is_cut=windows is not None)
    if is_population and (is_crossed or not unit_choices.serves_replicates(data)):
        units = units._replace(is_wanted=False)
    others = "population" if is_population else "posterior"
    target = asked.get("target") or ("hierarchical" if units.is_wanted else others)
    layer: dict[str, Any] = {"target": target, "data": {"separate": separate}, "model": _sizes(data)}
    layer["model"] |= unit_choices.model_layer(data, asked) if target == "hierarchical" else {}
    layer["data"] |= {} if windows is None else {"windows": windows}
    layer["data"] |= {"folds": None} if "split" in asked.get("data", {}) else {}
    large_layer, large_choice = choices.large(data, asked, target)
    layer = merge(layer, large_layer)
    if layer["model"].get("units") == "auto" and choices.is_scale_open(asked):
        by_evidence, replaced = unit_choices.scale_layer(data, {**layer, **scale_layer})
        settled = {choice.what for choice in replaced}
        scale_layer, scale_choices = (
            {**scale_layer, **by_evidence},
            [choice for choice in scale_choices if choice.what not in settled] + replaced,
        )
    kinds = {layer["model"].get("units"), choices.asked_section(asked, "model").get("units")}
    is_followed = target == "hierarchical" and "rates" in kinds
    noisy_start, start_choice = choices.start(data, is_followed=is_followed)
    loss_layer, loss_choice = choices.population_loss(data, asked, target)
    layer |= {"noise": {"in_start": noisy_start}, **scale_layer, **loss_layer}
    made = [
        *windows_choice,
        *replicates_choice,
        start_choice,
        *scale_choices,
        _target_choice(target, "target" in asked, data, separate, units),
        *loss_choice,
        *large_choice,
    ]
    return Plan(layer, tuple(made), warnings)


def check_sizes(data: Dataset, asked: Mapping[str, Any]) -> None:
    """Raise unless the model's sizes, which a configuration may have set, are those of the data."""
    model = asked.get("model", {})
    for name, size in _sizes(data).items():
        found = model.get(name, size) if isinstance(model, Mapping) else size
        if found != size:
            raise ConfigError(f"model.{name} must be that of the data, {size}; found {found}; leave it out")


def _sizes(data: Dataset) -> dict[str, int]:
    start = data.initial.shape[1] if data.initial is not None else data.num_outputs
    return {"num_inputs": data.num_inputs, "num_outputs": data.num_outputs, "num_known": start}


def _replicates(data: Dataset, asked: Mapping[str, Any]) -> tuple[bool, list[Choice]]:
    """Return whether trajectories of equal times and inputs are separate conditions, and the choice."""
    asked_data = asked.get("data", {})
    if "separate" in asked_data:
        return bool(asked_data["separate"]), []
    is_shared = data.num_conditions < data.num_trajectories
    if not is_shared or asked_data.get("condition") or starts_agree(data):
        return False, []
    why = "they have equal times and inputs but different starts, so each is predicted from its own start"
    return True, [Choice("replicates", "none: every trajectory is a condition", why)]


def _target_choice(target: str, is_asked: bool, data: Dataset, separate: bool, units: unit_choices.ForUnits) -> Choice:
    if is_asked:
        return Choice("target", target, "requested")
    if target == "population":
        count = data.num_trajectories / data.num_conditions
        return Choice("target", target, f"conditions have {count:.3g} trajectories: the spread between them is learned")
    if target == "hierarchical":
        return Choice("target", target, units.why)
    counts = np.ones(1, int) if separate else np.bincount(data.condition)
    why = f"one model for all trajectories is learned, with inferred noise ({units.why})"
    if counts.max() == 1:
        return Choice("target", target, f"there are no replicates to learn a spread between specimens from: {why}")
    few = f"half of the conditions have at most {int(np.median(counts))} trajectories, too few to learn a spread from"
    return Choice("target", target, f"{few}: {why}")


def defaults(method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Choices made by measurement (see docs/guide/own-data.md) that differ from the general defaults."""
    del method
    layers: dict[str, Any] = {
        "stochastic": "last_layer",
        "mle": {"num_adam": 500, "num_lbfgs": 200, "penalty": 1e-5},
        "paper": {"num_steps": 1000},
        **chain(8),
    }
    if target == "hierarchical":
        layers |= {"stochastic": "unit", "noise": {"kind": "inferred", "proportional": True, "calibrate": True}}
        layers["mle"] = {"num_adam": 500, "num_lbfgs": 100, "penalty": 1e-3}
        layers["hierarchical"] = {"num_importance": 0, "num_laplace": 300}
        layers["model"] = {"layers": UNITS_LAYERS, "num_hidden": 1}
    elif target == "population":
        layers["training"] = {"num_updates": 1000, "num_samples": 128}
        layers["population"] = _population_defaults(asked)
    else:
        layers["noise"] = {"kind": "inferred", "proportional": "auto", "calibrate": target == "posterior"}
        layers |= sticking_chain(8)
        layers["training"] = {"num_updates": 500, "num_samples": 32}
    return layers


def _population_defaults(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Weights need not explain noise, components count by what they carry, and bands are those of new units.

    The kernel of `log_mean_exp` must not vanish with the noise, so it keeps the width that it has without.
    """
    noise = "estimated"
    if choices.asked_section(asked, "population").get("loss") == "log_mean_exp":
        noise = "none"
    if choices.asked_section(asked, "noise").get("sigma") is not None:
        noise = "given"
    return {"noise": noise, "component_floor": 0.01, "directions": "model", "new_units": True}


def for_training(data: Dataset, config: OwnConfig) -> Dataset:
    """Return the data as they are fitted: cut into windows where needed, and prepared."""
    return prepare(choices.in_windows(data, config.data.windows), config)


def prepare(data: Dataset, config: OwnConfig) -> Dataset:
    """Return the data as they are predicted: replicates separated where needed, and starts known."""
    # Where units differ, each trajectory is predicted for its own unit.
    is_separate = config.data.separate or config.target == "hierarchical"
    if is_separate or data.num_conditions == data.num_trajectories:
        data = separate_by_start(data)
    return with_observed_start(from_first_complete_row(data))


def simulate(config: OwnConfig, key: PRNGKeyArray) -> Splits:
    """Read the user's file and divide it."""
    del key  # the split uses the configuration's seed
    data = read_data(Path(config.data.path), columns_of(config)).data
    check_fittable(choices.in_windows(data, config.data.windows))
    return divide(for_training(data, config), config)


def divide(data: Dataset, config: OwnConfig) -> Splits:
    """Return training, validation and test trajectories, split by condition where there are several.

    With folds all are training data and, each held out once, test data.
    """
    fold = folds(config, data)
    if fold is not None:
        return Splits(data, data.select([]), by_fold(data, fold))
    return _split(data, config, _shares(data, config, config.data.split))


def _shares(data: Dataset, config: OwnConfig, shares: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the fractions of the three parts; of many trajectories fewer are held out."""
    if config.data.most_held_out is None:
        return shares
    most = config.data.most_held_out / max(data.num_trajectories, 1)
    valid, test = (min(share, most) for share in shares[1:])
    return 1.0 - valid - test, valid, test


def set_aside(data: Dataset, config: OwnConfig) -> tuple[Dataset, Dataset] | None:
    """Return training and validation trajectories in the proportion of `data.split`; None for a single trajectory.

    For data of which all may be trained on: what is tested on is elsewhere.
    """
    if (data.num_units if config.target == "hierarchical" else data.num_trajectories) < 2:
        return None
    share = config.data.split[0] / max(sum(config.data.split[:2]), 1e-300)
    parts = _split(data, config, _shares(data, config, (share, 1.0 - share, 0.0)), num_needed=2)
    return parts.train, parts.validation


def _split(data: Dataset, config: OwnConfig, shares: tuple[float, float, float], *, num_needed: int = 3) -> Splits:
    """Return three parts: whole conditions, or whole units where conditions are few or units differ.

    Few conditions must all be trained on; and other trajectories of a unit that was fitted are none of a new one.
    """
    if min(shares[:num_needed]) <= 0:
        raise DataError(
            f"each part of data.split must be above 0; found {list(config.data.split)}; e.g. data.split=[0.6,0.2,0.2]"
        )
    is_few = 1 < data.num_conditions < min(FEWEST_CONDITIONS, data.num_units)
    if not is_few and (config.target != "hierarchical" or data.num_units == data.num_trajectories):
        return Splits(*data.split(*shares, seed=config.seed))
    _, first = np.unique(data.unit, return_index=True)
    parts = separate_by_start(data.select(first)).split(*shares, seed=config.seed)
    return Splits(*(data.select(np.isin(np.asarray(data.unit_names)[data.unit], part.unit_names)) for part in parts))


def folds(config: OwnConfig, data: Dataset) -> np.ndarray | None:
    """Return the fold of every trajectory; None where the data are divided once."""
    num = num_folds(data, config.data.folds)
    return None if num is None else assign_folds(data, num, seed=config.seed)


def division_choice(config: OwnConfig, data: Dataset) -> list[Choice]:
    """Return what is held out, where that was not asked for: each trajectory once below 40 of them."""
    fold = folds(config, data)
    if fold is None or config.data.folds != "auto":
        return []
    num, size = data.num_trajectories, np.bincount(fold)
    why = f"{num} trajectories are too few to set some aside; the final fit is trained on all of them"
    sizes = f"{size.min()}" if size.min() == size.max() else f"{size.min()} or {size.max()}"
    return [Choice("held out", f"every trajectory once, in {len(size)} folds of {sizes}", why)]


def build_model(config: OwnConfig, key: PRNGKeyArray) -> NeuralODE | LatentODE | LatentCurve | SmoothCurve:
    """Build the generic model of the configured kind (`auto` must have been resolved)."""
    options = config.model
    if config.target == "hierarchical":
        return unit_choices.build(config, key)
    return generic_model(
        "state" if options.kind == "auto" else options.kind,
        num_inputs=options.num_inputs,
        num_outputs=options.num_outputs,
        num_known=options.num_known,
        num_hidden=options.num_hidden,
        layers=options.layers,
        activation=options.activation,
        solver=make_solver(options.solver, options.substeps, options.input_rule),
        has_noise=config.noise.kind == "inferred",
        is_proportional=config.noise.proportional is True,
        key=key,
    )


def candidates(config: OwnConfig) -> dict[str, OwnConfig]:
    """Return the kinds to try, the simplest first."""
    if config.target == "hierarchical":
        return unit_choices.candidates(config)
    if config.model.kind != "auto":
        return {config.model.kind: config}
    is_known = config.model.num_known == config.model.num_outputs
    kinds = ("state", "hidden", "observation") if is_known else ("observation",)
    return {k: config.model_copy(update={"model": config.model.model_copy(update={"kind": k})}) for k in kinds}


def metrics(results: Results) -> dict[str, Any]:
    """Return the error of the mean prediction on test data, also relative to their spread."""
    test = results.splits.test.replicates()
    error = np.where(test.mask, test.outputs - results.predictions.mean(0), 0.0)
    count = test.mask.sum((0, 1, 2))
    rmse = np.sqrt((error**2).sum((0, 1, 2)) / np.maximum(count, 1))
    values = [test.outputs[..., k][test.mask[..., k]] for k in range(test.outputs.shape[-1])]
    spread = np.array([v.std() if v.size else np.nan for v in values])
    names = results.splits.test.output_names
    relative = rmse / np.where(spread > 0, spread, np.nan)
    return {"rmse": dict(zip(names, rmse, strict=True)), "rmse_over_std": dict(zip(names, relative, strict=True))}


def figures(results: Results) -> dict[str, Drawing]:
    """Draw bands on held-out trajectories and beyond the data, scatter, calibration, skill, chains, and training."""
    is_hierarchical = results.config.target == "hierarchical"
    return {
        "bands": held_out_bands(results) if is_hierarchical else shared.bands(results),
        "parity": shared.parity(results, results.metrics["rmse_over_std"]),
        "calibration": shared.calibration(results),
        **shared.beside_plain(results),
        **({} if is_hierarchical else beyond.bands(results)),
        **beyond.agreement(results),
        **(unit_figures(results) if is_hierarchical else {}),
    } | shared.training(results)


EXPERIMENT = Experiment(
    name=NAME,
    config=OwnConfig,
    defaults=defaults,
    default_target="posterior",  # without data to look at: one model for all
    simulate=simulate,
    build_model=build_model,
    metrics=metrics,
    figures=figures,
    candidates=candidates,
    folds=folds,
)
