"""Sorting over the first axis by a network of exchanges, for losses that sort samples in every update.

XLA's own sort compares one pair at a time on a CPU. Here a stage compares whole rows, and the gradient replays the
exchanges backwards: less than a third of the time for hundreds of samples (`benchmarks/sorting_speed.py`).
"""

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Bool, Float, Int


def stages(num: int) -> tuple[Int[np.ndarray, "stage row"], Bool[np.ndarray, "stage row"]]:
    """Batcher's bitonic network for a power of two: each row's partner in every stage, and who keeps the lesser."""
    row, partners, keeps_lesser = np.arange(num), [], []
    length = 2
    while length <= num:
        distance = length // 2
        while distance:
            partner = row ^ distance
            partners.append(partner)
            # Runs of `length` go up and down in turn, so that two of them make the next stage's hill.
            keeps_lesser.append((row < partner) == ((row & length) == 0))
            distance //= 2
        length *= 2
    shape = (len(partners), num)
    return np.array(partners, int).reshape(shape), np.array(keeps_lesser, bool).reshape(shape)


@jax.custom_vjp
def sort_rows(values: Float[Array, "row *cell"]) -> Float[Array, "row *cell"]:
    """Sort every column: `jnp.sort(values, axis=0)`, for finite values."""
    return _exchange(values)[0]


def _exchange(values: Array) -> tuple[Array, Array]:
    """The sorted columns, and who was exchanged in every stage."""
    num, flat = values.shape[0], values.reshape(values.shape[0], -1)
    padded = 1 << max(num - 1, 0).bit_length()
    flat = jnp.concatenate([flat, jnp.full((padded - num, flat.shape[1]), jnp.inf, flat.dtype)])

    def stage(current, pair):
        partner, keeps_lesser = pair
        other = current[partner]
        swap = jnp.where(keeps_lesser[:, None], current > other, other > current)
        return jnp.where(swap, other, current), swap

    ordered, swaps = jax.lax.scan(stage, flat, tuple(jnp.asarray(part) for part in stages(padded)))
    return ordered[:num].reshape(values.shape), swaps


def _backward(swaps: Array, cotangent: Array) -> tuple[Array]:
    num, padded = cotangent.shape[0], swaps.shape[1]
    flat = cotangent.reshape(num, -1)
    flat = jnp.concatenate([flat, jnp.zeros((padded - num, flat.shape[1]), flat.dtype)])

    def stage(current, pair):
        partner, swap = pair
        return jnp.where(swap, current[partner], current), None

    flat, _ = jax.lax.scan(stage, flat, (jnp.asarray(stages(padded)[0]), swaps), reverse=True)
    return (flat[:num].reshape(cotangent.shape),)


sort_rows.defvjp(_exchange, _backward)
