"""The matrix's relaxing shear modulus, `G(t) = G_inf + sum_i G_i exp(-t / tau_i)`, and its response to strain."""

from typing import NamedTuple

import numpy as np

from langenode._types import Float


class Prony(NamedTuple):
    """Instantaneous and relaxed shear moduli in MPa, and relaxation times (s), evenly spaced in the logarithm.

    The paper gives the two moduli and the range of the times; the number of times (half a decade apart) and their
    `weights` (one per time, equal if not given) are our choice.
    """

    instantaneous: float = 0.362
    equilibrium: float = 0.084
    shortest: float = 1e-6
    longest: float = 3160.0
    num_times: int = 20
    weights: tuple[float, ...] | None = None

    @property
    def times(self) -> np.ndarray:
        """The relaxation times."""
        return np.geomspace(self.shortest, self.longest, self.num_times)

    @property
    def moduli(self) -> np.ndarray:
        """The modulus that relaxes with each time."""
        weights = np.ones(self.num_times) if self.weights is None else np.array(self.weights, float)
        if weights.shape != (self.num_times,) or weights.min() < 0.0 or weights.sum() <= 0.0:
            raise ValueError(
                f"a Prony series needs a weight of at least 0 for each of its {self.num_times} times; "
                f"found {self.weights}; give one per time, or none for equal weights"
            )
        return (self.instantaneous - self.equilibrium) * weights / weights.sum()


def relax(
    prony: Prony, times: Float[np.ndarray, " time"], strain: Float[np.ndarray, "*path time component"]
) -> Float[np.ndarray, "*path time component"]:
    """Return `integral of G(t - s) de(s)`; the strain is zero before the first time and linear between the times.

    Each elastic strain `b_i' = e' - b_i / tau_i` is advanced exactly: `b_i <- exp(-x) b_i + (1 - exp(-x)) / x de` with
    `x = dt / tau_i`. A nonzero strain at the first time was applied instantaneously.
    """
    moduli, taus = prony.moduli, prony.times
    elastic = np.repeat(strain[..., :1, :], len(taus), axis=-2)  # (..., relaxation time, component)
    answers = [moduli @ elastic]
    for n, dt in enumerate(np.diff(times)):
        x = (dt / taus)[:, None]
        change = strain[..., n + 1, :] - strain[..., n, :]
        elastic = np.exp(-x) * elastic + (-np.expm1(-x) / x) * change[..., None, :]
        answers.append(moduli @ elastic)
    return prony.equilibrium * strain + np.stack(answers, axis=-2)
