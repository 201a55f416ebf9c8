"""Coverage of the default fit's 90 % bands on new trajectories, where there are few to learn from.

    python benchmarks/few_trajectories.py --seeds 0,1,2 --out few_trajectories.jsonl

Two processes relax towards a level that differs between trajectories and is known as an input, from starts that are
read with noise like everything else. With `white` errors the rate is the same for all; with `rates` it is log-normal
between trajectories, so that the errors of one trajectory deviate together. `ln.fit` is called as a user would call it,
without any choice, and its bands are compared with 200 new trajectories of the same process. The means over seeds are
printed at the end with their standard errors between data sets; `not calibrated` counts the fits whose verdict says
that their bands cannot be calibrated, and the column after it is the mean of the others.

Every fit is one line of the file `--out`, written when it is made; the same command resumes with what is missing.
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

SIZES = (2, 4, 8, 16, 32)
PROCESSES = {"white": 0.0, "rates": 0.25}  # standard deviation of the logarithm of the rate
NUM_NEW = 200


def trajectories(num: int, log_rate_std: float, *, rng: np.random.Generator) -> Any:
    """Relaxations with 12 readings each, standard deviation of the noise 0.05."""
    import langenode as ln

    times = np.linspace(0.0, 5.0, 12)
    rate = 0.6 * np.exp(log_rate_std * rng.normal(size=(num, 1)))
    level, start = rng.uniform(0.5, 2.0, (num, 1)), 1.0 + 0.5 * rng.normal(size=(num, 1))
    outputs = level + (start - level) * np.exp(-rate * times) + 0.05 * rng.normal(size=(num, len(times)))
    inputs = np.broadcast_to(level[..., None], (num, len(times), 1))
    return ln.Dataset.from_arrays(times, outputs, inputs=inputs)


def measure(num: int, process: str, seed: int, target: str | None = None) -> dict[str, Any]:
    """Fit once and score the bands on new trajectories; the first readings, which are conditioned on, do not count."""
    import langenode as ln
    from langenode.scores.metrics import crps_of_cells
    from langenode.scores.verdict import judge

    rng = np.random.default_rng([seed, num, list(PROCESSES).index(process)])
    data, new = (trajectories(size, PROCESSES[process], rng=rng) for size in (num, NUM_NEW))
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ln.fit(data, seed=seed, target=target, progress=False)
    samples = fit.predict_prepared(fit.prepared(new))[1][:, :, 1:]
    low, high = np.quantile(samples, [0.05, 0.95], axis=0)
    truth = new.outputs[:, 1:]
    inside = (truth >= low) & (truth <= high)
    checks = {name: fit.diagnostics.get(name) for name in ("calibration", "hierarchical")}
    return {
        "num": num,
        "process": process,
        "seed": seed,
        "target": fit.config.target,
        "coverage": float(inside.mean()),
        "width": float(np.median(high - low)),
        "crps": float(crps_of_cells(samples, truth[None]).mean()),
        "noise_factor": fit.noise_factor.tolist(),
        "kinds": fit.diagnostics["cross_validation"]["kinds"],
        "calibration": checks["calibration"],
        "is_calibrated": "cannot be calibrated" not in judge(checks)["text"],
        "cpu_seconds": time.process_time() - begin,
    }


HEADER = ("trajectories", "errors", "data sets", "90 % band holds", "lowest to highest", "not calibrated", "the others")


def mean_coverage(rows: list[dict[str, Any]]) -> str:
    """The mean over data sets, with its standard error."""
    held = 100 * np.array([row["coverage"] for row in rows])
    if len(held) < 2:
        return f"{held.mean():.1f} %" if len(held) else ""
    return f"{held.mean():.1f} ± {held.std(ddof=1) / np.sqrt(len(held)):.1f} %"


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage by number of trajectories and process, in Markdown."""
    lines = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    for num in sorted({row["num"] for row in rows}):
        for process in PROCESSES:
            here = [row for row in rows if (row["num"], row["process"]) == (num, process)]
            if not here:
                continue
            held, calibrated = [row["coverage"] for row in here], [row for row in here if row["is_calibrated"]]
            span = f"{100 * min(held):.0f} to {100 * max(held):.0f} %"
            cells = [str(num), process, str(len(here)), mean_coverage(here), span, str(len(here) - len(calibrated))]
            lines.append("| " + " | ".join([*cells, mean_coverage(calibrated)]) + " |")
    return "\n".join(lines)


def kept_rows(path: Path) -> list[dict[str, Any]]:
    """Return the fits that are done."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_missing(options: argparse.Namespace) -> None:
    """Make the fits that are missing, each written when it is made."""
    done = {(row["num"], row["process"], row["seed"]) for row in kept_rows(options.out)}
    for seed in map(int, options.seeds.split(",")):
        for num in map(int, options.sizes.split(",")):
            for process in PROCESSES:
                if (num, process, seed) in done:
                    continue
                line = json.dumps(measure(num, process, seed, options.target))
                print(line, flush=True)
                with options.out.open("a") as file:
                    file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--target", help="of the fits; left to the library by default")
    parser.add_argument("--out", type=Path, default=Path("few_trajectories.jsonl"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # as the command does
    with tempfile.TemporaryDirectory() as cache:
        # Fits to as many trajectories run the same programs: compiled once, they are read from there.
        jax.config.update("jax_compilation_cache_dir", cache)
        add_missing(options)
    print(table(kept_rows(options.out)))


if __name__ == "__main__":
    main()
