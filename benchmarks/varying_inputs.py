"""Units that differ and are driven by an input: the generic neural ODE with latent inputs, beside one model for all.

    python benchmarks/varying_inputs.py --seeds 1 2 3

Fifty units with ten readings each follow a drive that is known at thirty times, at rates of their own (log-normal, a
spread of 0.4), from a start that is read with noise. Every target is fitted by `ln.fit` without any other choice and
judged on 60 new units given their first reading: CRPS, beside that of the true rates' distribution known, the share of
readings within 90 % bands, and the times of the fit (by the clock and of the processor, compilation included).
"""

import argparse
import itertools
import time
import warnings

import numpy as np

import langenode as ln
from langenode.scores.metrics import crps_of_cells

NUM_UNITS, NUM_NEW, NUM_TIMES, NUM_READINGS = 50, 60, 30, 10
RATE, SPREAD, NOISE, DURATION, NUM_FINE = 1.0, 0.4, 0.05, 6.0, 20
NUM_TRUE = 2000


def drive(times: np.ndarray, phase: float) -> np.ndarray:
    """What drives a unit."""
    return np.sin(2.0 * times + phase)


def response(times: np.ndarray, phase: float, start: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """`dy/dt = -rate (y - drive)` by small exponential steps, (time, sample)."""
    levels = [start]
    for begin, end in itertools.pairwise(times):
        level, step = levels[-1], (end - begin) / NUM_FINE
        for k in range(NUM_FINE):
            target = drive(begin + (k + 0.5) * step, phase)
            level = target + (level - target) * np.exp(-rate * step)
        levels.append(level)
    return np.array(levels)


def simulate(num: int, rng: np.random.Generator) -> tuple[ln.Dataset, np.ndarray]:
    """Units and their phases."""
    times, phases = np.linspace(0.0, DURATION, NUM_TIMES), rng.uniform(0.0, 2.0 * np.pi, num)
    made = []
    for number, phase in enumerate(phases):
        rate, start = RATE * np.exp(SPREAD * rng.standard_normal(1)), rng.normal(0.0, 1.0, 1)
        outputs = response(times, phase, start, rate)[:, 0] + NOISE * rng.standard_normal(NUM_TIMES)
        seen = np.append(0, 1 + rng.choice(NUM_TIMES - 1, NUM_READINGS - 1, replace=False))
        outputs[np.setdiff1d(np.arange(NUM_TIMES), seen)] = np.nan
        made.append({"times": times, "outputs": outputs, "inputs": drive(times, phase)[:, None], "unit": str(number)})
    return ln.Dataset.from_list(made, input_names=["drive"], output_names=["y"]), phases


def true_samples(new: ln.Dataset, phases: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """New observations by the true law, whose start has the noise of its reading: (sample, unit, time)."""
    rates = RATE * np.exp(SPREAD * rng.standard_normal(NUM_TRUE))
    made = []
    for outputs, phase in zip(new.outputs[:, :, 0], phases, strict=True):
        starts = outputs[0] + NOISE * rng.standard_normal(NUM_TRUE)
        made.append(response(new.times[0], phase, starts, rates).T)
    return np.stack(made, axis=1) + NOISE * rng.standard_normal((NUM_TRUE, len(phases), NUM_TIMES))


def score(samples: np.ndarray, new: ln.Dataset) -> tuple[float, float]:
    """CRPS and the share of readings within 90 % bands; first readings are known."""
    seen = new.mask[:, :, 0].copy()
    seen[:, 0] = False
    low, high = np.quantile(samples, [0.05, 0.95], axis=0)
    truth = new.outputs[:, :, 0]
    crps = crps_of_cells(samples[..., None], new.outputs[None])
    return float(np.asarray(crps).reshape(seen.shape)[seen].mean()), float(
        ((low <= truth) & (truth <= high))[seen].mean()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--targets", nargs="+", default=["hierarchical", "posterior"])
    arguments = parser.parse_args()
    print(
        "| seed | fit | CRPS | CRPS, truth | 90 % band | model | seconds | of the processor |",
        "|---" * 8 + "|",
        sep="\n",
    )
    for seed in arguments.seeds:
        rng = np.random.default_rng(seed)
        (data, _), (new, phases) = simulate(NUM_UNITS, rng), simulate(NUM_NEW, rng)
        best = score(true_samples(new, phases, rng), new)[0]
        for target in arguments.targets:
            begin, work = time.perf_counter(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = ln.fit(data, target=target, seed=seed, progress=False)
                found = fit.predict(new)["observations"].to_numpy()[..., 0]
            crps, coverage = score(found, new)
            times = f"{time.perf_counter() - begin:.0f} | {time.process_time() - work:.0f}"
            kind = getattr(fit.config.model, "num_latent" if target == "hierarchical" else "kind")
            print(f"| {seed} | {target} | {crps:.4f} | {best:.4f} | {coverage:.3f} | {kind} | {times} |", flush=True)


if __name__ == "__main__":
    main()
