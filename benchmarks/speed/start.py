"""Compile time: from the start of `langenode run ou` to its first update, without compiled programs and with them.

Then a second `langenode fit` of another table, of the same shape and of a similar one: how many programs it adds to
those on disk. Tables of at least 40 trajectories are divided once, those of fewer by folds.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from own_time import driven_relaxations

from speed import common
from speed.common import Timing

UPDATE = re.compile(r"update (\d+)/")
# Seeds, trajectories and times of tables of one size class: divided once, and by folds.
SIMILAR = {"": [(1, 50, 20), (2, 46, 19)], "_in_folds": [(1, 38, 20), (2, 36, 19)]}


def main() -> None:
    options = common.options(__doc__)
    record = common.Record()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cold = [first_update(folder / f"cold{i}", folder / f"programs{i}") for i in range(1 if options.quick else 3)]
        warm = [first_update(folder / f"warm{i}", folder / "programs0") for i in range(2 if options.quick else 5)]
        for kind, seconds in (("cold", cold), ("warm", warm)):
            found = sorted(seconds)
            timing = Timing(found[len(found) // 2], found[0], len(found))
            record.row(
                f"start of `langenode run ou` to its first update, {kind}", timing, "seed 0, blocks of one update"
            )
            record.results[f"start.{kind}_s"] = timing.median
        record.write(options.out)
        programs = programs_of(folder / "same", [(1, 40, 20), (2, 40, 20)])
        record.results["start.programs_of_first_table"], record.results["start.programs_of_second_table"] = programs
        record.notes.append(f"programs compiled by a fit of one table and of another of its shape: {programs}")
        record.write(options.out)
        for kind, tables in SIMILAR.items():
            programs = programs_of(folder / f"similar{kind}", tables)
            record.results[f"start.programs_of_similar_table{kind}"] = programs[1]
            sizes = " and ".join(f"{num} x {steps}" for _, num, steps in tables)
            record.notes.append(f"programs compiled by fits of tables of {sizes} (trajectories x times): {programs}")
    if not options.quick:
        seconds = guided_compilation()
        record.results["start.viscoelastic_guided_compile_s"] = seconds
    record.write(options.out)


def first_update(out: Path, programs: Path) -> float:
    """Seconds from the start of the process to the line of its first update."""
    command = [sys.executable, "-m", "langenode", "run", "ou", "--out", str(out), "--seed", "0"]
    command += ["--set", "training.block=1", "--set", "training.num_updates=3"]
    environment = {**os.environ, "LANGENODE_CACHE": str(programs)}
    begin = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    for line in process.stderr:
        if UPDATE.search(line):
            seconds = time.perf_counter() - begin
            process.kill()
            process.wait()
            return seconds
    raise RuntimeError(f"langenode run ou ended with {process.wait()} before its first update")


def programs_of(folder: Path, tables: list[tuple[int, int, int]]) -> tuple[int, int]:
    """How many programs a fit of a table adds to an empty folder, and one of another table to the same.

    Each has a seed, trajectories and times.
    """
    programs, counts = folder / "programs", []
    folder.mkdir()
    for seed, num, steps in tables:
        table = folder / f"table{seed}.csv"
        driven_relaxations(seed, num, steps).to_csv(table, index=False)
        command = [sys.executable, "-m", "langenode", "fit", str(table), "--out", str(folder / f"fit{seed}")]
        command += ["--set", "training.num_updates=20", "--seed", "0"]
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "LANGENODE_CACHE": str(programs)}, timeout=600
        )
        counts.append(len(list(programs.glob("*/*-cache"))))
    return counts[0], counts[1] - counts[0]


COMPILING = """
import sys, threading, time, os
from langenode.fitting import compiling
compiling.seconds()
def watch():
    last, since = 0.0, time.perf_counter()
    while True:
        time.sleep(1.0)
        print("compiling", compiling.seconds(), file=sys.stderr, flush=True)
threading.Thread(target=watch, daemon=True).start()
from langenode.cli import command
sys.argv = ["langenode", *sys.argv[1:]]
command()
"""


def guided_compilation(budget: float = 240.0) -> float:
    """Seconds of compilation in `run viscoelastic --method guided --stochastic all`, stopped after a while."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-c", COMPILING, "run", "viscoelastic", "--method", "guided", "--stochastic", "all"]
        command += ["--target", "posterior", "--out", str(Path(name) / "run"), "--seed", "0"]
        environment = {**os.environ, "LANGENODE_CACHE": str(Path(name) / "programs")}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        begin, seconds = time.perf_counter(), 0.0
        for line in process.stderr:
            found = re.match(r"compiling ([\d.]+)", line)
            seconds = float(found[1]) if found else seconds
            if time.perf_counter() - begin > budget:
                process.kill()
        process.wait()
    return seconds


if __name__ == "__main__":
    main()
