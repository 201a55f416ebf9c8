"""Visual predictive check: percentiles of readings over time, and the same percentiles of simulated data sets."""

from typing import NamedTuple

import numpy as np

from langenode._types import Bool, Float, Int

PERCENTILES = (5.0, 50.0, 95.0)
# Readings per interval of time at least, unless it is a single time, and the most intervals.
FEWEST_READINGS, MOST_INTERVALS = 12, 12
# Predictions below this share of the largest are zero for all that a ratio to them can tell.
SMALLEST_PREDICTION = 1e-3


class Percentiles(NamedTuple):
    """Percentiles (row: 5, 50, 95 %) of the readings in intervals of time, and the 90 % range of simulated ones."""

    times: Float[np.ndarray, " interval"]  # the median time of its readings
    observed: Float[np.ndarray, "percentile interval"]
    low: Float[np.ndarray, "percentile interval"]
    median: Float[np.ndarray, "percentile interval"]
    high: Float[np.ndarray, "percentile interval"]


def intervals(times: Float[np.ndarray, " reading"]) -> Int[np.ndarray, " reading"]:
    """Return the interval of every reading: its time where there are few, else about equally many in each."""
    distinct = np.unique(times)
    if len(distinct) <= MOST_INTERVALS:
        return np.searchsorted(distinct, times)
    num = max(1, min(MOST_INTERVALS, len(times) // FEWEST_READINGS))
    edges = np.unique(np.quantile(times, np.linspace(0.0, 1.0, num + 1)[1:-1], method="lower"))
    found = np.searchsorted(edges, times, side="right")
    return np.unique(found, return_inverse=True)[1]


def corrected(
    values: Float[np.ndarray, "*set reading"],
    predictions: Float[np.ndarray, " reading"],
    interval: Int[np.ndarray, " reading"],
    *,
    is_ratio: bool,
) -> Float[np.ndarray, "*set reading"]:
    """Return values with what differs by design removed: each is moved as its prediction is to the interval's median.

    By a ratio where outputs are positive, except where the prediction is next to nothing; else by a difference.
    """
    medians = np.array([np.median(predictions[interval == k]) for k in range(interval.max() + 1)])[interval]
    if not is_ratio:
        return values + (medians - predictions)
    is_large = predictions > SMALLEST_PREDICTION * predictions.max()
    return values * np.where(is_large, medians / np.where(is_large, predictions, 1.0), 1.0)


def percentiles(
    times: Float[np.ndarray, " reading"],
    readings: Float[np.ndarray, " reading"],
    simulated: Float[np.ndarray, "sim reading"],
    interval: Int[np.ndarray, " reading"],
) -> Percentiles:
    """Return the percentiles of readings and of simulated data sets in each interval."""
    columns = []
    for k in range(interval.max() + 1):
        here: Bool[np.ndarray, " reading"] = interval == k
        observed = np.percentile(readings[here], PERCENTILES)
        sets = np.percentile(simulated[:, here], PERCENTILES, axis=1)  # (percentile, sim)
        columns.append((np.full(3, np.median(times[here])), observed, *np.percentile(sets, PERCENTILES, axis=1)))
    middle, observed, low, median, high = np.transpose(np.array(columns), (1, 2, 0))
    return Percentiles(middle[0], observed, low, median, high)
