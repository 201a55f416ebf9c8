"""Last layers or all weights for a user's own data: held-out scores and cost of both, on data that nobody tuned on.

    python benchmarks/which_weights.py --tables driven oscillator --seeds 301 302 --out which_weights.jsonl

Every table has `--num` trajectories and half as many for validation (theophylline: six subjects, three, and three to
predict), 100 new ones are predicted, and the target is `posterior`, whatever the data would have chosen. Last layers
are drawn by `langevin` and all weights by `ensemble-hmc`, both from the same point estimate. CRPS is in units of the
spread of the training readings; the ratio is that of all weights to last layers, with its standard error over new
trajectories. Processor seconds are those of the whole fit, compilation included.
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import default_coverage
import few_trajectories
import jax
import numpy as np
import own_coverage
import own_time

import langenode as ln
from langenode.fitting.skill import Fold, fold_scores
from langenode.fitting.weights import CANDIDATES
from langenode.scores.skill import crps_ratio, summary

KINDS = {
    "oscillator": "oscillator",
    "oscillator-x": "oscillator, x only",
    "logistic": "logistic",
    "forced": "forced, cubic",
    "predator-prey": "predator-prey",
    "input-at-once": "input acts at once",
}
THEOPHYLLINE = Path(__file__).parents[1] / "examples" / "theophylline.csv"
NAMES = ("driven", "relaxation", "rates", *KINDS, "theophylline")
NUM_NEW = 100


def tables(name: str, num: int, seed: int) -> tuple[ln.Dataset, ln.Dataset, ln.Dataset]:
    """Training, validation and new trajectories."""
    sizes, seeds = (num, num // 2, NUM_NEW), (seed, 1000 + seed, 2000 + seed)
    if name == "relaxation":
        parts = [default_coverage.trajectories(*one) for one in zip(sizes, seeds, strict=True)]
    elif name == "rates":
        rng = np.random.default_rng(seed)
        parts = [few_trajectories.trajectories(size, 0.25, rng=rng) for size in sizes]
    elif name == "theophylline":
        data = ln.load_data(THEOPHYLLINE)
        order = np.random.default_rng(seed).permutation(data.num_trajectories)
        parts = [data.select(part) for part in np.split(order, (6, 9))]
    else:
        parts = [written(name, *one) for one in zip(sizes, seeds, strict=True)]
    return parts[0], parts[1], parts[2]


def written(name: str, num: int, seed: int) -> ln.Dataset:
    """A table that is read from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        if name == "driven":
            own_time.driven_relaxations(seed, num).to_csv(path, index=False)
        else:
            own_coverage.write_table(own_coverage.KINDS[KINDS[name]], seed, path, num)
        return ln.load_data(path)


def measure(name: str, num: int, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Both fits and their scores on the same new trajectories."""
    train, valid, new = tables(name, num, seed)
    found, scores = {"table": name, "num": num, "seed": seed}, {}
    for kind, layer in CANDIDATES.items():
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = ln.fit(
                train, validation=valid, target="posterior", seed=seed, progress=False, options=options, **layer
            )
        cpu = time.process_time() - begin
        prepared = fit.prepared(new)
        samples = fit.predict_prepared(prepared)[1]
        scores[kind] = fold_scores(Fold(fit.prepared(train), prepared, samples), samples)
        told = summary(scores[kind], new.output_names)
        told = {part: told[part] for part in ("crps", "coverage", "width")}
        found[kind] = told | {
            "weights": fit.problem.partition.dim,
            "kind": getattr(fit.config.model, "kind", ""),
            "trusted": fit.diagnostics.get("is_trusted"),
            "noise_factor": np.round(fit.noise_factor, 3).tolist(),
            "cpu": round(cpu, 1),
        }
    found["ratio"], found["ratio_se"] = crps_ratio(scores["all"], scores["last_layer"])
    return found


def row(found: dict[str, Any]) -> str:
    """One line of the printed table."""
    cells = [found["table"], str(found["seed"])]
    for kind in CANDIDATES:
        told = found[kind]
        cells += [str(told["weights"]), f"{told['crps']:.4f}", f"{100 * told['coverage']:.1f} %", f"{told['cpu']:.0f}"]
    cells += [f"{found['ratio']:.3f} ± {found['ratio_se']:.3f}", str(found["all"]["trusted"])]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--num", type=int, default=40, help="training trajectories")
    parser.add_argument("--largest-step", type=float, help="of the integrator; by default 0.02 of the duration")
    parser.add_argument("--transitions", type=int, help="of ensemble-hmc, at most; by default its own")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    options: dict[str, Any] = {}
    if arguments.largest_step:
        options["model"] = {"largest_step": arguments.largest_step}
    if arguments.transitions:
        options["ensemble-hmc"] = {"most_transitions": arguments.transitions}
    columns = ("weights", "CRPS", "90 % band holds", "cpu [s]")
    print("| table | seed | " + " | ".join(columns) + " | all: " + " | ".join(columns) + " | ratio | trusted |")
    print("|---" * 12 + "|")
    for seed in arguments.seeds:
        for name in arguments.tables:
            found = measure(name, arguments.num, seed, options)
            print(row(found), flush=True)
            if arguments.out is not None:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
