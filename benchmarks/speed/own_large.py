"""A large table of one's own (Parquet): seconds and peak memory of `langenode check` and `langenode fit` on it.

Driven relaxations with noise, every trajectory with a forcing of its own, 200 times each: 10^5 trajectories are
2 x 10^7 rows. The commands run in processes of their own, without any option but the number of updates. Reading alone
is timed beside pandas. The table is kept if a place is given:

    python -m speed.own_large --quick --table big.parquet
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from speed import common
from speed.common import Timing

NUM_TIMES = 200
FULL, QUICK = 100_000, 10_000
ROWS_AT_ONCE = 200_000
UPDATES = 300
# What is imported, and what reads a file; seconds by the clock and of the processor are printed.
READERS = {
    "langenode": ("from langenode.data import load_data", "load_data"),
    "pandas": ("import pandas", "pandas.read_parquet"),
}
TIMED = """{}
import sys, time
begin, before = time.perf_counter(), time.process_time()
{}(sys.argv[1])
print(time.perf_counter() - begin, time.process_time() - before)
"""


class Cost(NamedTuple):
    """Seconds by the clock and of the processor, which others cannot change, and peak resident memory in GiB."""

    seconds: float
    processor: float
    peak: float

    def about(self) -> dict[str, float]:
        """What stands beside the seconds in the table."""
        return {"processor_s": self.processor, "peak_gib": self.peak}


def main() -> None:
    options = given()
    record = common.Record()
    num = options.trajectories or (QUICK if options.quick else FULL)
    with tempfile.TemporaryDirectory() as name:
        table = options.table or Path(name) / "big.parquet"
        write_table(table, num, seed=options.seed)
        told = (
            f"{num} trajectories, {num * NUM_TIMES} rows, {table.stat().st_size / 2**20:.0f} MiB, seed {options.seed}"
        )
        print(told, flush=True)
        found = record.results.setdefault("large_table", {"trajectories": num})
        reading(record, found, table, told)
        record.write(options.out)
        for what, command in commands(table, Path(name)).items():
            cost = measured([sys.executable, "-m", "langenode", *command])
            timing = Timing(cost.seconds, cost.seconds, 1)
            record.row(f"`langenode {what}` of a large table", timing, told, **cost.about())
            found |= {f"{what}_s": cost.seconds, f"{what}_processor_s": cost.processor, f"{what}_peak_gib": cost.peak}
            record.write(options.out)
        provenance = Path(name) / "run" / "provenance.json"
        if provenance.exists():
            found["stages_s"] = json.loads(provenance.read_text())["seconds"]
    record.write(options.out)


def given() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("subject.json"), help="where the record goes")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} trajectories instead of {FULL}")
    parser.add_argument("--trajectories", type=int, help="another number of trajectories")
    parser.add_argument("--table", type=Path, help="keep the table here")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def write_table(path: Path, num: int, *, seed: int) -> None:
    """Write a tidy table in row groups, so that the writer needs little memory whatever the number of trajectories.

    `y' = (force - y) / tau`, with a force that is a sum of two sines and readings with noise of 0.05.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("time", "force", "y")
    schema = pa.schema([("specimen", pa.string()), *((name, pa.float64()) for name in names)])
    rng, times = np.random.default_rng(seed), np.linspace(0.0, 10.0, NUM_TIMES)
    at_once = ROWS_AT_ONCE // NUM_TIMES
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num, at_once):
            count = min(at_once, num - first)
            force, outputs = relaxations(times, count, rng)
            labels = pa.array(np.repeat([f"s{number:06d}" for number in range(first, first + count)], NUM_TIMES))
            columns = [labels, *(pa.array(part.ravel()) for part in (np.tile(times, (count, 1)), force, outputs))]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def relaxations(times: Any, count: int, rng: Any) -> tuple[Any, Any]:
    """Forces and noisy readings of some trajectories, (trajectory, time); the force is linear between two times."""
    import numpy as np

    size, rate = rng.uniform(0.3, 1.0, (2, count, 1)), rng.uniform(0.3, 2.0, (2, count, 1))
    phase = rng.uniform(0.0, 7.0, (2, count, 1))
    force = (size * np.sin(rate * times + phase)).sum(0)
    tau, step = 1.5, times[1] - times[0]
    decay = np.exp(-step / tau)
    # The exact solution for a force that is linear in each interval.
    after = 1.0 - tau / step * (1.0 - decay)
    before = 1.0 - decay - after
    outputs = np.empty_like(force)
    outputs[:, 0] = rng.normal(0.0, 1.0, count)
    for i in range(1, len(times)):
        outputs[:, i] = decay * outputs[:, i - 1] + before * force[:, i - 1] + after * force[:, i]
    return force, outputs + 0.05 * rng.standard_normal(outputs.shape)


def reading(record: common.Record, found: dict[str, Any], table: Path, told: str) -> None:
    """Reading alone, beside pandas; each in a process of its own, because memory is counted as well."""
    for who, code in READERS.items():
        runs = sorted(alone(TIMED.format(*code), table) for _ in range(3))
        middle = runs[1]
        record.row(f"reading a large table, {who}", Timing(middle.seconds, runs[0].seconds, 3), told, **middle.about())
        found |= {f"read_{who}_s": runs[1].seconds, f"read_{who}_peak_gib": max(run.peak for run in runs)}
        found[f"read_{who}_processor_s"] = sorted(run.processor for run in runs)[1]
    found["read_vs_pandas"] = found["read_langenode_processor_s"] / found["read_pandas_processor_s"]


def alone(code: str, table: Path) -> "Cost":
    """What a program costs that prints its seconds; its imports do not count, but for memory."""
    with tempfile.TemporaryFile("w+") as out:
        cost = measured([sys.executable, "-c", code, str(table)], out)
        out.seek(0)
        seconds, processor = map(float, out.read().split()[-2:])
        return Cost(seconds, processor, cost.peak)


def commands(table: Path, folder: Path) -> dict[str, list[str]]:
    """The two commands that a user would type."""
    fit = ["fit", str(table), "--out", str(folder / "run"), "--seed", "0"]
    return {
        "check": ["check", str(table), "--out", str(folder / "config.toml")],
        "fit": [*fit, "--set", f"training.num_updates={UPDATES}"],
    }


def measured(command: list[str], out: Any = None) -> "Cost":
    """What a process costs."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=out)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} ended with exit code {process.returncode}")
    return Cost(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


if __name__ == "__main__":
    main()
