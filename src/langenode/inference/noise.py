"""The scale of observation noise that is inferred: the same at all levels, or with a part in proportion to the level.

    sigma^2 = exp(2 log_noise[0]) + exp(2 log_noise[1]) (f - zero)^2

for a prediction f, where `zero` is the level zero of an output in the units of the fit. Without levels sigma is
`exp(log_noise)`, one number per output.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.data import Dataset, spread_against_level
from langenode.inference.point_fit import fitted_outputs

# A proportional part counts if chance gives one like it in fewer than one of a thousand data sets; of a trajectory,
# whose readings deviate together, so many count as independent.
LEAST_GAIN, INDEPENDENT = 10.8, 4.0
# A part that is not there is this much of the other: its logarithm must be a number.
SMALLEST_PART = 0.02


class Levels(eqx.Module):
    """The level zero of each output in the units of the fit, and whether its noise grows from there (1, else 0)."""

    zero: Float[Array, " out"]
    share: Float[Array, " out"]


class NoiseParts(NamedTuple):
    """The logarithms of the constant and the proportional part of the noise, and which outputs have the latter."""

    log_noise: Float[np.ndarray, "2 out"]
    is_proportional: np.ndarray  # (out,)


def noise_scale(
    log_noise: Float[Array, "sample out"] | Float[Array, "sample 2 out"],
    predictions: Float[Array, "sample traj time out"],
    levels: Levels | None,
) -> Float[Array, "sample #traj #time out"]:
    """The standard deviation of a reading at every prediction."""
    if levels is None:
        return jnp.exp(log_noise)[:, None, None, :]
    parts = jnp.exp(2.0 * log_noise)[:, :, None, None, :]
    return jnp.sqrt(parts[:, 0] + parts[:, 1] * (levels.share * (predictions - levels.zero)) ** 2)


def noise_parts(model: Any, data: Dataset, levels: Levels) -> NoiseParts:
    """Constant and proportional noise by maximum likelihood, from the residuals of a fitted model."""
    fitted = fitted_outputs(model, data)
    found, significant = np.zeros((2, data.num_outputs)), np.zeros(data.num_outputs, dtype=bool)
    for column in range(data.num_outputs):
        seen = data.mask[..., column]
        residual = (data.outputs[..., column] - fitted[..., column])[seen]
        level = fitted[..., column][seen] - float(levels.zero[column])
        rms = max(float(np.sqrt(np.mean(residual**2))), 1e-3)
        spread = spread_against_level(level, residual)
        share = min(1.0, INDEPENDENT * int(seen.any(axis=1).sum()) / max(int(seen.sum()), 1))
        significant[column] = bool(levels.share[column] > 0 and share * spread.gain >= LEAST_GAIN)
        constant, slope = (spread.constant, spread.slope) if significant[column] else (rms, 0.0)
        typical = float(np.sqrt(np.mean(level**2))) or 1.0
        found[:, column] = max(constant, SMALLEST_PART * rms), max(slope, SMALLEST_PART * rms / typical)
    return NoiseParts(np.log(found), significant)
