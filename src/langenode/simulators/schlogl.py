"""The Schlögl reaction: a bistable system in which chance decides between two steady numbers of molecules.

A + 2 X <-> 3 X,    B <-> X        with A and B held constant                                (paper, section 4.1)
"""

from typing import NamedTuple

import numpy as np

from langenode._types import PRNGKeyArray
from langenode.data import Dataset
from langenode.simulators.reactions import Reaction, ReactionNetwork
from langenode.simulators.reactions import simulate as simulate_reactions


class SchloglParameters(NamedTuple):
    """Rate constants and counts; from 250 molecules about half of the trajectories reach each steady state."""

    k1: float = 3e-7
    k2: float = 1e-4
    k3: float = 1e-3
    k4: float = 3.5
    num_a: float = 1e5
    num_b: float = 2e5
    num_start: int = 250
    num_times: int = 101
    end_time: float = 10.0

    @property
    def times(self) -> np.ndarray:
        """The times at which the molecules are counted."""
        return np.linspace(0.0, self.end_time, self.num_times)


def network(parameters: SchloglParameters) -> ReactionNetwork:
    """Return the four reactions of X."""
    p = parameters
    reactions = (
        Reaction({"X": 2}, {"X": 3}, p.k1 * p.num_a),
        Reaction({"X": 3}, {"X": 2}, p.k2),
        Reaction({}, {"X": 1}, p.k3 * p.num_b),
        Reaction({"X": 1}, {}, p.k4),
    )
    return ReactionNetwork(("X",), reactions, (p.num_start,))


def simulate(parameters: SchloglParameters, num: int, *, key: PRNGKeyArray) -> Dataset:
    """Simulate exact trajectories of one condition, all from the same start."""
    counts = simulate_reactions(network(parameters), parameters.times, num, key=key)
    start = np.full((num, 1), float(parameters.num_start))
    return Dataset.from_arrays(parameters.times, counts.astype(float), initial=start, output_names=("X",))
