"""Critical values of the dip test: `sqrt(n)` times the dip that uniform samples of n exceed, by simulation.

    python benchmarks/dip_levels.py --seed 0 --num 10000

One line per size, one number per level, as they stand in `langenode/data/modes.py`.
"""

import argparse

import numpy as np

from langenode.data.modes import LEVELS, SIZES, dip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num", type=int, default=10_000)
    arguments = parser.parse_args()
    for size in SIZES:
        rng = np.random.default_rng([arguments.seed, size])
        dips = np.sqrt(size) * np.array([dip(rng.uniform(size=size)) for _ in range(arguments.num)])
        values = ", ".join(f"{value:.3f}" for value in np.quantile(dips, 1.0 - np.asarray(LEVELS)))
        print(f"    ({values}),  # {size}", flush=True)


if __name__ == "__main__":
    main()
