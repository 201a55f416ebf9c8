"""Predictions of a hierarchical fit: for new units, and for units some of whose readings are known."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._types import Float, PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset, refine, revealed_start
from langenode.fitting.units import families
from langenode.fitting.units.families import in_64_bits
from langenode.inference.hierarchical.conditional import condition, unit_outputs
from langenode.inference.hierarchical.family import Family
from langenode.inference.partition import Partition
from langenode.inference.predictions import Prediction, Rule, sample_weights
from langenode.inference.problem import Problem

# Importance points of a conditioned unit.
NUM_POINTS = 512


class UnitPrediction(NamedTuple):
    """Samples for every condition, in the data's own units; `observed` have noise on top of the model's outputs.

    `log_evidence`, `relative_ess` and `k_hat` are of the given readings, one per unit.
    """

    prediction: Prediction
    observed: Float[np.ndarray, "sample condition time out"]
    log_evidence: Float[np.ndarray, " unit"]
    relative_ess: Float[np.ndarray, " unit"]
    k_hat: Float[np.ndarray, " unit"]


def stack_of(problem: Problem) -> Family:
    """The families behind a fitted problem."""
    assert problem.likelihood is not None
    return families.stored_families(problem, own_leaves(problem), problem.likelihood.levels)


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
) -> UnitPrediction:
    """Samples for every condition of `data`, which has one trajectory each, given some of the readings.

    `given` is "start" for the reading that each trajectory starts with (nothing where the start is known exactly),
    "all" for every reading, "none", or a mask of readings, (traj, time, out).
    """
    shown = revealed_start(data) if config.noise.in_start else data
    mask = _given(data, shown, given)
    shown = dataclasses.replace(shown, mask=mask)
    scaled = shown if rule.scaling is None else shown.scaled(rule.scaling)
    rows = None
    if rule.largest_step is not None:
        scaled, rows = refine(scaled, rule.largest_step)
    scaling = rule.scaling
    assert scaling is not None
    with in_64_bits():
        units = families.as_units(config, scaled, scaling)
        found = condition(stack_of(problem), units, num_samples, num_points=NUM_POINTS, seed=config.seed, key=key)
        # Units share the trajectories of the data in the order of `by_unit`.
        outputs, noise = _by_chunks(stack_of(problem), units, found.xi, found.member)
    place = _places(scaled)
    outputs, noise = (values[scaled.unit, :, place] for values in (outputs, noise))  # (traj, sample, time, out)
    noisy = outputs + noise * rng.standard_normal(outputs.shape)
    by_condition = np.argsort(scaled.condition, kind="stable")
    parts = []
    for values in (outputs, noisy):
        ordered = np.moveaxis(values[by_condition], 1, 0)
        if rows is not None:
            ordered = np.take_along_axis(ordered, rows[None, :, :, None], axis=2)
        parts.append(np.asarray(rule.unscaled(ordered), float))
    weights = sample_weights(problem.posterior, num_samples, key=key)
    return UnitPrediction(Prediction(parts[0], weights), parts[1], found.log_evidence, found.relative_ess, found.k_hat)


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


def _by_chunks(stack: Family, units: Any, xi: np.ndarray, member: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and noise of all units, a few units at a time: (unit, sample, traj, time, out)."""
    import jax

    cells = xi.shape[1] * int(np.prod(units.outputs.shape[1:]))
    chunk = max(1, min(units.num, 20_000_000 // max(cells, 1)))
    parts = []
    for begin in range(0, units.num, chunk):
        here = np.minimum(np.arange(begin, begin + chunk), units.num - 1)
        some = jax.tree.map(lambda leaf, here=here: leaf[here], units)
        found = unit_outputs(stack, some, jnp.asarray(xi[here]), jnp.asarray(member[here]))
        parts.append([np.asarray(values)[: min(chunk, units.num - begin)] for values in found])
    outputs, noise = (np.concatenate(values) for values in zip(*parts, strict=True))
    return outputs, noise
