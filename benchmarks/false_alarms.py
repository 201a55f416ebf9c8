"""How often the checks of the verdict fail for a perfect model, and for a wrong one.

    python benchmarks/false_alarms.py --runs 300

Data and predictions are draws of the same distribution, at the sizes of small runs: random walks of 20 readings for W1
and energy distance, readings with a given correlation within trajectories for coverage, and a loss at rest. Beside each
rate stands that of a fixed threshold (1.3 times the floor; 80 to 97 %), and the rate at which a wrong model is found:
half the spread for distances, bands 0.7 times as wide for coverage, a loss that still falls. One Markdown row per
check and size; the error of a rate r is sqrt(r (1 - r) / runs).
"""

import argparse
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtri

from langenode.data import Dataset
from langenode.fitting.evaluation import training_state
from langenode.fitting.perfect import HeldOut, coverage_check
from langenode.scores import floors, metrics
from langenode.scores.thresholds import energy_null, upper_threshold, w1_null

NUM_TIMES, NUM_SETS = 20, 20
SIZES = (5, 8, 20, 50)
COVERAGES = ((2, 10, 0.0), (2, 10, 0.8), (8, 20, 0.0), (8, 20, 0.8), (30, 10, 0.0), (30, 10, 0.8), (200, 10, 0.3))
SETTLED = 0.05


def walks(num: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    return np.cumsum(scale * rng.standard_normal((num, 1, NUM_TIMES, 1)), axis=2)


def distances(size: int, scale: float, rng: np.random.Generator) -> tuple[bool, ...]:
    """Whether W1 and energy distance exceed their thresholds, then whether they exceed fixed ones."""
    data, pool = walks(size, 1.0, rng), walks(NUM_SETS * size, scale, rng)
    sets, mask = np.split(pool, NUM_SETS), np.ones(data.shape, dtype=bool)
    w1 = np.median([metrics.w1(one, data).mean() for one in sets])
    energy = np.median([metrics.energy_distance(one, data, fair=False) for one in sets])
    return (
        bool(w1 > upper_threshold(w1_null(pool, mask, is_crossed=False, rng=rng)).value),
        bool(energy > upper_threshold(energy_null(pool, mask, is_crossed=False, rng=rng)).value),
        bool(w1 > 1.3 * floors.w1_floor_from_data(data, size, rng=rng).median),
        bool(energy > 1.3 * floors.energy_floor_from_data(data, size, rng=rng).median),
    )


def coverage(num: int, steps: int, rho: float, width: float, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether the coverage is outside its limits, then whether it is outside fixed ones."""
    values = np.sqrt(rho) * rng.standard_normal((num, 1, 1)) + np.sqrt(1 - rho) * rng.standard_normal((num, steps, 1))
    data = Dataset.from_arrays(np.arange(steps, dtype=float), values, condition=np.arange(num))
    samples = width * ndtri((np.arange(400) + 0.5) / 400)
    found = coverage_check(
        [HeldOut(np.broadcast_to(samples[:, None, None, None], (400, num, steps, 1)), data)], is_posterior=False
    )
    assert found is not None
    inside = found["coverage"]
    return not found["low"] <= inside <= found["high"], not 0.8 <= inside <= 0.97


def falls(half_life: float, rng: np.random.Generator) -> bool:
    """Whether the loss seems to fall by more than 5 % of its total fall in the last fifth of training."""
    losses = np.exp2(-np.arange(500) / half_life) + 0.2 * rng.standard_normal(500)
    counts = {"updates": 500, "asked": 500, "skipped": 0}
    return training_state({"loss": losses}, counts)["late_change"] > SETTLED


def rows(num_runs: int, rng: np.random.Generator) -> Iterator[tuple[str, str, float | None, float, float]]:
    """Yield the check, its size, the rates of a fixed and of the present threshold, and the rate of a wrong model."""
    for size in SIZES:
        right, wrong = (np.mean([distances(size, s, rng) for _ in range(num_runs)], axis=0) for s in (1.0, 0.5))
        for index, name in enumerate(("W1", "energy distance")):
            yield name, f"{size} replicates", right[2 + index], right[index], wrong[index]
    for num, steps, rho in COVERAGES:
        right, wrong = (np.mean([coverage(num, steps, rho, w, rng) for _ in range(num_runs)], axis=0) for w in (1, 0.7))
        yield "coverage", f"{num} trajectories of {steps}, correlation {rho:g}", right[1], right[0], wrong[0]
    right, wrong = (np.mean([falls(half_life, rng) for _ in range(num_runs)]) for half_life in (10.0, 250.0))
    yield "training", "500 updates", None, float(right), float(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| check | size | fixed threshold | present threshold | a wrong model |\n|---|---|---|---|---|")
    for name, size, fixed, present, wrong in rows(arguments.runs, np.random.default_rng(arguments.seed)):
        old = "" if fixed is None else f"{100 * fixed:.1f} %"
        print(f"| {name} | {size} | {old} | {100 * present:.1f} % | {100 * wrong:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
