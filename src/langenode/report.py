"""Run folders as one self-contained HTML page: what was asked, the verdict, figures, numbers and how to make it again.

Nothing is computed here. JSON, TOML and PNG files are read and laid out by the templates beside this file; the page
carries its style and images, runs no script and loads nothing. Text from files is escaped.
"""

import base64
import shlex
import struct
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from langenode._version import __version__
from langenode.comparison import read_config, read_metrics
from langenode.runfolder import RunFolder, RunFolderError, read_json, read_record, write_text

TEMPLATES = Path(__file__).parent / "templates"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Figures are drawn at 150 dots to the inch, and a browser counts 96.
SHOWN_SCALE = 96 / 150
# Above this ratio of the sides a figure has panels in a row: no table fits beside it, then no other run's figure.
WIDE, WIDE_TILE = 2.2, 3.0
MAX_INLINE_VALUES = 4
SHOWN_ELSEWHERE = ("verdict", "choices")


def write_report(folder: RunFolder) -> Path:
    """Render the run's report into its folder, whole or not at all."""
    write_text(folder.report, render_report(folder))
    return folder.report


def render_report(folder: RunFolder) -> str:
    """The report of one evaluated run; what the folder lacks is left out or said to be missing."""
    config, metrics = read_config(folder), read_metrics(folder)
    provenance, words = read_record(folder.provenance), _words()
    asked = {**config, **{key: value for key, value in metrics.items() if value is not None}}
    source = _mapping(provenance.get("source")).get("path")
    subject = _text(asked.get("experiment")) if source is None else PurePath(str(source)).name
    heading = f"{subject}: {_text(asked.get('method'))}, {_text(asked.get('target'))}"
    return _render(
        "report.html",
        title=f"{heading} — Langenode report",
        heading=heading,
        name=folder.path.resolve().name,
        seed=_text(asked.get("seed")),
        started=_started(provenance.get("started")),
        asked=_asked(asked, config, provenance, words),
        data=_data(_mapping(_mapping(metrics.get("problem")).get("data")), words),
        choices=_choices(metrics),
        verdict=_verdict(metrics.get("verdict"), words),
        figures=_figures(folder),
        numbers=list(_rows({key: x for key, x in metrics.items() if key not in SHOWN_ELSEWHERE}, words["meaning"])),
        config=folder.config.read_text(encoding="utf-8"),
        again=_again(asked, provenance),
        provenance=_provenance(provenance, words),
        files=_files(folder, words),
    )


def render_comparison(comparison: Mapping[str, Any], folders: Sequence[RunFolder]) -> str:
    """The page of a comparison (`compare_runs` of the same folders), with the figures of the runs side by side."""
    runs, words = comparison["runs"], _words()
    if len(runs) != len(folders):
        raise RunFolderError(
            f"a comparison is drawn with its own runs; it has {len(runs)}, got {len(folders)} folders; give the same"
        )
    by_name = {run["name"]: run for run in runs}
    names = list(by_name)
    figures, alone = _shared_figures(names, folders)
    labels = comparison["scores"]
    return _render(
        "comparison.html",
        title=f"{', '.join(names)} — Langenode comparison",
        heading=f"{len(runs)} runs compared",
        names=names,
        notes=comparison["notes"],
        groups=[_group(group, by_name, labels, words) for group in comparison["groups"]],
        seeds=[_seed_row(row, labels) for row in comparison["seeds"]],
        score_labels=list(labels.values()),
        runs=[{"name": run["name"], "cells": _run_cells(run)} for run in runs],
        figures=figures,
        alone=", ".join(alone),
    )


def _render(template: str, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)


def _words() -> dict[str, Any]:
    return tomllib.loads((TEMPLATES / "words.toml").read_text(encoding="utf-8"))


# Values as text


def _text(value: Any) -> str:
    """A value in few characters; mappings and lists in one line."""
    if value is None:
        return "not available"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(f"[{_text(item)}]" if isinstance(item, list | tuple) else _text(item) for item in value)
    return str(value)


def _cell(value: Any) -> dict[str, Any]:
    """A table's cell; long lists are folded."""
    if value is None:
        return {"text": None, "summary": None}
    is_long = isinstance(value, list) and (
        len(value) > MAX_INLINE_VALUES or any(isinstance(item, list | dict) for item in value)
    )
    return {"text": _text(value) or "none", "summary": f"{len(value)} values" if is_long else None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _records(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = values.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _rows(values: Mapping[str, Any], meanings: Mapping[str, str], path: str = "") -> Iterator[dict[str, Any]]:
    """A nested mapping as the rows of one table: plain values, then what is nested; from the third level in a line."""
    depth = path.count(".")
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], Mapping)):
        name, is_group = f"{path}{key}", isinstance(value, Mapping) and depth < 2
        row = {"depth": depth, "label": key, "meaning": meanings.get(name, meanings.get(f"*.{key}", ""))}
        yield row | {"is_group": is_group, "cell": _cell(value)}
        if is_group:
            yield from _rows(value, meanings, f"{name}.")


# Sections of a report


def _asked(
    asked: Mapping[str, Any], config: Mapping[str, Any], provenance: Mapping[str, Any], words: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The four questions and the data, in words."""
    problem, source = _mapping(asked.get("problem")), _mapping(provenance.get("source"))
    target, method = _text(asked.get("target")), _text(asked.get("method"))
    loss = words["loss"].get(_mapping(config.get("population")).get("loss"), "") if target == "population" else ""
    about = f"{words['target'].get(target, '')} {loss}".strip()
    items = [
        {"term": "What is inferred", "option": target, "text": about},
        {"term": "Which sampler", "option": method, "text": words["method"].get(method, "")},
        {"term": "Which weights", "option": _text(asked.get("stochastic")), "text": _weights(asked, problem, words)},
        {"term": "Inputs", "text": "" if problem.get("inputs") else "None.", "names": problem.get("inputs")},
        {"term": "Outputs", "text": "", "names": problem.get("outputs")},
        {"term": "Data file", "text": "", "names": [source["path"]] if source.get("path") else None},
        {"term": "Seed", "text": f"{_text(asked.get('seed'))}, for every random draw of the run."},
    ]
    if not problem:
        items = [item for item in items if item["term"] != "Inputs"]
    return [{"option": None, "names": None} | item for item in items if item["text"] or item.get("names")]


def _weights(asked: Mapping[str, Any], problem: Mapping[str, Any], words: Mapping[str, Any]) -> str:
    num, stochastic = problem.get("num_weights"), problem.get("num_stochastic")
    rest = words["rest"].get(asked.get("rest"), _text(asked.get("rest")))
    if num is None or stochastic is None:
        return "" if asked.get("stochastic") == "all" else f"The other weights {rest}."
    if num == stochastic:
        return f"All {num} weights of the model are stochastic."
    return f"{stochastic} of {num} weights are stochastic; the other {num - stochastic} {rest}."


def _data(sets: Mapping[str, Any], words: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, counts in sets.items():
        found = [_mapping(counts).get(column) for column in ("trajectories", "conditions", "cells")]
        cells = [_cell(f"{num:,}" if isinstance(num, int) else num) for num in found]
        rows.append({"label": words["set"].get(name, name), "cells": cells})
    return rows


def _choices(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{key: _text(row.get(key)) for key in ("what", "chosen", "why")} for row in _records(metrics, "choices")]


def _verdict(verdict: Any, words: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(verdict, Mapping) or verdict.get("level") not in words["level"]:
        return None
    results = {"True": ("passed", "Passed"), "False": ("failed", "Failed")}
    checks = []
    for check in _records(verdict, "checks"):
        kind, result = results.get(str(check.get("passed")), ("open", "Not judged"))
        texts = {key: _text(check.get(key) or "") for key in ("name", "wanted", "says")}
        checks.append(texts | {"value": _cell(check.get("value")), "kind": kind, "result": result})
    return _level(verdict["level"], words) | {"text": _text(verdict.get("text") or ""), "checks": checks}


def _level(level: str, words: Mapping[str, Any]) -> dict[str, Any]:
    return {"level": level, "word": words["level"].get(level, level)}


def _started(raw: Any) -> dict[str, str] | None:
    if not isinstance(raw, str):
        return None
    try:
        return {"raw": raw, "text": datetime.fromisoformat(raw).strftime("%d %B %Y, %H:%M %Z").strip()}
    except ValueError:
        return {"raw": raw, "text": raw}


def _again(asked: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, str]:
    argv, source = provenance.get("command"), _mapping(provenance.get("source"))
    note = "The seed fixes every random draw; other versions or another machine may still change the numbers slightly."
    if isinstance(argv, list) and argv:
        first = PurePath(str(argv[0])).name
        words = ["langenode" if first in ("langenode", "__main__.py") else str(argv[0]), *map(str, argv[1:])]
        return {"command": shlex.join(words), "note": note}
    what = ["fit", str(source["path"])] if source.get("path") else ["run", _text(asked.get("experiment"))]
    command = shlex.join(["langenode", *what, "--config", "config.toml", "--out", "NEW-FOLDER"])
    return {"command": command, "note": f"config.toml is the one in this run's folder. {note}"}


def _provenance(provenance: Mapping[str, Any], words: Mapping[str, Any]) -> list[dict[str, Any]]:
    source = _mapping(provenance.get("source"))
    known = {"Seed": provenance.get("seed"), "Started": provenance.get("started"), "Python": provenance.get("python")}
    known |= {"Platform": provenance.get("platform"), "Data": source.get("path"), "SHA-256": source.get("sha256")}
    times = _mapping(provenance.get("seconds")).items()
    seconds = {words["stage"].get(key, key): f"{x:.1f}" for key, x in times if isinstance(x, int | float)}
    tables = (
        ("The run", known, "v"),
        ("Seconds of each stage", seconds, "n"),
        ("Versions", _mapping(provenance.get("versions")), "n"),
    )
    shown = [
        {"caption": caption, "rows": [(key, _text(x)) for key, x in values.items() if x is not None], "align": align}
        for caption, values, align in tables
    ]
    return [table for table in shown if table["rows"]]


def _files(folder: RunFolder, words: Mapping[str, Any]) -> list[dict[str, str]]:
    known = words["files"]
    present = {path.name: path for path in folder.path.iterdir() if not path.name.startswith(".")}
    present["report.html"] = folder.path / "report.html"  # this very page, which may not be there yet
    order = [*(name for name in known if name in present), *sorted(name for name in present if name not in known)]
    return [
        {
            "name": f"{name}/" if present[name].is_dir() else name,
            "holds": known.get(name, ""),
            "size": _size(present[name]) if name != "report.html" else "",
        }
        for name in order
    ]


def _size(path: Path) -> str:
    if path.is_dir():
        return f"{sum(1 for _ in path.iterdir())} files"
    num = path.stat().st_size
    return f"{num} B" if num < 1000 else f"{num / 1000:.0f} kB" if num < 1e6 else f"{num / 1e6:.1f} MB"


# Figures


def _figures(folder: RunFolder) -> list[dict[str, Any]]:
    """The figures in the order of their index; without an index, the images by name."""
    index = read_json(folder.figures / "index.json", remedy=f"run: langenode evaluate {folder.path}")
    if not isinstance(index, list):
        images = sorted(folder.figures.glob("*.png")) if folder.figures.is_dir() else []
        index = [{"name": path.stem, "file": path.name} for path in images]
    return [_figure(folder, entry) for entry in index if isinstance(entry, Mapping)]


def _figure(folder: RunFolder, entry: Mapping[str, Any]) -> dict[str, Any]:
    name = str(entry.get("name") or entry.get("file") or "figure")
    title = str(entry.get("title") or name.replace("_", " ").capitalize())
    file = str(entry.get("file") or f"{name}.png")
    numbers = [row for row in entry.get("numbers") or [] if isinstance(row, list) and len(row) == 2]
    texts = {"name": name, "title": title, "label": title, "file": file, "caption": str(entry.get("caption") or "")}
    return (
        texts
        | {"alt": str(entry.get("alt") or f"{title}."), "numbers": [(str(label), _cell(x)) for label, x in numbers]}
        | _image(folder.figures, file)
    )


def _image(root: Path, file: str) -> dict[str, Any]:
    """A PNG below `root` as a data address, with the size it is shown at; an empty address where there is none."""
    path = (root / file).resolve()
    content = path.read_bytes() if path.is_relative_to(root.resolve()) and path.is_file() else b""
    if not content.startswith(PNG_SIGNATURE) or len(content) < 24:
        return {"source": "", "width": 0, "height": 0, "wide": False}
    width, height = struct.unpack(">II", content[16:24])
    return {
        "source": f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}",
        "width": max(1, round(width * SHOWN_SCALE)),
        "height": max(1, round(height * SHOWN_SCALE)),
        "wide": width > WIDE * height,
    }


# Parts of a comparison


def _group(
    group: Mapping[str, Any], by_name: Mapping[str, Any], labels: Mapping[str, str], words: Mapping[str, Any]
) -> dict[str, Any]:
    ranked = group["ranked_by"]
    why = dict.fromkeys(group["trained_on"], "trained on") | dict.fromkeys(group["missing"], "missing")
    scores = [{"label": label, "why": why.get(key, "")} for key, label in labels.items()]
    data_id = group["data_id"]
    caption = "Scored on data that are not recorded." if data_id is None else f"Scored on the data {str(data_id)[:12]}."
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
        cells.append(_cell(shown) | {"is_ranked": key in ranked, "is_best": rank == "1", "rank": rank})
    tie = "=" if row["is_tied"] else ""
    return {
        "rank": "–" if row["rank"] is None else f"{row['rank']}{tie}",
        "name": run["name"],
        "what": f"{_text(run['method'])}, {_text(run['target'])}, seed {_text(run['seed'])}",
        "cells": cells,
        "mean_rank": "–" if row["mean_rank"] is None else f"{row['mean_rank']:.3g}",
        "verdict": _level(run["verdict"], words) if run["verdict"] in words["level"] else None,
    }


def _run_cells(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    asked = [run[key] for key in ("experiment", "method", "target", "stochastic", "rest", "seed")]
    seconds = None if run["seconds"] is None else f"{run['seconds']:.1f}"
    return [_cell(value) for value in (*asked, *run["diagnostics"].values(), seconds)]


def _seed_row(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    cells = []
    for key in labels:
        score = row["scores"][key]
        spread = "" if score["std"] is None else f" ± {score['std']:.2g}"
        text = None if score["mean"] is None else f"{score['mean']:.4g}{spread}"
        cells.append({"text": text, "summary": None})
    drawn = "" if row["is_same_data"] else "; new data with each seed"
    return {
        "what": f"{row['experiment']}: {row['method']}, {row['target']}",
        "names": f"{', '.join(row['runs'])}{drawn}",
        "seeds": _text(row["seeds"]),
        "cells": cells,
        "ranks": ", ".join("–" if rank is None else str(rank) for rank in row["ranks"]),
    }


def _shared_figures(names: Sequence[str], folders: Sequence[RunFolder]) -> tuple[list[dict[str, Any]], list[str]]:
    """Figures that two runs or more have, each with one tile a run; and the names of the others with their run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, folder in zip(names, folders, strict=True):
        for figure in _figures(folder):
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
