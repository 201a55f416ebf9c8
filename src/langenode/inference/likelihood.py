"""How observations scatter about the model: Gaussian noise, a mixture of modes, or noise correlated in time.

    p(y_j | w) = prod_k sum_l alpha_l N(y_jk; f_jk(w), sigma_kl),    sigma^2 = sigma_data^2 + sigma_MLE^2

(paper, section 3, with the kernel's normaliser 1 / (sqrt(2 pi) sigma) per output.) sigma_data is the spread of
replicates of one condition, sigma_MLE the distance of their mean from the fitted model; or sigma is given, or a
weight of the model. A mode may have a centre of its own, `f_jk(w) + shift_kl`: then the shift is the distance of the
mode's mean from the fitted model, and sigma is sigma_data alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._types import Array, Bool, Float, Int
from langenode.data import DataError, Dataset, extended
from langenode.inference.noise import Levels, noise_scale
from langenode.posteriors.base import log_normal

# A noise scale is never below this fraction of the output's own spread: replicates may coincide (a common start).
SMALLEST_RELATIVE_SIGMA = 1e-3


class Likelihood(eqx.Module):
    """Noise of the observations, stored for every trajectory of a data set.

    `sigma` is None where the model carries the noise scale as a weight, `model.log_noise`; with `levels` a part of that
    is in proportion to the level. `correlation_time` is the decay time of the noise's memory,
    `corr(t, t') = exp(-|t - t'| / correlation_time)`, or None for independent noise. `shift` is how far the centre of
    each mode is from the prediction; None where all modes are centred there.
    """

    sigma: Float[Array, "mode traj time out"] | None
    mode_weights: Float[Array, " mode"]
    correlation_time: Float[Array, ""] | None = None
    levels: Levels | None = None
    shift: Float[Array, "mode traj time out"] | None = None

    def __check_init__(self):
        if self.correlation_time is not None and self.mode_weights.shape[0] > 1:
            raise ValueError(
                "correlated noise needs one mode, since a mixture is taken at each time; "
                f"got {self.mode_weights.shape[0]} modes; drop one of the two options"
            )

    def select(self, index: Array) -> "Likelihood":
        """The noise of some of the trajectories."""
        if self.sigma is None:
            return self
        shift = None if self.shift is None else self.shift[:, index]
        return Likelihood(self.sigma[:, index], self.mode_weights, self.correlation_time, self.levels, shift)

    def extended(self, num: int, num_times: int) -> "Likelihood":
        """The same noise where trajectories and times were padded to these numbers."""
        if self.sigma is None:
            return self
        longer = lambda part: placed(extended(np.asarray(part), (len(part), num, num_times)))  # noqa: E731
        shift = None if self.shift is None else longer(self.shift)
        return Likelihood(longer(self.sigma), self.mode_weights, self.correlation_time, self.levels, shift)

    def mean_squares(self) -> Float[np.ndarray, "mode traj time out"]:
        """The mean square of every mode about the prediction, where sigma is stored."""
        assert self.sigma is not None
        squares = np.asarray(self.sigma, float) ** 2
        return squares if self.shift is None else squares + np.asarray(self.shift, float) ** 2

    def log_density(
        self,
        predictions: Float[Array, "sample traj time out"],
        outputs: Float[Array, "traj time out"],
        mask: Bool[Array, "traj time out"],
        times: Float[Array, "traj time"],
        log_noise: Float[Array, "sample *part out"] | None = None,
    ) -> Float[Array, "sample traj"]:
        """Log density of every trajectory under every sample; missing cells count for nothing."""
        residual, sigma = self._residuals(predictions, outputs, mask, log_noise)
        if self.correlation_time is not None:
            cells = _correlated_cells((residual / sigma)[0], sigma[0], mask, times, self.correlation_time)
            return cells.sum((-2, -1))
        cells = jnp.where(mask, log_normal(residual, 0.0, sigma), 0.0)
        per_time = cells.sum(-1)
        if self.mode_weights.shape[0] == 1:
            return per_time[0].sum(-1)
        mixture = jax.nn.logsumexp(per_time + jnp.log(self.mode_weights)[:, None, None, None], axis=0)
        return jnp.where(mask.any(-1), mixture, 0.0).sum(-1)

    def reading_log_densities(
        self,
        predictions: Float[Array, "sample traj time out"],
        outputs: Float[Array, "traj time out"],
        mask: Bool[Array, "traj time out"],
        times: Float[Array, "traj time"],
        log_noise: Float[Array, "sample *part out"] | None = None,
    ) -> Float[Array, "sample traj time out"]:
        """Log density of every reading; zero where there is none. Over a trajectory they add up to `log_density`.

        It is the density given the trajectory's earlier readings where the noise has a memory, and given the outputs
        before it at the same time where it has several modes, which all outputs of a time share.
        """
        residual, sigma = self._residuals(predictions, outputs, mask, log_noise)
        if self.correlation_time is not None:
            return _correlated_cells((residual / sigma)[0], sigma[0], mask, times, self.correlation_time)
        cells = jnp.where(mask, log_normal(residual, 0.0, sigma), 0.0)
        if self.mode_weights.shape[0] == 1:
            return cells[0]
        log_weights = jnp.log(self.mode_weights)[:, None, None, None, None]
        so_far = jax.nn.logsumexp(jnp.cumsum(cells, axis=-1) + log_weights, axis=0)
        return jnp.where(mask, jnp.diff(so_far, axis=-1, prepend=0.0), 0.0)

    def _residuals(self, predictions: Array, outputs: Array, mask: Array, log_noise: Array | None) -> tuple[Any, Any]:
        """Residuals, zero where nothing was observed, and the noise scales, one there; with a leading axis of modes."""
        if self.sigma is not None:
            sigma = self.sigma[:, None]
        elif log_noise is not None:
            sigma = noise_scale(log_noise, predictions, self.levels)[None]
        else:
            raise ValueError("noise must be given or inferred; got neither; set sigma, or give the model log_noise")
        residual = outputs - predictions if self.shift is None else outputs - predictions - self.shift[:, None]
        return jnp.where(mask, residual, 0.0), jnp.where(mask, sigma, 1.0)


class Innovations(NamedTuple):
    """The innovation of every observed cell given those before, and its variance, in units of the noise's scale."""

    value: Float[Array, "*sample traj time out"]
    variance: Float[Array, "*sample traj time out"]


def standard_innovations(
    standard: Float[Array, "*sample traj time out"],
    mask: Bool[Array, "traj time out"],
    times: Float[Array, "traj time"],
    correlation_time: Float[Array, ""],
) -> Innovations:
    """Noise with an exponential memory is a Markov chain, also over irregular times and across missing cells.

    `standard` are residuals over the noise's scale. Values in cells that are not observed mean nothing.
    """

    def observe(carry, cell):
        last_value, last_time, seen = carry
        value, observed, time = cell
        elapsed: Array = time - last_time
        # Where the cell is not observed the gap may be zero; any positive number will do there.
        gap = jnp.where(seen & observed, elapsed, correlation_time)
        rho = jnp.where(seen, jnp.exp(-gap / correlation_time), 0.0)
        keep = lambda new, old: jnp.where(observed, new, old)  # noqa: E731
        carry = (keep(value, last_value), keep(time, last_time), seen | observed)
        return carry, (value - rho * last_value, 1.0 - rho**2)

    def lead(x):
        return jnp.moveaxis(jnp.broadcast_to(x, standard.shape), -2, 0)

    cells = (lead(standard), lead(mask), lead(times[..., None]))
    start = (jnp.zeros_like(cells[0][0]), jnp.zeros_like(cells[0][0]), jnp.zeros_like(cells[1][0]))
    _, (value, variance) = jax.lax.scan(observe, start, cells)
    return Innovations(jnp.moveaxis(value, 0, -2), jnp.moveaxis(variance, 0, -2))


def _correlated_cells(standard, sigma, mask, times, correlation_time):
    """The log density of every observed cell's innovation."""
    shape = jnp.broadcast_shapes(standard.shape, mask.shape)
    found = standard_innovations(jnp.broadcast_to(standard, shape), mask, times, correlation_time)
    term = log_normal(found.value, 0.0, jnp.sqrt(found.variance)) - jnp.log(sigma)
    return jnp.where(mask, term, 0.0)


def given_noise(sigma: float | Sequence[float] | np.ndarray, data: Dataset) -> Likelihood:
    """Noise of known scale: one number, one for each output, or one for every cell."""
    full = np.broadcast_to(np.asarray(sigma, float), data.outputs.shape)
    if not (np.all(np.isfinite(full)) and np.all(full[data.mask] > 0)):
        raise ValueError(
            "a given noise scale must be positive and finite; got one that is not; give standard deviations"
        )
    return Likelihood(jnp.asarray(full)[None], jnp.ones(1))


def inferred_noise(levels: Levels | None = None) -> Likelihood:
    """Noise whose scale is a weight of the model, `log_noise`."""
    return Likelihood(None, jnp.ones(1), levels=levels)


def noise_from_replicates(
    data: Dataset,
    fitted: np.ndarray,
    *,
    modes: Int[np.ndarray, " traj"] | None = None,
    has_centres: bool = False,
) -> Likelihood:
    """sigma^2 = sigma_data^2 + sigma_MLE^2 per condition, time, output and mode; mode weights by counting.

    `fitted` are the MLE's outputs for every trajectory, (traj, time, out), and `modes` the number of its mode where
    there are several. A cell with fewer than two replicates has no sigma_data of its own: it takes the rms of all
    residuals. With `has_centres` every mode is centred at its own mean where the model is the fitted one, and
    sigma_MLE is zero.
    """
    residual = np.where(data.mask, data.outputs - fitted, 0.0)
    modes = np.zeros(data.num_trajectories, int) if modes is None else modes
    num_modes = int(modes.max()) + 1
    pooled = np.sqrt((residual**2).sum((0, 1)) / np.maximum(data.mask.sum((0, 1)), 1))
    sigma = np.empty((num_modes, *data.outputs.shape))
    shift = np.zeros_like(sigma) if has_centres else None
    for mode in range(num_modes):
        for condition in range(data.num_conditions):
            here = data.condition == condition
            rows = here & (modes == mode)
            left, seen = residual[rows], data.mask[rows]
            if shift is not None:
                shift[mode, here] = left.sum(0) / np.maximum(seen.sum(0), 1)
                left = np.where(seen, left - left.sum(0) / np.maximum(seen.sum(0), 1), 0.0)
            sigma[mode, here] = _replicate_sigma(left, seen, pooled)
    sigma = np.maximum(sigma, SMALLEST_RELATIVE_SIGMA * np.where(pooled > 0.0, pooled, 1.0))
    counts = np.bincount(modes, minlength=num_modes)
    centres = None if shift is None else jnp.asarray(shift)
    return Likelihood(jnp.asarray(sigma), jnp.asarray(counts / counts.sum()), shift=centres)


def _replicate_sigma(residual: np.ndarray, mask: np.ndarray, pooled: np.ndarray) -> np.ndarray:
    """sigma per time and output from the residuals of one condition's replicates."""
    count = mask.sum(0)
    mean = residual.sum(0) / np.maximum(count, 1)
    variance = (np.where(mask, residual - mean, 0.0) ** 2).sum(0) / np.maximum(count - 1, 1)
    return np.where(count >= 2, np.sqrt(variance + mean**2), pooled)


def point_fit_error(data: Dataset, fitted: np.ndarray, modes: Int[np.ndarray, " traj"] | None = None) -> float | None:
    """Return sigma_MLE / sigma_data, each an rms over the readings that have replicates in their condition and mode.

    None where there are no replicates, or none of them differ.
    """
    residual = np.where(data.mask, data.outputs - fitted, 0.0)
    modes = np.zeros(data.num_trajectories, int) if modes is None else modes
    error, spread = 0.0, 0.0
    for group in np.unique(np.stack([data.condition, modes], axis=1), axis=0):
        rows = (data.condition == group[0]) & (modes == group[1])
        left, seen = residual[rows], data.mask[rows]
        count = seen.sum(0)
        mean = left.sum(0) / np.maximum(count, 1)
        squares = np.where(seen, (left - mean) ** 2, 0.0).sum(0)
        error += float((count * mean**2)[count > 1].sum())
        spread += float((count * squares / np.maximum(count - 1, 1))[count > 1].sum())
    return float(np.sqrt(error / spread)) if spread > 0.0 else None


def replicate_spread(
    data: Dataset, modes: Int[np.ndarray, " traj"] | None = None
) -> Float[np.ndarray, "traj time out"]:
    """sigma_data of every reading: the spread of the replicates in its condition and mode, at its time."""
    modes = np.zeros(data.num_trajectories, int) if modes is None else modes
    group = data.condition * (modes.max() + 1) + modes
    count, total = (np.zeros((group.max() + 1, *data.outputs.shape[1:])) for _ in range(2))
    np.add.at(count, group, data.mask)
    np.add.at(total, group, np.where(data.mask, data.outputs, 0.0))
    # About the mean of its own replicates a reading has no sigma_MLE.
    sigma = noise_from_replicates(data, (total / np.maximum(count, 1))[group], modes=modes).sigma
    assert sigma is not None
    return np.asarray(sigma)[modes, np.arange(data.num_trajectories)]


def mode_membership(data: Dataset, num_modes: int, *, seed: int) -> np.ndarray:
    """Number of each trajectory's mode, by k-means on whole trajectories; mode 0 has the lowest mean output."""
    from scipy.cluster.vq import kmeans2

    count = np.maximum(data.mask.sum(0), 1)
    mean = data.outputs.sum(0) / count
    scale = np.sqrt((np.where(data.mask, data.outputs - mean, 0.0) ** 2).sum((0, 1)) / data.mask.sum((0, 1))) + 1e-300
    points = np.where(data.mask, (data.outputs - mean) / scale, 0.0).reshape(data.num_trajectories, -1)
    centres, labels = kmeans2(points, num_modes, minit="++", rng=np.random.default_rng(seed))
    rank = np.argsort(np.argsort(centres.mean(1)))
    return rank[labels]


def split_membership(data: Dataset, split: float) -> Int[np.ndarray, " traj"]:
    """Mode 1 of trajectories whose last reading of the first output is above `split`, else 0: counting, by a rule."""
    seen = data.mask[..., 0]
    last = seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1)
    modes = (data.outputs[np.arange(len(seen)), last, 0] > split).astype(int)
    if modes.min() == modes.max():
        raise DataError(
            f"a split of the modes must have trajectories on both sides; all end {'above' if modes[0] else 'below'} "
            "it; choose another noise.mode_split, or drop it"
        )
    return modes
