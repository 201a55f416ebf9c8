"""Held-out coverage of `langenode fit` with no choice made, on tables like those that users have.

Each table has 40 trajectories at irregular times, of unequal lengths, with noise and 10 % of cells missing. Every one
goes through the command alone, and the table of results is printed as Markdown. Coverage is measured twice: by the
run itself on its 8 test trajectories, where chance weighs several per cent, and on 100 new ones by `langenode predict`:

    python benchmarks/own_coverage.py --seeds 71 72 [--kinds oscillator logistic]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.integrate import solve_ivp

NUM_TRAJECTORIES, NUM_NEW, DURATION = 40, 100, 8.0


class Kind(NamedTuple):
    """A process: `draw(rng)` gives its right-hand side, start and input (or None); `read` what is seen of it."""

    outputs: tuple[str, ...]
    noise: float
    draw: Callable
    read: Callable = lambda hidden, u: hidden
    has_input: bool = False


def _sine(rng):
    amplitude, frequency, phase = rng.uniform(0.5, 2), rng.uniform(0.5, 2), rng.uniform(0, 6)
    return lambda t: amplitude * np.sin(frequency * t + phase)


def _oscillator(rng):
    return lambda t, h: [h[1], -1.5 * h[0] - 0.3 * h[1]], 1.5 * rng.normal(size=2), None


def _from_rest(rng):
    return lambda t, h: [h[1], -1.5 * h[0] - 0.3 * h[1]], [1.5 * rng.normal(), 0.0], None


def _logistic(rng):
    return lambda t, h: h * (1 - h / 10), [rng.uniform(0.2, 3)], None


def _mixed(rng):
    rate = np.exp(0.25 * rng.normal())
    return lambda t, h: -rate * (h - 2), [rng.uniform(3, 6)], None


def _forced(rng):
    force = _sine(rng)
    return lambda t, h: -0.8 * h - 0.3 * h**3 + force(t), [0.5 * rng.normal()], force


def _predator_prey(rng):
    def rate(t, h):
        return [1.1 * h[0] - 0.4 * h[0] * h[1], 0.1 * h[0] * h[1] - 0.4 * h[1]]

    return rate, rng.uniform([5, 3], [15, 9]), None


def _feedthrough(rng):
    drive = _sine(rng)
    return lambda t, h: -0.5 * (h - drive(t)), [0.0], drive


KINDS = {
    "oscillator": Kind(("x", "v"), 0.05, _oscillator),
    "oscillator, x only": Kind(("x",), 0.05, _from_rest, lambda h, u: h[:1]),
    "logistic": Kind(("biomass",), 0.3, _logistic),
    "rate differs by trajectory": Kind(("T",), 0.02, _mixed),
    "forced, cubic": Kind(("y",), 0.05, _forced, has_input=True),
    "predator-prey": Kind(("hare", "lynx"), 0.4, _predator_prey),
    "input acts at once": Kind(("y",), 0.03, _feedthrough, lambda h, u: h + np.tanh(u), has_input=True),
    "no noise": Kind(("y",), 0.0, lambda rng: (lambda t, h: -0.7 * (h - 1), [rng.uniform(2, 5)], None)),
}


def write_table(kind: Kind, seed: int, path: Path, num: int = NUM_TRAJECTORIES) -> None:
    """A tidy CSV file of one process."""
    rng = np.random.default_rng(seed)
    lines = [",".join(["id", "t", *(["u"] if kind.has_input else []), *kind.outputs])]
    for label in range(num):
        times = np.unique(np.round(np.append(0.0, rng.uniform(0, DURATION, rng.integers(14, 44))), 4))
        rate, start, force = kind.draw(rng)
        hidden = solve_ivp(rate, (0, DURATION), start, t_eval=times, rtol=1e-8, atol=1e-10).y
        drive = np.zeros(len(times)) if force is None else force(times)
        values = kind.read(hidden, drive).T
        values = values + kind.noise * rng.standard_normal(values.shape)
        values[rng.uniform(size=values.shape) < 0.1] = np.nan
        for t, u, row in zip(times, drive, values, strict=True):
            cells = [label, float(t), *([float(u)] if kind.has_input else [])]
            lines.append(",".join([*map(str, cells), *("" if np.isnan(y) else repr(float(y)) for y in row)]))
    path.write_text("\n".join(lines) + "\n")


def fit(name: str, seed: int, folder: Path) -> str:
    """One row of the table."""
    path = folder / f"{name.replace(' ', '-').replace(',', '')}-{seed}.csv"
    write_table(KINDS[name], seed, path)
    command = [sys.executable, "-m", "langenode", "fit", str(path), "--out", str(path.with_suffix("")), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["metrics"]
    kind = next(choice["chosen"] for choice in found["choices"] if choice["what"] == "kind of model")
    inside = new_coverage(KINDS[name], seed + 1000, path.with_suffix(""))
    error = max(found["rmse_over_std"].values())
    cells = [name, seed, kind, f"{error:.3f}", f"{100 * found['coverage']['50']:.0f} %"]
    cells += [f"{100 * found['coverage']['90']:.0f} %", f"{100 * inside:.0f} %"]
    cells.append(" ".join(f"{factor:.2f}" for factor in found["noise_factor"].values()))
    cells += [f"{found['posterior']['relative_ess']:.2g}", found["verdict"]["level"]]
    cells.append(f"{sum(found['seconds'].values()):.0f}")
    return "| " + " | ".join(map(str, cells)) + " |"


def new_coverage(kind: Kind, seed: int, run: Path) -> float:
    """The share of new trajectories' readings inside their 90 % bands; the first complete ones are starts."""
    table, bands = run.with_name(f"{run.name}-new.csv"), run.with_name(f"{run.name}-bands")
    write_table(kind, seed, table, NUM_NEW)
    command = [sys.executable, "-m", "langenode", "predict", str(run), "--data", str(table), "--out", str(bands)]
    subprocess.run(command, capture_output=True, check=True)
    read, predicted = pd.read_csv(table), xr.open_dataset(f"{bands}.nc", engine="scipy")
    low, high = (predicted["observation_quantiles"].sel(level=q).to_numpy() for q in (0.05, 0.95))
    inside = []
    for index, (_, rows) in enumerate(read.groupby("id")):
        values = rows[list(kind.outputs)].to_numpy()
        values = values[np.isfinite(values).all(axis=1).argmax() :]
        own = slice(1, len(values))
        is_inside = (values[own] >= low[index, own]) & (values[own] <= high[index, own])
        inside.append(is_inside[np.isfinite(values[own])])
    return float(np.concatenate(inside).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[71])
    parser.add_argument("--keep", type=Path, help="a folder for the tables and runs, which are thrown away otherwise")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    header = [
        "process",
        "seed",
        "model",
        "rmse / spread",
        "50 % band",
        "90 % band",
        "of new ones",
        "noise factor",
        "rel. ESS",
    ]
    header += ["verdict", "seconds"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.kinds:
            for seed in arguments.seeds:
                print(fit(name, seed, folder), flush=True)


if __name__ == "__main__":
    main()
