"""How much of a long chain is kept for its gradient, by the compiler's own analysis of the program's memory.

Everything where that is little, else the states, else the state before every block of steps (`posteriors/many_paths`).
Draws and gradients are the same in all three; so is a chain of any number of steps.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._compiling import LIGHT
from langenode.posteriors import AbstractVariational
from langenode.posteriors.many_paths import MEMORIES, Memory

# Bytes of temporary memory up to which a kind is taken. First use of memory costs about as much as to compute its
# content once more, so that keeping more than fits into a processor's caches saves little time.
LARGEST: dict[Memory, float] = {"plain": 2**28, "checkpointed": 2**30, "two_level": float("inf")}
NAMES: dict[Memory, str] = {
    "plain": "everything is kept",
    "checkpointed": "the states are kept and layers recomputed",
    "two_level": "the states before blocks of steps are kept and blocks run again",
}


class Choice(NamedTuple):
    """What is kept, and the bytes of every kind that was analysed."""

    memory: Memory
    sizes: dict[Memory, int]

    def __str__(self) -> str:
        others = [f"{kind.replace('_', '-')} would take {_mib(size)}" for kind, size in self.sizes.items()]
        told = (
            f"gradient of the sampler: {NAMES[self.memory]}, {_mib(self.sizes[self.memory])} by the compiler's analysis"
        )
        return "; ".join([told, *others[:-1]])


def choose_memory(posterior: AbstractVariational, num_samples: int) -> Choice | None:
    """The choice for gradients of `num_samples` draws; None where a chain is short, or there is nothing to choose."""
    if not posterior.is_long(num_samples):
        return None
    sizes: dict[Memory, int] = {}
    for memory in MEMORIES:
        size = gradient_bytes(posterior.with_memory(memory), num_samples)
        if size is None:
            return None
        sizes[memory] = size
        if size <= LARGEST[memory]:
            return Choice(memory, sizes)
    raise AssertionError("the last kind has no limit")


def gradient_bytes(posterior: AbstractVariational, num_samples: int) -> int | None:
    """Temporary memory of one gradient of that many draws, from the compiler; nothing is run."""
    params, static = eqx.partition(posterior, posterior.trained())

    def loss(params: Any, keys: Any) -> Any:
        draws = eqx.combine(params, static).draws(keys)
        return jnp.mean(draws.kl) + jnp.sum(draws.weights)

    shapes = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_samples))
    options = LIGHT if jax.default_backend() == "cpu" else None
    try:
        program = jax.jit(jax.grad(loss), compiler_options=options).lower(params, shapes).compile()
        analysis: Any = program.memory_analysis()
        return int(analysis.temp_size_in_bytes)
    except (AttributeError, NotImplementedError, jax.errors.JaxRuntimeError):
        return None  # this device has no analysis


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
