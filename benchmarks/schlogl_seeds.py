"""The Schlögl demonstration over several seeds: one Markdown row a run, from its metrics.json.

    python benchmarks/schlogl_seeds.py --seeds 51 52 53 54 55 -- --method bottleneck

Words after `--` go to `langenode run schlogl` as they are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HEADER = [
    *("seed", "W1 exact", "data's own", "excess", "P(low)", "data's", "low mode", "high mode", "lag 1", "data's"),
    *("W1 / floor", "energy score", "90 % band", "fit, s", "all, s"),
]


def row(seed: int, found: dict, seconds: float) -> str:
    """One run."""
    exact, modes, memory = found["w1_exact"], found["modes"], found["increments"]

    def lags(which: str) -> str:
        return " / ".join("none" if lag is None else f"{lag:.2f}" for lag in memory[which].values())

    cells = [
        str(seed),
        f"{exact['relative']:.4f}",
        f"{exact['data_relative']:.4f}",
        f"{exact['relative'] - exact['data_relative']:+.4f}",
        f"{modes['p_low']:.3f}",
        f"{modes['p_low_data']:.3f}",
        *(f"{modes[f'{name}_mean']:.0f} ± {modes[f'{name}_std']:.1f}" for name in ("low", "high")),
        lags("lag1"),
        lags("lag1_data"),
        f"{found['w1']['ratio']:.2f}",
        f"{found['energy_score']:.1f}",
        f"{100 * found['coverage']['90']:.1f} %",
        f"{found['seconds']['fit'] + found['seconds']['mle']:.0f}",
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[51, 52, 53])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|", sep="\n", flush=True)
    excess = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "langenode", "run", "schlogl", "--out", f"{folder}/run"]
            begin = time.perf_counter()
            subprocess.run([*command, "--seed", str(seed), *options.words], check=True, capture_output=True)
            found = json.loads(Path(folder, "run", "metrics.json").read_text())
        print(row(seed, found, time.perf_counter() - begin), flush=True)
        excess.append(found["w1_exact"]["relative"] - found["w1_exact"]["data_relative"])
    print(f"\nmedian excess of W1 over the data's own: {np.median(excess):+.4f}")


if __name__ == "__main__":
    main()
