"""The tables of a run: predictions (NetCDF), history and convergence (CSV)."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from langenode.data import Dataset
from langenode.inference.predictions import Prediction
from langenode.storage.bands import bands_csv, prediction_dataset
from langenode.storage.folder import RunFolder, RunFolderError, write_bytes, write_text

HISTORY = ("loss", "data", "kl", "validation")


class StoredPrediction(NamedTuple):
    """Samples of the model's outputs and of new observations, (sample, condition, time, out), and their weights."""

    outputs: np.ndarray
    observable: np.ndarray
    weights: np.ndarray


def write_predictions(
    folder: RunFolder,
    data: Dataset,
    prediction: Prediction,
    observable: np.ndarray,
    weight_names: tuple[str, ...],
    *,
    time_name: str | None,
) -> None:
    """Write samples, mean and quantiles for every condition, with the weights behind them, and the table of bands."""
    weights = np.asarray(prediction.weights)
    dataset = prediction_dataset(data, prediction.outputs, observable, weights, weight_names)
    write_text(folder.bands, bands_csv(dataset, data, time_name=time_name))
    write_bytes(folder.predictions, bytes(dataset.to_netcdf(engine="scipy")))


def read_predictions(path: Path) -> StoredPrediction:
    """The samples and the weights behind them. Older files lack observations that are the outputs."""
    remedy = f"run: langenode predict {path.parent} --force"
    try:
        outputs, weights, observable = _stored_arrays(path)
    except FileNotFoundError:
        raise RunFolderError(f"a run must be predicted first; there is no {path}; {remedy}") from None
    except Exception as error:  # libraries may raise almost anything on a damaged file
        raise RunFolderError(f"{path} must hold predictions; reading it failed ({error}); {remedy}") from None
    is_whole = outputs.ndim == 4 and outputs.shape == observable.shape and len(outputs) >= 2
    if not is_whole or weights.ndim != 2 or len(weights) != len(outputs):
        raise RunFolderError(
            f"{path} must hold samples over (sample, condition, time, out); it has arrays of {outputs.shape}, "
            f"{observable.shape} and {weights.shape}; {remedy}"
        )
    return StoredPrediction(outputs, observable, weights)


def _stored_arrays(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import xarray as xr

    # From memory: a damaged file would stay open, mapped by arrays that nobody has.
    with xr.open_dataset(io.BytesIO(path.read_bytes()), engine="scipy") as stored:
        outputs = np.asarray(stored["outputs"], float)
        weights = np.asarray(stored["weights"]) if "weights" in stored else np.zeros((len(outputs), 0))
        if weights.dtype.kind != "f":
            raise ValueError(f"weights are {weights.dtype}")
        observable = np.asarray(stored["observations"], float) if "observations" in stored else outputs
        return outputs, weights, observable


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
    """The columns of the history; empty where nothing was trained."""
    header, *rows = _read_rows(path)
    if header != ["update", *HISTORY] or any(len(row) != len(header) for row in rows):
        raise _damaged(path, f"its columns must be update, {', '.join(HISTORY)}")
    columns = {name: np.array([_cell(path, row[i + 1]) for row in rows]) for i, name in enumerate(HISTORY)}
    return {name: column if rows else np.zeros(0) for name, column in columns.items()}


def _read_rows(path: Path) -> list[list[str]]:
    """The rows of a table of ours, cells apart."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _damaged(path, "it is not there") from None
    except ValueError:
        raise _damaged(path, "it is not text") from None
    return [line.split(",") for line in text.splitlines() if line] or [[]]


def _cell(path: Path, text: str) -> float:
    try:
        return float(text) if text else np.nan
    except ValueError:
        raise _damaged(path, f"{text[:40]!r} is not a number") from None


def _damaged(path: Path, why: str) -> RunFolderError:
    return RunFolderError(
        f"{path.name} must be a table that the fit wrote; {path}: {why}; run: langenode fit {path.parent} --force"
    )


def add_convergence(path: Path, step: int, w1_per_time: np.ndarray) -> None:
    """Add a row; drop rows beyond `step`, left by a run that was interrupted after its last checkpoint."""
    earlier = _read_rows(path) if path.exists() else []
    kept = [",".join(row) for row in earlier if _cell(path, row[0]) < step]
    row = ",".join([str(step), *(repr(float(x)) for x in w1_per_time)])
    write_text(path, "\n".join([*kept, row]) + "\n")


def read_convergence(path: Path) -> dict[str, np.ndarray]:
    """Read W1 over time at some updates: `update` and `w1`, (update, time)."""
    if not path.exists():
        return {"update": np.zeros(0), "w1": np.zeros((0, 1))}
    rows = _read_rows(path)
    if any(len(row) != len(rows[0]) or len(row) < 2 for row in rows):
        raise _damaged(path, "its rows must be equally long, an update and W1 at every time")
    table = np.array([[_cell(path, cell) for cell in row] for row in rows])
    return {"update": table[:, 0], "w1": table[:, 1:]}


NO_CONVERGENCE: Mapping[str, np.ndarray] = {"update": np.zeros(0), "w1": np.zeros((0, 1))}
