"""Predictions of a hierarchical fit: for new units, and for units some of whose readings are known."""

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Bool, Float, Int, PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset, refine, revealed_start, with_jump_rows
from langenode.fitting.units import families
from langenode.fitting.units.families import in_64_bits
from langenode.inference.hierarchical.conditional import condition, member_of, num_members, size_class, unit_outputs
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.units import Units
from langenode.inference.partition import Partition
from langenode.inference.predictions import Prediction, Rule, sample_weights
from langenode.inference.problem import Problem
from langenode.models import SmoothCurve, UnitModel

# Importance points of a conditioned unit.
NUM_POINTS = 512
# Outputs that are computed together.
MOST_CELLS = 20_000_000
# Features of a smooth curve that take as much memory as the numbers of a small network at one time.
SMALL_WIDTH = 8


Members = Literal["drawn", "estimate"]


class UnitPrediction(NamedTuple):
    """Samples for every condition, in the data's own units; `observed` have noise on top of the model's outputs.

    `log_evidence`, `relative_ess` and `k_hat` are of the given readings, one per unit; `is_guided` marks units whose
    importance weights degenerated, so that guided paths served them.
    """

    prediction: Prediction
    observed: Float[np.ndarray, "sample condition time out"]
    log_evidence: Float[np.ndarray, " unit"]
    relative_ess: Float[np.ndarray, " unit"]
    k_hat: Float[np.ndarray, " unit"]
    is_guided: Bool[np.ndarray, " unit"]


def with_doses_at_once(data: Dataset, model: Any) -> Dataset:
    """Data in which totals of a model's doses jump at the time from which they are given, and are not spread out."""
    if not isinstance(model, UnitModel) or not model.doses:
        return data
    return with_jump_rows(data, [column for column, _ in model.doses])


def stack_of(problem: Problem, which: Members = "drawn") -> Family:
    """The families behind a fitted problem: draws of what units share, where there are any, or the estimate alone."""
    assert problem.likelihood is not None
    stack = families.stored_families(problem, own_leaves(problem), problem.likelihood.levels)
    num = num_members(stack)
    chosen = slice(0, 1) if which == "estimate" or num == 1 else slice(1, num)
    return member_of(stack, chosen)


def own_leaves(problem: Problem) -> Partition:
    """The leaves that are a unit's own, from the places of their weights."""
    whole, places = problem.partition, set(problem.posterior.own)  # pyright: ignore[reportAttributeAccessIssue]
    offset, chosen = 0, []
    for position, size in zip(whole.positions, whole.sizes, strict=True):
        if offset in places:
            chosen.append(position)
        offset += size
    return Partition.at(problem.model, chosen)


def predict_units(
    problem: Problem,
    config: Config,
    data: Dataset,
    num_samples: int,
    rule: Rule,
    *,
    key: PRNGKeyArray,
    rng: np.random.Generator,
    given: Any = "start",
    which: Members = "drawn",
    has_fallback: bool = False,
) -> UnitPrediction:
    """Samples for every condition of `data`, which has one trajectory each, given some of the readings.

    `given` is "start" for the reading that each trajectory starts with (nothing where the start is known exactly),
    "all" for every reading, "none", or a mask of readings, (traj, time, out). With `which="estimate"` what all units
    share is taken as known. With a fallback, units whose importance weights degenerate are served by guided paths.
    """
    arranged = arrange(config, data, rule, given)
    with in_64_bits():
        stack, noise_factor = with_factor(stack_of(problem, which), rule.noise_factor)
        found = condition(
            stack,
            arranged.units,
            num_samples,
            num_points=NUM_POINTS,
            seed=config.seed,
            key=key,
            has_fallback=has_fallback,
        )
        outputs, noise = respond(stack, arranged, found.xi, found.member)
    noisy = outputs + noise_factor * noise * rng.standard_normal(outputs.shape)
    by_condition = np.argsort(data.condition, kind="stable")
    outputs, noisy = (np.asarray(rule.unscaled(values[:, by_condition]), float) for values in (outputs, noisy))
    weights = sample_weights(problem.posterior, num_samples, key=key)
    diagnostics = (found.log_evidence, found.relative_ess, found.k_hat, found.is_guided)
    return UnitPrediction(Prediction(outputs, weights), noisy, *diagnostics)


def with_factor(
    stack: Family, factor: Float[np.ndarray, " out"] | float
) -> tuple[Family, Float[np.ndarray, " out"] | float]:
    """The families with calibrated spread, and the factor that is left for their noise.

    Of smooth curves the factor scales all that is a unit's own, noise included: what is known of few units is their
    spread to within a factor, and what a reading says of the rest of its unit stays the same.
    """
    if not isinstance(stack.model, SmoothCurve):
        return stack, factor
    grown = stack.model.spread_by(jnp.asarray(factor))
    return eqx.tree_at(lambda f: f.model, stack, grown), 1.0


class Arranged(NamedTuple):
    """Data as a family sees them, by unit, and the way back to trajectories.

    `shown` are in their own units, with the readings that starts were read from among the outputs; `scaled` are on the
    integrator's grid, whose places of the former's times are `rows`.
    """

    shown: Dataset
    scaled: Dataset
    rows: Int[np.ndarray, "traj time"] | None
    units: Units


def arrange(config: Config, data: Dataset, rule: Rule, given: Any = "all") -> Arranged:
    """Data by unit, with the readings that are given; see `predict_units`."""
    shown = revealed_start(data) if config.noise.in_start else data
    shown = dataclasses.replace(shown, mask=_given(data, shown, given))
    assert rule.scaling is not None
    scaled, rows = shown.scaled(rule.scaling), None
    if rule.largest_step is not None:
        scaled, rows = refine(scaled, rule.largest_step)
        rows = rows[scaled.condition]
    with in_64_bits():
        return Arranged(shown, scaled, rows, families.as_units(config, scaled, rule.scaling))


def _given(data: Dataset, shown: Dataset, given: Any) -> np.ndarray:
    if isinstance(given, str):
        masks = {"start": shown.mask & ~data.mask, "all": shown.mask, "none": np.zeros_like(shown.mask)}
        return masks[given]
    return np.asarray(given, bool) & shown.mask


def _places(data: Dataset) -> np.ndarray:
    """The number of each trajectory among those of its unit."""
    place = np.zeros(data.num_trajectories, int)
    for unit in range(data.num_units):
        own = np.flatnonzero(data.unit == unit)
        place[own] = np.arange(len(own))
    return place


def respond(
    stack: Family,
    arranged: Arranged,
    xi: Float[np.ndarray, "unit sample effect"],
    member: Int[np.ndarray, "unit sample"],
) -> tuple[Float[np.ndarray, "sample traj time out"], Float[np.ndarray, "sample traj time out"]]:
    """Outputs at draws of the units' effects, and the noise there, at the data's own times and in the fit's units."""
    units, data, place = arranged.units, arranged.scaled, _places(arranged.scaled)
    shape = (xi.shape[1], data.num_trajectories, arranged.shown.num_times, data.num_outputs)
    outputs, noise = np.empty(shape), np.empty(shape)
    cells = xi.shape[1] * int(np.prod(units.outputs.shape[1:]))
    if isinstance(stack.model, SmoothCurve):  # each draw has features of its own at every time
        cells *= stack.model.weights.shape[-1] // SMALL_WIDTH
    chunk = max(1, min(size_class(units.num), MOST_CELLS // max(cells, 1)))
    for begin in range(0, units.num, chunk):
        here = np.minimum(np.arange(begin, begin + chunk), units.num - 1)
        some = jax.tree.map(lambda leaf, here=here: leaf[here], units)
        found = unit_outputs(stack, some, jnp.asarray(xi[here]), jnp.asarray(member[here]))
        mine = np.flatnonzero((data.unit >= begin) & (data.unit < begin + chunk))
        for whole, values in zip((outputs, noise), found, strict=True):
            picked = np.moveaxis(np.asarray(values)[data.unit[mine] - begin, :, place[mine]], 1, 0)
            if arranged.rows is not None:
                picked = np.take_along_axis(picked, arranged.rows[mine][None, :, :, None], axis=2)
            whole[:, mine] = picked
    return outputs, noise


def joined(known: Dataset, new: Dataset) -> tuple[Dataset, np.ndarray]:
    """Both data sets in one, units of the same name being one unit, and which trajectories are new.

    Every trajectory is a condition of its own. Starts that were read are revealed, so that none is needed.
    """
    parts = [revealed_start(part) for part in (known, new)]
    names = sorted({name for part in parts for name in part.unit_names})
    longest = max(part.num_times for part in parts)

    def padded(values: np.ndarray, mode: Any) -> np.ndarray:
        widths = [(0, 0), (0, longest - values.shape[1]), *[(0, 0)] * (values.ndim - 2)]
        return np.pad(values, widths, mode=mode)

    starts = [part.initial for part in parts if part.initial is not None]
    units = [names.index(part.unit_names[code]) for part in parts for code in part.unit]
    num = len(units)
    arrays = {
        name: np.concatenate([padded(getattr(part, name), "edge") for part in parts]) for name in ("times", "inputs")
    }
    arrays |= {
        name: np.concatenate([padded(getattr(part, name), "constant") for part in parts])
        for name in ("outputs", "mask")
    }
    both = dataclasses.replace(
        parts[0],
        **arrays,
        initial=np.concatenate(starts) if len(starts) == len(parts) else None,
        condition=np.arange(num),
        unit=np.asarray(units),
        condition_names=tuple(f"{names[unit]} ({row})" for row, unit in enumerate(units)),
        unit_names=tuple(names),
        attributes={},
        labels={},
    )
    return both, np.arange(num) >= parts[0].num_trajectories
