"""A material demonstration over several seeds: one Markdown row a run, from its metrics.json.

    python benchmarks/material_seeds.py hyperelastic --seeds 71 72 73 74 75
    python benchmarks/material_seeds.py viscoelastic --seeds 71 72 73 74 75 -- --set model.law=paper

Words after `--` go to `langenode run` as they are. The hyperelastic run fits all three ways: a row each.
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
    *("seed", "way", "point fit / data std", "point fit / replica std", "W1 / floor", "energy distance / floor"),
    *("std ratio", "90 % band", "W1 / full's", "fit, s", "all, s", "memory, GB"),
]


def rows(seed: int, found: dict, seconds: float, memory: float) -> list[list[str]]:
    """One run: a row for every way that it fitted."""
    point = [f"{found['mle'][name]:.3f}" for name in ("rmse_over_data_std", "rmse_over_replica_std")]
    times = [f"{found['seconds']['fit'] + found['seconds']['mle']:.0f}", f"{seconds:.0f}", f"{memory:.1f}"]
    energy = f"{found['energy_distance']['ratio']:.2f}"
    if "variants" not in found:
        scores = [f"{found['w1']['ratio']:.2f}", energy, f"{found['std_ratio']:.3f}", _percent(found["coverage"]["90"])]
        return [[str(seed), found["stochastic"], *point, *scores, "", *times]]
    made = []
    for name, way in found["variants"].items():
        scores = [f"{way['w1_over_floor']:.2f}", energy if not made else "", f"{way['std_ratio']:.3f}"]
        ratio = "" if way["w1_over_full"] is None else f"{way['w1_over_full']:.2f}"
        made.append([str(seed), name, *point, *scores, _percent(way["coverage"]), ratio, *times])
    return made


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def run(experiment: str, seed: int, words: list[str]) -> list[list[str]]:
    """Run the command in a process of its own, whose memory is its own, too."""
    import resource

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "langenode", "run", experiment, "--seed", str(seed), "--out", f"{folder}/run"]
        begin = time.perf_counter()
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        found = json.loads((Path(folder) / "run" / "metrics.json").read_text())
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # the largest so far
    return rows(seed, found, seconds, memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=("hyperelastic", "viscoelastic"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[71, 72, 73, 74, 75])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|", sep="\n", flush=True)
    ratios: dict[str, list[float]] = {}
    for seed in options.seeds:
        for cells in run(options.experiment, seed, options.words):
            print(f"| {' | '.join(cells)} |", flush=True)
            if cells[8]:
                ratios.setdefault(cells[1], []).append(float(cells[8]))
    for name, values in ratios.items():
        print(f"\nW1 over that of all weights, {name}: median {np.median(values):.2f}, {min(values)} to {max(values)}")


if __name__ == "__main__":
    main()
