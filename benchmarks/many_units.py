"""Very many units by mini-batches: processor time, peak memory, and how far estimates are from the truth.

    python benchmarks/many_units.py --units 10000

One-compartment pharmacokinetics with eight readings per unit, fitted by `ln.fit` as by default; compilation is part of
the time. Estimates have their distance from the truth in standard errors beside them.
"""

import argparse
import resource
import time

import numpy as np
from one_compartment import Design, Truth, bateman, simulate

import langenode as ln

TRUTH = Truth()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    data = simulate(arguments.units, Design(8, 8), TRUTH, seed=arguments.seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    effects = ln.Effects(ka=ln.LogNormal(1.0, 0.3), V=ln.LogNormal(20.0, 0.3), CL=ln.LogNormal(2.0, 0.3))
    clock, begin = time.perf_counter(), time.process_time()
    fit = ln.fit(data, model=ln.UnitModel(effects, bateman), seed=arguments.seed, progress=False)
    seconds, wall = time.process_time() - begin, time.perf_counter() - clock
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = fit.diagnostics["hierarchical"]
    print(f"{arguments.units} units: {seconds:.0f} s of processor time, {wall:.0f} s by the clock")
    print(f"peak memory {memory / 2**20:.2f} GB ({before / 2**20:.2f} GB before the fit)")
    print(f"log-likelihood {found['log_likelihood']:.2f} ± {found['log_likelihood_se']:.2f}")
    ess = found["ess"]
    print(f"converged: {found['has_converged']}, worst and median ESS {ess['min']:.3f} {ess['median']:.3f}")
    for row in found["parameters"]:
        print(f"{row['name']:24s}{row['estimate']:9.4f}  se {row['se'] or np.nan:.4f}")
    print(f"truth: {np.round(TRUTH.numbers(), 4)} (logarithms of ka, V, CL, their spreads, and the noise)")


if __name__ == "__main__":
    main()
