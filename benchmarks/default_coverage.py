"""Held-out coverage of whatever is chosen for a posterior when no method is named, for small and large nets.

    python benchmarks/default_coverage.py --seeds 41 42 --nets small large

Twenty trajectories of `dh/dt = -2 (h - 1) + sin(3 h)` with ten readings each (noise 0.05, known) train a neural ODE;
the 90 % band is judged on 100 new trajectories. `small` has 25 weights, `large` 321; `large-all` asks for all of these
to be stochastic. One Markdown row a fit; the error is that of the mean over trajectories.
"""

import argparse
import time
import warnings

import jax
import numpy as np

import langenode as ln
from langenode.models import MLP, NeuralODE, OnConcatenation

NETS = {"small": (8,), "large": (16, 16), "large-all": (16, 16)}
NOISE = 0.05


def trajectories(num: int, seed: int) -> ln.Dataset:
    rng = np.random.default_rng(seed)
    start = rng.uniform(0.0, 2.5, num)
    states = [start]
    for _ in range(10):
        state = states[-1]
        for _ in range(50):
            state = state + 0.002 * (-2.0 * (state - 1.0) + np.sin(3.0 * state))
        states.append(state)
    outputs = np.stack(states, axis=1) + NOISE * rng.standard_normal((num, 11))
    outputs[:, 0] = np.nan  # the start is known
    return ln.Dataset.from_arrays(np.linspace(0.0, 1.0, 11), outputs[..., None], initial=start[:, None])


def row(net: str, seed: int, largest_step: float | None) -> str:
    network = MLP((1, *NETS[net], 1), key=jax.random.key(seed))
    model = NeuralODE(OnConcatenation(network), num_hidden=1)
    stochastic = "all" if net.endswith("all") else None
    begin, work = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        options = {"noise": {"kind": "given", "sigma": NOISE}}
        options |= {} if largest_step is None else {"model": {"largest_step": largest_step}}
        fit = ln.fit(
            trajectories(20, seed), model=model, target="posterior", stochastic=stochastic, seed=seed, options=options
        )
    seconds, work = time.perf_counter() - begin, time.process_time() - work
    inside, error = coverage(fit, trajectories(100, 1000 + seed))
    used = fit.diagnostics.get("method", fit.config.method)
    trusted = fit.diagnostics.get("is_trusted", "")
    words = "; ".join(str(one.message) for one in said if "draws" in str(one.message))
    words = words or fit.diagnostics.get("reason", "")
    chosen = f"{used}, {fit.config.stochastic} ({fit.problem.partition.dim})"
    cells = (net, str(seed), chosen, f"{100 * inside:.1f} ± {100 * error:.1f} %", str(trusted))
    cells += (f"{seconds:.0f}", f"{work:.0f}", words)
    return f"| {' | '.join(cells)} |"


def coverage(fit: ln.Fit, test: ln.Dataset) -> tuple[float, float]:
    band = fit.predict(test)["observation_quantiles"].sel(level=[0.05, 0.95]).to_numpy()
    is_inside = (test.outputs >= band[0]) & (test.outputs <= band[1])
    shares = [is_inside[i][test.mask[i]].mean() for i in range(test.num_trajectories)]
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(len(shares)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--nets", choices=list(NETS), nargs="+", default=list(NETS))
    parser.add_argument("--largest-step", type=float, help="of the integrator; by default 0.02 of the duration")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| net | seed | chosen (weights) | 90 % band holds | trusted | s | cpu s | said |")
    print("|---" * 8 + "|")
    for net in options.nets:
        for seed in options.seeds:
            print(row(net, seed, options.largest_step), flush=True)


if __name__ == "__main__":
    main()
