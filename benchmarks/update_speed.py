"""Time per update of training in two versions of the source, as a ratio: the same runs, alternating, in one go.

The time of an update is the difference between a longer and a shorter fit by the command, over the difference in
updates, so that compilation and everything else that both have in common cancels. It is processor time, of all threads
together. Programs are compiled by a first fit that is not counted and kept on disk: the time of compilation varies by
more than hundreds of updates take.

    git worktree add ../before COMMIT
    python benchmarks/update_speed.py --before ../before/src --after src --experiments ou schlogl
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Updates of the shorter and the longer run; whole blocks, so that both validate equally often per update. The fit that
# Schlogl is compared with has as many updates as the run, 200 at most: both runs must reach that.
SHORT = 200
LONG = {"ou": 1000, "schlogl": 600, "hyperelastic": 600, "viscoelastic": 600}


def fit_seconds(source: Path, experiment: str, num_updates: int, folder: Path) -> float:
    """Processor seconds of a fit in a process of its own; the data are made before."""
    out = folder / f"{experiment}-{num_updates}"
    if not (out / "config.toml").exists():
        start = [sys.executable, "-m", "langenode", "simulate", experiment, "--out", str(out)]
        start += ["--set", f"training.num_updates={num_updates}"]
        subprocess.run(start, check=True, capture_output=True, env=_environment(source, folder))
        fit_seconds(source, experiment, num_updates, folder)  # compiles
    before = _children_seconds()
    command = [sys.executable, "-m", "langenode", "fit", str(out), "--force"]
    subprocess.run(command, check=True, capture_output=True, env=_environment(source, folder))
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment(source: Path, folder: Path) -> dict[str, str]:
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return {**os.environ, **cache, "PYTHONPATH": str(source.resolve())}


def per_update(source: Path, experiment: str, folder: Path) -> float:
    """Milliseconds per update."""
    long = LONG[experiment]
    seconds = [fit_seconds(source, experiment, num, folder) for num in (SHORT, long)]
    return 1000.0 * (seconds[1] - seconds[0]) / (long - SHORT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the src folder of one version")
    parser.add_argument("--after", type=Path, required=True, help="the src folder of the other")
    parser.add_argument("--experiments", nargs="+", choices=LONG, default=["ou", "schlogl"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sources = {"before": options.before, "after": options.after}
    print("| experiment | before [ms] | after [ms] | ratio of medians | ratios of pairs | load |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for experiment in options.experiments:
            times: dict[str, list[float]] = {version: [] for version in sources}
            for _ in range(options.repeats):
                for version, source in sources.items():
                    times[version].append(per_update(source, experiment, Path(name) / version))
            before, after = (statistics.median(times[version]) for version in sources)
            pairs = ", ".join(f"{b / a:.2f}" for b, a in zip(times["before"], times["after"], strict=True))
            figures = f"{before:.1f} | {after:.1f} | {before / after:.2f} | {pairs} | {os.getloadavg()[0]:.1f}"
            print(f"| {experiment} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
