"""What the sampler's gradient needs at least: its bare operations in JAX, without anything of the library.

    taskset -c 0 python -m speed.bare --samples 50

Microseconds per step on one core, D = 119: the noise; the chain forwards, keeping what the way back needs; the chain
backwards with one product of matrices per layer for every fifty steps. Their sum is a floor for the library's gradient
in the same form, which is timed beside them; the share of the GEMM rate that they reach is a ceiling.
"""

import argparse
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode.posteriors.white_noise import white_noise
from speed import common
from speed.sampler import chain, operations

DIM, STEPS, BLOCK = 119, 400, 50
DECAY, RATE, NOISE = 0.99, 0.1, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    options = parser.parse_args()
    timings = common.interleaved(programs(options.samples), 15)
    micro = {name: 1e6 * timing.least / STEPS for name, timing in timings.items()}
    floor = sum(value for name, value in micro.items() if name != "the library's gradient")
    for name, value in micro.items():
        print(f"{name}: {value:.1f} us per step")
    share = operations(DIM, options.samples, STEPS) / (1e-6 * floor * STEPS) / common.gemm_rate()
    print(f"sum of the bare operations: {floor:.1f} us per step, {100 * share:.0f} % of the GEMM rate")


def programs(num: int) -> dict[str, Callable[[], Any]]:
    """The bare operations, each a program of its own, and the library's gradient."""
    normal, keys = jax.random.normal, jax.random.split(jax.random.key(0), 8)
    matrices = [normal(key, (DIM, DIM)) / DIM**0.5 for key in keys[:3]]
    kept = [0.3 * normal(key, (STEPS, num, DIM)) for key in keys[3:7]]
    words, start = jax.random.bits(keys[7], (num, 2), "uint32"), kept[0][0]
    steps = jnp.arange(STEPS)
    noise = jax.jit(lambda words: jax.lax.map(lambda k: white_noise(words, k[None], DIM, jnp.float32)[0], steps))
    white = noise(words)
    ahead, back = jax.jit(forwards), jax.jit(backwards)
    return {
        "noise": lambda: noise(words),
        "chain forwards": lambda: ahead(matrices, start, white),
        "chain backwards and products": lambda: back(matrices, start, *kept),
        "the library's gradient": of_library(num),
    }


def forwards(matrices: Any, start: jax.Array, white: jax.Array) -> Any:
    """The chain with all that is kept."""

    def step(z: jax.Array, xi: jax.Array) -> Any:
        first = jnp.tanh(z @ matrices[0])
        second = jnp.tanh(first @ matrices[1])
        shift = RATE * (second @ matrices[2])
        return DECAY * z + NOISE * (shift + xi), (z, first, second, shift)

    return jax.lax.scan(step, start, white)


def backwards(matrices: Any, after: jax.Array, *kept: jax.Array) -> Any:
    """The cotangent of the state, and the gradient of every matrix."""

    def step(after: jax.Array, kept: Any) -> Any:
        _, first, second, shift = kept
        third = RATE * (NOISE * after + shift)
        by_second = (third @ matrices[2].T) * (1.0 - second * second)
        by_first = (by_second @ matrices[1].T) * (1.0 - first * first)
        return DECAY * after + by_first @ matrices[0].T, (by_first, by_second, third)

    before, layers = jax.lax.scan(step, after, kept, reverse=True)
    return before, [product(x, y) for x, y in zip(kept, layers, strict=False)]


def product(inputs: jax.Array, cotangents: jax.Array) -> jax.Array:
    x, y = (a.reshape(STEPS // BLOCK, -1, DIM) for a in (inputs, cotangents))
    return jnp.einsum("pki,pkj->pij", x, y).sum(0)


def of_library(num: int) -> Callable[[], Any]:
    """Value and gradient as in `sampler.py`, keeping everything."""
    sampler = chain(DIM, STEPS, "plain")
    params, static = eqx.partition(sampler, sampler.trained())
    keys = jax.random.split(jax.random.key(1), num)

    def loss(params: Any) -> jax.Array:
        draws = eqx.combine(params, static).draws(keys)
        return jnp.mean(draws.kl) + 0.5 * jnp.mean(jnp.sum((draws.weights - 1.0) ** 2, -1))

    program = jax.jit(jax.value_and_grad(loss))
    return lambda: program(params)


if __name__ == "__main__":
    main()
