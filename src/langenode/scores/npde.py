"""Normalised prediction distribution errors: readings of a unit among simulations of the same unit, decorrelated.

If the model is right they are independent draws of N(0, 1), whatever the times and inputs of the units.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from langenode._types import Float

# Readings of one unit may be exact functions of each other; this share of their variance keeps the root a number.
SMALLEST_SHARE = 1e-9


def npde(
    readings: Float[np.ndarray, " reading"], simulated: Float[np.ndarray, "sim reading"], *, rng: np.random.Generator
) -> Float[np.ndarray, " reading"]:
    """Return the errors of one unit's readings.

    Mean and covariance are those of one half of the simulations, and ranks are among the other half: the reading and
    the simulations that it is compared with are then alike, also where readings are many. A rank is spread evenly over
    its step, so that the errors are exactly N(0, 1) one by one if the model is right.
    """
    from scipy.linalg import solve_triangular
    from scipy.special import ndtri

    half = len(simulated) // 2
    moments, others = simulated[:half], simulated[half:]
    centre = moments.mean(0)
    covariance = np.atleast_2d(np.cov(moments, rowvar=False))
    least = SMALLEST_SHARE * max(float(np.trace(covariance)) / len(readings), np.finfo(float).tiny)
    root = np.linalg.cholesky(covariance + least * np.eye(len(readings)))
    own = solve_triangular(root, readings - centre, lower=True)
    theirs = solve_triangular(root, (others - centre).T, lower=True)
    below = (theirs < own[:, None]).sum(1)
    return ndtri((below + rng.random(len(readings))) / (len(others) + 1))


def npde_summary(errors: Float[np.ndarray, " error"]) -> dict[str, Any]:
    """Return mean, variance, and the probability of a distance from N(0, 1) as large as this (Kolmogorov-Smirnov)."""
    from scipy.stats import kstest

    return {
        "mean": float(errors.mean()),
        "variance": float(errors.var(ddof=1)) if len(errors) > 1 else float("nan"),
        "ks_p_value": float(kstest(errors, "norm").pvalue),
        "num_readings": len(errors),
    }


def below_limit(
    simulated: Float[np.ndarray, "sim reading"], limits: Sequence[float] | np.ndarray, *, rng: np.random.Generator
) -> Float[np.ndarray, " reading"]:
    """Return a reading in place of each that is only known to be below its limit: a simulated one that is, too."""
    found = []
    for column, limit in zip(simulated.T, limits, strict=True):
        lower = column[column <= limit]
        found.append(rng.choice(lower) if len(lower) else limit)
    return np.array(found)
