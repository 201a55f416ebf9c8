"""What all pages share: the templates, values as text, and figures as data URLs.

Nothing is computed here. A page contains its style and images, runs no script and loads nothing. Text from files is
escaped.
"""

import base64
import struct
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langenode._version import __version__
from langenode.storage.folder import RunFolder
from langenode.storage.records import read_figures

TEMPLATES = Path(__file__).parent / "templates"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Figures are drawn at 150 dots per inch; a browser assumes 96.
SHOWN_SCALE = 96 / 150
# Above this aspect ratio a figure has panels in a row: no table fits beside it.
WIDE = 2.2
MAX_INLINE_VALUES = 4


def render(template: str, **values: Any) -> str:
    """Render a template; an undefined value is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)


def words_of_pages() -> dict[str, Any]:
    """Return the words for options, files and numbers."""
    return tomllib.loads((TEMPLATES / "words.toml").read_text(encoding="utf-8"))


# Values as text


def as_text(value: Any) -> str:
    """Format a value in few characters; mappings and lists in one line."""
    if value is None:
        return "not available"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {as_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(f"[{as_text(item)}]" if isinstance(item, list | tuple) else as_text(item) for item in value)
    return str(value)


def as_cell(value: Any) -> dict[str, Any]:
    """Format a table cell; long lists are folded."""
    if value is None:
        return {"text": None, "summary": None}
    is_long = isinstance(value, list) and (
        len(value) > MAX_INLINE_VALUES or any(isinstance(item, list | dict) for item in value)
    )
    return {"text": as_text(value) or "none", "summary": f"{len(value)} values" if is_long else None}


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, or an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def level_of(level: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict's level and its word."""
    return {"level": level, "word": words["level"].get(level, level)}


# Figures


def figures_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the figures in the order of their index; without an index, the images by name."""
    index = read_figures(folder.figure_index, remedy=f"run: langenode evaluate {folder.path} --force")
    if index is None:
        images = sorted(folder.figures.glob("*.png")) if folder.figures.is_dir() else []
        index = [{"name": path.stem, "file": path.name} for path in images]
    return [figure(entry, _content(folder.figures, _file(entry))) for entry in index]


def figure(entry: Mapping[str, Any], content: bytes) -> dict[str, Any]:
    """A figure as the templates show it, from its entry in the index and the content of its PNG."""
    name = str(entry.get("name") or entry.get("file") or "figure")
    title = str(entry.get("title") or name.replace("_", " ").capitalize())
    numbers = [row for row in entry.get("numbers") or [] if isinstance(row, list | tuple) and len(row) == 2]
    caption = str(entry.get("caption") or "")
    texts = {
        "name": name,
        "title": title,
        "label": title,
        "file": _file(entry),
        "caption": caption,
    }
    return (
        texts
        | {"alt": str(entry.get("alt") or f"{title}."), "numbers": [(str(label), as_cell(x)) for label, x in numbers]}
        | shown_image(content)
    )


def _file(entry: Mapping[str, Any]) -> str:
    return str(entry.get("file") or f"{entry.get('name') or 'figure'}.png")


def _content(root: Path, file: str) -> bytes:
    """The content of a file below `root`; nothing where there is none."""
    try:
        path = (root / file).resolve()
        return path.read_bytes() if path.is_relative_to(root.resolve()) and path.is_file() else b""
    except (ValueError, OSError):  # a name that no file can have
        return b""


def shown_image(content: bytes) -> dict[str, Any]:
    """Return the content of a PNG as a data URL, with its display size; an empty URL if it is not a PNG."""
    if not content.startswith(PNG_SIGNATURE) or len(content) < 24:
        return {"source": "", "width": 0, "height": 0, "wide": False}
    width, height = struct.unpack(">II", content[16:24])
    return {
        "source": f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}",
        "width": max(1, round(width * SHOWN_SCALE)),
        "height": max(1, round(height * SHOWN_SCALE)),
        "wide": width > WIDE * height,
    }
