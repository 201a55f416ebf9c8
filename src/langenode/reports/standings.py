"""One row per method: its scores, distances, diagnostics and cost, with their spread over the seeds."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """The name of a number, in full and for a narrow table, and the `part` of the table it belongs to."""

    label: str
    short: str
    part: str


# In the order shown. Diagnostics and distances are shown only if some run has them.
COLUMNS = {
    "distance": Column("Distance to the reference", "distance", "accuracy"),
    "mean_error": Column("Mean error, reference std", "mean error", "accuracy"),
    "std_ratio": Column("Std ratio", "std ratio", "accuracy"),
    "energy_distance": Column("Energy distance of the weights", "energy dist.", "accuracy"),
    "crps": Column("CRPS", "CRPS", "accuracy"),
    "energy_score": Column("Energy score", "energy score", "accuracy"),
    "w1_held_out": Column("Held-out W1", "W1", "accuracy"),
    "coverage_90": Column("90 % coverage", "90 % cov.", "accuracy"),
    "log_evidence": Column("Log-evidence", "log-evid.", "accuracy"),
    "evidence_error": Column("Log-evidence minus exact", "its error", "accuracy"),
    "relative_ess": Column("Relative ESS", "rel. ESS", "cost"),
    "ancestors": Column("Ancestors", "ancest.", "cost"),
    "k_hat": Column("k-hat", "k-hat", "cost"),
    "r_hat": Column("R-hat", "R-hat", "cost"),
    "ess": Column("ESS", "ESS", "cost"),
    "divergences": Column("Divergences", "diverg.", "cost"),
    "seconds": Column("Fit [s]", "fit [s]", "cost"),
    "num_evaluations": Column("Model evaluations", "model evals", "cost"),
}
# Rows are sorted by the first of these that more than one row has.
SORTS = ("distance", "crps")


def standings(runs: Sequence[Mapping[str, Any]], alike: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return tables of rows that share data, closest to the reference first; `alike` runs differ only in their seed."""
    rows = [_row(members) for members in alike]
    return [_table(group, runs) for group in _sharing_data(rows)]


def _row(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = members[0]
    return {
        "method": first["method"],
        "target": first["target"],
        "label": str(first["method"]),
        "runs": [run["name"] for run in members],
        "seeds": [run["seed"] for run in members],
        "data_ids": sorted({str(run["data_id"]) for run in members if run["data_id"] is not None}),
        "numbers": {key: _spread([run["numbers"][key] for run in members]) for key in COLUMNS},
        "num_stopped": sum(bool(run["is_stopped"]) for run in members),
        "verdicts": [run["verdict"] for run in members],
    }


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
        "num": len(known),
    }


def _sharing_data(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group rows that share a data set, directly or through others; scores on other data cannot be compared."""
    groups: list[list[dict[str, Any]]] = []
    for row in rows:
        joined = [group for group in groups if any(set(row["data_ids"]) & set(other["data_ids"]) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), row])
    return groups


def _table(rows: list[dict[str, Any]], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    methods = [row["label"] for row in rows]
    for row in rows:
        if methods.count(row["label"]) > 1:
            row["label"] = row["runs"][0] if len(row["runs"]) == 1 else f"{row['method']}: {', '.join(row['runs'])}"
    shown = [key for key in COLUMNS if any(row["numbers"][key]["num"] for row in rows)]
    sort = next((key for key in SORTS if sum(row["numbers"][key]["num"] > 0 for row in rows) > 1), None)
    if sort is not None:
        rows.sort(key=lambda row: (row["numbers"][sort]["num"] == 0, row["numbers"][sort]["mean"] or 0.0))
    named = {name for row in rows for name in row["runs"]}
    members = [run for run in runs if run["name"] in named]
    return {"sorted_by": sort, "columns": shown, "rows": rows, "notes": _notes(rows, members, shown)}


def _notes(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], shown: Sequence[str]) -> list[str]:
    notes = [*_reference_notes(runs, shown)]
    if len(rows) > 1 and len({tuple(row["data_ids"]) for row in rows}) > 1:
        notes.append("Not every method was run on all data: means over different seeds are over different data.")
    stopped = [row["label"] for row in rows if row["num_stopped"]]
    if stopped:
        notes.append(f"Stopped by the budget before completion: {', '.join(stopped)}.")
    return notes


def _reference_notes(runs: Sequence[Mapping[str, Any]], shown: Sequence[str]) -> list[str]:
    """Return notes on the reference of the distances and on their definition."""
    held = [run["reference"] for run in runs]
    exact = [one for one in held if one["of"] == "weights"]
    drawn = list(dict.fromkeys(one["to"] for one in held if one["of"] == "predictions"))
    energy = list(dict.fromkeys(one["energy_to"] for one in held if one["energy_to"]))
    notes = []
    if exact:
        how = ", ".join(sorted({one["to"] for one in exact}))
        notes.append(f"The reference is the exact posterior of the weights ({how}).")
    if drawn:
        notes.append(f"The reference is the predictions of {', '.join(drawn)}, without observation noise.")
    if energy and "energy_distance" in shown:
        notes.append(f"Energy distances of the weights are to the draws of {', '.join(energy)}.")
    if "distance" in shown:
        num = min(one["num_draws"] for one in held if one["to"])
        notes.append(
            "The distance combines the errors of mean and standard deviation, in standard deviations of the reference. "
            f"For {num} independent draws of the reference itself it is about {math.sqrt(1.5 / num):.2g}: smaller "
            "differences are not significant."
        )
    elif any(run["target"] in ("posterior", "tempered") for run in runs):
        tried = dict.fromkeys(str(run["method"]) for run in runs if run["is_reference"])
        why = "no run of nuts or smc is among these"
        if tried:
            why = f"no run of {' or '.join(tried)} passes its diagnostics"
        notes.append(f"No reference posterior: no exact one is known, and {why}.")
    return notes


def table_csv(found: Mapping[str, Any], failed: Mapping[str, str] | None = None) -> str:
    """Return one row per run with all its numbers, and the failed ones."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["run", "method", "target", "seed", *COLUMNS, "stopped", "verdict", "reference", "error"])
    for run in found["runs"]:
        numbers = ["" if run["numbers"][key] is None else repr(run["numbers"][key]) for key in COLUMNS]
        tail = [run["is_stopped"], run["verdict"] or "", run["reference"]["to"] or "", ""]
        writer.writerow([run["name"], run["method"], run["target"], run["seed"], *numbers, *tail])
    for name, error in (failed or {}).items():
        writer.writerow([name, *[""] * (len(COLUMNS) + 6), error])
    return buffer.getvalue()


def number_text(value: float) -> str:
    """Format a number in few characters."""
    if value and abs(value) >= 1e5:
        return f"{value:.2e}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"


def cell_text(number: Mapping[str, Any]) -> str | None:
    """Format a row's number as `mean ± std`, to two digits of its spread; None where there is none."""
    mean, std = number["mean"], number["std"]
    if mean is None:
        return None
    if not std:
        return number_text(mean) if std is None else f"{number_text(mean)} ± 0"
    if abs(mean) >= 1e5:
        return f"{number_text(mean)} ± {std:.1e}"
    digits = min(5, max(0, 1 - math.floor(math.log10(std))))
    return f"{mean:.{digits}f} ± {std:.{digits}f}"
