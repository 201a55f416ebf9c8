"""The worked examples run from top to bottom, draw their figure and print scores that make sense."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCORE = re.compile(r"^held-out (?P<name>[^:]+): rmse (\S+), spread (\S+) \S+; 90 % coverage (\S+) %$", re.MULTILINE)
# The outputs that are scored, and the largest rmse in units of their spread that a short fit may have.
SCORED = {
    "by_hand": (["level"], 0.3),
    "predator_prey": (["prey", "predators"], 0.5),
    "batch_reactor": (["A", "absorbance"], 0.4),
    "forced_oscillator": (["position, hidden state"], 0.6),
    "theophylline": (["one compartment", "network"], 0.8),
    "battery_ageing": (["capacity"], 0.6),
}


def test_every_example_is_tested():
    assert sorted(SCORED) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORED)
def test_example(name, tmp_path):
    settings = {
        "LANGENODE_QUICK": "1",
        "LANGENODE_EXAMPLES_OUT": str(tmp_path / "out"),
        "MPLBACKEND": "agg",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    environment = {key: value for key, value in os.environ.items() if key != "LANGENODE_SEED"} | settings
    command = [sys.executable, "-W", "default", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), done.stderr
    _check_scores(done.stdout, *SCORED[name])
    _check_figure(tmp_path / "out" / f"{name}.png")


def _check_scores(printed, names, largest_relative_rmse):
    found = SCORE.findall(printed)
    assert [match[0] for match in found] == names, printed
    for _, *numbers in found:
        rmse, spread, coverage = map(float, numbers)
        assert 0.0 < rmse < largest_relative_rmse * spread
        assert 60.0 <= coverage <= 100.0


def _check_figure(path):
    from PIL import Image

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"), float)
    assert min(pixels.shape[:2]) > 300
    for panel in np.array_split(pixels, 3, axis=1):
        assert panel.std() > 15.0  # not blank
        # Axes and text are grey: colour is a curve or a band.
        assert np.mean(np.ptp(panel, axis=-1) > 30.0) > 0.01
