"""The sorting network against XLA's sort, with its gradient: the ratio of medians over alternating runs.

python benchmarks/sorting_speed.py --samples 256 --cells 600
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from langenode.inference.sorting import sort_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--cells", type=int, default=600, help="of an update: times, components and loadings")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    values = jax.random.normal(jax.random.key(0), (options.samples, options.cells))
    target = jnp.linspace(-2.0, 2.0, options.samples)[:, None]

    def gradient(sort: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
        return jax.jit(jax.grad(lambda v: jnp.mean((sort(v) - target) ** 2)))

    sorts = {"XLA": gradient(lambda v: jnp.sort(v, axis=0)), "network": gradient(sort_rows)}
    seconds = {name: [] for name in sorts}
    for repeat in range(options.repeats + 1):
        for name, function in sorts.items():
            begin = time.perf_counter()
            jax.block_until_ready(function(values))
            if repeat:  # the first compiles
                seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    told = ", ".join(f"{name} {1000 * median:.1f} ms" for name, median in medians.items())
    print(f"{told}, ratio {medians['XLA'] / medians['network']:.1f}")


if __name__ == "__main__":
    main()
