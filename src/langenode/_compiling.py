"""How programs are compiled: most of a small fit is compilation, so programs that run for seconds are optimised less.

LLVM's first level of optimisation takes less time than its third, which JAX asks for, and the programs of a fit run
about as fast; without fusion emitters compilation takes another third less, and some programs run up to a half longer
(docs/notes/own-data.md, docs/notes/units.md).
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

Function = TypeVar("Function", bound=Callable[..., Any])

# Where Linux says how many maps of its memory a process may have, and which this one has; a compiled program takes some
# twenty, and without any left compilation fails. From this share on, programs are forgotten.
MOST_MAPS, OWN_MAPS, MOST_SHARE = Path("/proc/sys/vm/max_map_count"), Path("/proc/self/maps"), 0.5

# What becomes part of a program that is just being traced; placing it takes no program of its own.
CONSTANT = np.zeros(())

LIGHT = {"xla_backend_optimization_level": 1}
LIGHT_WITHOUT_FUSION = {**LIGHT, "xla_cpu_use_fusion_emitters": False}


def light_jit(function: Function) -> Function:
    """Compile a function like `eqx.filter_jit`, on a CPU in less time: for programs that run often."""
    return _jit(function, tuple(LIGHT.items()))


def quick_jit(function: Function) -> Function:
    """Compile a function like `eqx.filter_jit`, on a CPU in the least time: for programs that run for seconds only."""
    return _jit(function, tuple(LIGHT_WITHOUT_FUSION.items()))


def make_room() -> None:
    """Forget all compiled programs where a process that fits many tables would soon have no room for new ones."""
    try:
        most, used = int(MOST_MAPS.read_text()), OWN_MAPS.read_bytes().count(b"\n")
    except (OSError, ValueError):
        return  # no Linux
    if used > MOST_SHARE * most:
        jax.clear_caches()


def _jit(function: Function, options: tuple[tuple[str, Any], ...]) -> Function:
    @functools.cache
    def compiled() -> Callable[..., Any]:
        compile_it: Any = eqx.filter_jit  # whose stated types lack the options that it passes on
        return compile_it(function, compiler_options=dict(_known(options)))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _is_within_another(args, kwargs):
            return function(*args, **kwargs)  # part of a larger program, whose options count
        return compiled()(*args, **kwargs)

    return cast(Function, call)


def _is_within_another(args: Any, kwargs: Any) -> bool:
    """Whether another program is just being traced, and so are the arguments, or even a constant would be."""
    leaves = jax.tree.leaves((args, kwargs))
    return any(isinstance(leaf, Tracer) for leaf in (*leaves, jax.device_put(CONSTANT)))


@functools.cache
def _known(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """Return the options if this version of JAX and its device know them, else none; they are its own and may go."""
    # Whoever turned optimisation off altogether would have more of it by these.
    if jax.default_backend() != "cpu" or jax.config.read("jax_disable_most_optimizations"):
        return ()
    try:
        jax.jit(lambda x: x + 1.0, compiler_options=dict(options))(0.0)
    except Exception:
        return ()
    return options
