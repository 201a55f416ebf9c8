"""Programs of marginal likelihoods are compiled with less optimisation: they are large, and run for seconds only.

On the theophylline data compilation takes a third to a half less, and evaluations about as long (docs/notes/units.md).
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

WITHOUT_FUSION = {"xla_cpu_use_fusion_emitters": False}


def quick_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function like `eqx.filter_jit`, on a CPU in less time."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        compile_it: Any = eqx.filter_jit  # whose stated types lack the options that it passes on
        return compile_it(function, compiler_options=dict(_options()))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled()(*args, **kwargs)

    return call


@functools.cache
def _options() -> tuple[tuple[str, Any], ...]:
    """Return the options that this version of JAX and its device know; they are its own and may go."""
    if jax.default_backend() != "cpu":
        return ()
    try:
        jax.jit(lambda x: x + 1.0, compiler_options=WITHOUT_FUSION)(0.0)
    except Exception:
        return ()
    return tuple(WITHOUT_FUSION.items())
