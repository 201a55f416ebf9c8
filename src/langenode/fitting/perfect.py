"""What a perfect model would score at the sizes of a run: thresholds of the verdict from draws of the fit itself."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep
from langenode.data import Dataset
from langenode.experiments.base import Results
from langenode.inference.predictions import Prediction, observable
from langenode.inference.targets import Posterior
from langenode.scores import thresholds
from langenode.scores.metrics import central_bands

# Data sets made from one draw of the weights each: more than 1 / FALSE_ALARM, so that the threshold can be a rank.
NUM_MADE = 60


class HeldOut(NamedTuple):
    """Held-out data, and samples of observations for its conditions; several of them where folds were held out."""

    samples: np.ndarray  # (sample, condition, time, out)
    data: Dataset


def w1_threshold(
    results: Results, prediction: Prediction, pool: np.ndarray, data: Dataset, on_step: OnStep | None = None
) -> dict[str, Any]:
    """Threshold of W1; `pool` are samples of observations, `prediction` some of the model's outputs."""
    rng = np.random.default_rng(results.config.seed)
    mask = data.replicates().mask
    if len(pool) < 2 * len(mask):
        return _nothing()
    if isinstance(results.problem.target, Posterior):
        null = thresholds.w1_null_of(pool, _made(results, prediction, len(mask), rng), mask, on_step)
    else:
        null = thresholds.w1_null(pool, mask, is_crossed=data.has_crossed_units, rng=rng, on_step=on_step)
    return thresholds.upper_threshold(null)._asdict()


def energy_threshold(results: Results, on_step: OnStep | None = None) -> dict[str, Any]:
    """Threshold of the energy distance to test data, whose members all have the same gaps."""
    rng, test = np.random.default_rng(results.config.seed), results.splits.test
    mask, pool = test.replicates().mask, results.observable
    if len(pool) < 2 * len(mask):
        return _nothing()
    if isinstance(results.problem.target, Posterior):
        prediction = Prediction(results.predictions, jnp.asarray(results.prediction_weights))
        null = thresholds.energy_null_of(pool, _made(results, prediction, len(mask), rng), mask, on_step)
    else:
        null = thresholds.energy_null(pool, mask, is_crossed=test.has_crossed_units, rng=rng, on_step=on_step)
    return thresholds.upper_threshold(null)._asdict()


def _nothing() -> dict[str, Any]:
    """Of too few predictions to draw data from."""
    return {"value": None, "false_alarm": None}


def _made(results: Results, prediction: Prediction, size: int, rng: np.random.Generator) -> np.ndarray:
    """Data sets as a posterior has them: one draw of the weights is behind all members, each with its own noise."""
    made = []
    for index in range(min(NUM_MADE, len(prediction.outputs))):
        outputs = np.repeat(np.asarray(prediction.outputs[index : index + 1]), size, axis=0)
        weights = jnp.repeat(prediction.weights[index : index + 1], size, axis=0)
        made.append(observable(results.problem, Prediction(outputs, weights), results.rule, rng=rng))
    return np.stack(made)


def coverage_check(held_out: Sequence[HeldOut], *, is_posterior: bool) -> dict[str, Any] | None:
    """The limits within which the coverage of the 90 % band must lie, with the sampling error of these readings.

    For a posterior the limits include what its own uncertainty does to all trajectories at once.
    """
    parts = [_by_trajectory(*one) for one in held_out]
    inside, count, levels, squares = (np.concatenate(sums) for sums in zip(*parts, strict=True))
    if count.sum() == 0:
        return None
    mean = levels.sum() / count.sum()
    deviation = levels - mean * count
    squares = squares - 2.0 * mean * levels + mean**2 * count
    correlation = thresholds.intraclass_correlation(deviation, squares, count)
    null = _own_coverage(held_out) if is_posterior else None
    limits = thresholds.coverage_limits(inside, count, correlation, null)
    return {
        "coverage": float(inside.sum() / count.sum()),
        "low": limits.low,
        "high": limits.high,
        "standard_error": limits.standard_error,
        "num_readings": int(count.sum()),
        "num_trajectories": len(count),
        "effective": limits.effective,
        "false_alarm": limits.false_alarm,
    }


def _by_trajectory(samples: np.ndarray, data: Dataset) -> tuple[np.ndarray, ...]:
    """Per trajectory, or per unit where units are crossed: readings inside the band, their number, and their levels.

    The levels are those of the bands that just reach the readings, and their squares, both as sums.
    """
    replicates = data.replicates()
    [(low, high)] = central_bands(samples, [100 * thresholds.NOMINAL])
    inside = (replicates.outputs >= low) & (replicates.outputs <= high)
    levels = thresholds.needed_levels(samples, replicates.outputs)
    cells = (inside, np.ones(inside.shape), levels, levels**2)
    sums = [np.where(replicates.mask, values, 0.0).sum(axis=(2, 3)) for values in cells]
    sums = [values.sum(axis=1) if data.has_crossed_units else values.ravel() for values in sums]
    return tuple(values[sums[1] > 0] for values in sums)


def _own_coverage(held_out: Sequence[HeldOut]) -> np.ndarray:
    """Coverage of readings that the model makes itself, one draw of the weights behind all of them."""
    num = min(len(samples) for samples, _ in held_out)
    inside, total = np.zeros(num), 0.0
    for samples, data in held_out:
        [(low, high)] = central_bands(samples, [100 * thresholds.NOMINAL])
        count = data.replicates().mask.sum(axis=0)
        made = samples[:num]
        inside += np.einsum("sctk,ctk->s", (made >= low) & (made <= high), count)
        total += count.sum()
    return inside / total
