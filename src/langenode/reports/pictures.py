"""Figures of a comparison: the band of every method on one held-out trajectory, and accuracy against time."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from langenode import plots
from langenode.data import load_data
from langenode.reports.comparison_page import Picture
from langenode.reports.references import Member, trusted_sampler
from langenode.reports.standings import COLUMNS
from langenode.storage.folder import RunFolder, read_config, read_metrics
from langenode.storage.tables import read_predictions


def pictures(found: Mapping[str, Any], folders: Sequence[RunFolder]) -> dict[str, Picture]:
    """Return, by file name, those of `bands` and `time` that the runs' files allow."""
    by_name = {run["name"]: folder for run, folder in zip(found["runs"], folders, strict=True)}
    if not found["standings"]:
        return {}
    table = max(found["standings"], key=lambda table: len(table["rows"]))
    made = {"bands": _bands(table, found["runs"], by_name), "time": _time(table, found["runs"])}
    return {name: picture for name, picture in made.items() if picture is not None}


def _bands(
    table: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], folders: Mapping[str, RunFolder]
) -> Picture | None:
    """Draw the bands of all methods that were run on the first run's data."""
    by_name = {run["name"]: run for run in runs}
    first = by_name[table["rows"][0]["runs"][0]]["data_id"]
    chosen = {row["label"]: name for row in table["rows"] for name in row["runs"] if by_name[name]["data_id"] == first}
    chosen = {label: name for label, name in chosen.items() if folders[name].predictions.is_file()}
    members = [
        Member(name, folders[name], read_config(folders[name]), read_metrics(folders[name])) for name in chosen.values()
    ]
    if len(members) < 2 or not members[0].folder.test.is_file():
        return None
    data = load_data(members[0].folder.test)
    times, mask = data.times[0], data.mask[0, :, 0]
    condition = int(data.condition[0])
    panels = {
        label: read_predictions(folders[name].predictions).outputs[:, condition, :, 0] for label, name in chosen.items()
    }
    name, reference = _reference(members, panels, condition)
    observed = np.where(mask, data.outputs[0, :, 0], np.nan)
    figure = plots.method_bands(times, panels, observed, reference, name=name, ylabel=data.output_names[0])
    seed = by_name[members[0].name]["seed"]
    caption = (
        f"First panel: a held-out trajectory with the mean of {name} (seed {seed}). Others: the 90 % band and mean "
        f"of each method's model, without observation noise, relative to that mean; the lines are the band of {name}. "
        "Random starts are included in all bands; bands are clipped at the frame."
    )
    alt = f"One small panel with a band per method: {', '.join(panels)}."
    return Picture("Bands of all methods", caption, alt, _png(figure))


def _reference(members: Sequence[Member], panels: Mapping[str, np.ndarray], condition: int) -> tuple[str, np.ndarray]:
    """Return whose band is drawn in all panels: a trusted sampler's, or that of the first row."""
    sampler = trusted_sampler(members)
    if sampler is None:
        return next(iter(panels.items()))
    return sampler.name, read_predictions(sampler.folder.predictions).outputs[:, condition, :, 0]


def _time(table: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Picture | None:
    key = table["sorted_by"]
    if key is None:
        return None
    by_name = {run["name"]: run for run in runs}
    found = {
        row["label"]: np.array(
            [[_or_nan(by_name[name]["numbers"][k]) for k in ("seconds", key)] for name in row["runs"]]
        )
        for row in table["rows"]
    }
    found = {label: values[np.isfinite(values).all(1)] for label, values in found.items()}
    found = {label: values for label, values in found.items() if len(values)}
    if len(found) < 2:
        return None
    label = COLUMNS[key].label
    figure = plots.accuracy_against_time(found, ylabel=f"{label[0].lower()}{label[1:]}" if key == "distance" else label)
    caption = "One point per seed; lower and further left is better. Time is that of the fit, including compilation."
    return Picture(
        "Accuracy against time", caption, f"{label} against the time of the fit, one label per method.", _png(figure)
    )


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
