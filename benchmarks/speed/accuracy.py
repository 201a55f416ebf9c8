"""Time to accuracy: when the default reaches the best W1 that the paper's method reaches within a budget of seconds.

Both are fits by the command, `ou` and `schlogl`, seed 0. W1 is what a run records between blocks (`convergence.csv`,
its mean over times); seconds are counted from the begin of training and contain compilation. The paper's method is
stopped after its budget, so that the ratio is a lower bound where its W1 was still falling.

    python -m speed.accuracy --budget 3600 --out accuracy.json
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speed import common
from speed.common import Timing

UPDATE = re.compile(r"update (\d+)/(\d+)")
BEGIN = re.compile(r": training$")


class Trace(NamedTuple):
    """W1 as training goes on."""

    seconds: np.ndarray
    w1: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of each fit by the paper's method")
    parser.add_argument("--experiments", nargs="+", default=["ou", "schlogl"])
    parser.add_argument("--out", type=Path, default=Path("subject.json"))
    options = parser.parse_args()
    record = common.Record()
    for experiment in options.experiments:
        with tempfile.TemporaryDirectory() as name:
            paper = trace(experiment, "paper", options.budget, Path(name))
            default = trace(experiment, None, options.budget, Path(name))
        compare(record, experiment, paper, default)
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


def trace(experiment: str, method: str | None, budget: float, folder: Path) -> Trace:
    """Run one fit and return when it had which W1."""
    out = folder / (method or "default")
    chosen = [] if method is None else ["--method", method]
    # Blocks small enough that an update of the paper's method is not minutes from the next record.
    settings = ["--seed", "0", "--set", f"budget={budget}", "--set", "training.block=10"]
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
