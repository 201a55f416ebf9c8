"""The tables of a run: predictions (NetCDF), history and convergence (CSV)."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from langenode.data import Dataset
from langenode.inference.predictions import Prediction
from langenode.storage.bands import prediction_dataset
from langenode.storage.folder import write_bytes, write_text

HISTORY = ("loss", "data", "kl", "validation")


class StoredPrediction(NamedTuple):
    """Samples of the model's outputs and of new observations, (sample, condition, time, out), and their weights."""

    outputs: np.ndarray
    observable: np.ndarray
    weights: np.ndarray


def write_predictions(
    path: Path, data: Dataset, prediction: Prediction, observable: np.ndarray, weight_names: tuple[str, ...]
) -> None:
    """Write samples, mean and quantiles for every condition, with the weights they were made with."""
    weights = np.asarray(prediction.weights)
    dataset = prediction_dataset(data, prediction.outputs, observable, weights, weight_names)
    if not np.array_equal(observable, prediction.outputs):
        dataset["observations"] = (dataset["outputs"].dims, observable)
    write_bytes(path, bytes(dataset.to_netcdf(engine="scipy")))


def read_predictions(path: Path) -> StoredPrediction:
    """The samples and the weights that made them. New observations are stored where they differ from the outputs."""
    import xarray as xr

    with xr.open_dataset(path, engine="scipy") as stored:
        outputs = np.asarray(stored["outputs"], float)
        weights = np.asarray(stored["weights"]) if "weights" in stored else np.zeros((len(outputs), 0))
        observable = np.asarray(stored["observations"], float) if "observations" in stored else outputs
        return StoredPrediction(outputs, observable, weights)


def history_columns(rows: np.ndarray, validation: np.ndarray, block: int) -> dict[str, np.ndarray]:
    """Loss, data term and KL of every update; the validation score at the end of each block, NaN elsewhere."""
    steps = np.arange(1, len(rows) + 1)
    is_end = (steps % block == 0) | (steps == len(rows))
    scores = np.full(len(rows), np.nan)
    scores[is_end] = np.asarray(validation, float)[(steps[is_end] - 1) // block]
    values = np.asarray(rows, float)
    return dict(zip(HISTORY, (*values.T, scores), strict=True))


def write_history(path: Path, history: Mapping[str, np.ndarray]) -> None:
    """One row per update; an empty cell where there is no validation score."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["update", *HISTORY])
    for step, (*row, score) in enumerate(zip(*(history[name] for name in HISTORY), strict=True), start=1):
        writer.writerow([step, *(repr(float(x)) for x in row), repr(float(score)) if np.isfinite(score) else ""])
    write_text(path, buffer.getvalue())


def read_history(path: Path) -> dict[str, np.ndarray]:
    """The columns of the history."""
    if len(path.read_text().splitlines()) < 2:  # nothing was trained
        return {name: np.zeros(0) for name in HISTORY}
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: np.atleast_1d(table[name]) for name in HISTORY}


def add_convergence(path: Path, step: int, w1_per_time: np.ndarray) -> None:
    """Add a row; drop rows beyond `step`, left by a run that was interrupted after its last checkpoint."""
    earlier = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in earlier if int(line.split(",")[0]) < step]
    row = ",".join([str(step), *(repr(float(x)) for x in w1_per_time)])
    write_text(path, "\n".join([*kept, row]) + "\n")


def read_convergence(path: Path) -> dict[str, np.ndarray]:
    """Read W1 over time at some updates: `update` and `w1`, (update, time)."""
    table = np.loadtxt(path, delimiter=",", ndmin=2) if path.exists() else np.zeros((0, 2))
    return {"update": table[:, 0], "w1": table[:, 1:]}


NO_CONVERGENCE: Mapping[str, np.ndarray] = {"update": np.zeros(0), "w1": np.zeros((0, 1))}
