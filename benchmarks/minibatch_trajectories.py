"""Acceptance of long Hamiltonian trajectories that see a part of the data, decided by the energy of all data.

    python benchmarks/minibatch_trajectories.py --num 200 --dim 20

A linear model with unit noise and prior N(0, I), in the metric of its posterior; 256 leapfrog steps of size 0.1, with
the jitter of `ensemble-hmc`. `fixed`: one random part of the data for a trajectory; `fresh`: another part at every
point. Both can be reversed, so that the draws are exact however few are accepted.
"""

import argparse

import numpy as np

NUM_LEAPFROG, STEP_SIZE, JITTER = 256, 0.1, (-0.75, 0.25)


def acceptance(num: int, dim: int, share: float, kind: str, *, num_trajectories: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(num, dim))
    outputs = design @ rng.normal(size=dim) + rng.normal(size=num)
    covariance = np.linalg.inv(np.eye(dim) + design.T @ design)
    root, mean = np.linalg.cholesky(covariance), covariance @ design.T @ outputs
    size = int(share * num)

    def energy(z: np.ndarray, momentum: np.ndarray) -> float:
        return 0.5 * float(z @ z + np.sum((outputs - design @ z) ** 2) + momentum @ momentum)

    def kick(z: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return root.T @ (num / size * design[rows].T @ (outputs[rows] - design[rows] @ z) - z)

    found, z = [], mean + root @ rng.normal(size=dim)
    for _ in range(num_trajectories):
        start = momentum = rng.normal(size=dim)
        step, end, rows = STEP_SIZE * 4.0 ** rng.uniform(*JITTER), z, rng.choice(num, size, replace=False)
        for _ in range(NUM_LEAPFROG):
            momentum = momentum + 0.5 * step * kick(end, rows)
            end = end + step * root @ momentum
            rows = rng.choice(num, size, replace=False) if kind == "fresh" else rows
            momentum = momentum + 0.5 * step * kick(end, rows)
        found.append(np.exp(min(0.0, energy(z, start) - energy(end, momentum))))
        z = end if rng.random() < found[-1] else z
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("num", 200), ("dim", 20), ("trajectories", 100), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    asked = parser.parse_args()
    print("| part of the data | fixed | fresh |", "|---|---|---|", sep="\n")
    for share in (1.0, 0.9, 0.5, 0.25):
        cells = [
            acceptance(asked.num, asked.dim, share, kind, num_trajectories=asked.trajectories, seed=asked.seed)
            for kind in ("fixed", "fresh")
        ]
        print(f"| {share} | {cells[0]:.3f} | {cells[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
