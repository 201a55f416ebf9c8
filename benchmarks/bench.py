"""All measurements of speed in one run: every subject in a process of its own, one table, one file of results.

    make bench            at most 30 minutes on 2 cores
    make bench-quick      at most 5

A subject that fails or takes too long is recorded as such and the others go on; `--only` repeats some of them and keeps
the others of an earlier run. `benchmarks/results.json` has the results by name; `benchmarks/results.md` the table, with
the settings of every rival. Nothing here is asserted.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Seconds that a subject may take, in full and quick.
SUBJECTS = {
    "sampler": (600, 120),
    "memory": (420, 60),
    "node": (180, 90),
    "start": (480, 120),
    "shares": (180, 30),
    "growth": (300, 80),
    "accuracy": (600, 0),
    "scaling": (240, 60),
    "large_table": (3000, 1200),
}
# Run where they are asked for by `--only` alone: they take longer than all others together.
LONG = ("large_table",)
# Files that are not named after their subject.
FILES = {"large_table": "own_large"}
TOTAL = (1800, 300)  # seconds of all together, in full and quick; a subject has what is left of it at most
EXPECTED = (
    "sampler.vs_diffrax", "sampler.vs_torchsde", "sampler.vs_torchsde_adjoint", "sampler.gemm_share", "memory.mib",
    "memory.time_ratio", "node.vs_diffrax", "node.bll_speedup", "accuracy.ou.time_ratio", "accuracy.schlogl.time_ratio",
    "growth", "start.cold_s", "start.warm_s", "scaling.weak_2",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repeats, nothing that is long")
    parser.add_argument(
        "--only", nargs="+", choices=sorted(SUBJECTS), default=[name for name in SUBJECTS if name not in LONG]
    )
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    begin = time.perf_counter()
    found: dict[str, Any] = {"about": about(options.quick), "subjects": {}}
    if set(options.only) < set(SUBJECTS) - set(LONG) or set(options.only) <= set(LONG):
        found = earlier(options.out, options.quick) or found
    for subject in options.only:
        left = TOTAL[options.quick] - (time.perf_counter() - begin)
        limit = SUBJECTS[subject][options.quick] if subject in LONG else min(SUBJECTS[subject][options.quick], left)
        if limit > 0 and (HERE / "speed" / f"{FILES.get(subject, subject)}.py").exists():
            found["subjects"][subject] = run(subject, limit, options.quick)
            found["about"]["seconds"] = time.perf_counter() - begin
            write(found, options.out)
    print(f"{options.out} and {options.out.with_suffix('.md')}, after {time.perf_counter() - begin:.0f} s")


def earlier(out: Path, quick: bool) -> dict[str, Any] | None:
    """What an earlier run of the same sizes has written, where a few subjects are repeated; each has its date."""
    if not out.exists():
        return None
    kept = json.loads(out.read_text())
    return {"about": kept["about"], "subjects": kept["subjects"]} if kept["about"]["quick"] == quick else None


def about(quick: bool) -> dict[str, Any]:
    """The machine and the versions."""
    from importlib.metadata import version

    names = ("jax", "jaxlib", "equinox", "diffrax", "torch", "torchsde")
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except Exception:  # a peer that is not installed
            versions[name] = "absent"
    return {
        "date": now(),
        "quick": quick,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "load_before": os.getloadavg()[0],
        "versions": versions,
    }


def now() -> str:
    """The date and time in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def run(subject: str, limit: float, quick: bool) -> dict[str, Any]:
    """One subject in its own process; what it wrote, how long it took, and how it ended."""
    print(f"== {subject} (at most {limit:.0f} s)", flush=True)
    load, begin, date = os.getloadavg()[0], time.perf_counter(), now()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "record.json"
        module = f"speed.{FILES.get(subject, subject)}"
        command = [sys.executable, "-m", module, "--out", str(out), *(["--quick"] if quick else [])]
        process = subprocess.Popen(command, cwd=HERE, env=environment(), start_new_session=True)
        try:
            code = process.wait(limit)
            ended = "complete" if code == 0 else f"failed with exit code {code}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {limit:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it started
        record = json.loads(out.read_text()) if out.exists() else {"results": {}, "rows": [], "notes": []}
    record |= {"date": date, "ended": ended, "seconds": time.perf_counter() - begin}
    return record | {"load_before": load, "load_after": os.getloadavg()[0]}


def environment() -> dict[str, str]:
    """The same for all rivals: large pages for large arrays, whose first touch otherwise costs more than arithmetic."""
    # As they were given, from the folder of the caller: subjects run elsewhere.
    given = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [str(HERE), *given]
    tunables = os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # XLA's remarks on programs that it reads from disk
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths), "GLIBC_TUNABLES": tunables}


def write(found: dict[str, Any], out: Path) -> None:
    """Write the results and the table."""
    results: dict[str, Any] = {}
    for record in found["subjects"].values():
        results |= record["results"]
    missing = [name for name in EXPECTED if name not in results]
    out.write_text(json.dumps({"results": results, "missing": missing, **found}, indent=1) + "\n")
    out.with_suffix(".md").write_text(table(found, results, missing))


def table(found: dict[str, Any], results: dict[str, Any], missing: list[str]) -> str:
    """The table for people."""
    about = found["about"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    kind = "quick sizes" if about["quick"] else "full sizes"
    lines = [
        "# Measured speed",
        "",
        f"{about['date']}, {kind}, {about['cores']} cores, load {about['load_before']:.2f} before; {versions}.",
        "",
        "| result | value |",
        "|---|---|",
        *(f"| `{name}` | {_shown(value)} |" for name, value in results.items()),
        *(f"| `{name}` | not measured in this run |" for name in missing),
    ]
    for subject, record in found["subjects"].items():
        load = f"load {record['load_before']:.2f} before, {record['load_after']:.2f} after"
        begun = f"{record['date']}: " if "date" in record else ""
        lines += ["", f"## {subject}", "", f"{begun}{record['ended']}, {record['seconds']:.0f} s, {load}.", ""]
        lines += ["| what | median [s] | least [s] | repeats | settings | numbers |", "|---|---|---|---|---|---|"]
        for row in record["rows"]:
            extra = {k: v for k, v in row.items() if k not in ("who", "settings", "median", "least", "repeats")}
            told = ", ".join(f"{name} {_shown(value)}" for name, value in extra.items())
            cells = (row["who"], f"{row['median']:.4g}", f"{row['least']:.4g}", row["repeats"], row["settings"], told)
            lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
        lines += ["", *(f"- {note}" for note in record["notes"])]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
