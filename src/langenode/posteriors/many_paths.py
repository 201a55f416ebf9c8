"""Many runs of a chain at once, with the gradient written by hand: what the sampler's time is spent on.

    u_k = net(z_k) + gain_k z_k,    jump_k = rate_k u_k + scale_k xi_k,    z_(k+1) = decay_k z_k + noise_k jump_k

for all samples together, so that every layer of the net is one product of matrices per step. `run_paths` returns the
last states, `1/2 sum_k |rate_k u_k|^2` and `1/2 sum_k (|jump_k|^2 - |xi_k|^2)`. Back-propagation by JAX adds up the
gradient of every matrix step by step, products too small for a processor. Here the way back only carries the cotangent
of the state; inputs and cotangents of the layers are kept for a block of steps, and each matrix then has one product
for the whole block.

Three amounts of memory, by what is kept on the way forward (`Memory`): everything; the states alone, so that layers are
recomputed, one large product per block; or the state before each block, so that blocks are run once more. Noise is
drawn anew in each case: it depends on its place alone.
"""

import math
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from langenode._types import Array, Float, Int, UInt
from langenode.posteriors.white_noise import white_noise

Memory = Literal["plain", "checkpointed", "two_level"]
MEMORIES: tuple[Memory, ...] = ("plain", "checkpointed", "two_level")
# Steps of a block: their layers' inputs and cotangents stay in a processor's cache for some 50 samples of 100 weights.
LONGEST_BLOCK = 40
LONGEST_PRODUCT = 50


class Rows(NamedTuple):
    """What is added in every layer; each has one row per step, or a single row for all of them.

    `biases` of the hidden layers, the `offset` of the output, the `gain` of the state, and the `scale` of the noise.
    """

    biases: tuple[Float[Array, "#step _"], ...]
    offset: Float[Array, "#step dim"]
    gain: Float[Array, "#step #dim"]
    scale: Float[Array, "#step #dim"]


class Rates(NamedTuple):
    """The numbers of every step."""

    decay: Float[Array, " step"]
    rate: Float[Array, " step"]
    noise: Float[Array, " step"]


class Ends(NamedTuple):
    """The last states, and the sums over the steps of every run."""

    z: Float[Array, "sample dim"]
    kl: Float[Array, " sample"]
    log_ratio: Any  # of every run; its cotangent is None where no loss looks at it


class _Kept(NamedTuple):
    """What the way back needs of the steps of a block."""

    inputs: tuple[Float[Array, "step sample _"], ...]  # of every layer: the states first
    shift: Float[Array, "step sample dim"]
    white: Float[Array, "step sample dim"]


Matrices = tuple[Float[Array, "_ _"], ...]


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def run_paths(
    matrices: Matrices, rows: Rows, rates: Rates, start: Float[Array, "sample dim"], words: UInt[Array, "sample 2"],
    memory: Memory,
) -> Ends:  # fmt: skip
    """Run the chain for every sample; the arguments are those of the formula, `words` the keys of the noise."""
    return _forward(matrices, rows, rates, start, words, memory, keep=False)[0]


def _run_forward(*differentiable_and_memory: Any) -> tuple[Ends, Any]:
    *arguments, memory = differentiable_and_memory
    matrices, rows, rates, start, words = jax.tree.map(lambda p: p.value, arguments, is_leaf=_is_primal)
    ends, kept = _forward(matrices, rows, rates, start, words, memory, keep=True)
    return ends, (matrices, rows, rates, words, ends.z, kept)


def _run_back(memory: Memory, residuals: Any, cotangent: Ends) -> tuple[Any, ...]:
    matrices, rows, rates, words, last, kept = residuals
    cotangent = _instantiated(cotangent, last)
    steps = _in_blocks(rows, rates, memory)

    def block(carry, xs):
        after, (matrix_sums, fixed_sums) = carry
        part, kept = xs
        if memory == "two_level":
            kept = _run_block(matrices, rows, part, _begin(kept), words, keep="all")[1]
        elif memory == "checkpointed":
            kept = _kept_from_states(matrices, rows, part, kept, words)
        before, by_matrix, by_row, by_rate = _back_through_block(matrices, rows, part, kept, after, cotangent)
        by_moving, by_fixed = _moving(rows, by_row), _fixed(rows, jax.tree.map(lambda g: g.sum(0), by_row))
        sums = jax.tree.map(jnp.add, (matrix_sums, fixed_sums), (by_matrix, by_fixed))
        return (before, sums), (by_moving, by_rate)

    zeros = jax.tree.map(jnp.zeros_like, (matrices, _fixed(rows, jax.tree.map(lambda row: row[0], rows))))
    (before, (by_matrix, by_fixed)), (by_moving, by_rate) = jax.lax.scan(
        block, (cotangent.z, zeros), (steps, kept), reverse=True
    )
    num = rates.decay.shape[0]
    by_moving, by_rate = jax.tree.map(lambda g: g.reshape(-1, *g.shape[2:])[:num], (by_moving, by_rate))
    by_row = _joined(rows, by_moving, jax.tree.map(lambda g: g[None], by_fixed))
    return by_matrix, by_row, by_rate, before, None


run_paths.defvjp(_run_forward, _run_back, symbolic_zeros=True)


def _is_primal(leaf: Any) -> bool:
    return isinstance(leaf, CustomVJPPrimal)


def _instantiated(cotangent: Ends, like: Array) -> Ends:
    """The cotangents of the ends; None for that of the ratio of densities where no loss looks at it."""
    zero, ratio = jnp.zeros(like.shape[0], like.dtype), cotangent.log_ratio
    return Ends(
        jnp.zeros_like(like) if isinstance(cotangent.z, SymbolicZero) else cotangent.z,
        zero if isinstance(cotangent.kl, SymbolicZero) else cotangent.kl,
        None if isinstance(ratio, SymbolicZero) else ratio,
    )


def _forward(
    matrices: Matrices, rows: Rows, rates: Rates, start: Array, words: Array, memory: Memory, *, keep: bool
) -> tuple[Ends, Any]:
    """All blocks, and what is kept of them."""
    what = {"plain": "all", "checkpointed": "states", "two_level": "none"}[memory] if keep else "none"

    def block(running, part):
        after, kept = _run_block(matrices, rows, part, running, words, keep=what)
        return after, running.z if keep and memory == "two_level" else kept

    return jax.lax.scan(block, _begin(start), _in_blocks(rows, rates, memory))


def _begin(z: Array) -> Ends:
    zero = jnp.zeros(z.shape[0], z.dtype)
    return Ends(z, zero, zero)


class _Block(NamedTuple):
    """The steps of a block: their numbers, their rates, and the rows that change from step to step."""

    number: Int[Array, " step"]
    rates: Rates
    rows: Rows  # None where a row is the same for all steps


def _in_blocks(rows: Rows, rates: Rates, memory: Memory) -> _Block:
    """All steps, folded into blocks of equal length; steps that change nothing fill the last one."""
    num = rates.decay.shape[0]
    num_blocks = 1 if memory == "plain" else math.ceil(num / min(LONGEST_BLOCK, math.isqrt(num) + 1))
    length = math.ceil(num / num_blocks)
    missing = num_blocks * length - num
    at_rest = Rates(*(jnp.full(missing, value, rates.decay.dtype) for value in (1.0, 0.0, 0.0)))
    padded = jax.tree.map(lambda x, more: jnp.concatenate([x, more]), rates, at_rest)
    moving = jax.tree.map(
        lambda row: jnp.concatenate([row, jnp.ones_like(row[:1]).repeat(missing, 0)]), _moving(rows, rows)
    )
    every = _Block(jnp.arange(num_blocks * length), padded, moving)
    return jax.tree.map(lambda x: x.reshape(num_blocks, length, *x.shape[1:]), every)


def _is_moving(row: Array) -> bool:
    return row.shape[0] > 1


def _moving(rows: Rows, values: Rows) -> Rows:
    """The values of the rows that change from step to step; None for the others."""
    return jax.tree.map(lambda row, value: value if _is_moving(row) else None, rows, values)


def _fixed(rows: Rows, values: Rows) -> Rows:
    """The values of the rows that are the same for all steps; None for the others."""
    return jax.tree.map(lambda row, value: None if _is_moving(row) else value, rows, values)


def _joined(rows: Rows, moving: Rows, fixed: Rows) -> Rows:
    """All values again, from the two parts."""
    leaves = [jax.tree.leaves(part, is_leaf=lambda x: x is None) for part in (moving, fixed)]
    values = [b if a is None else a for a, b in zip(*leaves, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(rows), values)


def _control(matrices: Matrices, rows: Rows, z: Array) -> tuple[Array, tuple[Array, ...]]:
    """The control at states, and the inputs of all layers."""
    inputs = [z]
    for matrix, bias in zip(matrices[:-1], rows.biases, strict=True):
        inputs.append(jnp.tanh(inputs[-1] @ matrix + bias))
    return inputs[-1] @ matrices[-1] + rows.offset + rows.gain * z, tuple(inputs)


def _run_block(
    matrices: Matrices, rows: Rows, part: _Block, running: Ends, words: Array, *, keep: str
) -> tuple[Ends, Any]:
    """The steps of a block; `keep` is "all", "states" or "none"."""
    dim, dtype = running.z.shape[1], running.z.dtype
    fixed = jax.tree.map(lambda row: row[0], _fixed(rows, rows))

    def step(running, xs):
        (_, rates, moving), white = xs
        here = _joined(rows, moving, fixed)
        u, inputs = _control(matrices, here, running.z)
        shift = rates.rate * u
        jump = shift + here.scale * white
        kl = running.kl + 0.5 * jnp.sum(shift**2, -1)
        log_ratio = running.log_ratio + 0.5 * jnp.sum((jump - white) * (jump + white), -1)
        after = Ends(rates.decay * running.z + rates.noise * jump, kl, log_ratio)
        return after, {"all": _Kept(inputs, shift, white), "states": running.z, "none": None}[keep]

    return jax.lax.scan(step, running, (part, white_noise(words, part.number, dim, dtype)))


def _of_block(rows: Rows, part: _Block) -> Rows:
    """The rows of a block, with an axis for the samples."""
    return jax.tree.map(lambda row: row[:, None], _joined(rows, part.rows, _fixed(rows, rows)))


def _kept_from_states(matrices: Matrices, rows: Rows, part: _Block, states: Array, words: Array) -> _Kept:
    """What the way back needs, from the states of a block: all of its steps at once."""
    u, inputs = _control(matrices, _of_block(rows, part), states)
    white = white_noise(words, part.number, states.shape[-1], states.dtype)
    return _Kept(inputs, part.rates.rate[:, None, None] * u, white)


def _back_through_block(
    matrices: Matrices, rows: Rows, part: _Block, kept: _Kept, after: Array, cotangent: Ends
) -> tuple[Array, Matrices, Rows, Rates]:
    """The cotangent of the state before a block, and the gradients of everything in it, those of rows step by step."""
    fixed = jax.tree.map(lambda row: row[0], _fixed(rows, rows))
    kl = cotangent.kl[:, None]

    def step(after, xs):
        (_, rates, moving), kept = xs
        here = _joined(rows, moving, fixed)
        of_jump = rates.noise * after
        if cotangent.log_ratio is not None:
            of_jump += cotangent.log_ratio[:, None] * (kept.shift + here.scale * kept.white)
        of_shift = of_jump + kl * kept.shift
        layers = [rates.rate * of_shift]
        for matrix, features in zip(matrices[:0:-1], kept.inputs[:0:-1], strict=True):
            layers.append((layers[-1] @ matrix.T) * (1.0 - features * features))
        before = rates.decay * after + here.gain * layers[0] + layers[-1] @ matrices[0].T
        return before, (tuple(layers[::-1]), of_jump, of_shift, after)

    before, (layers, of_jump, of_shift, afters) = jax.lax.scan(step, after, (part, kept), reverse=True)
    by_matrix = tuple(_product(x, y) for x, y in zip(kept.inputs, layers, strict=True))
    by_row = Rows(
        biases=tuple(layer.sum(1) for layer in layers[:-1]),
        offset=layers[-1].sum(1),
        gain=(layers[-1] * kept.inputs[0]).sum(1),
        scale=(of_jump * kept.white).sum(1),
    )
    by_row = jax.tree.map(lambda g, row: g if g.shape[1] == row.shape[1] else g.sum(1, keepdims=True), by_row, rows)
    here = _of_block(rows, part)
    by_rate = Rates(
        decay=(afters * kept.inputs[0]).sum((1, 2)),
        # The shift is rate u; a rate of zero is that of a step which only fills a block.
        rate=(of_shift * kept.shift).sum((1, 2)) / jnp.where(part.rates.rate == 0.0, 1.0, part.rates.rate),
        noise=(afters * (kept.shift + here.scale * kept.white)).sum((1, 2)),
    )
    return before, by_matrix, by_row, by_rate


def _product(inputs: Array, cotangents: Array) -> Array:
    """The gradient of a matrix: the sum of products of some fifty steps each, which a processor's cache can hold."""
    num = inputs.shape[0]
    length = max(d for d in range(1, min(num, LONGEST_PRODUCT) + 1) if num % d == 0)
    length = num if 5 * length < LONGEST_PRODUCT else length  # a number of steps without a fitting divisor
    x, y = (a.reshape(num // length, -1, a.shape[-1]) for a in (inputs, cotangents))
    return jnp.einsum("pki,pkj->pij", x, y).sum(0)
