"""Errors on held-out units given the readings with which they start, and the variances that explain them."""

import dataclasses

import jax
import numpy as np

from langenode._types import PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset, Scaling
from langenode.fitting.units import families
from langenode.fitting.units.families import in_64_bits
from langenode.fitting.units.predicting import NUM_POINTS, Arranged, respond
from langenode.fitting.units.scoring import first_readings
from langenode.inference.calibration import Errors
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.family import Family
from langenode.models import SmoothCurve

# Draws behind a mean prediction.
NUM_DRAWS = 128


def error_from_start(config: Config, family: Family, held_out: Dataset, scaling: Scaling) -> float:
    """The root mean square error of mean predictions of held-out units, given the readings with which they start."""
    key = jax.random.key(config.seed)
    error = unit_errors(config, stacked([family]), held_out, scaling, NUM_DRAWS, key=key).error
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.nansum(error**2) / max((~np.isnan(error)).sum(), 1)))


def unit_errors(
    config: Config, stack: Family, held_out: Dataset, scaling: Scaling, num_samples: int, *, key: PRNGKeyArray
) -> Errors:
    """One row per trajectory that has readings beyond those that are given; `held_out` is as the fit sees its data."""
    given = first_readings(held_out, 1 if config.noise.in_start else 0)
    shown = dataclasses.replace(held_out, mask=given)
    with in_64_bits():
        arranged = Arranged(shown, shown, None, families.as_units(config, shown, scaling))
        found = condition(stack, arranged.units, num_samples, num_points=NUM_POINTS, seed=config.seed, key=key)
        outputs, noise = respond(stack, arranged, found.xi, found.member)
    asked = held_out.mask & ~given
    rows = asked.any(axis=(1, 2))
    # NaN stands for no reading: a unit that diverges has an error.
    error = np.where(asked, np.nan_to_num(held_out.outputs - outputs.mean(0), nan=np.inf), np.nan)
    between, within = outputs.var(0)[rows], (noise**2).mean(0)[rows]
    if isinstance(stack.model, SmoothCurve):  # its factor scales both: see `with_factor`
        between, within = np.zeros_like(between), between + within
    return Errors(error[rows], between, within)
