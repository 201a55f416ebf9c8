"""The page of a comparison: methods and runs side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langenode.reports.pages import as_cell, as_text, figures_of, level_of, render, shown_image, words_of_pages
from langenode.reports.standings import COLUMNS, cell_text
from langenode.storage.folder import RunFolder, RunFolderError

# Above this aspect ratio no other run's figure fits beside a figure.
WIDE_TILE = 3.0
# Above this number, runs are not listed in the heading, and their figures are folded.
MOST_AT_A_GLANCE = 6


class Picture(NamedTuple):
    """A figure of the comparison itself, as PNG, with its title, caption and alt text."""

    title: str
    caption: str
    alt: str
    content: bytes


def render_comparison(
    comparison: Mapping[str, Any],
    folders: Sequence[RunFolder],
    *,
    pictures: Sequence[Picture] = (),
    shown: Sequence[RunFolder] | None = None,
    heading: str | None = None,
) -> str:
    """Render the page of a comparison (`compare_runs` of the same folders), with the runs' figures side by side.

    `pictures` show all runs together. Of the runs' own figures, those of the `shown` folders are included, or all.
    """
    runs, words = comparison["runs"], words_of_pages()
    if len(runs) != len(folders):
        raise RunFolderError(
            f"a page needs the folders of its {len(runs)} runs; found {len(folders)}; give the compared folders"
        )
    by_name = {run["name"]: run for run in runs}
    names = list(by_name)
    seen = {folder.path for folder in (folders if shown is None else shown)}
    kept = [(name, folder) for name, folder in zip(names, folders, strict=True) if folder.path in seen]
    figures, alone = _shared_figures([name for name, _ in kept], [folder for _, folder in kept])
    labels, is_long = comparison["scores"], len(runs) > MOST_AT_A_GLANCE
    heading = f"{len(runs)} runs compared" if heading is None else heading
    return render(
        "comparison.html",
        title=f"{heading if is_long else ', '.join(names)} — Langenode comparison",
        heading=heading,
        names=[] if is_long else names,
        notes=comparison["notes"],
        standings=[_standing(table, words) for table in comparison["standings"]],
        refused=comparison.get("refused", {}),
        failed=comparison.get("failed", {}),
        pictures=[_picture(picture) for picture in pictures],
        groups=[_group(group, by_name, labels, words) for group in comparison["groups"]],
        seeds=[_seed_row(row, labels) for row in comparison["seeds"]],
        score_labels=list(labels.values()),
        runs=[{"name": run["name"], "cells": _run_cells(run)} for run in runs],
        figures=figures,
        is_folded=len(kept) > MOST_AT_A_GLANCE,
        of=", ".join(name for name, _ in kept) if len(kept) < len(runs) else "",
        alone=", ".join(alone),
    )


def _picture(picture: Picture) -> dict[str, Any]:
    words = {"title": picture.title, "label": picture.title, "caption": picture.caption, "alt": picture.alt}
    # Like a figure with panels, it is scrolled rather than shrunk on a narrow page.
    return words | {"file": f"{picture.title}.png"} | shown_image(picture.content) | {"wide": True}


# The table of methods

PARTS = {"accuracy": "Accuracy of each method", "cost": "Cost and diagnostics of each method"}


def _standing(table: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Return one table per part, with the same rows in each."""
    sort = table["sorted_by"]
    order = "" if sort is None else f" Sorted by: {COLUMNS[sort].label[0].lower()}{COLUMNS[sort].label[1:]}."
    seeds = max((row["seeds"] for row in table["rows"]), key=len)
    spread = f" Mean ± standard deviation over seeds {as_text(seeds)}." if len(seeds) > 1 else ""
    parts = []
    for part, caption in PARTS.items():
        keys = [key for key in table["columns"] if COLUMNS[key].part == part]
        if keys:
            rows = [_standing_row(row, keys, part, len(seeds), words) for row in table["rows"]]
            labels = [COLUMNS[key].label for key in keys]
            parts.append({"caption": f"{caption}.{order}{spread}", "labels": labels, "rows": rows, "part": part})
    return {"parts": parts, "notes": table["notes"]}


def _standing_row(
    row: Mapping[str, Any], keys: Sequence[str], part: str, most: int, words: Mapping[str, Any]
) -> dict[str, Any]:
    num = len(row["runs"])
    says = [] if num == most else [f"seed {as_text(row['seeds'])} only"]
    if part == "cost" and row["num_stopped"]:
        says.append("stopped by the budget" + (f" in {row['num_stopped']} of {num}" if num > 1 else ""))
    levels = [level for level in row["verdicts"] if level in words["level"]]
    worst = next((level for level in ("distrust", "caution", "trust") if level in levels), None)
    return {
        "label": row["label"],
        "says": "; ".join(says),
        "cells": [{"text": cell_text(row["numbers"][key]), "summary": None} for key in keys],
        "verdict": None if worst is None else level_of(worst, words),
    }


# Parts of a comparison


def _group(
    group: Mapping[str, Any], by_name: Mapping[str, Any], labels: Mapping[str, str], words: Mapping[str, Any]
) -> dict[str, Any]:
    ranked = group["ranked_by"]
    why = dict.fromkeys(group["trained_on"], "trained on") | dict.fromkeys(group["missing"], "missing")
    scores = [{"label": label, "why": why.get(key, "")} for key, label in labels.items()]
    data_id = group["data_id"]
    caption = "Scored on unrecorded data." if data_id is None else f"Scored on the data {str(data_id)[:12]}."
    if ranked:
        caption += f" Ranked by {', '.join(labels[key] for key in ranked)}."
    rows = [_group_row(row, by_name[row["name"]], ranked, words) for row in group["rows"]]
    return {"caption": caption, "scores": scores, "rows": rows, "notes": group["notes"]}


def _group_row(
    row: Mapping[str, Any], run: Mapping[str, Any], ranked: Sequence[str], words: Mapping[str, Any]
) -> dict[str, Any]:
    cells = []
    for key, value in run["scores"].items():
        place = row["ranks"].get(key)
        rank = "" if place is None else f"{place:g}"
        shown = None if value is None else f"{value:#.4g}"
        cells.append(as_cell(shown) | {"is_ranked": key in ranked, "is_best": rank == "1", "rank": rank})
    tie = "=" if row["is_tied"] else ""
    return {
        "rank": "–" if row["rank"] is None else f"{row['rank']}{tie}",
        "name": run["name"],
        "what": f"{as_text(run['method'])}, {as_text(run['target'])}, seed {as_text(run['seed'])}",
        "cells": cells,
        "mean_rank": "–" if row["mean_rank"] is None else f"{row['mean_rank']:.3g}",
        "verdict": level_of(run["verdict"], words) if run["verdict"] in words["level"] else None,
    }


def _run_cells(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    asked = [run[key] for key in ("experiment", "method", "target", "stochastic", "rest", "seed")]
    seconds = None if run["seconds"] is None else f"{run['seconds']:.1f}"
    return [as_cell(value) for value in (*asked, *run["diagnostics"].values(), seconds)]


def _seed_row(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    cells = []
    for key in labels:
        score = row["scores"][key]
        spread = "" if score["std"] is None else f" ± {score['std']:.2g}"
        text = None if score["mean"] is None else f"{score['mean']:.4g}{spread}"
        cells.append({"text": text, "summary": None})
    drawn = "" if row["is_same_data"] else "; new data for each seed"
    return {
        "what": f"{row['experiment']}: {row['method']}, {row['target']}",
        "names": f"{', '.join(row['runs'])}{drawn}",
        "seeds": as_text(row["seeds"]),
        "cells": cells,
        "ranks": ", ".join("–" if rank is None else str(rank) for rank in row["ranks"]),
    }


def _shared_figures(names: Sequence[str], folders: Sequence[RunFolder]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return figures that two or more runs have, with one tile per run, and the other figures' names with their run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, folder in zip(names, folders, strict=True):
        for figure in figures_of(folder):
            found.setdefault(figure["name"], {})[name] = figure
    shared, alone = [], []
    for figure, tiles in found.items():
        if len(tiles) < 2:
            alone += [f"{figure} ({run})" for run in tiles]
            continue
        first = next(iter(tiles.values()))
        shared.append(
            {
                "title": first["title"],
                "caption": first["caption"],
                "tiles": [_tile(run, tile) for run, tile in tiles.items()],
                "wide": any(tile["width"] > WIDE_TILE * tile["height"] for tile in tiles.values()),
                "without": ", ".join(name for name in names if name not in tiles),
            }
        )
    return shared, alone


def _tile(run: str, figure: Mapping[str, Any]) -> dict[str, Any]:
    return {**figure, "run": run, "label": f"{run}: {figure['title']}", "alt": f"{run}: {figure['alt']}"}
