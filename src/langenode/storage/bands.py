"""Predictions for people: samples and quantiles as an xarray Dataset, and bands as a table in the user's words."""

import contextlib
import csv
import datetime
import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from langenode.data import Dataset, all_readings

LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
# What the table has beside the reading of every output.
SUFFIXES = ("mean", "model_05", "model_95", "observation_05", "observation_95")
# Whole numbers beyond this are not all numbers of double precision.
_LARGEST_WHOLE = 2.0**53


def prediction_dataset(
    data: Dataset,
    outputs: np.ndarray,
    observable: np.ndarray,
    weights: np.ndarray,
    weight_names: tuple[str, ...],
    *,
    unit_outputs: np.ndarray | None = None,
) -> Any:
    """Return an xarray Dataset over (sample, condition, time, out).

    `outputs`, `mean` and `quantiles` are the model's; `observations` are samples of new observations, one for each
    sample of the model, and `observation_quantiles` their quantiles; `unit_quantiles` are those of `unit_outputs`, the
    outputs of units as if what they share were known. Beyond the end of a shorter trajectory (`length`
    time points) the numbers repeat its last time.
    """
    import xarray as xr

    _, first = np.unique(data.condition, return_index=True)
    over = ("condition", "time", "out")
    dataset = xr.Dataset(
        {
            "outputs": (("sample", *over), outputs),
            "observations": (("sample", *over), observable),
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
    if unit_outputs is not None:
        dataset = dataset.assign(unit_quantiles=(("level", *over), _quantiles(unit_outputs)))
    if len(weight_names):  # NetCDF-3 treats an axis of length zero as unlimited
        dataset = dataset.assign_coords(weight=list(weight_names)).assign(weights=(("sample", "weight"), weights))
    for name, unit in data.units.items():
        if name == "time":
            dataset["times"].attrs["units"] = unit
    return dataset


def _quantiles(samples: np.ndarray) -> np.ndarray:
    # At rank p (R + 1), as in `metrics.coverage`: coverage is nominal even for few samples.
    return np.quantile(samples, LEVELS, axis=0, method="weibull")


# The table


def bands_csv(bands: Any, data: Dataset, *, time_name: str | None) -> str:
    """Return one row per trajectory and time of `data`, which `bands` are the predictions for.

    The labels, the time and the inputs have the names and texts of the table that was read. Every output has its
    reading, if there is one, under its own name, and beside it the mean and the 90 % bands of the model and of
    observations. Trajectories of one condition have the same bands.
    """
    time = time_name or "time"
    labels = {name: values for name, values in _labels(data).items() if name != time}
    inputs, readings, cells = _input_texts(data), all_readings(data), _band_cells(bands)
    per_output = [[name, *(f"{name}_{suffix}" for suffix in SUFFIXES)] for name in data.output_names]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_distinct([*labels, time, *inputs, *itertools.chain.from_iterable(per_output)]))
    for row, length in enumerate(data.lengths):
        own, times = [values[row] for values in labels.values()], _times(data, row, time)
        for at in range(length):
            numbers = zip(readings[row, at], cells[data.condition[row], at].tolist(), strict=True)
            beside = ([_text(reading), *map(repr, band)] for reading, band in numbers)
            given = (texts[row][at] for texts in inputs.values())
            writer.writerow([*own, times[at], *given, *itertools.chain.from_iterable(beside)])
    return buffer.getvalue()


def _band_cells(bands: Any) -> np.ndarray:
    """Return the numbers of `SUFFIXES`, (condition, time, out, number)."""
    ends = [LEVELS.index(0.05), LEVELS.index(0.95)]
    parts = [bands["mean"].to_numpy()[None]]
    parts += [bands[name].to_numpy()[ends] for name in ("quantiles", "observation_quantiles")]
    return np.moveaxis(np.concatenate(parts).astype(float), 0, -1)


def _labels(data: Dataset) -> dict[str, tuple[str, ...]]:
    """Return the user's labels of trajectories; of data without any, their units and conditions."""
    if data.labels:
        return dict(data.labels)
    if data.num_trajectories == 1:
        return {}
    condition = tuple(data.condition_names[code] for code in data.condition)
    unit = tuple(data.unit_names[code] for code in data.unit)
    if data.num_units < data.num_trajectories:
        return {"condition": condition, "unit": unit}
    is_grouped = 1 < data.num_conditions < data.num_trajectories
    return {"trajectory": unit} | ({"condition": condition} if is_grouped else {})


def _times(data: Dataset, row: int, name: str) -> list[str]:
    """Return the times of a trajectory; as time stamps, in the form of the first, where they were read from these."""
    with contextlib.suppress(ValueError, OverflowError):  # a damaged file's label, or a date that no calendar has
        if name in data.labels:
            text = data.labels[name][row]
            first, separator = datetime.datetime.fromisoformat(text), " " if " " in text else "T"
            elapsed = (datetime.timedelta(seconds=seconds) for seconds in data.times[row].tolist())
            return [(first + time).isoformat(sep=separator) for time in elapsed]
    return [_text(time) for time in data.times[row]]


def _input_texts(data: Dataset) -> dict[str, list[list[str]]]:
    """Return the texts of every input, (traj, time); a category is one column again."""
    found: dict[str, list[list[str]]] = {}
    categories = _categories(data)
    for index, name in enumerate(data.input_names):
        category = next((stem for stem, levels in categories.items() if name in levels), None)
        if category is None:
            found[name] = [[_text(value) for value in path] for path in data.inputs[..., index]]
        elif category not in found:
            levels = categories[category]
            chosen = data.inputs[..., [data.input_names.index(level) for level in levels]].argmax(axis=-1)
            found[category] = [[levels[code][len(category) + 1 :] for code in path] for path in chosen]
    return found


def _categories(data: Dataset) -> dict[str, list[str]]:
    """Return the inputs `NAME=LEVEL` of every category: several, of which one is 1 in every row and the others 0."""
    found: dict[str, list[str]] = {}
    for name in data.input_names:
        stems = [name[:place] for place, letter in enumerate(name) if letter == "="]
        for stem in stems:
            levels = [other for other in data.input_names if other.startswith(f"{stem}=")]
            if len(levels) > 1 and _is_one_of(data.inputs[..., [data.input_names.index(level) for level in levels]]):
                found[stem] = levels
    return found


def _is_one_of(levels: np.ndarray) -> bool:
    return bool(np.isin(levels, (0.0, 1.0)).all() and (levels.sum(axis=-1) == 1.0).all())


def _text(value: float) -> str:
    """Return a number as a table has it: whole numbers without a point, nothing where there is none."""
    value = float(value)
    if np.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < _LARGEST_WHOLE else repr(value)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names of columns, with an underscore at the end of one that is there already."""
    found: list[str] = []
    for name in names:
        while name in found:
            name += "_"
        found.append(name)
    return found
