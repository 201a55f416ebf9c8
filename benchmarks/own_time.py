"""Time of `langenode fit` from a table to its report: with no compiled program at hand, and once more with them.

    python benchmarks/own_time.py --seed 5
    python benchmarks/own_time.py --table examples/theophylline.csv

Without a table, a file of 40 trajectories is made: a driven relaxation, 20 readings each, one input. The load of the
machine is noted before each run.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

NUM, STEPS, RATE, NOISE = 40, 20, 0.6, 0.05
NUM_SUBSTEPS = 20


def driven_relaxations(seed: int, num: int = NUM) -> pd.DataFrame:
    """Trajectories of `dx/dt = rate (force(t) - x)`, each with a force and a start of its own."""
    rng, times = np.random.default_rng(seed), np.linspace(0.0, 5.0, STEPS)
    frames = []
    for number in range(num):
        force = rng.uniform(0.5, 2.0) * np.sin(rng.uniform(0.5, 2.0) * times) + rng.uniform(0.0, 1.0)
        state, states = rng.normal(1.0, 0.3), []
        fine = np.linspace(0.0, 5.0, (STEPS - 1) * NUM_SUBSTEPS + 1)
        for place, value in enumerate(np.interp(fine, times, force)):
            if place % NUM_SUBSTEPS == 0:
                states.append(state)
            state += (fine[1] - fine[0]) * RATE * (value - state)
        readings = np.array(states) + NOISE * rng.normal(size=STEPS)
        frames.append(pd.DataFrame({"id": number, "time": times, "force": force, "response": readings}))
    return pd.concat(frames)


def timed(table: Path, folder: Path, seed: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor for one fit."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "langenode", "fit", str(table), "--out", str(folder), "--seed", str(seed)]
    environment = {**os.environ, "LANGENODE_CACHE": str(folder.parent / "programs")}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="a file of your own")
    parser.add_argument("--seed", type=int, default=0, help="of the table that is made, and of the fit")
    options = parser.parse_args()
    print("| programs | load before | clock [s] | processor [s] |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        table = options.table or Path(name) / "table.csv"
        if options.table is None:
            driven_relaxations(options.seed).to_csv(table, index=False)
        for kind in ("none", "kept"):
            load = os.getloadavg()[0]
            clock, processor = timed(table.resolve(), Path(name) / kind, options.seed)
            print(f"| {kind} | {load:.1f} | {clock:.1f} | {processor:.1f} |", flush=True)


if __name__ == "__main__":
    main()
