"""What is chosen where units may differ: whether their differences are learned, and the generic model for them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode.config import ConfigError
from langenode.data import Dataset, Scaling, find_modes, knees, may_be_logarithmic
from langenode.experiments.choices import Choice
from langenode.inference.hierarchical.linear import most_probable
from langenode.inference.hierarchical.units import by_unit
from langenode.models import LatentCurve, LatentODE, SmoothCurve, latent_curve, latent_ode, make_solver, smooth_curve
from langenode.posteriors import cast

# Latent inputs at most. The fewest units whose differences can be learned; with more readings per trajectory than the
# last, a process is followed from its start instead, since it shows its state.
MOST_LATENT, FEWEST_UNITS, MOST_READINGS = 4, 4, 15
# Where inputs differ between units as well: what follows from them must be learned from as many values as units.
FEWEST_UNITS_WITH_INPUTS = 8
# Trajectories whose starts lie within this fraction of their duration have a common clock.
COMMON_START = 0.1
# Clocks to choose from: how the time is stretched where readings crowd at the beginning. The same few for all data, so
# that compiled programs can be used again.
CLOCKS = (0.0, 3.0, 10.0, 30.0, 100.0, 300.0)


# Nats by which one scale of an output must be more probable than the one that its spread suggests.
LEAST_EVIDENCE = 3.0

# Sections and words of a configuration by which one of the other targets is meant.
OF_OTHER_TARGETS = {"method", "stochastic", "rest", "prior", "training", "tempered", "population"}


class ForUnits(NamedTuple):
    """Whether differences between units are learned unless something else is asked for, and why or why not."""

    is_wanted: bool
    why: str


def for_units(data: Dataset, asked: Mapping[str, Any], *, is_cut: bool) -> ForUnits:
    """Look for many units with few readings each, driven by nothing but time.

    Who asks for a method, or for anything that other targets alone have, wants those; windows of a record are no units.
    """
    readings = float(np.median(data.mask.any(axis=2).sum(axis=1)))
    if named := sorted(OF_OTHER_TARGETS & set(asked)):
        return ForUnits(False, f"{named[0]} was asked for, which other targets than hierarchical have")
    if is_cut:
        return ForUnits(False, "windows of one record are no units")
    if data.num_units < (FEWEST_UNITS_WITH_INPUTS if data.num_inputs else FEWEST_UNITS):
        return ForUnits(False, f"{data.num_units} units are too few to learn their differences")
    if not is_undriven(data):
        return ForUnits(False, "inputs vary in time, or trajectories begin at different times")
    if readings > MOST_READINGS:
        why = "if units differ beyond their starts, --target hierarchical learns how"
        return ForUnits(False, f"{readings:.3g} readings per trajectory show its state; {why}")
    why = f"{data.num_units} units with {readings:.3g} readings each: how units differ is learned"
    return ForUnits(True, why)


def serves_replicates(data: Dataset) -> bool:
    """Whether units that differ can stand for a population of replicates.

    Their distribution is normal about a curve that is linear in the inputs. Groups of units need a population, and so
    do more levels of the inputs than a linear effect distinguishes. Conditions that differ only in their times are one.
    """
    levels = np.unique(data.inputs[:, 0], axis=0)
    with_mean = np.concatenate([np.ones((len(levels), 1)), levels], axis=1)
    return int(np.linalg.matrix_rank(with_mean)) == len(levels) and find_modes(data) is None


def is_undriven(data: Dataset) -> bool:
    """Whether nothing but time drives the units: inputs are constant, and all trajectories begin at about one time."""
    duration = float(np.median(np.ptp(data.times, axis=1)))
    is_common = np.ptp(data.times[:, 0]) <= COMMON_START * duration
    return bool(is_common and np.all(data.inputs == data.inputs[:, :1]))


def model_layer(data: Dataset, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generic model for units as a layer of the section `model`."""
    if not is_undriven(data):
        return {"units": "rates"}
    kind = "curve" if needs_network(asked) else "auto"
    return {"units": kind, "clock": clock_of(data), "largest_step": None}


def needs_network(asked: Mapping[str, Any]) -> bool:
    """Whether something was asked for that a smooth curve, which is linear and has normal noise, cannot have."""
    of_units = asked.get("hierarchical", {})
    has_other_noise = bool(of_units.get("occasions")) or of_units.get("quantification_limit") is not None
    has_latents = bool({"num_latent", "layers", "activation"} & set(asked.get("model", {})))
    has_other_map = not str(asked.get("method", "gaussian")).startswith("gaussian")
    return has_other_noise or has_latents or has_other_map or asked.get("stochastic", "unit") != "unit"


def scale_layer(data: Dataset, layer: Mapping[str, Any]) -> tuple[dict[str, Any], list[Choice]]:
    """Return the scale of outputs that are never negative by the evidence of smooth curves of units, with its reason.

    `layer` is what has been chosen so far. The spread of a few units says little of how it changes with the level; the
    log density of all readings, whose scales are made comparable by the slope of the logarithm, says more.
    """
    kinds: list[str] = list(layer.get("output_scale") or ("linear",) * data.num_outputs)
    made = []
    for column in (k for k in range(data.num_outputs) if may_be_logarithmic(data, k)):
        linear, log = (_log_evidence(data, column, layer, kind) for kind in ("linear", "log"))
        chosen = "log" if log > linear else ("positive" if kinds[column] == "log" else kinds[column])
        if abs(log - linear) < LEAST_EVIDENCE or chosen == kinds[column]:
            continue
        kinds[column] = chosen
        words = (
            f"the log evidence of smooth curves of units is {log:.1f} on the logarithmic, {linear:.1f} on the linear"
        )
        what = "logarithmic above a knee" if chosen == "log" else "linear"
        made.append(Choice(f"scale of {data.output_names[column]}", f"{what}, never negative", f"{words} scale"))
    return ({"output_scale": tuple(kinds)} if made else {}), made


def _log_evidence(data: Dataset, column: int, layer: Mapping[str, Any], kind: str) -> float:
    """The log density of the readings of one output under smooth curves on a scale, in the data's own units."""
    kinds: Any = tuple(kind if k == column else "linear" for k in range(data.num_outputs))
    data = dataclasses.replace(data, initial=None)  # scales of given starts are not those of outputs
    scaling = Scaling.standardise(data, initial_like_outputs=False, knees=knees(data, kinds))
    scaled = data.scaled(scaling)
    with jax.enable_x64(True):
        model = smooth_curve(num_inputs=data.num_inputs, num_outputs=data.num_outputs, clock=layer["model"]["clock"])
        # One search each, since `check` waits for it.
        found = most_probable(cast(model, jnp.float64), by_unit(scaled), column, seed=0, num_starts=1)
    slopes = np.log(scaling.slope_at(data.outputs))[..., column]
    return found.log_evidence + float(slopes[data.mask[..., column]].sum())


def clock_of(data: Dataset) -> float:
    """Return the clock that puts the median of all reading times nearest to the middle of its range."""
    elapsed = data.times - data.times[:, :1]
    seen = elapsed[data.mask.any(axis=2)]
    if seen.size == 0 or seen.max() <= 0:
        return 0.0
    middle = float(np.median(seen) / seen.max())
    places = [np.log1p(clock * middle) / np.log1p(clock) if clock > 0 else middle for clock in CLOCKS]
    return CLOCKS[int(np.argmin(np.abs(np.array(places) - 0.5)))]


def build(config: Any, key: Any) -> LatentODE | LatentCurve | SmoothCurve:
    """Build the model of units that differ; latents beyond `num_latent` have no effect, so that all have one shape."""
    options = config.model
    if options.units in ("smooth", "auto"):
        _refuse_network(config)
        return smooth_curve(num_inputs=options.num_inputs, num_outputs=options.num_outputs, clock=options.clock)
    common = {
        "num_inputs": options.num_inputs,
        "num_outputs": options.num_outputs,
        "num_latent": MOST_LATENT if config.stochastic == "unit" else 0,
        "layers": options.layers,
        "activation": options.activation,
        "key": key,
    }
    if options.units == "curve":
        return latent_curve(clock=options.clock, **common)
    return latent_ode(
        num_known=0 if config.noise.in_start else options.num_outputs,
        num_hidden=options.num_hidden,
        solver=make_solver(options.solver, options.substeps, options.input_rule),
        **common,
    )


def with_units(config: Any, kind: str) -> Any:
    """The configuration with another model of a unit; that of a smooth curve has constant noise."""
    model = config.model.model_copy(update={"units": kind})
    is_proportional = config.noise.proportional if kind != "smooth" else False
    noise = config.noise.model_copy(update={"proportional": is_proportional})
    return config.model_copy(update={"model": model, "noise": noise})


def _refuse_network(config: Any) -> None:
    asked = {name: getattr(config, name) for name in ("method", "stochastic")}
    if needs_network({**asked, "hierarchical": config.hierarchical.model_dump()}):
        raise ConfigError(
            "model.units=smooth needs a Gaussian method, stochastic=unit, and neither hierarchical.occasions nor "
            "hierarchical.quantification_limit, since it is fitted in closed form; use model.units=curve"
        )


def candidates(config: Any) -> dict[str, Any]:
    """Return smooth curves, then networks with 1 to 4 latent inputs in which units differ.

    Of smooth curves the sizes of what differs are found with those of what does not; of rates and of a network that was
    asked for, one set of weights for all units is a candidate.
    """
    if config.model.units == "smooth":
        return {"units with smooth curves": with_units(config, "smooth")}
    if config.model.units == "auto":
        smooth, network = (with_units(config, kind) for kind in ("smooth", "curve"))
        return {"units with smooth curves": smooth, **dict(list(candidates(network).items())[1:])}
    if config.stochastic != "unit" or config.model.num_latent != "auto":
        return {"as configured": config}
    names = ["one set of weights for all", "units with 1 latent input"]
    names += [f"units with {number} latent inputs" for number in range(2, MOST_LATENT + 1)]
    return {
        name: config.model_copy(update={"model": config.model.model_copy(update={"num_latent": number})})
        for number, name in enumerate(names)
    }
