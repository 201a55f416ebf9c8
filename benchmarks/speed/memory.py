"""Memory and time of the gradient through 20 000 steps: D = 119, 50 samples, by what `many_paths.py` keeps.

Memory is the compiler's own analysis of the program: its temporary buffers, inputs and results not counted.
"""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode.posteriors.many_paths import MEMORIES
from speed import common
from speed.sampler import chain


def main() -> None:
    options = common.options(__doc__)
    record = common.Record()
    steps = 2003 if options.quick else 20_000  # a prime number where it is short
    mib, runs = {}, {}
    for memory in (*MEMORIES, "plain scan of JAX"):
        run, mib[memory] = gradient(119, 50, steps, memory)
        runs[memory] = run
    timings = common.interleaved(runs, 5 if options.quick else 3)
    for memory, timing in timings.items():
        record.row(f"gradient through {steps} steps", timing, memory, mib=mib[memory])
    record.results["memory.mib"] = mib["two_level"]
    record.results["memory.time_ratio"] = timings["two_level"].median / timings["plain scan of JAX"].median
    record.results["memory.time_ratio_to_ours_plain"] = timings["two_level"].median / timings["plain"].median
    record.results["memory.by_kind"] = mib
    record.write(options.out)


def gradient(dim: int, samples: int, steps: int, memory: str) -> tuple[Any, float]:
    """A compiled value and gradient, and its temporary memory in MiB."""
    sampler = chain(dim, steps, memory if memory in MEMORIES else "plain")
    params, static = eqx.partition(sampler, sampler.trained())
    keys = jax.random.split(jax.random.key(1), samples)

    def loss(params: Any) -> jax.Array:
        made = eqx.combine(params, static)
        draws = made.draws(keys) if memory in MEMORIES else plain_draws(made, keys)
        return jnp.mean(draws.kl) + 0.5 * jnp.mean(jnp.sum((draws.weights - 1.0) ** 2, -1))

    program = jax.jit(jax.value_and_grad(loss)).lower(params).compile()
    return lambda: program(params), common.temporary_mib(program)


def plain_draws(sampler: Any, keys: jax.Array) -> Any:
    """The same by a plain scan, which JAX differentiates."""
    module: Any = importlib.import_module(type(sampler).__module__)  # hidden behind the function of its name
    before, module.LARGEST_PLAIN_SCAN = module.LARGEST_PLAIN_SCAN, 10**12
    try:
        return jax.vmap(lambda key: sampler.draw(key=key))(keys)
    finally:
        module.LARGEST_PLAIN_SCAN = before


if __name__ == "__main__":
    main()
