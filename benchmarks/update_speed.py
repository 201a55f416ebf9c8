"""Time per update of training in two versions of the source, as a ratio: the same runs, alternating, in one go.

A fit by the command writes one line per block of updates. The time of an update is the least time between two of these
lines over the updates between them: what happens only after some blocks (W1 for a figure, compiling that, a checkpoint)
and everything before and after training are left out; the validation score of a block is in it. Both the clock and the
processor time of all threads are read when a line arrives. Before each run the load of the machine is noted.

    git worktree add ../before COMMIT
    python benchmarks/update_speed.py --before ../before/src --after src --experiments ou schlogl
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

NUM_UPDATES = 400
LINE = re.compile(r"update (\d+)/(\d+)")


class Moment(NamedTuple):
    """When a block ended."""

    update: int
    clock: float  # s
    processor: float  # s, of all threads


def moments(source: Path, experiment: str, folder: Path) -> list[Moment]:
    """Run a fit in a process of its own and return when its blocks ended; the data are made first."""
    out = folder / experiment
    environment = {
        **os.environ,
        "PYTHONPATH": str(source.resolve()),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "programs"),
    }
    command = [sys.executable, "-m", "langenode"]
    if not (out / "config.toml").exists():
        settings = ["--set", f"training.num_updates={NUM_UPDATES}", "--seed", "0"]
        subprocess.run(
            [*command, "simulate", experiment, "--out", out, *settings],
            check=True,
            capture_output=True,
            env=environment,
        )
    found: list[Moment] = []
    process = subprocess.Popen(
        [*command, "fit", str(out), "--force"], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    for line in process.stderr:
        match = LINE.search(line)
        if match and not (found and found[-1].update == NUM_UPDATES):  # a fit for comparison may follow
            found.append(Moment(int(match[1]), time.perf_counter(), processor_seconds(process.pid)))
    if process.wait() != 0 or len(found) < 2:
        raise SystemExit(
            f"a fit of {experiment} by {source} must end and report its blocks; it ended with {process.returncode}"
        )
    return found


def processor_seconds(number: int) -> float:
    """Return what a process has computed so far, in all its threads (Linux)."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def per_update(found: list[Moment]) -> tuple[float, float]:
    """Return the milliseconds per update by the clock and of the processor, each in its quickest block."""
    blocks = list(itertools.pairwise(found))
    clock = min((last.clock - first.clock) / (last.update - first.update) for first, last in blocks)
    processor = min((last.processor - first.processor) / (last.update - first.update) for first, last in blocks)
    return 1e3 * clock, 1e3 * processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the src folder of one version")
    parser.add_argument("--after", type=Path, required=True, help="the src folder of the other")
    parser.add_argument("--experiments", nargs="+", default=["ou", "schlogl"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print("| experiment | measure | before [ms] | after [ms] | ratio of medians | ratios of pairs | load |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for experiment in options.experiments:
            compare(experiment, {"before": options.before, "after": options.after}, Path(name), options.repeats)


def compare(experiment: str, sources: dict[str, Path], folder: Path, repeats: int) -> None:
    """Print the rows of one experiment."""
    times: dict[str, list[tuple[float, float]]] = {version: [] for version in sources}
    loads = []
    for _ in range(repeats):
        for version, source in sources.items():
            loads.append(os.getloadavg()[0])
            times[version].append(per_update(moments(source, experiment, folder / version)))
    for place, measure in enumerate(("clock", "processor")):
        before, after = ([pair[place] for pair in times[version]] for version in sources)
        pairs = ", ".join(f"{b / a:.2f}" for b, a in zip(before, after, strict=True))
        b, a = statistics.median(before), statistics.median(after)
        load = f"{min(loads):.1f} to {max(loads):.1f}"
        print(f"| {experiment} | {measure} | {b:.1f} | {a:.1f} | {b / a:.2f} | {pairs} | {load} |", flush=True)


if __name__ == "__main__":
    main()
