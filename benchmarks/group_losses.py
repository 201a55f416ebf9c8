"""Two groups of units fitted by a generic network: which population loss keeps them.

    python benchmarks/group_losses.py --seeds 0-2

Forty units decay with rates about 0.5 or 1.6 and are read at ten times with noise of 0.02. A generic population fit
with 500 updates is compared with 4000 new units: W1 of the readings in units of their spread (mean over times), the
share of predicted readings in the valley between the groups at the fifth time, the share above it, and the coverage of
the 90 % band.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from population_modes import seeds, w1

import langenode as ln

TIMES = np.linspace(0.0, 3.0, 10)
RATES, STDS = np.array([0.5, 1.6]), np.array([0.06, 0.12])
NOISE, NUM_UNITS, NUM_NEW = 0.02, 40, 4000
LOSSES: dict[str, dict[str, Any]] = {
    "quantile, saturation 0.5": {"loss": "quantile", "saturation": 0.5},
    "energy": {"loss": "energy"},
}
# Of the readings at the fifth time: the groups are above and below.
FIFTH, VALLEY = 4, (0.22, 0.33)


def curves(num: int, rng: np.random.Generator) -> np.ndarray:
    """Noise-free outputs of random units, (unit, time)."""
    group = rng.integers(2, size=num)
    rates = RATES[group] + STDS[group] * rng.standard_normal(num)
    return np.exp(-rates[:, None] * TIMES)


def scores(loss: dict[str, Any], seed: int) -> list[float]:
    """W1, share in the valley, share above it, and coverage of new units."""
    rng = np.random.default_rng(seed)
    readings = curves(NUM_UNITS, rng)
    readings[:, 1:] += NOISE * rng.standard_normal(readings[:, 1:].shape)
    data = ln.Dataset.from_arrays(TIMES, readings[..., None])
    new = curves(NUM_NEW, np.random.default_rng(1))
    new += NOISE * np.random.default_rng(2).standard_normal(new.shape)
    options = {
        "population": loss,
        "model": {"kind": "state"},
        "training": {"num_updates": 500},
        "data": {"folds": None},
    }
    fit = ln.fit(data, target="population", seed=seed, options=options, progress=False)
    made = fit.predict_prepared(fit.prepared(data.select([0])), 2000)[1][:, 0, :, 0]
    low, high = np.quantile(made, [0.05, 0.95], axis=0)
    at = made[:, FIFTH]
    return [
        float(w1(made, new).mean() / new.std(0).mean()),
        float(np.mean((at > VALLEY[0]) & (at < VALLEY[1]))),
        float(np.mean(at > np.mean(VALLEY))),
        float(np.mean((new > low) & (new < high))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds, default=seeds("0-2"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| seed | loss | W1 / spread | in the valley | above it | 90 % band |\n|---|---|---|---|---|---|")
    for seed in arguments.seeds:
        for name, loss in LOSSES.items():
            print(
                f"| {seed} | {name} | " + " | ".join(f"{value:.3f}" for value in scores(loss, seed)) + " |", flush=True
            )


if __name__ == "__main__":
    main()
