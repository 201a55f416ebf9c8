"""Many paths at once: values and gradients of a plain scan, whatever is kept; noise that depends on its place alone."""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax.extend.random import threefry_2x32

import problems
from langenode.inference import program_memory
from langenode.inference.program_memory import choose_memory
from langenode.posteriors import Reference, langevin, many_paths, paper_langevin
from langenode.posteriors.white_noise import threefry, white_noise, words_of

KEYS = jax.random.split(jax.random.key(3), 6)
# A net of two hidden layers, of one, of none; and numbers of steps that do and do not divide into blocks.
LAYERS, STEPS = ((5, 4), (5,), ()), (13, 1, 48)


def paper(num_steps, layers, contraction=0.5):
    reference = Reference(jnp.array([0.3, -0.2, 0.1]), jnp.array([1.0, 0.5, 2.0]))
    return paper_langevin(
        reference, jnp.ones(3), num_steps=num_steps, pseudo_time_step=0.05, layers=layers, contraction=contraction,
        key=jax.random.key(0),
    )  # fmt: skip


def ours(num_steps, layers):
    """Above `LARGEST_FULL_MATRIX` weights, gains and noise are diagonal."""
    reference = Reference(jnp.zeros(33), jnp.linspace(0.5, 2.0, 33))
    return langevin(reference, num_steps=num_steps, layers=layers, key=jax.random.key(0))


CASES = [(paper, num, LAYERS[0]) for num in STEPS] + [(paper, 13, LAYERS[1]), (paper, 13, LAYERS[2])]
CASES += [(ours, 13, LAYERS[0]), (ours, 13, LAYERS[2])]


def value_and_gradient(chain, draws, *, has_ratio):
    """Of a sum in which every field of a draw has a part of its own, by all numbers of the chain."""
    numbers, rest = eqx.partition(chain, eqx.is_inexact_array)

    def total(numbers):
        made = draws(eqx.combine(numbers, rest))
        weights = made.weights @ jnp.cos(jnp.arange(chain.dim)) + 0.1 * jnp.sum(made.weights**2, -1)
        ratio = made.log_ratio if has_ratio else 0.0
        return jnp.sum(jnp.arange(1.0, 7.0) * (weights + made.kl + 0.3 * ratio)), made

    return problems.quick_jit(jax.value_and_grad(total, has_aux=True))(numbers)


@pytest.mark.parametrize("has_ratio", [True, False])
@pytest.mark.parametrize(("make", "num_steps", "layers"), CASES)
def test_values_and_gradients_are_those_of_a_plain_scan(make, num_steps, layers, has_ratio):
    chain = problems.perturbed(make(num_steps, layers), 0.2)
    plain = value_and_gradient(chain, lambda c: jax.vmap(lambda key: c.draw(key=key))(KEYS), has_ratio=has_ratio)
    for memory in many_paths.MEMORIES:
        together = value_and_gradient(chain.with_memory(memory), lambda c: c.draws(KEYS), has_ratio=has_ratio)
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10 * (1.0 + np.max(np.abs(other))))


def test_draws_do_not_depend_on_chunks_or_on_what_is_kept():
    chain = problems.perturbed(paper(13, (5, 4)), 0.2)
    run = problems.quick_jit(lambda c, keys: c.draws(keys))
    whole: Any = run(chain, KEYS)
    for memory in many_paths.MEMORIES:
        parts = [run(chain.with_memory(memory), KEYS[i : i + 2]) for i in (0, 2, 4)]
        for one, other in zip(jax.tree.map(lambda *p: np.concatenate(p), *parts), whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_less_is_kept_with_every_level():
    """By how much memory grows with the steps: the numbers that each level keeps of a step of a sample."""
    keys, dim, hidden = jax.random.split(jax.random.key(0), 32), 3, 16 + 16

    def memory_of(kind, num_steps):
        kept = paper(num_steps, (16, 16)).with_memory(kind)
        numbers, rest = eqx.partition(kept, kept.trained())
        loss = lambda n: jnp.mean(eqx.combine(n, rest).draws(keys).kl)  # noqa: E731
        analysis: Any = jax.jit(jax.grad(loss)).lower(numbers).compile(problems.QUICK).memory_analysis()
        return analysis.temp_size_in_bytes / (len(keys) * jnp.ones(()).dtype.itemsize)

    plain, checkpointed, two_level = (
        (memory_of(kind, 1024) - memory_of(kind, 512)) / 512 for kind in many_paths.MEMORIES
    )
    # States, what is added to them, noise, and the inputs of the layers; the states alone; one state of a block.
    assert plain - checkpointed > 2 * dim + hidden
    assert checkpointed - two_level == pytest.approx(dim * (1.0 - 1.0 / many_paths.LONGEST_BLOCK), rel=0.05)


# --- white noise


def test_the_generator_is_jax_own():
    key = jnp.array([123, 456], jnp.uint32)
    counts = jnp.arange(10, dtype=jnp.uint32)
    theirs = threefry_2x32(key, counts)  # whose counter is split in halves
    ours = jnp.concatenate(threefry(key[0], key[1], counts[:5], counts[5:]))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_normal_and_depends_on_its_place_alone(dtype):
    words = words_of(jax.random.split(jax.random.key(0), 50))
    noise = np.asarray(white_noise(words, jnp.arange(40), 30, jnp.dtype(dtype)))
    assert noise.dtype == dtype
    part = white_noise(words[7:9], jnp.arange(20, 30), 12, jnp.dtype(dtype))
    np.testing.assert_array_equal(part, noise[20:30, 7:9, :12])
    flat = noise.ravel().astype(float)
    assert scipy.stats.kstest(flat, "norm").pvalue > 1e-4
    assert len(np.unique(flat)) > (0.99 if dtype == "float32" else 0.9999) * flat.size
    for power, moment, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs(np.mean(flat**power) - moment) < 5.0 * np.sqrt(variance / flat.size)
    for axis in range(3):  # neighbours in every direction are independent
        before, after = (
            np.take(noise, range(*r), axis).ravel() for r in ((noise.shape[axis] - 1,), (1, noise.shape[axis]))
        )
        assert abs(np.mean(before * after)) < 5.0 / np.sqrt(before.size)


def test_single_precision_has_the_quantiles_of_the_normal_law():
    """The polynomials against SciPy, over all magnitudes that occur."""
    from langenode.posteriors.white_noise import _inverse_error_function

    x = np.concatenate([np.linspace(-1.0, 1.0, 20001)[1:-1], 1.0 - 2.0 ** -np.arange(1.0, 25.0)]).astype(np.float32)
    x = x[np.abs(x) < 1.0]
    exact = scipy.special.erfinv(x.astype(float))
    np.testing.assert_allclose(_inverse_error_function(jnp.asarray(x)), exact, rtol=4e-6, atol=1e-12)


# --- the choice


def test_a_short_chain_is_not_analysed():
    assert choose_memory(paper(13, (5, 4)), 256) is None


@pytest.mark.parametrize("num_steps", [509, 512])  # a prime number, and one with many divisors
@pytest.mark.parametrize("kind", many_paths.MEMORIES)
def test_the_first_kind_that_fits_is_chosen_by_the_compilers_analysis(monkeypatch, kind, num_steps):
    module = importlib.import_module("langenode.posteriors.langevin")  # hidden behind the function of its name
    monkeypatch.setattr(module, "LARGEST_PLAIN_BYTES", 0)
    chain = paper(num_steps, (5, 4))
    sizes: Any = {
        memory: program_memory.gradient_bytes(chain.with_memory(memory), 16) for memory in many_paths.MEMORIES
    }
    assert sizes["plain"] > sizes["checkpointed"] > sizes["two_level"]
    for memory in many_paths.MEMORIES:  # what needs more than the wanted kind has no room
        monkeypatch.setitem(program_memory.LARGEST, memory, sizes[kind])
    choice = choose_memory(chain, 16)
    assert choice is not None
    assert choice.memory == kind
    assert f"{sizes[kind] / 2**20:.0f} MiB by the compiler's analysis" in str(choice)
