"""From the method as printed to ours, one switch at a time: what each does to spread, dependence, W1 and log-evidence.

    python benchmarks/ablation.py --experiments ou schlogl --seeds 1 2 3 --out ablation.jsonl

The switches are cumulative: a row has its own and all above it. Every run is one line of the file, written when it
ends; the same command runs what is missing, and then prints one Markdown table per demonstration, with means and
standard deviations over seeds. Settings after `--` go to every run (for example `-- training.num_updates=5`). Processor
seconds are those of the whole run, from data to report, in all its threads.

`--ou-steps N` gives the rows with the printed chain of the OU demonstration N steps over the same pseudo-time.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SHORT_CHAIN = ["paper.step=exact", "paper.grid=graded", "paper.num_steps=8"]
OPTIMISER = ["training.clip=1", "training.average=0.99", "training.final_rate=0.02"]
CHAINS = {
    "ou": [*SHORT_CHAIN, "paper.noise=full", "paper.pseudo_time_step=0.375"],
    "schlogl": [*SHORT_CHAIN, "paper.noise=diagonal", "paper.pseudo_time_step=0.25"],
}
# The pseudo-time of OU's printed chain: 10^4 steps of 1e-3.
OU_HORIZON = 10.0
DEFAULT = "the default (`langenode run`)"


def switches(experiment: str) -> dict[str, list[str]]:
    """The rows in their order, with what each changes."""
    return {
        "as printed": [],
        "KL rate 1/4": ["paper.kl_rate=quarter"],
        "+ end term": ["paper.end_term=kept"],
        "+ drift sees the pseudo-time": ["paper.drift=time"],
        "+ learned start": ["paper.start=learned"],
        "+ 8 exact graded steps, learned noise": CHAINS[experiment],
        "+ optimiser (clip, average, decay)": OPTIMISER,
        "+ target population": ["target=population"],
    }


def rows(experiment: str, ou_steps: int | None = None) -> dict[str, list[str]]:
    """The settings of every row: the switches so far, and at last our default."""
    found, so_far = {}, ["method=paper"]
    if ou_steps is not None and experiment == "ou":
        so_far += [f"paper.num_steps={ou_steps}", f"paper.pseudo_time_step={OU_HORIZON / ou_steps:g}"]
    for name, settings in switches(experiment).items():
        so_far = [*so_far, *settings]
        found[name] = so_far
    return {**found, DEFAULT: []}


def measure(experiment: str, settings: list[str], seed: int) -> dict[str, Any]:
    """Run once; the numbers of the table, or why there are none."""
    words = [word for setting in settings for word in ("--set", setting)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "langenode", "run", experiment, "--out", f"{folder}/run"]
        done = subprocess.run([*command, "--seed", str(seed), *words], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1:], "processor_seconds": seconds}
        found = json.loads(Path(folder, "run", "metrics.json").read_text())
    return numbers(experiment, found) | {"processor_seconds": seconds, "load": os.getloadavg()[0]}


def numbers(experiment: str, found: dict[str, Any]) -> dict[str, Any]:
    """Of two weights each standard deviation and the correlation; of many their median and root mean square."""
    motion = found["training"].get("motion", {})
    posterior = found.get("posterior", {})
    common = {"log_evidence": posterior.get("log_evidence"), "has_moved": motion.get("has_moved")}
    if experiment == "ou":
        weights, drawn = (_moments(found[name]) for name in ("weights", "data_weights"))
        return {**weights, "w1": found["w1"]["ratio"], "drawn": drawn, **common}
    spread = {"std": motion.get("std_after"), "corr": motion.get("correlation_after")}
    return {**spread, "p_low": found["modes"]["p_low"], "w1": found["w1_exact"]["relative"], **common}


def _moments(weights: dict[str, Any]) -> dict[str, float]:
    return {"std_W": weights["std"][0], "std_b": weights["std"][1], "corr": weights["corr"]}


# Columns of the tables: key, heading, and what it should be.
COLUMNS = {
    "ou": [
        ("std_W", "std W", "0.800"),
        ("std_b", "std b", "1.134"),
        ("corr", "corr", "-0.705"),
        ("w1", "W1 / floor", "1"),
        ("log_evidence", "log-evidence", ""),
        ("processor_seconds", "processor [s]", ""),
    ],
    "schlogl": [
        ("std", "std of the weights, median", ""),
        ("corr", "correlation, rms", ""),
        ("p_low", "P(low)", "0.513"),
        ("w1", "W1 exact", "0"),
        ("log_evidence", "log-evidence", ""),
        ("processor_seconds", "processor [s]", ""),
    ],
}


def table(experiment: str, lines: list[dict[str, Any]]) -> str:
    """Markdown: one row per switch; first the exact values, and those of the weights behind the data."""
    columns = COLUMNS[experiment]
    text = [
        f"| {experiment} | {' | '.join(heading for _, heading, _ in columns)} |",
        "|---" * (1 + len(columns)) + "|",
        f"| exact | {' | '.join(exact for _, _, exact in columns)} |",
    ]
    if drawn := list({line["seed"]: line["drawn"] for line in lines if "drawn" in line}.values()):
        cells = [_cell([values[key] for values in drawn if key in values]) for key, _, _ in columns]
        text.append(f"| weights that the generator drew | {' | '.join(cells)} |")
    for name in rows(experiment):
        runs = [line for line in lines if line["row"] == name]
        cells = [_cell([run[key] for run in runs if run.get(key) is not None]) for key, _, _ in columns]
        failed = sum("error" in run for run in runs)
        text.append(f"| {name}{f' ({failed} failed)' if failed else ''} | {' | '.join(cells)} |")
    return "\n".join(text)


def _cell(values: list[float]) -> str:
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", choices=list(CHAINS), default=list(CHAINS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--ou-steps", type=int, help="steps of OU's printed chain; as printed 10000")
    parser.add_argument("--out", type=Path, default=Path("ablation.jsonl"))
    parser.add_argument("settings", nargs="*", help="further settings of every run, section.key=value")
    options = parser.parse_args()
    stored = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    asked = {"settings": options.settings, "ou_steps": options.ou_steps}
    lines = [line for line in stored if "error" not in line and asked.items() <= line.items()]
    done = {(line["experiment"], line["row"], line["seed"]) for line in lines}
    for seed in options.seeds:
        for experiment in options.experiments:
            for name, settings in rows(experiment, options.ou_steps).items():
                if (experiment, name, seed) in done:
                    continue
                what = {"experiment": experiment, "row": name, "seed": seed, **asked}
                line = what | measure(experiment, [*settings, *options.settings], seed)
                lines.append(line)
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), file=sys.stderr, flush=True)
    for experiment in options.experiments:
        chosen = [line for line in lines if line["experiment"] == experiment and line["seed"] in options.seeds]
        print(table(experiment, chosen), end="\n\n")


if __name__ == "__main__":
    main()
