"""Figures about what lies beyond the data: agreement of chains there, and how bands widen."""

import dataclasses

import numpy as np

from langenode.data import Dataset
from langenode.experiments.base import Drawing, Results
from langenode.experiments.figures import label
from langenode.inference.predictions import predict
from langenode.scores import chains

# The range of starts or inputs is extended by this part of it to either side.
EXTENSION = 0.75
NUM_STARTS, NUM_SAMPLES = 33, 512


def agreement(results: Results) -> dict[str, Drawing]:
    """Draw R-hat of predictions over time, inside and outside the data, where the method has chains."""
    from langenode import plots

    found = results.metrics.get("posterior") or {}
    profiles = {name: profile for name, profile in (found.get("rhat_profile") or {}).items() if profile["rhat"]}
    if not profiles:
        return {}
    limits = {"inside": chains.LARGEST_INSIDE, "outside": chains.LARGEST_OUTSIDE}
    figure = plots.r_hat_over_time(profiles, limits, "time from the start / duration")
    caption = (
        "Split R-hat of single predictions: 1 where all chains agree. Inside: at the training data. Outside: at inputs "
        "and starts stretched by half beyond their range."
    )
    kinds = (("inside", "rhat_in"), ("outside", "rhat_out"))
    numbers = [(f"largest R-hat {name} the data", f"{found[key]['max']:.3f}") for name, key in kinds if key in found]
    alt = "R-hat of predictions against time, inside and outside the data, with the limits of trust."
    return {"agreement": Drawing(figure, "Agreement of chains", caption, alt, numbers)}


def bands(results: Results) -> dict[str, Drawing]:
    """Draw the band at the end of a trajectory over starts (or inputs) within and beyond those of the training data."""
    from langenode import plots

    varied = _varied(results.splits.train)
    if varied is None:
        return {}
    data, values, seen, name = varied
    outputs = predict(results.problem, data, NUM_SAMPLES, results.rule, key=results.key).outputs[:, :, -1, 0]
    quantiles = np.quantile(outputs, (0.05, 0.5, 0.95), axis=0)
    test = results.splits.test
    output = label(test.output_names[0], test.units)
    figure = plots.bands_beyond(values, quantiles, seen, (name, f"{output} at the last time"))
    width = quantiles[2] - quantiles[0]
    is_seen = (values >= seen[0]) & (values <= seen[1])
    ratio = float(np.median(width[[0, -1]]) / max(float(np.median(width[is_seen])), 1e-300))
    caption = (
        f"The model's 90 % band at the last time of a training trajectory, its {name} replaced by values within and "
        "beyond the range of the training data (shaded). Noise is not included. Where nothing was observed the band "
        "should widen."
    )
    numbers = [("width at the far ends over the width inside", f"{ratio:.2f}")]
    alt = f"Band of the model against the {name}, with the range of the data shaded."
    return {"beyond": Drawing(figure, "Beyond the data", caption, alt, numbers)}


def _varied(train: Dataset) -> tuple[Dataset, np.ndarray, tuple[float, float], str] | None:
    """A longest training trajectory many times, with its start or its first input over more than the seen range."""
    if not train.num_trajectories:
        return None
    longest = int(np.argmax(train.lengths))
    copies = _copies(train, longest)
    if train.initial is not None and np.ptp(train.initial[:, 0]) > 0.0:
        seen, values = _extended(train.initial[:, 0])
        initial = np.array(copies.initial)
        initial[:, 0] = values
        return dataclasses.replace(copies, initial=initial), values, seen, "start"
    if train.num_inputs and np.ptp(train.inputs[..., 0]) > 0.0:
        means = train.inputs[..., 0].mean(axis=1)
        seen, values = _extended(means if np.ptp(means) > 0.0 else train.inputs[..., 0].ravel())
        inputs = np.array(copies.inputs)
        inputs[..., 0] += (values - means[longest])[:, None]
        return dataclasses.replace(copies, inputs=inputs), values, seen, f"mean of input {train.input_names[0]}"
    return None


def _copies(train: Dataset, index: int) -> Dataset:
    """One trajectory many times, each copy a condition of its own."""
    names = tuple(f"copy {number}" for number in range(NUM_STARTS))
    same = train.select(np.full(NUM_STARTS, index))
    return dataclasses.replace(same, condition=np.arange(NUM_STARTS), condition_names=names)


def _extended(values: np.ndarray) -> tuple[tuple[float, float], np.ndarray]:
    low, high = float(np.min(values)), float(np.max(values))
    more = EXTENSION * (high - low)
    return (low, high), np.linspace(low - more, high + more, NUM_STARTS)
