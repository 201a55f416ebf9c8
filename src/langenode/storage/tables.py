"""The tables of a run: predictions (NetCDF), history and convergence (CSV)."""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from langenode.data import Dataset
from langenode.inference.predictions import Prediction
from langenode.storage.bands import prediction_dataset
from langenode.storage.folder import write_bytes, write_text


class StoredPrediction(NamedTuple):
    """Samples of the model's outputs, (sample, condition, time, out), and the weights they were made with."""

    outputs: np.ndarray
    weights: np.ndarray


def write_predictions(
    path: Path, data: Dataset, prediction: Prediction, observable: np.ndarray, weight_names: tuple[str, ...]
) -> None:
    """Write samples, mean and quantiles for every condition, with the weights they were made with."""
    weights = np.asarray(prediction.weights)
    dataset = prediction_dataset(data, prediction.outputs, observable, weights, weight_names)
    write_bytes(path, bytes(dataset.to_netcdf(engine="scipy")))


def read_predictions(path: Path) -> StoredPrediction:
    """Read the samples and the weights they were made with."""
    import xarray as xr

    with xr.open_dataset(path, engine="scipy") as stored:
        outputs = np.asarray(stored["outputs"], float)
        weights = np.asarray(stored["weights"]) if "weights" in stored else np.zeros((len(outputs), 0))
        return StoredPrediction(outputs, weights)


def write_history(path: Path, rows: np.ndarray, validation: np.ndarray, block: int) -> None:
    """Write loss, data term and KL of every update, and the validation score at the end of each block."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["update", "loss", "data", "kl", "validation"])
    for step, row in enumerate(np.asarray(rows), start=1):
        is_end = step % block == 0 or step == len(rows)
        score = float(validation[(step - 1) // block]) if is_end else np.nan
        writer.writerow([step, *(repr(float(x)) for x in row), repr(score) if np.isfinite(score) else ""])
    write_text(path, buffer.getvalue())


def read_history(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of the history."""
    columns = ("loss", "data", "kl", "validation")
    if len(path.read_text().splitlines()) < 2:  # nothing was trained
        return {name: np.zeros(0) for name in columns}
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: np.atleast_1d(table[name]) for name in columns}


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
