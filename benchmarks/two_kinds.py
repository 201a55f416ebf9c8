"""Units of two kinds: a normal distribution of effects against the bottleneck's map, on simulated data.

    python benchmarks/two_kinds.py --seeds 0 1 2

One-compartment pharmacokinetics; the clearance of six in ten units is a fifth of that of the others. Each line: the
log score per unit of 200 new units, that less the normal distribution's with its standard error over units, and the
share of their readings within 50 and 90 % bands.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from one_compartment import DOSE, bateman, concentration, family_at

import langenode as ln
from langenode.data import Dataset
from langenode.fitting.units.predicting import predict_units
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.units import by_unit

METHODS = ("gaussian-full", "bottleneck")
NUM_UNITS, NUM_NEW, NUM_READINGS = 100, 200, 8
# Logarithms of typical values, and their spreads within a kind; the kinds' log clearances are 2 GAP apart.
TYPICAL, SPREAD, GAP, SHARE = np.log([1.5, 30.0, 2.7]), np.array([0.4, 0.2, 0.12]), 0.8, 0.6
ADDITIVE, RELATIVE = 0.05, 0.1


class Scored(NamedTuple):
    """Log densities of new units' readings, and the share of readings within bands of 50 and 90 %."""

    log_scores: np.ndarray
    coverage: tuple[float, float]


def simulate(num: int, *, seed: int) -> Dataset:
    """Units of both kinds."""
    rng = np.random.default_rng(seed)
    trajectories = []
    for number in range(num):
        times = np.sort(np.exp(rng.uniform(np.log(0.25), np.log(24.0), NUM_READINGS)))
        own = TYPICAL + SPREAD * rng.standard_normal(3)
        own[2] += -GAP if rng.random() < SHARE else GAP
        level = concentration(times, DOSE, *own)
        readings = level + np.hypot(ADDITIVE, RELATIVE * level) * rng.standard_normal(NUM_READINGS)
        inputs = np.full((NUM_READINGS, 1), DOSE)
        trajectories.append({"times": times, "outputs": readings, "inputs": inputs, "unit": str(number)})
    return Dataset.from_list(trajectories, input_names=["dose"], output_names=["conc"])


def fit(data: Dataset, method: str, *, seed: int = 0, **options: Any) -> ln.Fit:
    """A fit by the library's defaults."""
    effects = ln.Effects(ka=ln.LogNormal(1.0, 0.3), V=ln.LogNormal(20.0, 0.3), CL=ln.LogNormal(2.0, 0.3))
    model = ln.UnitModel(effects, bateman)
    return ln.fit(data, model=model, method=method, seed=seed, progress=False, options={"hierarchical": options})


def score(fitted: ln.Fit, new: Dataset, *, num_samples: int = 1000) -> Scored:
    """New units of which nothing is known."""
    prepared, key = fitted.prepared(new), jax.random.key(0)

    def predicted(given: str) -> Any:
        rng = np.random.default_rng(0)
        arguments = (fitted.problem, fitted.config, prepared, num_samples, fitted.rule)
        return predict_units(*arguments, key=key, rng=rng, given=given)

    readings, coverage = predicted("none").observed, []
    for level in (0.5, 0.9):
        low, high = np.quantile(readings, (0.5 - level / 2, 0.5 + level / 2), axis=0)
        inside = (low <= prepared.outputs) & (prepared.outputs <= high)
        coverage.append(float(inside[prepared.mask].mean()))
    return Scored(predicted("all").log_evidence, (coverage[0], coverage[1]))


def true_scores(new: Dataset) -> np.ndarray:
    """Log densities of the units' readings under the distribution that they are from."""
    with jax.enable_x64(True):
        values = []
        for share, shift in ((SHARE, -GAP), (1.0 - SHARE, GAP)):
            typical = TYPICAL + np.array([0.0, 0.0, shift])
            family = family_at(np.concatenate([typical, np.log([*SPREAD, ADDITIVE, RELATIVE])]))
            found = condition(stacked([family]), by_unit(new), 16, num_points=2048, key=jax.random.key(0))
            values.append(np.log(share) + found.log_evidence)
    return np.logaddexp(*values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--units", type=int, default=NUM_UNITS)
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        data, new = simulate(arguments.units, seed=seed), simulate(NUM_NEW, seed=seed + 10_000)
        normal = None
        print(f"{seed} {'truth':16s}{true_scores(new).mean():9.3f}", flush=True)
        for method in arguments.methods:
            begin = time.process_time()
            found = score(fit(data, method, seed=seed), new)
            normal = found.log_scores if normal is None else normal
            gain = found.log_scores - normal
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            bands = " ".join(f"{share:.3f}" for share in found.coverage)
            seconds = time.process_time() - begin
            print(
                f"{seed} {method:16s}{found.log_scores.mean():9.3f}  gain {gain.mean():+.3f} ± {error:.3f}  "
                f"bands {bands}  {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
