"""Simulation-based calibration in function space, by the ranks of true predictions among drawn ones.

    python benchmarks/function_space_sbc.py --num 100 --seed 900 --out benchmarks/references/sbc-net-8.json

Each data set has a truth of its own: weights of the softplus net 3-8-8-1 (113 weights) drawn from the prior N(0, I),
and 40 readings of its predictions with noise 0.1 at inputs uniform in [-1.5, 1.5]^3. The ensemble draws from the
posterior, and the rank of the true prediction among thinned draws is taken at eight probe inputs, four inside the range
of the data and four outside. Ranks are uniform if the posterior is exact, whatever it looks like. The test is a
chi-square of ranks in ten bins, for each probe; its p-values are adjusted by their number (Bonferroni). Verdicts are
counted, and no data set is left out.
"""

import argparse
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from posterior_cases import DTYPE, Net, Observed
from scipy.stats import chisquare

from langenode.samplers import ensemble_hmc

NUM_DATA, NOISE, NUM_BINS, NUM_RANKED = 40, 0.1, 10, 99
INSIDE = [[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [-1.2, 0.3, 1.2], [0.4, 1.4, -1.3]]
OUTSIDE = [[2.5, 0.0, 0.0], [-2.0, 2.0, 1.0], [0.5, -2.6, 2.2], [-2.8, -2.8, 2.8]]
PROBES = jnp.asarray(INSIDE + OUTSIDE, DTYPE)


def one_rank(model: Net, seed: int, options: dict) -> tuple[list[int], bool, bool]:
    """Ranks at all probes of one data set, and both verdicts."""
    rng = np.random.default_rng(seed)
    truth = jnp.asarray(rng.normal(size=model.dim), DTYPE)
    inputs = jnp.asarray(rng.uniform(-1.5, 1.5, (NUM_DATA, 3)), DTYPE)
    outputs = model(truth, inputs) + jnp.asarray(NOISE * rng.normal(size=NUM_DATA), DTYPE)
    density = Observed(model, inputs, outputs, NOISE).density(model.dim, PROBES[len(INSIDE) :])
    found = ensemble_hmc(density, key=jax.random.key(seed), **options)
    kept = np.linspace(0, len(found.draws) - 1, NUM_RANKED).round().astype(int)
    predicted, true = (np.asarray(_at_probes(model, z)) for z in (found.draws[kept], truth[None]))
    ranks = (predicted < true).sum(axis=0)
    return ranks.tolist(), bool(found.diagnostics["trusted_in"]), bool(found.diagnostics["trusted_out"])


@eqx.filter_jit
def _at_probes(model: Net, draws: jax.Array) -> jax.Array:
    return jax.vmap(lambda z: model(z, PROBES))(draws)


def summary(ranks: np.ndarray) -> dict:
    """Chi-square p-values of every probe, and the smallest adjusted by their number."""
    counts = [np.bincount(column * NUM_BINS // (NUM_RANKED + 1), minlength=NUM_BINS) for column in ranks.T]
    values = [float(chisquare(count).pvalue) for count in counts]
    return {"p_values": values, "adjusted": min(1.0, len(values) * min(values)), "counts": np.array(counts).tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=100)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--transitions", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = {"least_transitions": 0, "most_transitions": options.transitions}
    model, rows, begin, work = Net((3, 8, 8, 1)), [], time.perf_counter(), time.process_time()
    for index in range(options.num):
        rows.append(one_rank(model, options.seed + index, sizes))
        ranks = np.array([row[0] for row in rows])
        found = {"num": len(rows), "seed": options.seed, "transitions": options.transitions} | summary(ranks)
        found |= {"trusted_in": sum(row[1] for row in rows), "trusted_out": sum(row[2] for row in rows)}
        found |= {"seconds": round(time.perf_counter() - begin), "cpu": round(time.process_time() - work)}
        if options.out is not None:
            options.out.write_text(json.dumps(found | {"ranks": ranks.tolist()}) + "\n")
        if index % 10 == 9:
            shown = {key: value for key, value in found.items() if key != "counts"}
            print(shown, flush=True)


if __name__ == "__main__":
    main()
