"""What is chosen where units may differ: whether their differences are learned, and the generic model for them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from langenode.data import Dataset
from langenode.models import LatentCurve, LatentODE, latent_curve, latent_ode, make_solver

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


# Sections and words of a configuration by which one of the other targets is meant.
OF_OTHER_TARGETS = {"method", "stochastic", "rest", "prior", "training", "tempered", "population"}


class ForUnits(NamedTuple):
    """Whether differences between units are learned unless something else is asked for, and why or why not."""

    is_wanted: bool
    why: str


def for_units(data: Dataset, asked: Mapping[str, Any], *, is_cut: bool) -> ForUnits:
    """Look at data without replicates: many units with few readings each, driven by nothing but time.

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
    why = f"{data.num_units} units with {readings:.3g} readings each, without replicates: how units differ is learned"
    return ForUnits(True, why)


def is_undriven(data: Dataset) -> bool:
    """Whether nothing but time drives the units: inputs are constant, and all trajectories begin at about one time."""
    duration = float(np.median(np.ptp(data.times, axis=1)))
    is_common = np.ptp(data.times[:, 0]) <= COMMON_START * duration
    return bool(is_common and np.all(data.inputs == data.inputs[:, :1]))


def model_layer(data: Dataset) -> dict[str, Any]:
    """Return the generic model for units as a layer of the section `model`."""
    if not is_undriven(data):
        return {"units": "rates"}
    return {"units": "curve", "clock": clock_of(data), "largest_step": None}


def clock_of(data: Dataset) -> float:
    """Return the clock that puts the median of all reading times nearest to the middle of its range."""
    elapsed = data.times - data.times[:, :1]
    seen = elapsed[data.mask.any(axis=2)]
    if seen.size == 0 or seen.max() <= 0:
        return 0.0
    middle = float(np.median(seen) / seen.max())
    places = [np.log1p(clock * middle) / np.log1p(clock) if clock > 0 else middle for clock in CLOCKS]
    return CLOCKS[int(np.argmin(np.abs(np.array(places) - 0.5)))]


def build(config: Any, key: Any) -> LatentODE | LatentCurve:
    """Build the model of units that differ; latents beyond `num_latent` have no effect, so that all have one shape."""
    options = config.model
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


def candidates(config: Any) -> dict[str, Any]:
    """Return one set of weights for all units, then 1 to 4 latent inputs in which they differ."""
    if config.stochastic != "unit" or config.model.num_latent != "auto":
        return {"as configured": config}
    names = ["one set of weights for all", "units with 1 latent input"]
    names += [f"units with {number} latent inputs" for number in range(2, MOST_LATENT + 1)]
    return {
        name: config.model_copy(update={"model": config.model.model_copy(update={"num_latent": number})})
        for number, name in enumerate(names)
    }
