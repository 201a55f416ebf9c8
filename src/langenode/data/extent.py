"""What the training data cover, and what new data ask for beyond that."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float
from langenode.data.dataset import Dataset

# New values may lie this far outside of the training range, as a share of its width, before a prediction is called an
# extrapolation: the range of a few trajectories is a little narrower than that of their process.
TOLERANCE = 0.25


class Extent(NamedTuple):
    """The longest trajectory of the training data, and the ranges of their inputs and starts."""

    duration: float
    inputs: Float[np.ndarray, "in 2"]
    starts: Float[np.ndarray, "start 2"]

    @classmethod
    def of(cls, data: Dataset) -> "Extent":
        """What these data cover; starts are those that the data give or have taken from first readings."""
        return cls(
            float(np.ptp(data.times, axis=1).max(initial=0.0)),
            _ranges(np.concatenate(data.inputs)),
            _ranges(np.zeros((0, 0)) if data.initial is None else data.initial),
        )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Extent":
        """The extent of a file, whose values have been checked."""
        inputs, starts = (np.asarray(record[name], float).reshape(-1, 2) for name in ("inputs", "starts"))
        return cls(float(record["duration"]), inputs, starts)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain numbers."""
        return {"duration": self.duration, "inputs": self.inputs.tolist(), "starts": self.starts.tolist()}

    def beyond(self, data: Dataset) -> list[str]:
        """What of the data lies far outside of these ranges, a phrase each: what is asked for, and what was trained."""
        found = []
        longest = float(np.ptp(data.times, axis=1).max(initial=0.0))
        if longest > (1.0 + TOLERANCE) * self.duration:
            found.append(f"durations up to {longest:.4g} (training: {self.duration:.4g})")
        for k, name in enumerate(data.input_names):
            found += _outside(f"input {name!r}", data.inputs[:, :, k], self.inputs[k])
        if data.initial is not None and data.initial.shape[1] == len(self.starts):
            names = data.output_names if len(self.starts) == data.num_outputs else range(1, len(self.starts) + 1)
            for k, name in enumerate(names):
                found += _outside(f"starts of {name!r}", data.initial[:, k], self.starts[k])
        return found


def _ranges(values: np.ndarray) -> np.ndarray:
    """The least and the largest value of every column."""
    if values.size == 0:
        return np.zeros((0, 2))
    return np.stack([values.min(0), values.max(0)], axis=1)


def _outside(what: str, values: np.ndarray, trained: np.ndarray) -> list[str]:
    """A phrase if some of the values are far outside of the range."""
    low, high = trained
    least, most = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    # Of a quantity that never varied, anything else is new.
    margin = TOLERANCE * (high - low) + 1e-9 * max(abs(low), abs(high))
    if least >= low - margin and most <= high + margin:
        return []
    return [f"{what} from {least:.4g} to {most:.4g} (training: {low:.4g} to {high:.4g})"]
