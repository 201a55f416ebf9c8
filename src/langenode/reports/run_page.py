"""A run folder as one self-contained HTML page: setup, verdict, figures, numbers and how to reproduce it.

Nothing is computed here. JSON, TOML and PNG files are read and laid out by the templates; the page contains its style
and images, runs no script and loads nothing. Text from files is escaped.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from langenode.reports.pages import as_cell, as_mapping, as_text, figures_of, level_of, render, words_of_pages
from langenode.reports.units_section import units_section
from langenode.storage.folder import RunFolder, read_config, read_metrics, read_provenance, write_text

FROM_PYTHON = {
    "command": "langenode.fit(train, validation=validation, options=tomllib.loads(text))",
    "note": "The fit was made from Python; text is the configuration below, and a model of your own is given again.",
}
SHOWN_ELSEWHERE = ("verdict", "choices", "method_summary")


def write_report(folder: RunFolder) -> Path:
    """Write the run's report into its folder, complete or not at all."""
    write_text(folder.report, render_report(folder))
    return folder.report


class Content(NamedTuple):
    """What a report shows: `figures` as `pages.figure` makes them; a fit from Python has no `name` and no `files`."""

    name: str | None
    config_text: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    provenance: Mapping[str, Any]
    figures: Sequence[Mapping[str, Any]]
    files: Sequence[Mapping[str, str]] = ()


def render_report(folder: RunFolder) -> str:
    """The report of one evaluated run; what the folder lacks is left out or said to be missing."""
    content = Content(
        name=folder.path.resolve().name,
        config=read_config(folder),
        config_text=folder.config.read_text(encoding="utf-8"),
        metrics=read_metrics(folder),
        provenance=read_provenance(folder.provenance),
        figures=figures_of(folder),
        files=_files(folder, words_of_pages()),
    )
    return render_content(content)


def render_content(content: Content) -> str:
    """The page itself."""
    config, metrics, provenance, words = content.config, content.metrics, content.provenance, words_of_pages()
    asked = {**config, **{key: value for key, value in metrics.items() if value is not None}}
    source = as_mapping(provenance.get("source")).get("path")
    subject = as_text(asked.get("experiment")) if source is None else PurePath(str(source)).name
    heading = f"{subject}: {as_text(asked.get('method'))}, {as_text(asked.get('target'))}"
    return render(
        "report.html",
        title=f"{heading} — Langenode report",
        heading=heading,
        name=content.name,
        seed=as_text(asked.get("seed")),
        started=_started(provenance.get("started")),
        asked=_asked(asked, config, provenance, words),
        data=_data(metrics, words),
        choices=_choices(metrics),
        verdict=_verdict(metrics.get("verdict"), words),
        units=units_section(metrics),
        skill=_skill(as_mapping(metrics.get("skill")), words),
        figures=content.figures,
        numbers=list(_rows({key: x for key, x in metrics.items() if key not in SHOWN_ELSEWHERE}, words["meaning"])),
        config=content.config_text,
        again=_again(asked, provenance) if content.name else FROM_PYTHON,
        provenance=_provenance(provenance, words),
        files=content.files,
    )


def _records(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = values.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _rows(values: Mapping[str, Any], meanings: Mapping[str, str], path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of one table from a nested mapping: plain values, then nested ones; deeper levels on one line."""
    depth = path.count(".")
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], Mapping)):
        name, is_group = f"{path}{key}", isinstance(value, Mapping) and depth < 2
        row = {"depth": depth, "label": key, "meaning": meanings.get(name, meanings.get(f"*.{key}", ""))}
        yield row | {"is_group": is_group, "cell": as_cell(value)}
        if is_group:
            yield from _rows(value, meanings, f"{name}.")


# Sections of a report


def _asked(
    asked: Mapping[str, Any], config: Mapping[str, Any], provenance: Mapping[str, Any], words: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the setup in words: target, sampler, weights, data and seed."""
    problem, source = as_mapping(asked.get("problem")), as_mapping(provenance.get("source"))
    target, method = as_text(asked.get("target")), as_text(asked.get("method"))
    loss = words["loss"].get(as_mapping(config.get("population")).get("loss"), "") if target == "population" else ""
    about = f"{words['target'].get(target, '')} {loss}".strip()
    items = [
        {"term": "What is inferred", "option": target, "text": about},
        {"term": "Which sampler", "option": method, "text": as_text(asked.get("method_summary") or "")},
        {"term": "Which weights", "option": as_text(asked.get("stochastic")), "text": _weights(asked, problem, words)},
        {"term": "Inputs", "text": "" if problem.get("inputs") else "None.", "names": problem.get("inputs")},
        {"term": "Outputs", "text": "", "names": problem.get("outputs")},
        {"term": "Data file", "text": "", "names": [source["path"]] if source.get("path") else None},
        {"term": "Seed", "text": f"{as_text(asked.get('seed'))}, for all random draws of the run."},
    ]
    if not problem:
        items = [item for item in items if item["term"] != "Inputs"]
    return [{"option": None, "names": None} | item for item in items if item["text"] or item.get("names")]


def _weights(asked: Mapping[str, Any], problem: Mapping[str, Any], words: Mapping[str, Any]) -> str:
    num, stochastic = problem.get("num_weights"), problem.get("num_stochastic")
    rest = words["rest"].get(asked.get("rest"), as_text(asked.get("rest")))
    if num is None or stochastic is None:
        return "" if asked.get("stochastic") == "all" else f"The other weights {rest}."
    if num == stochastic:
        return f"All {num} weights of the model are stochastic."
    return f"{stochastic} of {num} weights are stochastic; the other {num - stochastic} {rest}."


def _data(metrics: Mapping[str, Any], words: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sizes of all sets; with folds the training data are the test data, too, and nothing else is there."""
    sets, folds = as_mapping(as_mapping(metrics.get("problem")).get("data")), metrics.get("cross_validation")
    labels = dict(words["set"])
    if isinstance(folds, Mapping):
        sets = {name: counts for name, counts in sets.items() if name != "validation"}
        labels["test"] = labels["folds"].format(folds=as_text(folds.get("folds")))
    rows = []
    for name, counts in sets.items():
        found = [as_mapping(counts).get(column) for column in ("trajectories", "conditions", "cells")]
        cells = [as_cell(f"{num:,}" if isinstance(num, int) else num) for num in found]
        rows.append({"label": labels.get(name, name), "cells": cells})
    return rows


def _choices(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{key: as_text(row.get(key)) for key in ("what", "chosen", "why")} for row in _records(metrics, "choices")]


def _verdict(verdict: Any, words: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(verdict, Mapping) or verdict.get("level") not in words["level"]:
        return None
    results = {"True": ("passed", "Passed"), "False": ("failed", "Failed")}
    checks = []
    for check in _records(verdict, "checks"):
        kind, result = results.get(str(check.get("passed")), ("open", "In doubt"))
        texts = {key: as_text(check.get(key) or "") for key in ("name", "wanted", "says")}
        checks.append(texts | {"value": as_cell(check.get("value")), "kind": kind, "result": result})
    return level_of(verdict["level"], words) | {"text": as_text(verdict.get("text") or ""), "checks": checks}


def _skill(skill: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fit and the plain predictors as rows of one table, the fit first."""
    if not skill.get("baselines"):
        return None
    shown = []
    for name, found in {"this fit": skill, **as_mapping(skill["baselines"])}.items():
        crps, inside, width = (as_mapping(found).get(key) for key in ("crps", "coverage", "width"))
        texts = (_number(crps, "{:.3f}"), _number(inside, "{:.1%}").replace("%", " %"), _number(width, "{:.2f}"))
        shown.append(
            {
                "label": words["plain"].get(name, name),
                "is_best": name == skill.get("best"),
                "cells": [as_cell(text or None) for text in texts],
            }
        )
    return {"rows": shown, "num": as_text(skill.get("num_trajectories"))}


def _number(value: Any, style: str) -> str:
    return style.format(value) if isinstance(value, int | float) else ""


def _started(raw: Any) -> dict[str, str] | None:
    if not isinstance(raw, str):
        return None
    try:
        return {"raw": raw, "text": datetime.fromisoformat(raw).strftime("%d %B %Y, %H:%M %Z").strip()}
    except ValueError:
        return {"raw": raw, "text": raw}


def _again(asked: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, str]:
    argv, source = provenance.get("command"), as_mapping(provenance.get("source"))
    note = "The seed fixes every random draw; other versions or machines may still change the numbers slightly."
    if isinstance(argv, list) and argv:
        first = PurePath(str(argv[0])).name
        words = ["langenode" if first in ("langenode", "__main__.py") else str(argv[0]), *map(str, argv[1:])]
        return {"command": shlex.join(words), "note": note}
    what = ["fit", str(source["path"])] if source.get("path") else ["run", as_text(asked.get("experiment"))]
    command = shlex.join(["langenode", *what, "--config", "config.toml", "--out", "NEW-FOLDER"])
    return {"command": command, "note": f"config.toml is the one in this run's folder. {note}"}


def _provenance(provenance: Mapping[str, Any], words: Mapping[str, Any]) -> list[dict[str, Any]]:
    source = as_mapping(provenance.get("source"))
    known = {"Seed": provenance.get("seed"), "Started": provenance.get("started"), "Python": provenance.get("python")}
    known |= {"Platform": provenance.get("platform"), "Data": source.get("path"), "SHA-256": source.get("sha256")}
    times = as_mapping(provenance.get("seconds")).items()
    seconds = {words["stage"].get(key, key): f"{x:.1f}" for key, x in times if isinstance(x, int | float)}
    tables = (
        ("The run", known, "v"),
        ("Run time of each stage [s]", seconds, "n"),
        ("Versions", as_mapping(provenance.get("versions")), "n"),
    )
    shown = [
        {"caption": caption, "rows": [(key, as_text(x)) for key, x in values.items() if x is not None], "align": align}
        for caption, values, align in tables
    ]
    return [table for table in shown if table["rows"]]


def _files(folder: RunFolder, words: Mapping[str, Any]) -> list[dict[str, str]]:
    known, is_fold = words["files"], re.compile(r"^fold-\d+")
    present = {path.name: path for path in folder.path.iterdir() if not path.name.startswith(".")}
    present["report.html"] = folder.path / "report.html"  # this page, which may not exist yet
    order = [*(name for name in known if name in present), *sorted(name for name in present if name not in known)]
    return [
        {
            "name": f"{name}/" if present[name].is_dir() else name,
            "holds": known.get(is_fold.sub("fold-N", name), ""),
            "size": _size(present[name]) if name != "report.html" else "",
        }
        for name in order
    ]


def _size(path: Path) -> str:
    if path.is_dir():
        return f"{sum(1 for _ in path.iterdir())} files"
    num = path.stat().st_size
    return f"{num} B" if num < 1000 else f"{num / 1000:.0f} kB" if num < 1e6 else f"{num / 1e6:.1f} MB"
