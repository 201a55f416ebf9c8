"""Time to accuracy: when the default reaches the best W1 that the paper's method reaches within a budget of seconds.

All are fits by the command, `ou` and `schlogl`, seed 0. W1 is what a run records between blocks (`convergence.csv`,
its mean over times); seconds are counted from the begin of training and contain compilation. The paper's method is
stopped after its budget, so that the ratio is a lower bound where its W1 was still falling. Beside them, for the same
data and model: Gaussians trained by the same loss as the default (black-box variational inference), and SVGD and NUTS,
which need a likelihood and so draw from the tempered posterior, as the paper's method does; theirs is the last W1.

    python -m speed.accuracy --budget 3600 --out accuracy.json
    python -m speed.accuracy --budget 900 --experiments ou --paper-set paper.drift=time paper.kl_rate=quarter \
        paper.end_term=kept            # 10^4 steps with what lets them learn something (docs/guide/paper.md)
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speed import common
from speed.common import Timing

UPDATE = re.compile(r"update (\d+)/(\d+)")
BEGIN = re.compile(r": training$")


TRAINED = {"BBVI, full covariance": "gaussian-full", "BBVI, low rank": "gaussian-lowrank"}
LONGEST = 30.0  # seconds beside the budget that a method which draws may take before it is given up
DRAWN = {"SVGD": "svgd", "NUTS": "nuts"}


class Trace(NamedTuple):
    """W1 as training goes on."""

    seconds: np.ndarray
    w1: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of each fit by the paper's method")
    parser.add_argument("--rival-budget", type=float, default=30.0, help="seconds of each fit by another method")
    parser.add_argument(
        "--paper-set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of the paper's method"
    )
    parser.add_argument("--experiments", nargs="+", default=["ou", "schlogl"])
    parser.add_argument("--out", type=Path, default=Path("subject.json"))
    options = parser.parse_args()
    record = common.Record()
    for experiment in options.experiments:
        with tempfile.TemporaryDirectory() as name:
            paper = trace(experiment, "paper", options.budget, Path(name), options.paper_set)
            default = trace(experiment, None, options.budget, Path(name))
            compare(record, experiment, paper, default)
            record.write(options.out)
            rivals(record, experiment, options.rival_budget, Path(name))
            record.write(options.out)


def compare(record: common.Record, experiment: str, paper: Trace, default: Trace) -> None:
    """The ratio of times to the paper's best W1; none where the default does not reach it."""
    place = int(np.argmin(paper.w1))
    reached = np.flatnonzero(default.w1 <= paper.w1[place])
    ratio = float(paper.seconds[place] / default.seconds[reached[0]]) if len(reached) else None
    for who, found in (("paper", paper), ("default", default)):
        at = int(np.argmin(found.w1))
        seconds = float(found.seconds[at])
        told = f"{experiment}, {who}: best W1 of {len(found.w1)} records"
        record.row(told, Timing(seconds, seconds, 1), "seed 0", w1=float(found.w1[at]))
    record.results[f"accuracy.{experiment}.time_ratio"] = ratio
    record.results[f"accuracy.{experiment}.best_w1"] = {
        "paper": float(paper.w1[place]),
        "default": float(default.w1.min()),
    }


def rivals(record: common.Record, experiment: str, budget: float, folder: Path) -> None:
    """The best W1 of what is trained, and the last of what is drawn; one that fails or takes too long is a note."""
    for who, method in (TRAINED | DRAWN).items():
        try:
            if method in TRAINED.values():
                found = trace(experiment, method, budget, folder)
                at = int(np.argmin(found.w1))
                seconds, w1 = float(found.seconds[at]), float(found.w1[at])
            else:
                seconds, w1 = drawn(experiment, method, budget, folder)
        except subprocess.TimeoutExpired as problem:
            record.notes.append(f"{experiment}, {who}: not within {problem.timeout:.0f} s")
            continue
        except (subprocess.SubprocessError, OSError) as problem:
            record.notes.append(f"{experiment}, {who}: {type(problem).__name__}")
            continue
        record.row(f"{experiment}, {who}", Timing(seconds, seconds, 1), "seed 0", w1=w1)
        record.results.setdefault(f"accuracy.{experiment}.rivals", {})[method] = {"seconds": seconds, "w1": w1}


def drawn(experiment: str, method: str, budget: float, folder: Path) -> tuple[float, float]:
    """Seconds of the fit by a method that draws from the tempered posterior, and the W1 of its predictions."""
    out = folder / method
    settings = ["--target", "tempered", "--method", method, "--seed", "0", "--set", f"budget={budget}"]
    command = [sys.executable, "-m", "langenode", "run", experiment, "--out", str(out), *settings]
    # Not every method has a budget.
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        env={**os.environ, "LANGENODE_CACHE": "off"},
        timeout=LONGEST + 2 * budget,
    )
    seconds = json.loads((out / "provenance.json").read_text())["seconds"]["fit"]
    return float(seconds), float(json.loads((out / "metrics.json").read_text())["w1"]["mean"])


def trace(experiment: str, method: str | None, budget: float, folder: Path, chosen_too: Sequence[str] = ()) -> Trace:
    """Run one fit and return when it had which W1."""
    out = folder / (method or "default")
    chosen = [] if method is None else ["--method", method]
    # Blocks small enough that an update of the paper's method is not minutes from the next record.
    settings = ["--seed", "0", "--set", f"budget={budget}", "--set", "training.block=10"]
    settings += [word for setting in chosen_too for word in ("--set", setting)]
    environment = {**os.environ, "LANGENODE_CACHE": "off"}
    command = [sys.executable, "-m", "langenode"]
    subprocess.run(
        [*command, "simulate", experiment, "--out", str(out), *chosen, *settings],
        check=True, capture_output=True, env=environment,
    )  # fmt: skip
    process = subprocess.Popen(
        [*command, "fit", str(out), "--force"], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    begin, moments = time.perf_counter(), {}
    for line in process.stderr:
        if BEGIN.search(line) and not moments:
            begin = time.perf_counter()
        found = UPDATE.search(line)
        if found and int(found[1]) > max(moments, default=0):  # a fit for comparison may follow
            moments[int(found[1])] = time.perf_counter() - begin
    process.wait()
    rows = np.loadtxt(out / "convergence.csv", delimiter=",", ndmin=2)
    known = [row for row in rows if int(row[0]) in moments]
    return Trace(np.array([moments[int(row[0])] for row in known]), np.array([row[1:].mean() for row in known]))


if __name__ == "__main__":
    main()
