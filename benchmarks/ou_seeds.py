"""The OU demonstration over several seeds: one Markdown row a run, from its metrics.json.

    python benchmarks/ou_seeds.py --seeds 41 42 43 -- --method langevin --set model.layers=[8]

Words after `--` go to `langenode run ou` as they are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HEADER = (
    "| seed | std W / drawn | std b / drawn | corr - drawn | W1 / floor | held out | 90 % band | rel. ESS | fit, s |"
)


def row(seed: int, found: dict) -> str:
    drawn, ours = found["data_weights"], found["weights"]
    is_law = len(ours["std"]) == 2 and min(drawn["std"]) > 0
    ratios = [f"{a / b:.3f}" for a, b in zip(ours["std"], drawn["std"], strict=True)] if is_law else ["", ""]
    corr = f"{ours['corr'] - drawn['corr']:+.3f}" if is_law else ""
    held_out = found["w1_held_out"]
    ess = f"{found['posterior']['relative_ess']:.4f}" if "posterior" in found else ""
    cells = [
        str(seed),
        *ratios,
        corr,
        f"{found['w1']['ratio']:.2f}",
        f"{held_out['ratio']:.2f}",
        f"{100 * found['coverage']['90']:.1f} %",
        ess,
        f"{found['seconds']['fit']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[41, 42, 43])
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    print(HEADER, "|---" * 9 + "|", sep="\n", flush=True)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "langenode", "run", "ou", "--out", f"{folder}/run", "--seed", str(seed)]
            subprocess.run([*command, *options.words], check=True, capture_output=True)
            print(row(seed, json.loads(Path(folder, "run", "metrics.json").read_text())), flush=True)


if __name__ == "__main__":
    main()
