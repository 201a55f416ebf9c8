"""Recovery by hierarchical fits: estimates against their standard errors, and bands of new units.

    python benchmarks/hierarchical_recovery.py --num 20
    python benchmarks/hierarchical_recovery.py --num 20 --design sparse

Data sets of 50 units (one-compartment pharmacokinetics) are fitted as by default. The table has one line per number:
bias and root mean square error of the estimate, the mean standard error, and how often the 90 % interval holds the
truth. Then: all intervals together; readings of 60 new units within their 90 % bands; the exact log-likelihood
(adaptive Gauss-Hermite quadrature) of the estimate less that of the Laplace estimate and of the truth; and the fits
whose information matrix was not positive definite.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from one_compartment import NAMES, RICH, SPARSE, SPARSE_TRUTH, Truth, exact_log_likelihood, family_at, numbers_of
from one_compartment import simulate as simulate_units

from langenode.fitting.units.solving import zero_spreads
from langenode.inference.hierarchical import uncertainty
from langenode.inference.hierarchical.conditional import condition, stacked, unit_outputs
from langenode.inference.hierarchical.estimate import Estimate, LogPrior, Settings, estimate, search, start_modes
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import make_points
from langenode.inference.hierarchical.units import Units, by_unit

CASES = {"rich": (RICH, Truth()), "sparse": (SPARSE, SPARSE_TRUTH)}
NUM_UNITS, NUM_NEW, NUM_DRAWS = 50, 60, 16
SETTINGS = Settings(num_points=64, num_laplace=150, num_importance=60)
QUANTILE = 1.6448536269514722  # of a two-sided 90 % interval
# Where searches start: away from the truth.
START = np.log([1.0, 20.0, 2.0, 0.3, 0.3, 0.3, 0.3, 0.1])


class Recovered(NamedTuple):
    """One data set: estimates and standard errors in the order of `NAMES`, and the checks on them."""

    numbers: np.ndarray
    errors: np.ndarray  # zero where the information says nothing
    is_positive: bool
    coverage: float  # of readings of new units, by 90 % bands
    gain_on_laplace: float
    gain_on_truth: float
    seconds: float  # of processor time


def recover(case: str, seed: int, *, has_gains: bool = True) -> Recovered:
    """Fit one simulated data set."""
    design, truth = CASES[case]
    begin = time.process_time()
    data = simulate_units(NUM_UNITS, design, truth, seed=seed)
    units, start = by_unit(data), family_at(START)
    found = estimate(start, units, settings=SETTINGS, seed=seed)
    points = make_points(SETTINGS.num_points, found.modes.shape[1], units.num, seed=seed)
    at_zero = zero_spreads(found.family)
    information = uncertainty.observed_information(found.family, units, found.modes, points, LogPrior(), fixed=at_zero)
    density = uncertainty.log_posterior_of(found.family, units, found.modes, points, LogPrior())
    rng = np.random.default_rng([seed, 3])
    drawn = uncertainty.laplace_draws(found.family, information, NUM_DRAWS, log_posterior=density, rng=rng)
    new = by_unit(simulate_units(NUM_NEW, design, truth, seed=seed + 10_000))
    coverage = band_coverage(stacked(drawn), new, seed=seed)
    seconds = time.process_time() - begin
    numbers = numbers_of(found.family)
    on_laplace = on_truth = np.nan
    if has_gains:
        exact = exact_log_likelihood(numbers, data)
        on_laplace = exact - exact_log_likelihood(laplace_numbers(start, units, seed), data)
        on_truth = exact - exact_log_likelihood(truth.numbers(), data)
    order = numbers_order(found)
    errors = np.sqrt(np.diag(information.covariance))[order]
    return Recovered(numbers, errors, information.is_positive, coverage, on_laplace, on_truth, seconds)


def numbers_order(found: Estimate) -> np.ndarray:
    """The places of `NAMES` in the flat vector of a family."""
    flat = uncertainty.flat_of(found.family)
    marked = numbers_of(uncertainty.with_flat(found.family, np.arange(float(len(flat)))))
    return marked.astype(int)


def laplace_numbers(start: Family, units: Units, seed: int) -> np.ndarray:
    """The estimate by Laplace's approximation alone."""
    modes = start_modes(start, units)
    points = make_points(SETTINGS.num_points, modes.shape[1], units.num, seed=seed)
    most = SETTINGS.num_laplace
    return numbers_of(search(start, units, modes, points, LogPrior(), "laplace", most=most).family)


def band_coverage(families: Family, units: Units, *, seed: int, num_samples: int = 2000) -> float:
    """The share of new units' readings that lie within 90 % bands, which have the uncertainty of the estimate."""
    hidden = units._replace(mask=jnp.zeros_like(units.mask))
    drawn = condition(families, hidden, num_samples, num_points=2048, seed=seed, key=jax.random.key(seed))
    outputs, noise = unit_outputs(families, units, jnp.asarray(drawn.xi), jnp.asarray(drawn.member))
    rng = np.random.default_rng([seed, 4])
    readings = np.asarray(outputs) + np.asarray(noise) * rng.standard_normal(outputs.shape)
    low, high = np.quantile(readings, (0.05, 0.95), axis=1)
    inside = (np.asarray(units.outputs) >= low) & (np.asarray(units.outputs) <= high)
    return float(inside[np.asarray(units.mask)].mean())


class Summary(NamedTuple):
    """All data sets of a case."""

    rows: list[dict[str, Any]]
    intervals: float
    bands: float
    num_indefinite: int
    gain_on_laplace: float
    gain_on_truth: float


def summarise(case: str, found: list[Recovered]) -> Summary:
    """Bias, errors and coverage over the data sets. A number without a standard error has no interval."""
    errors = np.array([one.numbers for one in found]) - CASES[case][1].numbers()
    stated = np.array([one.errors for one in found])
    has_error = stated > 0.0
    holds = np.abs(errors) <= QUANTILE * stated
    rows = [
        {
            "number": name,
            "bias": float(errors[:, place].mean()),
            "rmse": float(np.sqrt(np.mean(errors[:, place] ** 2))),
            "se": float(stated[has_error[:, place], place].mean()) if has_error[:, place].any() else float("nan"),
            "coverage": float(holds[has_error[:, place], place].mean()) if has_error[:, place].any() else float("nan"),
        }
        for place, name in enumerate(NAMES)
    ]
    mean = lambda name: float(np.mean([getattr(one, name) for one in found]))  # noqa: E731
    indefinite = sum(not one.is_positive for one in found)
    intervals = float(holds[has_error].mean())
    return Summary(rows, intervals, mean("coverage"), indefinite, mean("gain_on_laplace"), mean("gain_on_truth"))


def show(summary: Summary) -> None:
    """Print the table."""
    print(f"{'':14s}{'bias':>8s}{'rmse':>8s}{'se':>8s}{'90 %':>8s}")
    for row in summary.rows:
        print(f"{row['number']:14s}" + "".join(f"{row[name]:8.3f}" for name in ("bias", "rmse", "se", "coverage")))
    print(f"intervals {summary.intervals:.3f}, bands of new units {summary.bands:.3f}")
    print(
        f"exact log-likelihood over Laplace's {summary.gain_on_laplace:+.2f}, over truth {summary.gain_on_truth:+.2f}"
    )
    print(f"information matrices that are not positive definite: {summary.num_indefinite}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--design", choices=list(CASES), default="rich")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.num):
        found.append(recover(arguments.design, seed))
        one = found[-1]
        print(f"{seed}: {np.round(one.numbers, 3)} bands {one.coverage:.3f}, {one.seconds:.0f} s", flush=True)
    summary = summarise(arguments.design, found)
    show(summary)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(summary._asdict(), indent=2))


if __name__ == "__main__":
    main()
