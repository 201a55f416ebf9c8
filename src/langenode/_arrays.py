"""Arrays made outside of compiled programs, by NumPy: JAX would compile a small program for every shape and operation.

Such a program takes some 20 ms to compile and 5 ms to load, and a short fit had fifty of them before its first update.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

# More of them are left to JAX, which makes none where only shapes are asked for.
MOST_ZEROS = 1_000_000


def placed(values: Any, dtype: Any = None) -> Array:
    """An array of JAX's own, in its widest precision at most; within a program, an array of that program."""
    if isinstance(values, Tracer):
        return jnp.asarray(values, dtype)
    return jax.device_put(np.array(values, dtype))


def zeros(shape: int | tuple[int, ...], dtype: Any = None) -> Array:
    """An array of zeros; by default of JAX's widest real type."""
    if math.prod(np.atleast_1d(shape).tolist()) > MOST_ZEROS:
        return jnp.zeros(shape, dtype)
    return jax.device_put(np.zeros(shape, jnp.result_type(float) if dtype is None else dtype))
