"""Run folders that were never run, and a look at their pages in a browser."""

import html.parser
import io
import json
import shutil

import pytest
import tomli_w
from PIL import Image

from langenode.storage.folder import RunFolder

BAD_NAME = "<script>alert(1)</script>"
LONG_NAME = "stress_of_the_specimen_" * 12
METRICS = {
    "experiment": "ou",
    "method": "langevin",
    "target": "population",
    "stochastic": "last_layer",
    "rest": "refit",
    "seed": 0,
    "w1": {"mean": 0.0123, "floor": 0.011, "ratio": 1.12, "per_time": [0.001 * i for i in range(100)]},
    "w1_held_out": {"mean": 0.02, "floor": 0.011, "data": None},
    "energy_score": 0.05,
    "crps": 0.04,
    "coverage": {"50": 0.51, "90": 0.93, "95": 0.96},
    "weights": {"mean": [-7.97, 7.95], "corr": -0.69, "covariance": [[1.0, 0.5], [0.5, 1.0]]},
    "seconds": {"fit": 12.3},
    "problem": {
        "num_weights": 354,
        "num_stochastic": 34,
        "inputs": ["u"],
        "outputs": ["x", "v"],
        "data": {
            "train": {"trajectories": 28, "conditions": 14, "cells": 15000},
            "validation": {"trajectories": 6, "conditions": 3, "cells": 300},
            "test": {"trajectories": 7, "conditions": 3, "cells": 310},
        },
    },
    "training": {"updates": 1000, "asked": 1000, "skipped": 0, "loss_start": 1.0, "loss_end": 0.1},
    "verdict": {
        "level": "caution",
        "text": "The bands are too wide.",
        "checks": [
            {"name": "W1 to the data", "value": "0.0123", "wanted": "at most 0.0143", "passed": True, "says": "near"},
            {"name": "coverage", "value": "93 %", "wanted": "88 to 92 %", "passed": False, "says": "too wide"},
            {"name": "k-hat", "value": None, "wanted": "below 0.7", "passed": None, "says": "no density"},
        ],
    },
    "data_id": "0123456789abcdef",
}
CONFIG = {key: METRICS[key] for key in ("experiment", "method", "target", "stochastic", "rest", "seed")} | {
    "population": {"loss": "energy"}
}
PROVENANCE = {
    "seed": 0,
    "started": "2026-11-16T10:20:03Z",
    "versions": {"langenode": "0.1.0", "jax": "0.10.2"},
    "python": "3.11.7",
    "platform": "Linux",
    "seconds": {"mle": 1.0, "fit": 12.34},
}
FIGURES = {"density": (900, 240), "weights": (570, 510)}


def png(width, height):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "white").save(buffer, "PNG")
    return buffer.getvalue()


def entry(name, **changes):
    numbers = [["W1 to the data", "0.0123"], ["floor", None]]
    texts = {"title": f"The {name}", "caption": f"What the {name} shows.", "alt": f"A plot of the {name}."}
    return {"name": name, "file": f"{name}.png", **texts, "numbers": numbers, **changes}


def make_run(path, *, metrics=None, config=None, provenance=None, figures=FIGURES, index=None):
    """Write a run folder; `metrics`, `config` and `provenance` override the usual values."""
    folder = RunFolder(path)
    folder.figures.mkdir(parents=True)
    options = CONFIG | (config or {})
    asked = {key: value for key, value in options.items() if key in METRICS}
    folder.config.write_text(tomli_w.dumps(options))
    folder.metrics.write_text(json.dumps(METRICS | asked | (metrics or {})))
    folder.provenance.write_text(json.dumps(PROVENANCE | (provenance or {})))
    for name, size in figures.items():
        (folder.figures / f"{name}.png").write_bytes(png(*size))
    entries = [entry(name) for name in figures] if index is None else index
    (folder.figures / "index.json").write_text(json.dumps(entries))
    return folder


def make_hostile_run(path):
    """A user's own data with names that are long, or look like HTML."""
    long_line = f"a_long_line_of_configuration_{'x' * 300}"
    problem = METRICS["problem"] | {"inputs": [BAD_NAME], "outputs": [LONG_NAME, "x"]}
    check = {"name": BAD_NAME, "value": "1" * 120, "wanted": LONG_NAME, "passed": True}
    source = {"path": f"/data/{LONG_NAME}.csv", "sha256": "f" * 64}
    return make_run(
        path,
        config={"experiment": BAD_NAME, "notes": long_line},
        metrics={
            "problem": problem,
            "verdict": METRICS["verdict"] | {"text": f"{BAD_NAME} {LONG_NAME}", "checks": [check]},
            "choices": [{"what": BAD_NAME, "chosen": LONG_NAME, "why": '" onload="alert(1)'}],
            LONG_NAME: 1.0,
            BAD_NAME: {LONG_NAME: list(range(500)), "number": 1.23456789e-300},
        },
        provenance={"source": source, "command": ["langenode", LONG_NAME]},
        index=[
            entry("density", title=BAD_NAME, caption=LONG_NAME, alt='"><b>', numbers=[[LONG_NAME, "9" * 80]]),
            entry("weights", title=LONG_NAME, numbers=[[BAD_NAME, "0." + "1" * 60], ["x", "0.5"]]),
        ],
    )


class Outline(html.parser.HTMLParser):
    """The elements of a page and its text outside of the style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.attributes, self.inside = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag

    def handle_data(self, data):
        self.words += [] if self.inside == "style" else data.split()

    @property
    def text(self):
        return " ".join(self.words)


ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Text that is darker or lighter than WCAG AA's 4.5 to 1 against what is behind it.
LOW_CONTRAST = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim()) continue;
    const pair = [light(numbers(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5) bad.push(node.outerHTML.slice(0, 80));
  }
  return bad;
}"""
BAD_IMAGES = "() => [...document.images].filter((i) => !i.complete || !i.naturalWidth || !i.alt).map((i) => i.src)"
DEAD_LINKS = """() => [...document.querySelectorAll("a")].map((a) => a.getAttribute("href"))
  .filter((href) => !href.startsWith("#") || !document.getElementById(href.slice(1)))"""
OVERFLOW = "() => Math.max(0, document.documentElement.scrollWidth - innerWidth)"


def find_chromium(which=shutil.which):
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = which(name)
        if path:
            return path
    return pytest.fail(
        "the report is tested in a real browser, and there is none; install it: apt-get install chromium"
    )


def look(browser, path, width):
    """Return everything that is wrong with a page at a given width, in light and dark mode."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 800})
    said, requests = [], []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    found = {
        "said": said,
        "requests": [url for url in requests if url != path.as_uri() and not url.startswith("data:")],
        "images": page.evaluate(BAD_IMAGES),
        "links": page.evaluate(DEAD_LINKS),
        "overflow": page.evaluate(OVERFLOW),
    }
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found[f"contrast, {scheme}"] = page.evaluate(LOW_CONTRAST)
    page.close()
    return {key: value for key, value in found.items() if value}
