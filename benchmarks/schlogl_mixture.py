"""Why the paper's mixture likelihood cannot give the Schlögl modes their weights: its exact posterior, by sampling.

The likelihood asks of one weight vector that *every* trajectory be near it or in the other mode, with fixed mode
weights. Averaged over trajectories and times it is so flat that the prior's own draws, reweighted, are its posterior:
no sampler or training stands between, and the effective sample size says so.

    python benchmarks/schlogl_mixture.py --seeds 1 2 3
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from langenode.experiments import schlogl
from langenode.experiments.modes import mode_summary, valley
from langenode.fitting.build import Streams, prepare, untrained
from langenode.fitting.choose import configure
from langenode.fitting.noise import make_likelihood
from langenode.fitting.points import fit_point
from langenode.inference.partition import Partition
from langenode.inference.problem import simulate
from langenode.scores import metrics

NUM_DRAWS, CHUNK = 4096, 512
SCALES = (0.3, 1.0, 3.0)


def log_likelihoods(model, partition, likelihood, data, weights):
    """The paper's likelihood averaged over trajectories and times, and where each draw ends."""
    batch = data.arrays(jnp.float32)
    cells = data.mask.sum()

    @jax.jit
    def chunk(w):
        outputs = simulate(model, partition, w, batch.times[:1], batch.inputs[:1], batch.initial[:1])
        density = jax.lax.map(
            lambda one: likelihood.log_density(
                jnp.broadcast_to(one, (1, *batch.outputs.shape)), batch.outputs, batch.mask, batch.times
            ).sum(),
            outputs,
        )
        return density / cells, outputs[:, 0, :, 0]

    parts = [chunk(weights[i : i + CHUNK]) for i in range(0, len(weights), CHUNK)]
    return (np.concatenate([np.asarray(part[k], float) for part in parts]) for k in range(2))


def row(seed: int, scale: float) -> str:
    config = configure("schlogl", [{"method": "paper", "seed": seed}])
    splits = schlogl.simulate(config, Streams.of(seed).data)
    data, _, scaling, _ = prepare(config, splits.train, None)
    model = fit_point(config, untrained(schlogl.EXPERIMENT, config), data, scaling)
    partition = Partition.of(model, "all")
    centre = partition.flatten(model)
    likelihood = make_likelihood(config, model, data, scaling)
    noise = jax.random.normal(jax.random.key(seed), (NUM_DRAWS, partition.dim), centre.dtype)
    logs, outputs = log_likelihoods(model, partition, likelihood, data, centre + scale * noise)
    finite = np.isfinite(logs) & np.isfinite(outputs).all(1)
    logs, counts = logs[finite], scaling.unscale_outputs(outputs[finite][..., None])[..., 0]
    law = schlogl.exact_law(config)
    split = valley(law.counts, law.probabilities[-1])
    masses = np.exp(logs - logs.max())
    found = mode_summary(counts[:, -1], split, weights=masses)
    pick = np.random.default_rng(seed).choice(len(counts), 4096, p=masses / masses.sum())
    spread = np.sqrt(np.mean(law.std**2))
    distance = metrics.w1_to_law(counts[pick], law.counts, law.probabilities).mean() / spread
    ess = metrics.relative_ess(logs)
    cells = [str(seed), f"{scale:g}", f"{ess:.2f}", f"{found.p_low:.3f}", f"{distance:.2f}", f"{found.high_std:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    seeds = parser.parse_args().seeds
    print(
        "| seed | prior scale | relative ESS | P(low) | W1 exact / rms std | std above the valley |",
        "|---" * 6 + "|",
        sep="\n",
    )
    for seed in seeds:
        for scale in SCALES:
            print(row(seed, scale), flush=True)


if __name__ == "__main__":
    main()
