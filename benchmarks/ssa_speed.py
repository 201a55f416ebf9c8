"""How fast exact trajectories of the Schlögl reaction are next to GillesPy2's C++ solver, and that the law is the same.

GillesPy2 is under the GPL and no dependency of ours: give it an environment of its own (its solver also needs g++).

    python -m venv build/gillespy2 && build/gillespy2/bin/pip install -e . -c constraints.txt gillespy2
    build/gillespy2/bin/python benchmarks/ssa_speed.py

All are warm, GillesPy2's models are compiled beforehand, runs alternate in one process, and ratios are of medians.
GillesPy2 compiles its C++ without optimization, so that it stands in the table twice: as shipped, and with -O3.
"""

import importlib
import importlib.util
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from langenode.simulators.master_equation import count_law
from langenode.simulators.reactions import Reaction, ReactionNetwork, simulate
from langenode.simulators.schlogl import SchloglParameters, network

NUM_TRAJECTORIES, NUM_WARM, REPEATS = 1024, 16, 5
THRESHOLD = 297  # the least probable count between the low and the high state at the end
HEADER = f"| simulator | median, s | least, s | / ours | / ours, 1 thread | P(X < {THRESHOLD}) | mean X |"

Simulator = Callable[[int, int], np.ndarray]  # number of trajectories and seed -> their counts at the end


def ours(schlogl: ReactionNetwork, times: np.ndarray, num_threads: int | None) -> Simulator:
    def run(num: int, seed: int) -> np.ndarray:
        key = jax.random.fold_in(jax.random.key(0), seed)
        return simulate(schlogl, times, num, key=key, num_threads=num_threads)[:, -1, 0]

    return run


def propensity(reaction: Reaction) -> str:
    """Ours, as a formula for C++: its constant times the number of ways to pick the reactants.

    Counts are unsigned there, but the constant is first, so that products are of doubles from left to right, and a
    difference wraps only behind a factor of zero. The factorials are in the constant, which saves divisions. GillesPy2
    has mass action up to second order only, without the 1/2, and as the same C++: it would not be faster.
    """
    factors = [repr(reaction.rate / math.prod(math.factorial(order) for order in reaction.reactants.values()))]
    for name, order in reaction.reactants.items():
        factors += [f"({name} - {taken})" if taken else name for taken in range(order)]
    return " * ".join(factors)


def gillespy2_solver(schlogl: ReactionNetwork, times: np.ndarray) -> Any:
    """The same network, compiled; the solver keeps its program for all later runs."""
    gillespy2 = importlib.import_module("gillespy2")
    model = gillespy2.Model(name="network")
    pairs = zip(schlogl.species, schlogl.initial, strict=True)
    species = {name: gillespy2.Species(name=name, initial_value=count, mode="discrete") for name, count in pairs}
    model.add_species(list(species.values()))
    for index, reaction in enumerate(schlogl.reactions):
        sides = [{species[name]: count for name, count in side.items()} for side in reaction[:2]]
        formula = propensity(reaction)
        model.add_reaction(
            gillespy2.Reaction(name=f"r{index}", reactants=sides[0], products=sides[1], propensity_function=formula)
        )
    model.timespan(gillespy2.TimeSpan(times))
    return gillespy2.SSACSolver(model=model)


def theirs(schlogl: ReactionNetwork, times: np.ndarray, flags: str) -> Simulator:
    """GillesPy2 takes no flags for the compiler: a g++ that adds them is first on the path while it compiles."""
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder, "g++")
        wrapper.write_text(f'#!/bin/sh\nexec "{shutil.which("g++")}" {flags} "$@"\n')
        wrapper.chmod(0o755)
        # It looks for its build tool, scons, on the path alone, where an environment that is not activated is not.
        os.environ["PATH"] = os.pathsep.join([folder, str(Path(sys.executable).parent), before])
        try:
            solver = gillespy2_solver(schlogl, times)
        finally:
            os.environ["PATH"] = before

    def run(num: int, seed: int) -> np.ndarray:
        results = solver.run(number_of_trajectories=num, seed=seed)
        return np.array([result[schlogl.species[0]][-1] for result in results])

    return run


def measure(simulators: dict[str, Simulator]) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
    """Seconds of every run and the counts at the end of all of them, each run of a seed of its own."""
    seconds = {name: [] for name in simulators}
    counts = {name: [] for name in simulators}
    for run in simulators.values():
        run(NUM_WARM, 1)
    for repeat in range(REPEATS):
        for index, (name, run) in enumerate(simulators.items()):
            start = time.perf_counter()
            found = run(NUM_TRAJECTORIES, 2 + repeat * len(simulators) + index)
            seconds[name].append(time.perf_counter() - start)
            counts[name].append(found)
    return seconds, {name: np.concatenate(parts) for name, parts in counts.items()}


def law(counts: np.ndarray) -> list[str]:
    """P(low) and mean with their standard errors."""
    low, root = float(np.mean(counts < THRESHOLD)), math.sqrt(counts.size)
    low_error, mean_error = math.sqrt(low * (1 - low)) / root, float(counts.std(ddof=1)) / root
    return [f"{low:.4f} ± {low_error:.4f}", f"{counts.mean():.2f} ± {mean_error:.2f}"]


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    missing = ["GillesPy2"] * (importlib.util.find_spec("gillespy2") is None) + ["g++"] * (shutil.which("g++") is None)
    if missing:
        advice = "in an environment of its own, pip install -e . -c constraints.txt gillespy2; apt-get install g++"
        print(f"the benchmark needs GillesPy2 and g++; {' and '.join(missing)} not found; {advice}", file=sys.stderr)
        sys.exit(2)
    load = os.getloadavg()[0]
    parameters = SchloglParameters()
    schlogl, times = network(parameters), parameters.times
    simulators = {
        "ours": ours(schlogl, times, None),
        "ours, 1 thread": ours(schlogl, times, 1),
        "GillesPy2, as shipped": theirs(schlogl, times, ""),
        "GillesPy2, -O3": theirs(schlogl, times, "-O3"),
    }
    seconds, counts = measure(simulators)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    size = f"{NUM_TRAJECTORIES} trajectories to t = {times[-1]:g}, {REPEATS} runs each"
    print(f"{size}; {os.cpu_count()} cores, load {load:.1f} before\n\n{HEADER}\n{'|---' * 7}|")
    for name, values in seconds.items():
        ratios = [f"{medians[name] / medians[base]:.2f}" for base in ("ours", "ours, 1 thread")]
        print(row([name, f"{medians[name]:.2f}", f"{min(values):.2f}", *ratios, *law(counts[name])]))
    exact = count_law(schlogl, times[-1:])
    low = exact.probabilities[-1, :THRESHOLD].sum()
    print(row(["master equation", *[""] * 4, f"{low:.4f}", f"{exact.mean[-1]:.2f}"]))


if __name__ == "__main__":
    main()
