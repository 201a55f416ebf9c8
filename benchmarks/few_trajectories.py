"""Coverage of the default fit's 90 % bands on new trajectories, where there are few to learn from.

    python benchmarks/few_trajectories.py --seeds 0,1,2 --out few_trajectories.json

Two processes relax towards a level that differs between trajectories and is known as an input, from starts that are
read with noise like everything else. With `white` errors the rate is the same for all; with `rates` it is log-normal
between trajectories, so that the errors of one trajectory deviate together. `ln.fit` is called as a user would call it,
without any choice, and its bands are compared with 200 new trajectories of the same process. Results are written after
every fit; the means over seeds are printed at the end with their standard errors between data sets.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

SIZES = (4, 8, 16, 32)
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


def measure(num: int, process: str, seed: int) -> dict[str, Any]:
    """Fit once and score the bands on new trajectories; the first readings, which are conditioned on, do not count."""
    import langenode as ln

    rng = np.random.default_rng([seed, num, list(PROCESSES).index(process)])
    data, new = (trajectories(size, PROCESSES[process], rng=rng) for size in (num, NUM_NEW))
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ln.fit(data, seed=seed, progress=False)
    quantiles = fit.predict(new)["observation_quantiles"].sel(level=[0.05, 0.95]).to_numpy()[:, :, 1:]
    inside = (new.outputs[:, 1:] >= quantiles[0]) & (new.outputs[:, 1:] <= quantiles[1])
    crossed = fit.diagnostics["cross_validation"]
    return {
        "num": num,
        "process": process,
        "seed": seed,
        "coverage": float(inside.mean()),
        "width": float((quantiles[1] - quantiles[0]).mean()),
        "noise_factor": fit.noise_factor.tolist(),
        "kinds": crossed["kinds"],
        "cpu_seconds": time.process_time() - begin,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Mean coverage over data sets, with its standard error, in Markdown."""
    lines = ["| trajectories | errors | data sets | 90 % band holds | lowest to highest |", "|---|---|---|---|---|"]
    for num in sorted({row["num"] for row in rows}):
        for process in PROCESSES:
            held = np.array([row["coverage"] for row in rows if (row["num"], row["process"]) == (num, process)])
            if not len(held):
                continue
            error = f" ± {100 * held.std(ddof=1) / np.sqrt(len(held)):.1f}" if len(held) > 1 else ""
            span = f"{100 * held.min():.0f} to {100 * held.max():.0f} %"
            lines.append(f"| {num} | {process} | {len(held)} | {100 * held.mean():.1f}{error} % | {span} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--out", type=Path, default=Path("few_trajectories.json"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # as the command does
    rows: list[dict[str, Any]] = []
    for seed in map(int, options.seeds.split(",")):
        for num in map(int, options.sizes.split(",")):
            for process in PROCESSES:
                rows.append(measure(num, process, seed))
                print(json.dumps(rows[-1]), flush=True)
                options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
