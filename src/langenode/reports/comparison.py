"""Comparison of runs: their setups, their scores, and ranks by the scores that no method was trained on.

Only runs that were scored on the same data (`data_id`) are ranked against each other.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langenode.reports.references import DISTANCES, Measured, Member, measure
from langenode.reports.standings import COLUMNS, standings
from langenode.scores.diagnostics import is_k_hat_telling
from langenode.storage.folder import RunFolder, RunFolderError, read_config, read_metrics, read_provenance

# Lower is better in all scores.
SCORES = {
    "crps": "CRPS",
    "energy_score": "Energy score",
    "w1_held_out": "Held-out W1",
    "coverage_error_90": "90 % coverage error",
}
DIAGNOSTICS = ("relative_ess", "k_hat", "log_evidence")
# The score that a population loss minimises. Posterior and tempered fits use the log-likelihood, which is no score.
OBJECTIVES = {"energy": ("energy_score",), "quantile": ("w1_held_out",), "log_mean_exp": ()}


def compare_runs(folders: Sequence[RunFolder], *, fewest: int = 2) -> dict[str, Any]:
    """Return what `compare` shows, as plain JSON: `runs`, `groups` (ranked, one per data set), `seeds` and `notes`.

    `standings` are tables with one row for all runs that differ only in their seed.
    """
    if len(folders) < fewest:
        raise RunFolderError(
            f"a comparison needs two runs or more; found {len(folders)}; name another, as in: langenode compare A B"
        )
    configs = [read_config(folder) for folder in folders]
    names = distinct_names([folder.path for folder in folders])
    members = [
        Member(name, folder, config, read_metrics(folder))
        for name, folder, config in zip(names, folders, configs, strict=True)
    ]
    runs = [_run(member) for member in members]
    _add_distances(runs, members)
    groups = [_ranked(group) for group in _by_data(runs)]
    ranks = {row["name"]: row["rank"] for group in groups for row in group["rows"]}
    sources = [read_provenance(folder.provenance).get("source") for folder in folders]
    alike = _alike(runs, configs, sources)
    return {
        "scores": dict(SCORES),
        "runs": runs,
        "groups": groups,
        "standings": standings(runs, alike),
        "seeds": [_summary(group, ranks) for group in alike if len({run["seed"] for run in group}) > 1],
        "notes": _notes(runs, groups),
    }


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the folders' names, with as many parents as make them distinct, and a count where nothing does."""
    parts = [path.resolve().parts for path in paths]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    names = ["/".join(part[-depth:]).replace("//", "/") for part in parts]
    counts = dict.fromkeys(names, 0)
    distinct = []
    for name in names:
        counts[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return distinct


def _run(member: Member) -> dict[str, Any]:
    name, folder, config, metrics = member
    found: dict[str, Any] = {"name": name, "path": str(folder.path)}
    for key in ("experiment", "method", "target", "stochastic", "rest", "seed"):
        found[key] = metrics.get(key, config.get(key))
    seconds = _mapping(metrics.get("seconds")) | _mapping(read_provenance(folder.provenance).get("seconds"))
    diagnostics = _mapping(metrics.get("posterior"))
    scores = _scores(metrics)
    return found | {
        "scores": scores,
        "trained_on": _trained_on(config),
        "diagnostics": {key: _number(diagnostics.get(key)) for key in DIAGNOSTICS},
        "verdict": _mapping(metrics.get("verdict")).get("level"),
        "seconds": _number(seconds.get("fit")),
        "data_id": metrics.get("data_id"),
        "numbers": _numbers(metrics, config, scores) | {"seconds": _number(seconds.get("fit"))},
        "is_stopped": _is_stopped(metrics, config),
        "is_reference": diagnostics.get("reference_rank") is not None,  # if it passes its diagnostics
        "reference": Measured()._asdict(),
    }


def _numbers(metrics: Mapping[str, Any], config: Mapping[str, Any], scores: dict[str, Any]) -> dict[str, float | None]:
    """Return every number of the table of methods, None where a run has none; distances are added later."""
    diagnostics = _mapping(metrics.get("posterior"))
    found = {key: _number(diagnostics.get(key)) for key in COLUMNS}
    found |= {key: scores[key] for key in COLUMNS if key in scores}
    found["coverage_90"] = _number(_mapping(metrics.get("coverage")).get("90"))
    if not is_k_hat_telling(found["relative_ess"]):
        found["k_hat"] = None
    if found["num_evaluations"] is None:
        found["num_evaluations"] = _training_evaluations(metrics, config)
    return found


def _training_evaluations(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> float | None:
    """Return samples times updates, where every update used all data; a gradient counts as one evaluation."""
    options, updates = _mapping(config.get("training")), _mapping(metrics.get("training")).get("updates")
    num = _number(options.get("num_samples"))
    is_whole = not any(options.get(key) for key in ("batch_trajectories", "batch_conditions"))
    return float(updates) * num if is_whole and num is not None and isinstance(updates, int) else None


def _is_stopped(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether the fit was stopped by its budget."""
    training = _mapping(metrics.get("training"))
    is_short = bool(training) and training.get("updates", 0) < training.get("asked", 0)
    is_cut = is_short and config.get("budget") is not None and not _mapping(config.get("training")).get("patience")
    return bool(_mapping(metrics.get("posterior")).get("stopped")) or is_cut


def _add_distances(runs: list[dict[str, Any]], members: Sequence[Member]) -> None:
    """Add the distance of each run from the reference among the runs on its data."""
    by_name = {member.name: member for member in members}
    for group in _by_data(runs):
        found = measure([by_name[run["name"]] for run in group])
        for run in group:
            held = found[run["name"]]._asdict()
            run["reference"] = held
            run["numbers"] |= {key: _number(held[key]) for key in DISTANCES}


def _scores(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    inside = _number(_mapping(metrics.get("coverage")).get("90"))
    return {
        "crps": _number(metrics.get("crps")),
        "energy_score": _number(metrics.get("energy_score")),
        "w1_held_out": _number(_mapping(metrics.get("w1_held_out")).get("mean")),
        "coverage_error_90": None if inside is None else abs(inside - 0.9),
    }


def _trained_on(config: Mapping[str, Any]) -> list[str]:
    if config.get("target") != "population":
        return []
    loss = _mapping(config.get("population")).get("loss", "energy")
    return list(OBJECTIVES.get(loss, ()))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


# Ranking


def _by_data(runs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group runs scored on the same data; a run without a record of its data forms its own group."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        key = ("alone", run["name"]) if run["data_id"] is None else ("data", str(run["data_id"]))
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _ranked(members: list[dict[str, Any]]) -> dict[str, Any]:
    """Order one group by mean rank over the scores that all runs have and none was trained on."""
    trained = [key for key in SCORES if any(key in run["trained_on"] for run in members)]
    free = [key for key in SCORES if key not in trained]
    # A run without any of these scores is left out; otherwise the others would lose theirs.
    scored = [run for run in members if any(run["scores"][key] is not None for key in free)]
    missing = {key: [run["name"] for run in scored if run["scores"][key] is None] for key in free}
    used = [key for key in free if scored and not missing[key]]
    is_ranked = len(scored) > 1 and bool(used)
    ranks = {key: _ranks([run["scores"][key] for run in scored]) for key in used} if is_ranked else {}
    rows = [_row(run, {key: ranks[key][i] for key in ranks}) for i, run in enumerate(scored)]
    if is_ranked:
        totals = [sum(row["ranks"].values()) for row in rows]  # sums of halves are exact, so ties stay ties
        for row, total in zip(rows, totals, strict=True):
            row["rank"] = 1 + sum(other < total for other in totals)
            row["is_tied"] = totals.count(total) > 1
        rows.sort(key=lambda row: row["rank"])
    rows += [_row(run, {}) for run in members if run not in scored]
    return {
        "data_id": members[0]["data_id"],
        "ranked_by": used if is_ranked else [],
        "trained_on": trained,
        "missing": {key: names for key, names in missing.items() if names},
        "rows": rows,
        "notes": _group_notes(members, scored, trained, missing),
    }


def _row(run: dict[str, Any], ranks: dict[str, float]) -> dict[str, Any]:
    mean = statistics.fmean(ranks.values()) if ranks else None
    return {"name": run["name"], "ranks": ranks, "mean_rank": mean, "rank": None, "is_tied": False}


def _ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1 for the lowest; equal values share the mean of their places."""
    return [1 + sum(x < y for x in values) + 0.5 * (values.count(y) - 1) for y in values]


def _group_notes(
    members: list[dict[str, Any]],
    scored: list[dict[str, Any]],
    trained: list[str],
    missing: dict[str, list[str]],
) -> list[str]:
    if len(members) == 1:
        return ["Not ranked: no other run was scored on the same data."]
    notes = [
        f"{SCORES[key]} is shown but not used for ranking: it was the training objective of "
        f"{_listed(run['name'] for run in members if key in run['trained_on'])}."
        for key in trained
    ]
    for key, names in missing.items():
        notes += [f"{SCORES[key]} is not used for ranking: it is missing in {_listed(names)}."] if names else []
    left_out = [run["name"] for run in members if run not in scored]
    if left_out:
        notes.append(f"Not ranked, because they have no scores: {_listed(left_out)}.")
    if not scored or all(missing.values()):
        notes.append("Not ranked: no score remains that all runs have and none was trained on.")
    elif len(scored) == 1:
        notes.append("Not ranked: only one run has scores.")
    return notes


# Notes on all runs


def _notes(runs: list[dict[str, Any]], groups: list[dict[str, Any]]) -> list[str]:
    notes = []
    if len(groups) > 1:
        notes.append(
            f"The runs were scored on {len(groups)} different data sets. Scores on different data cannot be compared, "
            "so each data set has its own table."
        )
    unknown = [run["name"] for run in runs if run["data_id"] is None]
    if unknown:
        notes.append(
            f"Not ranked, because the data they were scored on is not recorded: {_listed(unknown)}. "
            "Evaluate them again with this version: langenode evaluate RUN"
        )
    levels = {run["name"]: run["verdict"] for run in runs}
    first = [row["name"] for group in groups for row in group["rows"] if row["rank"] == 1]
    notes += [
        f"{name} ranks first, but its own verdict is not to trust it: the best of these runs is not good enough."
        for name in first
        if levels[name] == "distrust"
    ]
    return notes


def _alike(runs: list[dict[str, Any]], configs: list[dict[str, Any]], sources: list[Any]) -> list[list[dict[str, Any]]]:
    """Group the runs that differ only in their seed."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for run, config, source in zip(runs, configs, sources, strict=True):
        options = {key: value for key, value in config.items() if key != "seed"}
        identity = json.dumps([options, _mapping(source).get("sha256")], sort_keys=True, default=str)
        alike.setdefault(identity, []).append(run)
    return list(alike.values())


def _summary(members: list[dict[str, Any]], ranks: dict[str, int | None]) -> dict[str, Any]:
    """Return mean and standard deviation of the scores over seeds."""
    scores: dict[str, Any] = {}
    for key in SCORES:
        values = [run["scores"][key] for run in members if run["scores"][key] is not None]
        scores[key] = {
            "mean": statistics.fmean(values) if values else None,
            "std": statistics.stdev(values) if len(values) > 1 else None,
            "num": len(values),
        }
    first = {key: members[0][key] for key in ("experiment", "method", "target", "stochastic", "rest")}
    return first | {
        "runs": [run["name"] for run in members],
        "seeds": [run["seed"] for run in members],
        "is_same_data": len({run["data_id"] for run in members}) == 1,
        "scores": scores,
        "ranks": [ranks[run["name"]] for run in members],
    }


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
