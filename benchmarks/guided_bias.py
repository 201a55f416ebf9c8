"""Does `guided` know when it is biased? Overlapping modes against quadrature, with and without choosing the horizon.

    python benchmarks/guided_bias.py --seeds 0 1 2 3 4 5 6 7
    python benchmarks/guided_bias.py --seeds 0 1 2 3 4 5 6 7 --horizon 0.25

One line per case: the mean and the worst error of the log-evidence (nats, and in stated errors), the exact share of one
mode with the worst error of it (in stated errors), how many runs took the shorter horizon, were flagged, and were wrong
(beyond four errors) without a flag; and what the check costs, as a share of all runs of the model.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from overlapping_cases import Case, all_cases, score

from langenode.samplers.guided import GuidedSettings, guided_langevin

COLUMNS = ("evidence", "worst", "errors", "exact share", "share errors", "shorter", "flagged", "wrong", "check")


def run_case(case: Case, settings: GuidedSettings, seeds: list[int]) -> dict[str, Any]:
    exact, runs, scores = case.exact(), [], []
    for seed in seeds:
        runs.append(guided_langevin(case.density(), settings, key=jax.random.key(seed)))
        scores.append(score(case, exact, runs[-1]))
    unchecked = guided_langevin(case.density(), settings._replace(num_checks=0), key=jax.random.key(seeds[0]))
    worst = max(scores, key=lambda one: abs(one.evidence_errors))
    return {
        "case": case.name,
        "evidence": float(np.mean([one.evidence for one in scores])),
        "worst": worst.evidence,
        "errors": worst.evidence_errors,
        "exact share": exact.share,
        "share errors": max((one.share_errors for one in scores), key=abs),
        "shorter": sum(run.horizon < 0.25 for run in runs),
        "flagged": sum(not run.trust.is_trusted for run in runs),
        "wrong": sum(run.trust.is_trusted and not one.is_right for run, one in zip(runs, scores, strict=True)),
        "check": 1.0 - unchecked.num_evaluations / runs[0].num_evaluations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--horizon", type=float)
    parser.add_argument("--num-checks", type=int, default=GuidedSettings().num_checks)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    settings, rows = GuidedSettings(horizon=options.horizon, num_checks=options.num_checks), []
    print("| case | " + " | ".join(COLUMNS) + " |", "|---" * (1 + len(COLUMNS)) + "|", sep="\n")
    for case in all_cases():
        rows.append(row := run_case(case, settings, options.seeds))
        cells = [f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS]
        print(f"| {row['case']} | " + " | ".join(cells) + " |", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
