"""The page of a reproduction: every number and figure of the paper beside ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langenode.experiments.paper_results import FACTS, FIGURES, METHOD
from langenode.reports.pages import as_text, level_of, render, shown_image, words_of_pages
from langenode.reports.reproduction import DEFAULT, LITERAL, Found, figure_paths, number_text

WORDS = {LITERAL: "As printed", DEFAULT: "Our default"}


def render_reproduction(
    results: Sequence[Mapping[str, Any]],
    found: Found,
    root: Path,
    pictures: Mapping[str, bytes],
    about: Mapping[str, Any],
) -> str:
    """Render the page; `root` is the folder of the images that runs have made, `pictures` are further ones by name."""
    names = ", ".join(found.demonstrations)
    sections = [_section(name, results, found, root, pictures) for name in _sections(found)]
    return render(
        "reproduction.html",
        title=f"The paper's results beside ours: {names} — Langenode",
        heading="The paper's results beside ours",
        names=found.demonstrations,
        quick=about["quick"],
        seeds=as_text(list(about["seeds"])),
        has_spread=len(about["seeds"]) > 1,
        sections=sections,
        runs=[_run(row) for row in about["runs"]],
        failed=about["failed"],
    )


def _sections(found: Found) -> list[str]:
    """The sections of the paper in their order, of what was asked."""
    chosen = {METHOD, *found.demonstrations}
    facts = [fact.section for fact in FACTS if fact.demonstration in chosen]
    figures = [figure.section for figure in FIGURES if figure.demonstration in chosen]
    return list(dict.fromkeys([*sorted({*facts, *figures}, key=_order)]))


def _order(section: str) -> tuple[bool, str]:
    """Appendices, which begin with a letter, come last; Langevin dynamics before the Schlögl model by the alphabet."""
    return section[0].isalpha(), section


def _section(
    name: str, results: Sequence[Mapping[str, Any]], found: Found, root: Path, pictures: Mapping[str, bytes]
) -> dict[str, Any]:
    chosen = {METHOD, *found.demonstrations}
    rows = [row for row in results if row["section"] == name and not row["what"].startswith("Figure ")]
    unique = {(row["what"], row["note"], str(row["literal"])): row for row in rows}  # both materials have the same data
    figures = []
    for figure in FIGURES:
        if figure.section == name and figure.demonstration in chosen:
            note = next(row["note"] for row in results if row["what"] == f"Figure {figure.label}: {figure.title}")
            tiles = _tiles(figure, found, root, pictures)
            texts = {"title": figure.title, "label": figure.label, "shows": figure.shows, "note": note}
            figures.append(texts | {"tiles": tiles})
    return {"title": name, "rows": [_row(row) for row in unique.values()], "figures": figures}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    paper = row["paper"]
    return {
        "what": row["what"],
        "paper": paper if isinstance(paper, str) else f"{paper:g}",
        "cells": [{"text": _text(row[role]), "summary": None} for role in (LITERAL, DEFAULT)],
        "note": row["note"],
    }


def _text(value: Any) -> str | None:
    return number_text(value) if isinstance(value, Mapping) else value


def _tiles(figure: Any, found: Found, root: Path, pictures: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The images of both methods; one that they share, as a picture of the same data, is shown once."""
    shown: dict[tuple[str, bytes], tuple[str, list[str]]] = {}
    for role, words in WORDS.items():
        for path in figure_paths(figure, role, found):
            name = Path(path).stem
            content = pictures.get(name) or (root / path).read_bytes()
            shown.setdefault((name, content), (path, []))[1].append(words)
    tiles = []
    for (name, content), (path, words) in shown.items():
        label = words[0] if len(words) == 1 else "Drawn by Langenode" if name in pictures else "Both methods"
        alt = f"{label}: {figure.title}."
        tiles.append({"run": label, "label": alt, "alt": alt, "file": path} | shown_image(content) | {"wide": True})
    return tiles


def _run(row: Mapping[str, Any]) -> dict[str, Any]:
    words = words_of_pages()
    is_known = row["verdict"] in words["level"]
    return {
        "name": row["name"],
        "seconds": None if row["seconds"] is None else f"{row['seconds']:.0f}",
        "verdict": level_of(row["verdict"], words) if is_known else None,
        "command": row["command"],
    }
