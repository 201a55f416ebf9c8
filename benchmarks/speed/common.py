"""What all subjects share: interleaved warm repeats, the machine's own rate, and the record that a subject writes."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

GEMM_SIZE = 2048


class Timing(NamedTuple):
    """Seconds of warm repeats."""

    median: float
    least: float
    repeats: int


class Record:
    """What a subject found: results by key ("sampler.vs_diffrax"), and rows of the table."""

    def __init__(self):
        self.results: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def row(self, who: str, timing: Timing, settings: str, **numbers: Any) -> None:
        """Add a line to the table."""
        self.rows.append({"who": who, "settings": settings, **timing._asdict(), **numbers})
        print(f"{who}: {timing.median:.4g} s (least {timing.least:.4g}); {settings} {numbers or ''}", flush=True)

    def write(self, path: Path) -> None:
        """Write the record."""
        path.write_text(json.dumps({"results": self.results, "rows": self.rows, "notes": self.notes}, indent=1))


def options(description: str | None) -> argparse.Namespace:
    """The command line of a subject."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("subject.json"), help="where the record goes")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    return parser.parse_args()


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Seconds of every run, warm, in turn: what disturbs the machine for a while disturbs all of them.

    A run may be a function, whose result is waited for, or return the seconds that it measured itself.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            taken = once(run)
            if repeat:  # the first compiles
                seconds[name].append(taken)
    return {name: Timing(statistics.median(found), min(found), repeats) for name, found in seconds.items()}


def once(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    import jax

    begin = time.perf_counter()
    value = run()
    if isinstance(value, float):
        return value
    jax.block_until_ready(value)
    return time.perf_counter() - begin


def quickest(candidates: Mapping[str, Callable[[], Any]], repeats: int = 2) -> tuple[str, dict[str, str]]:
    """The candidate that takes least time, and what became of each; one that fails is out, with the reason."""
    least: dict[str, float] = {}
    told: dict[str, str] = {}
    for name, run in candidates.items():
        try:
            run()
            least[name] = min(once(run) for _ in range(repeats))
            told[name] = f"{least[name]:.4g} s"
        except Exception as error:
            told[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
        print(f"  tried {name}: {told[name]}", flush=True)
    if not least:
        raise RuntimeError(f"no candidate ran: {told}")
    return min(least, key=lambda name: least[name]), told


def gemm_rate(repeats: int = 7) -> float:
    """Floating-point operations per second of the machine's large matrix product in single precision, by JAX."""
    import jax
    import jax.numpy as jnp

    a = jax.random.normal(jax.random.key(0), (GEMM_SIZE, GEMM_SIZE))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(a, a))
    return 2.0 * GEMM_SIZE**3 / min(once(lambda: product(a, a)) for _ in range(repeats))


def temporary_mib(program: Any) -> float:
    """Temporary memory of a compiled program by the compiler's own analysis."""
    return program.memory_analysis().temp_size_in_bytes / 2**20


def slope(sizes: list[float], values: list[float]) -> float:
    """The slope of a line through values against sizes, both in logarithms."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
