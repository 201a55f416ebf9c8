"""Bands for new data in a file, from a fit alone: NetCDF, CSV and a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from langenode.data import Columns, Dataset, Reading, StatedColumnsError, read_data
from langenode.fitting.facade import Fit, load_fit
from langenode.storage.bands import LEVELS, bands_csv
from langenode.storage.folder import RunFolderError, write_together

# Conditions that a picture shows, from the first.
MOST_PANELS = 4


def predict_file(
    fit_path: Path,
    data_path: Path,
    columns: Mapping[str, Any],
    stem: Path,
    *,
    num_samples: int | None,
    seed: int | None,
    force: bool,
    given: bool = False,
) -> dict[str, Any]:
    """Read new data as the fitted ones were, predict, and write `stem`.nc, .csv and .png; says what was written.

    With `given` a hierarchical fit takes the readings among the new data as known.
    """
    stem = stem.with_suffix("") if stem.suffix in (".nc", ".csv", ".png") else stem
    paths = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".nc", ".csv", ".png")]
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise RunFolderError(f"results are not overwritten; {there[0]} is there already; use --force or another --out")
    fit = load_fit(fit_path)
    reading = _read(fit, data_path, columns)
    known = "readings" if given else None
    bands = fit.predict(reading.data, num_samples=num_samples, seed=seed, given=known)
    prepared, time_name = fit.prepared(reading.data), reading.columns.time
    table = bands_csv(bands, prepared, time_name=time_name)
    picture = _picture(bands, prepared, time_name or "time")
    contents = (bytes(bands.to_netcdf(engine="scipy")), table.encode(), picture)
    write_together(dict(zip(paths, contents, strict=True)))
    sizes = {"conditions": int(bands.sizes["condition"]), "samples": int(bands.sizes["sample"])}
    return {**sizes, "files": [str(path) for path in paths]}


def _read(fit: Fit, path: Path, columns: Mapping[str, Any]) -> Reading:
    """New data by the columns of the fit, unless others are given; outputs may be absent."""
    named: dict[str, Any] = fit.columns._asdict() | dict(columns)
    if path.suffix.lower() in (".nc", ".npz"):
        named["trajectory"] = None  # which is an axis there
    if not fit.columns.named() and not columns:
        names = {"inputs": fit.input_names, "outputs": fit.output_names}
        named |= {} if path.suffix.lower() in (".nc", ".npz") else names
    try:
        return read_data(path, Columns(**named), outputs_may_be_absent=True)
    except StatedColumnsError:
        return read_data(path, outputs_may_be_absent=True)  # a file of ours says itself what its columns are


def _picture(bands: Any, data: Dataset, time_label: str) -> bytes:
    """The first conditions with their bands, and the readings of the new data where it has any."""
    import io

    from langenode import plots

    members = data.replicates()
    readings = np.where(members.mask, members.outputs, np.nan)
    time_label = f"seconds since the first {time_label}" if time_label in data.labels else time_label
    labels = [str(name) for name in bands["out"].to_numpy()]
    panels = []
    for index in range(min(MOST_PANELS, bands.sizes["condition"])):
        own = slice(int(bands["length"][index]))
        quantiles = bands["observation_quantiles"].to_numpy()[:, index, own]
        ends = quantiles[[LEVELS.index(0.05), LEVELS.index(0.95)]]
        model = bands["outputs"].to_numpy()[:, index, own]
        times = bands["times"].to_numpy()[index, own]
        name = str(bands["condition"].to_numpy()[index])
        panels.append(plots.BandPanel(name, times, model, ends, readings[:, index, own]))
    figure = plots.prediction_bands(panels, time_label=time_label, output_labels=labels)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
