"""What the paper left to future work does on its demonstrations: one Markdown table, from metrics.json of small runs.

    python benchmarks/future_work.py --seed 1 --out future_work.json
    python benchmarks/future_work.py --parts networks bounds --size default --seed 41

Parts: `networks` (perceptron, residual and U-Net controls), `bounds` (the rate of the OU process cut at the middle of
its posterior), `interacting` (Langevin particles on posteriors whose truth is known), `convex` (viscoelastic
potentials). Rows that `--out` holds already are not run again. Sizes: `small`, or `default`, those of the
demonstrations.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from posterior_cases import make_case
from posteriors import read_reference, run_one

RATE = "dynamics.network.layers[0].weight"
COMPOSITE = "data.num_microstructures=16 data.num_walks=28 data.num_tensions=4 data.num_steps=24"
PREDICT = "predict.num_samples=256 predict.num_weights=1024 predict.num_w1_draws=4"
SMALL = {
    "ou": f"data.num_trajectories=256 data.num_test=256 data.num_times=50 training.num_updates=400 {PREDICT}",
    "ou posterior": "training.num_updates=600 predict.num_weights=4096",
    "schlogl": f"data.num_trajectories=256 data.num_test=256 data.num_times=41 training.num_updates=300 {PREDICT}",
    "viscoelastic": f"{COMPOSITE} training.num_updates=150 {PREDICT}",
}
NETWORKS = ("mlp", "residual", "unet")
POSTERIOR_METHODS = ("interacting", "interacting:is_adjusted=0", "svgd", "nuts")


class Row(NamedTuple):
    """One measurement: where it stands in the table, and what gives its numbers."""

    part: str
    case: str
    choice: str
    measure: Callable[[], dict[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.part}, {self.case}, {self.choice}"


def run(experiment: str, words: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """metrics.json of one run of the command, with its seconds; `experiment` may name a target, too."""
    name, _, target = experiment.partition(" ")
    sizes = SMALL[experiment].split() if options.size == "small" else []
    settings = [word for text in sizes for word in ("--set", text)] + (["--target", target] if target else [])
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "langenode",
            "run",
            name,
            "--seed",
            str(options.seed),
            "--out",
            f"{folder}/run",
        ]
        done = subprocess.run([*command, *settings, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join([*command, *settings, *words])} failed: {done.stderr[-500:]}")
        return json.loads(Path(folder, "run", "metrics.json").read_text())


def distance(found: dict[str, Any]) -> dict[str, Any]:
    return {"W1 / floor": found["w1"]["ratio"], "held out": found["w1_held_out"]["ratio"], **seconds(found)}


def seconds(found: dict[str, Any]) -> dict[str, Any]:
    return {"fit, s": found["seconds"]["fit"]}


def beside_exact(found: dict[str, Any]) -> dict[str, Any]:
    """Moments of (W, b) and the log-evidence, beside those of the exact posterior on a grid."""
    exact, ours = found["reference_posterior"], found["weights"]
    shifts = [(a - b) / s for a, b, s in zip(ours["mean"], exact["mean"], exact["std"], strict=True)]
    ratios = [a / b for a, b in zip(ours["std"], exact["std"], strict=True)]
    scores = {"mean error / std, W": shifts[0], "b": shifts[1], "std ratio, W": ratios[0], "b ": ratios[1]}
    posterior = found["posterior"]
    if "log_evidence" in posterior:
        scores["log-evidence error"] = posterior["log_evidence"] - exact["log_evidence"]
        scores["its se"] = posterior["log_evidence_se"]
    return scores | seconds(found) | {"exact mean": exact["mean"]}


def material(found: dict[str, Any]) -> dict[str, Any]:
    point = {"point fit / data std": found["mle"]["rmse_over_data_std"]}
    return point | {"W1 / floor": found["w1"]["ratio"], "std ratio": found["std_ratio"], **seconds(found)}


def networks(options: argparse.Namespace) -> Iterator[Row]:
    for experiment, method in (("ou", "langevin"), ("schlogl", "bottleneck")):
        for network in NETWORKS:
            words = ["--method", method, "--set", f"{method}.network={network}"]
            yield Row(
                "networks",
                f"{experiment}, {method}",
                network,
                lambda e=experiment, w=words: distance(run(e, w, options)),
            )


def bounds(options: argparse.Namespace, known: dict[str, Any]) -> Iterator[Row]:
    """The second and third row cut the rate where the first found the exact mean of its posterior."""
    free = Row(
        "bounds",
        "ou posterior, langevin",
        "none",
        lambda: beside_exact(run("ou posterior", ["--method", "langevin"], options)),
    )
    yield free
    middle = known[free.name]["exact mean"][0]
    bound = ["--set", f'prior.upper={{"{RATE}" = {middle:.6g}}}']
    for method in ("langevin", "gaussian-full"):
        words = ["--method", method, *bound]
        yield Row(
            "bounds",
            f"ou posterior, {method}",
            f"W < {middle:.2f}",
            lambda w=words: beside_exact(run("ou posterior", w, options)),
        )


def interacting(options: argparse.Namespace) -> Iterator[Row]:
    words = ["--method", "interacting"]
    yield Row("interacting", "ou posterior", "interacting", lambda: beside_exact(run("ou posterior", words, options)))
    for method in POSTERIOR_METHODS:
        yield Row("interacting", "decay@1", method, lambda m=method: on_case("decay@1", m, options.seed))


def on_case(name: str, method: str, seed: int) -> dict[str, Any]:
    """One method on a posterior of benchmarks/posteriors.py."""
    case = make_case(name)
    begin = time.process_time()
    found, _ = run_one(case, read_reference(case), method, seed, False, True)
    scores = {key: found[key] for key in ("mean", "std", "trusted", "k evals") if found.get(key) is not None}
    return scores | {"cpu, s": time.process_time() - begin}


def convex(options: argparse.Namespace) -> Iterator[Row]:
    for law in ("tensor", "paper"):
        for choice in ("false", "true"):
            words = ["--set", f"model.law={law}", "--set", f"model.convex={choice}"]
            words += ["--set", "model.correction=neural"] if law == "tensor" else []
            yield Row(
                "convex",
                f"viscoelastic, {law} law",
                f"convex={choice}",
                lambda w=words: material(run("viscoelastic", w, options)),
            )


PARTS = {"networks": networks, "bounds": bounds, "interacting": interacting, "convex": convex}


def shown(numbers: dict[str, Any]) -> str:
    return ", ".join(
        f"{key.strip()} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in numbers.items()
        if key != "exact mean"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", choices=("small", "default"), default="small")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", False)
    known: dict[str, Any] = {}
    if options.out is not None and options.out.exists():
        known = json.loads(options.out.read_text())
    print("| what | on | choice | found |", "|---|---|---|---|", sep="\n", flush=True)
    for part in options.parts:
        rows = bounds(options, known) if part == "bounds" else PARTS[part](options)
        for row in rows:
            if row.name not in known:
                known[row.name] = row.measure()
                if options.out is not None:
                    options.out.write_text(json.dumps(known, indent=1) + "\n")
            print(f"| {row.part} | {row.case} | {row.choice} | {shown(known[row.name])} |", flush=True)


if __name__ == "__main__":
    main()
