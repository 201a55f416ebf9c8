"""White noise that depends on its place alone: on a sample's key, on the step and on the weight.

    number = normal quantile of threefry(key of the sample; weight, step)

So it is the same whatever is computed together: chunks of samples, segments of steps, devices. The generator is
Threefry-2x32 with its 20 rounds (Salmon et al. 2011), which is also JAX's. JAX keeps that function small for the
compiler's sake, a loop over rounds that each pass through memory; written out, with one evaluation per number, it is
one loop of vector instructions and takes about a fifth of the time on a CPU.
"""

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, UInt

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
# The inverse error function in single precision (Giles 2010): polynomials in w - 2.5, and in sqrt(w) - 3 in the tails,
# with w = -log(1 - x^2); highest power first. The relative error is below 3e-7; XLA's own takes about twice the time.
MIDDLE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
TAILS = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def words_of(keys: Array) -> UInt[Array, "*sample 2"]:
    """Two random words per key: the key of our generator, from a key of any of JAX's."""
    draw = lambda key: jax.random.bits(key, (2,), "uint32")  # noqa: E731
    for _ in range(keys.ndim):
        draw = jax.vmap(draw)
    return draw(keys)


def white_noise(
    words: UInt[Array, "*sample 2"], steps: Int[Array, " step"], dim: int, dtype: jnp.dtype
) -> Float[Array, "step *sample dim"]:
    """Standard normal numbers for these steps, of every sample and weight."""
    shape = (steps.shape[0], *words.shape[:-1], dim)
    first, second = (jnp.broadcast_to(words[..., i][..., None], shape) for i in (0, 1))
    weight = jax.lax.broadcasted_iota(jnp.uint32, shape, len(shape) - 1)
    step = jax.lax.broadcast_in_dim(steps.astype(jnp.uint32), shape, (0,))
    return _normal(*threefry(first, second, weight, step), dtype)


def threefry(key0: Array, key1: Array, count0: Array, count1: Array) -> tuple[Array, Array]:
    """Two random words from two words of key and two of a counter, elementwise."""
    keys = (key0, key1, key0 ^ key1 ^ PARITY)
    count0, count1 = count0 + keys[0], count1 + keys[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            count0 = count0 + count1
            count1 = count0 ^ ((count1 << np.uint32(turn)) | (count1 >> np.uint32(32 - turn)))
        count0 = count0 + keys[(group + 1) % 3]
        count1 = count1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return count0, count1


def _normal(bits: Array, more_bits: Array, dtype: jnp.dtype) -> Array:
    """Standard normal numbers from random words: of the one in single precision, of both in double."""
    if jnp.dtype(dtype) == jnp.float64:
        both = (bits.astype(jnp.uint64) << np.uint64(32)) | more_bits.astype(jnp.uint64)
        signed = jax.lax.bitcast_convert_type(both, jnp.int64) >> np.int64(11)
        return np.sqrt(2.0) * jax.lax.erf_inv((signed.astype(dtype) + 0.5) * 2.0**-52)
    # 2^24 numbers between -1 and 1, symmetric about 0, which is not one of them; nor are the ends.
    signed = jax.lax.bitcast_convert_type(bits, jnp.int32) >> np.int32(8)
    uniform = (signed.astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    return (np.float32(np.sqrt(2.0)) * _inverse_error_function(uniform)).astype(dtype)


def _inverse_error_function(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    w = -jnp.log((1.0 - x) * (1.0 + x))
    return x * jnp.where(w < 5.0, _polynomial(MIDDLE, w - 2.5), _polynomial(TAILS, jnp.sqrt(w) - 3.0))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + np.float32(coefficient)
    return value
