"""Recovery by hierarchical fits: estimates against their standard errors, and predictions of new units.

    python benchmarks/hierarchical_recovery.py --num 20
    python benchmarks/hierarchical_recovery.py --num 20 --design sparse
    python benchmarks/hierarchical_recovery.py --num 20 --units 12

Data sets of 50 units (one-compartment pharmacokinetics) are fitted as by default. The table has one line per number:
bias and root mean square error of the estimate, that of the estimate by the exact likelihood (adaptive Gauss-Hermite
quadrature), the mean standard error, and how often the 90 % interval holds the truth. Then: all intervals together;
60 new units, of which nothing or three readings are known: readings within 90 % bands, and the log score per reading
less that of the true family; the exact log-likelihood of the estimate less that of the Laplace estimate and of the
truth; the fits whose information matrix was not positive definite; and the time of a fit after compilation.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from one_compartment import (
    NAMES,
    RICH,
    SPARSE,
    SPARSE_TRUTH,
    Truth,
    exact_estimate,
    exact_log_likelihood,
    family_at,
    numbers_of,
)
from one_compartment import simulate as simulate_units

from langenode.fitting.units.solving import zero_spreads
from langenode.inference.hierarchical import uncertainty
from langenode.inference.hierarchical.conditional import condition, stacked, unit_outputs
from langenode.inference.hierarchical.estimate import Estimate, LogPrior, Settings, estimate, search, start_modes
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import make_points
from langenode.inference.hierarchical.units import Units, by_unit

CASES = {"rich": (RICH, Truth()), "sparse": (SPARSE, SPARSE_TRUTH)}
NUM_UNITS, NUM_NEW, NUM_DRAWS, NUM_GIVEN = 50, 60, 16, 3
# The constant part of the noise is left out of mean errors: of one near zero only an upper bound is known.
WELL_KNOWN = np.arange(len(NAMES)) != NAMES.index("log additive")
SETTINGS = Settings(num_points=64, num_laplace=150, num_importance=60)
QUANTILE = 1.6448536269514722  # of a two-sided 90 % interval
# Where searches start: away from the truth.
START = np.log([1.0, 20.0, 2.0, 0.3, 0.3, 0.3, 0.3, 0.1])


class Predicted(NamedTuple):
    """Readings of new units that were not given: the share within 90 % bands, and the log score per reading."""

    coverage: float
    log_score: float


class Recovered(NamedTuple):
    """One data set: estimates and standard errors in the order of `NAMES`, and the checks on them.

    Scores are less those of the true family.
    """

    numbers: np.ndarray
    exact: np.ndarray  # estimates by the exact likelihood
    errors: np.ndarray  # zero where the information says nothing
    is_positive: bool
    new: Predicted
    given: Predicted
    gain_on_laplace: float
    gain_on_truth: float
    seconds: float  # of processor time, of the estimate
    wall: float  # of the clock, of the estimate


def recover(case: str, seed: int, *, num_units: int = NUM_UNITS, has_exact: bool = True) -> Recovered:
    """Fit one simulated data set."""
    design, truth = CASES[case]
    data = simulate_units(num_units, design, truth, seed=seed)
    units, start = by_unit(data), family_at(START)
    begin = time.process_time()
    found = estimate(start, units, settings=SETTINGS, seed=seed)
    seconds = time.process_time() - begin
    points = make_points(SETTINGS.num_points, found.modes.shape[1], units.num, seed=seed)
    at_zero = zero_spreads(found.family)
    information = uncertainty.observed_information(found.family, units, found.modes, points, LogPrior(), fixed=at_zero)
    density = uncertainty.log_posterior_of(found.family, units, found.modes, points, LogPrior())
    rng = np.random.default_rng([seed, 3])
    drawn = uncertainty.laplace_draws(found.family, information, NUM_DRAWS, log_posterior=density, rng=rng)
    new = by_unit(simulate_units(NUM_NEW, design, truth, seed=seed + 10_000))
    numbers, unknown = numbers_of(found.family), np.full(len(NAMES), np.nan)
    exact, on_laplace, on_truth = unknown, np.nan, np.nan
    if has_exact:
        exact = exact_estimate(numbers, data)
        value = exact_log_likelihood(numbers, data)
        on_laplace = value - exact_log_likelihood(laplace_numbers(start, units, seed), data)
        on_truth = value - exact_log_likelihood(truth.numbers(), data)
    stack, true = stacked(drawn), stacked([family_at(truth.numbers())])
    return Recovered(
        numbers,
        exact,
        np.sqrt(np.diag(information.covariance))[numbers_order(found)],
        information.is_positive,
        compare(stack, true, new, 0, seed=seed),
        compare(stack, true, new, NUM_GIVEN, seed=seed),
        on_laplace,
        on_truth,
        seconds,
        found.seconds,
    )


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


def compare(families: Family, truth: Family, units: Units, num_given: int, *, seed: int) -> Predicted:
    """Coverage by a stack of families, and its log score less that of the truth."""
    found, best = (predict(stack, units, num_given, seed=seed) for stack in (families, truth))
    return Predicted(found.coverage, found.log_score - best.log_score)


def predict(families: Family, units: Units, num_given: int, *, seed: int, num_samples: int = 2000) -> Predicted:
    """Predict the readings of new units after the first ones; bands have the uncertainty of the estimate."""
    mask = np.asarray(units.mask)
    rank = np.cumsum(mask, axis=2)  # of a reading within its trajectory
    given, asked = mask & (rank <= num_given), mask & (rank > num_given)

    def conditioned(mask):
        some = units._replace(mask=jnp.asarray(mask))
        return condition(families, some, num_samples, num_points=2048, seed=seed, key=jax.random.key(seed))

    drawn = conditioned(given)
    outputs, noise = unit_outputs(families, units, jnp.asarray(drawn.xi), jnp.asarray(drawn.member))
    rng = np.random.default_rng([seed, 4])
    readings = np.asarray(outputs) + np.asarray(noise) * rng.standard_normal(outputs.shape)
    low, high = np.quantile(readings, (0.05, 0.95), axis=1)
    inside = (np.asarray(units.outputs) >= low) & (np.asarray(units.outputs) <= high)
    score = (conditioned(mask).log_evidence - drawn.log_evidence).sum() / asked.sum()
    return Predicted(float(inside[asked].mean()), float(score))


class Mean(NamedTuple):
    """A mean over data sets and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: list[float]) -> "Mean":
        """The mean of some values."""
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        return cls(float(np.mean(values)), float(error))

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.error:.3f}"


class Summary(NamedTuple):
    """All data sets of a case."""

    rows: list[dict[str, Any]]
    intervals: float
    rmse_ratio: float  # to the exact likelihood's, the mean over numbers of each
    bands: Mean
    score: Mean
    given_bands: Mean
    given_score: Mean
    num_indefinite: int
    gain_on_laplace: float
    gain_on_truth: float
    seconds: float
    wall: float


def summarise(case: str, found: list[Recovered]) -> Summary:
    """Bias, errors and coverage over the data sets. A number without a standard error has no interval."""
    truth = CASES[case][1].numbers()
    errors = np.array([one.numbers for one in found]) - truth
    exact = np.array([one.exact for one in found]) - truth
    stated = np.array([one.errors for one in found])
    has_error = stated > 0.0
    holds = np.abs(errors) <= QUANTILE * stated
    root_mean = lambda values: np.sqrt(np.mean(values**2, axis=0))  # noqa: E731
    rows = [
        {
            "number": name,
            "bias": float(errors[:, place].mean()),
            "rmse": float(root_mean(errors[:, place])),
            "exact": float(root_mean(exact[:, place])),
            "se": float(np.median(stated[has_error[:, place], place])) if has_error[:, place].any() else float("nan"),
            "coverage": float(holds[has_error[:, place], place].mean()) if has_error[:, place].any() else float("nan"),
        }
        for place, name in enumerate(NAMES)
    ]
    return Summary(
        rows=rows,
        intervals=float(holds[has_error].mean()),
        rmse_ratio=float(root_mean(errors)[WELL_KNOWN].mean() / root_mean(exact)[WELL_KNOWN].mean()),
        bands=Mean.of([one.new.coverage for one in found]),
        score=Mean.of([one.new.log_score for one in found]),
        given_bands=Mean.of([one.given.coverage for one in found]),
        given_score=Mean.of([one.given.log_score for one in found]),
        num_indefinite=sum(not one.is_positive for one in found),
        gain_on_laplace=float(np.mean([one.gain_on_laplace for one in found])),
        gain_on_truth=float(np.mean([one.gain_on_truth for one in found])),
        # The first data set compiles.
        seconds=float(np.median([one.seconds for one in found[1:]])) if len(found) > 1 else float("nan"),
        wall=float(np.median([one.wall for one in found[1:]])) if len(found) > 1 else float("nan"),
    )


def show(summary: Summary) -> None:
    """Print the table."""
    columns = ("bias", "rmse", "exact", "se", "coverage")
    print(f"{'':14s}" + "".join(f"{name:>10s}" for name in columns))
    for row in summary.rows:
        print(f"{row['number']:14s}" + "".join(f"{row[name]:10.3f}" for name in columns))
    print(f"intervals {summary.intervals:.3f}, rmse over that of the exact likelihood {summary.rmse_ratio:.3f}")
    print(f"new units: bands {summary.bands}, log score less the truth's {summary.score}")
    print(f"given {NUM_GIVEN} readings: bands {summary.given_bands}, log score {summary.given_score}")
    print(
        f"exact log-likelihood over Laplace's {summary.gain_on_laplace:+.2f}, over truth {summary.gain_on_truth:+.2f}"
    )
    print(f"information matrices that are not positive definite: {summary.num_indefinite}")
    print(f"a fit after compilation: {summary.seconds:.2f} s of processor time, {summary.wall:.2f} s by the clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--design", choices=list(CASES), default="rich")
    parser.add_argument("--units", type=int, default=NUM_UNITS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.num):
        found.append(recover(arguments.design, seed, num_units=arguments.units))
        one = found[-1]
        bands = f"bands {one.new.coverage:.3f} {one.given.coverage:.3f}"
        print(f"{seed}: {np.round(one.numbers, 3)} {bands}, {one.seconds:.1f} s", flush=True)
    summary = summarise(arguments.design, found)
    show(summary)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(summary._asdict(), indent=2))


if __name__ == "__main__":
    main()
