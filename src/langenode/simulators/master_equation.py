"""The exact law of one species' count at any time: the chemical master equation, solved on enough states.

    dp_n/dt = sum_r a_r(n - c_r) p_{n - c_r} - a_r(n) p_n        for reactions of propensity a_r and change c_r

Probability that leaves the retained states is lost, and the loss bounds the error: states are added until it is
negligible.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.simulators.reactions import ReactionNetwork, propensities, tables

MOST_STATES = 8192


class CountLaw(NamedTuple):
    """Probabilities of the counts 0, 1, 2, ... at every time."""

    times: Float[np.ndarray, " time"]
    counts: Int[np.ndarray, " count"]
    probabilities: Float[np.ndarray, "time count"]

    @property
    def mean(self) -> Float[np.ndarray, " time"]:
        """Return the mean count."""
        return self.probabilities @ self.counts

    @property
    def std(self) -> Float[np.ndarray, " time"]:
        """Return the standard deviation of the count."""
        return np.sqrt(self.probabilities @ self.counts**2 - self.mean**2)


def count_law(
    network: ReactionNetwork, times: Sequence[float] | Float[np.ndarray, " time"], *, tolerance: float = 1e-9
) -> CountLaw:
    """Solve a network of one species; the probability left out is at most `tolerance` at the last time."""
    if len(network.species) != 1:
        raise ValueError(
            f"the master equation is solved for one species; the network has {len(network.species)}; "
            "hold the others constant, or simulate"
        )
    times = np.asarray(times, float)
    num_states = 2 * max(network.initial[0], 32)
    while num_states <= MOST_STATES:
        probabilities = _solve(_generator(network, num_states), network.initial[0], times)
        if 1.0 - probabilities[-1].sum() <= tolerance:
            return CountLaw(times, np.arange(num_states), probabilities)
        num_states *= 2
    raise ValueError(
        f"the count must stay below {MOST_STATES} for the master equation; it does not by t = {times[-1]:g}; "
        "shorten the times, or simulate"
    )


def _generator(network: ReactionNetwork, num_states: int) -> Float[np.ndarray, "count count"]:
    """Return rates from column to row, minus the total on the diagonal; jumps beyond the last state are lost."""
    parts, counts = tables(network), np.arange(num_states)
    rates = propensities(parts, counts[:, None])
    matrix = np.zeros((num_states, num_states))
    for reaction, change in enumerate(parts.changes[:, 0]):
        matrix[counts, counts] -= rates[:, reaction] * (change != 0)
        stays = (counts + change >= 0) & (counts + change < num_states) & (change != 0)
        matrix[counts[stays] + change, counts[stays]] += rates[stays, reaction]
    return matrix


def _solve(
    generator: Float[np.ndarray, "count count"], start: int, times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, "time count"]:
    """Advance from interval to interval, with one matrix exponential for each distinct length."""
    from scipy.linalg import expm

    steps: dict[float, np.ndarray] = {}
    now = np.zeros(len(generator))
    now[start] = 1.0
    probabilities = []
    for interval in np.round(np.diff(times, prepend=0.0), 12):
        if interval > 0.0:
            if interval not in steps:
                steps[interval] = expm(generator * interval)
            now = steps[interval] @ now
        probabilities.append(now)
    return np.maximum(np.array(probabilities), 0.0)
