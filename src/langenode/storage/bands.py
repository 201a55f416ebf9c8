"""Predictions for people: samples, mean and quantiles as an xarray Dataset, and the bands as a CSV table."""

import csv
import io
from typing import Any

import numpy as np

from langenode.data import Dataset

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)


def prediction_dataset(
    data: Dataset, outputs: np.ndarray, observable: np.ndarray, weights: np.ndarray, weight_names: tuple[str, ...]
) -> Any:
    """Return an xarray Dataset over (sample, condition, time, out).

    `outputs`, `mean` and `quantiles` are the model's; `observation_quantiles` are those of new observations. Beyond the
    end of a shorter trajectory (`length` time points) the numbers repeat its last time.
    """
    import xarray as xr

    _, first = np.unique(data.condition, return_index=True)
    over = ("condition", "time", "out")
    dataset = xr.Dataset(
        {
            "outputs": (("sample", *over), outputs),
            "mean": (over, outputs.mean(0)),
            "quantiles": (("level", *over), _quantiles(outputs)),
            "observation_quantiles": (("level", *over), _quantiles(observable)),
            "times": (("condition", "time"), data.cases().times),
            "length": (("condition",), data.lengths[first].astype(np.int32)),
        },
        coords={
            "level": list(LEVELS),
            "out": list(data.output_names),
            "condition": list(data.condition_names),
        },
    )
    if len(weight_names):  # NetCDF-3 treats an axis of length zero as unlimited
        dataset = dataset.assign_coords(weight=list(weight_names)).assign(weights=(("sample", "weight"), weights))
    for name, unit in data.units.items():
        if name == "time":
            dataset["times"].attrs["units"] = unit
    return dataset


def _quantiles(samples: np.ndarray) -> np.ndarray:
    # At rank p (R + 1), as in `metrics.coverage`: coverage is nominal even for few samples.
    return np.quantile(samples, LEVELS, axis=0, method="weibull")


def bands_csv(dataset: Any) -> str:
    """Return one row per condition and time; per output the mean, and the 90 % bands of the model and observations."""
    ends = [LEVELS.index(0.05), LEVELS.index(0.95)]
    model = dataset["quantiles"].to_numpy()[ends]
    observed = dataset["observation_quantiles"].to_numpy()[ends]
    mean, times = dataset["mean"].to_numpy(), dataset["times"].to_numpy()
    names = [str(name) for name in dataset["out"].to_numpy()]
    suffixes = ("mean", "model_05", "model_95", "observation_05", "observation_95")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["condition", "time", *(f"{name}_{suffix}" for name in names for suffix in suffixes)])
    for c, label in enumerate(dataset["condition"].to_numpy()):
        for t in range(int(dataset["length"][c])):
            cells = np.stack([mean[c, t], *model[:, c, t], *observed[:, c, t]], axis=1).ravel()
            writer.writerow([label, repr(float(times[c, t])), *(repr(float(cell)) for cell in cells)])
    return buffer.getvalue()
