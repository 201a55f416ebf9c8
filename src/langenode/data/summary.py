"""A summary of a data set in plain numbers, for a person to check."""

from typing import Any

import numpy as np

from langenode.data.checks import is_constant, valid_cells
from langenode.data.dataset import Dataset
from langenode.data.reading import Reading, plain_columns
from langenode.data.scaling import moments


def summarise(data: Dataset | Reading) -> dict[str, Any]:
    """Return counts, lengths, time steps and the range of every column as JSON values; None where nothing exists.

    For a `Reading` it also lists the columns, the reasons for their choice, what was left out, and facts about the
    table.
    """
    facts = data.table_facts if isinstance(data, Reading) else {}
    read = {"columns": plain_columns(data.columns), "reasons": dict(data.reasons)} if isinstance(data, Reading) else {}
    values = data.data if isinstance(data, Reading) else data
    valid = valid_cells(values.times)
    with np.errstate(over="ignore"):
        steps = np.diff(values.times, axis=1)[valid[:, 1:]]
    steps = steps[np.isfinite(steps)]
    everywhere = np.broadcast_to(valid[..., None], values.inputs.shape)
    inputs = _columns(values.inputs, everywhere, valid, values.input_names)
    outputs = _columns(values.outputs, values.mask, valid, values.output_names)
    missing, cells = sum(column["missing"] for column in outputs), int(valid.sum()) * values.num_outputs
    return {
        "trajectories": values.num_trajectories,
        "conditions": values.num_conditions,
        "replicates": _spread(np.bincount(values.condition)),
        "units": values.num_units,
        "has_initial": values.initial is not None,
        "lengths": _spread(values.lengths),
        "time": _spread(values.times[valid], with_median=False),
        "steps": _spread(steps),
        "common_times": bool(np.all(values.times == values.times[:1])),
        "inputs": inputs,
        "outputs": outputs,
        "missing_cells": missing,
        "missing_percent": 100.0 * missing / cells if cells else 0.0,
        "constant_columns": [column["name"] for column in inputs + outputs if column["constant"]],
        "duplicated_times": int(facts.get("duplicated_times", 0)),
        "rows": int(facts.get("rows", valid.sum())),
        "left_out": dict(facts.get("left_out", {})),
        "doubts": list(facts.get("doubts", [])),
        **read,
    }


def _spread(values: np.ndarray, with_median: bool = True) -> dict[str, float | int] | None:
    """Return the minimum, the median and the maximum of some numbers."""
    if values.size == 0:
        return None
    numbers = {"min": np.min(values).item(), "max": np.max(values).item()}
    if with_median:
        # The two middle values are halved before adding, so that the sum cannot overflow.
        middle = np.sort(values)[(values.size - 1) // 2 : values.size // 2 + 1]
        numbers["median"] = float(middle[0] / 2 + middle[-1] / 2)
    return numbers


def _columns(values: np.ndarray, seen: np.ndarray, valid: np.ndarray, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Summarise every column over its observed cells; cells of the padding do not count as missing."""
    return [_column(values[..., i][seen[..., i]], int(valid.sum()), name) for i, name in enumerate(names)]


def _column(values: np.ndarray, num_cells: int, name: str) -> dict[str, Any]:
    missing = num_cells - values.size
    numbers: dict[str, float | None] = dict.fromkeys(("min", "max", "mean", "std"))
    # A column that was never observed is missing, not constant.
    is_flat = bool(values.size) and is_constant(values)
    if values.size:
        mean, deviation = moments(values)
        numbers = {"min": values.min().item(), "max": values.max().item(), "mean": mean}
        numbers["std"] = 0.0 if is_flat else deviation
    percent = 100.0 * missing / num_cells if num_cells else 0.0
    return {"name": name, **numbers, "missing": missing, "missing_percent": percent, "constant": is_flat}
