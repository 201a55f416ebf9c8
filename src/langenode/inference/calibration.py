"""How much the noise of predictions must change for 90 % bands to hold 90 % of new trajectories' readings.

Errors of one trajectory may be independent of each other, or all but one number: a start that was read with noise, a
rate that differs between trajectories. So the first thing that is estimated is how many independent errors there are.
With few, a band takes Student's quantile times the errors' rms; with many, their empirical quantile.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from langenode._types import Float, PRNGKeyArray
from langenode.data import Dataset
from langenode.inference.predictions import Rule, noise_scales, predict
from langenode.inference.problem import Problem

LEVEL = 0.9
# Of the absolute value of a standard normal number.
NORMAL_QUANTILE_90 = 1.6448536269514722
# A factor outside means another model, not another noise.
LIMITS = (0.1, 3.0)
# A factor this close to a limit, as a ratio, counts as one at the limit: a few other readings would have led there.
NEAR = 1.1
# The noise of starts is carried along by the process, not always in proportion: the factor is found again with it.
NUM_ROUNDS = 3
# Below the first number of independent errors Student's quantile is taken, above the second the empirical one.
FEW, MANY = 10.0, 30.0


class Errors(NamedTuple):
    """Of every trajectory the readings' distance from the mean prediction, and the variances that explain it."""

    error: Float[np.ndarray, "traj time out"]  # NaN where there is no reading
    from_weights: Float[np.ndarray, "traj time out"]
    from_noise: Float[np.ndarray, "traj time out"]  # of the reading itself and of the start, at factor one

    def standardised(self, factor: Float[np.ndarray, " out"]) -> Float[np.ndarray, "traj time out"]:
        """Errors in predicted standard deviations."""
        return self.error / np.sqrt(self.from_weights + factor**2 * self.from_noise)


class Calibration(NamedTuple):
    """One factor per output on the noise that was inferred, and how many independent errors it was found from.

    How many of the errors are independent shows only between trajectories, of which there were `num_trajectories`.
    """

    factor: Float[np.ndarray, " out"]
    num_independent: Float[np.ndarray, " out"]
    num_trajectories: int

    @property
    def is_at_limit(self) -> bool:
        """Whether some factor is at a limit or near it: the one that is needed may be beyond."""
        return is_at_limit(self.factor)


def is_at_limit(factor: Float[np.ndarray, " out"]) -> bool:
    """Whether some factor is at one of the limits, or near it."""
    return bool(np.any((factor <= NEAR * LIMITS[0]) | (factor >= LIMITS[1] / NEAR)))


def calibrate(
    errors_at: Callable[[Float[np.ndarray, " out"]], Sequence[Errors]], num_outputs: int, *, starts_at_reading: bool
) -> tuple[Calibration, Sequence[Errors]]:
    """The calibration by errors that `errors_at` gives for a noise factor, and the errors it was made from.

    Only where predictions start at a reading do they depend on the factor.
    """
    found = Calibration(np.ones(num_outputs), np.zeros(num_outputs), 0)
    parts: Sequence[Errors] = ()
    for _ in range(NUM_ROUNDS if starts_at_reading else 1):
        parts = errors_at(found.factor)
        found = calibration_of(parts)
    return found, parts


def prediction_errors(problem: Problem, data: Dataset, num_samples: int, rule: Rule, *, key: PRNGKeyArray) -> Errors:
    """One row per trajectory that has readings; data are scaled, on the integrator's grid."""
    known = predict(problem, data, num_samples, key=key)
    outputs = np.asarray(known.outputs, float)
    noise = np.broadcast_to((noise_scales(problem, known.weights, outputs) ** 2).mean(0), outputs.shape[1:])
    mean, variance = outputs.mean(0), outputs.var(0)
    if rule.starts_at_reading:
        read = np.asarray(predict(problem, data, num_samples, rule, key=key).outputs, float)
        factor = np.asarray(rule.noise_factor)
        noise = noise + np.maximum(read.var(0) - variance, 0.0) / factor**2
        mean = read.mean(0)
    members = data.replicates()
    member, condition = np.nonzero(members.present & members.mask.any((2, 3)))
    seen = members.mask[member, condition]
    error = np.where(seen, members.outputs[member, condition] - mean[condition], np.nan)
    return Errors(error, variance[condition], noise[condition])


def calibration_of(parts: Sequence[Errors]) -> Calibration:
    """The factor with which the band that the errors ask for is the predicted one, by bisection, for each output."""
    num_outputs = parts[0].error.shape[-1]
    plain = [part.standardised(np.ones(num_outputs)) for part in parts]
    counts = np.array([num_independent([cells[..., k] for cells in plain]) for k in range(num_outputs)])
    low, high = (np.full(num_outputs, limit) for limit in LIMITS)
    for _ in range(30):
        middle = np.sqrt(low * high)
        cells = np.concatenate([part.standardised(middle).reshape(-1, num_outputs) for part in parts])
        widths = [band_factor(cells[:, k], counts[k]) for k in range(num_outputs)]
        is_narrow = np.array(widths) > 1.0
        low, high = np.where(is_narrow, middle, low), np.where(is_narrow, high, middle)
    return Calibration(np.sqrt(low * high), counts, sum(len(part.error) for part in parts))


def band_factor(cells: Float[np.ndarray, " cells"], num: float) -> float:
    """Half the width of a band that holds 90 % of new errors, over that of standard normal errors.

    For normal errors it is `t(0.95; num) rms`, exactly so where the errors are independent or equal within
    trajectories. For any errors it is their quantile at the level at which a new one falls inside with 90 %. Between
    `FEW` and `MANY` independent errors it changes over from one to the other.
    """
    from scipy.special import stdtrit

    cells = cells[np.isfinite(cells)]
    if not len(cells):
        return 1.0
    student = stdtrit(num, 0.5 + 0.5 * LEVEL) * np.sqrt(np.mean(cells**2))
    share = float(np.clip((num - FEW) / (MANY - FEW), 0.0, 1.0))
    if share == 0.0:
        return float(student / NORMAL_QUANTILE_90)
    level = min((LEVEL * (num + 1.0) - 0.5) / num, 1.0)
    empirical = np.quantile(np.abs(cells), level, method="hazen")
    # A geometric mean; an error that is zero throughout has none.
    width = student ** (1.0 - share) * empirical**share
    return float(width / NORMAL_QUANTILE_90)


def num_independent(parts: Sequence[Float[np.ndarray, "_traj _time"]]) -> float:
    """The number of independent normal errors whose mean square is as uncertain as that of these.

    `N^2 / sum_ij corr_ij^2` for N errors, whose correlations within a trajectory are estimated for every lag between
    readings, over all trajectories. The square of an estimate is too large by its variance, which is subtracted.
    """
    rows = _packed(parts)
    seen = np.isfinite(rows)
    num = int(seen.sum())
    values = np.where(seen, rows, 0.0)
    scale = np.sqrt((values**2).sum() / max(num, 1))
    if num == 0 or scale == 0.0:
        return float(max(num, 1))
    pairs, products = (_lagged(array)[1:] for array in (seen.astype(float), values / scale))
    pairs = np.round(pairs)
    known = pairs > 0.5
    squares = np.minimum((products[known] / pairs[known]) ** 2, 1.0)
    squares = np.maximum(squares - (1.0 - squares) ** 2 / pairs[known], 0.0)
    return float(num**2 / (num + 2.0 * np.sum(pairs[known] * squares)))


def _packed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """One row per trajectory, its readings from the left, without gaps; NaN after the last."""
    rows = [row[np.isfinite(row)] for part in parts for row in part]
    packed = np.full((len(rows), max((len(row) for row in rows), default=1) or 1), np.nan)
    for place, row in enumerate(rows):
        packed[place, : len(row)] = row
    return packed


def _lagged(rows: np.ndarray) -> np.ndarray:
    """Sums over rows of the products of entries at every lag, by Fourier transform."""
    length = rows.shape[1]
    spectrum = np.abs(np.fft.rfft(rows, 2 * length, axis=1)) ** 2
    return np.fft.irfft(spectrum.sum(0))[:length]
