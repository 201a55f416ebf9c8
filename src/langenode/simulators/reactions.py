"""Chemical reactions among small numbers of molecules: exact trajectories by Gillespie's direct method.

A reaction fires at a rate (its propensity) of `rate` times the number of ways to pick its reactants: mass action. Each
trajectory has a random stream of its own, so results depend on the key alone, whatever the number of threads.
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from langenode._types import Float, Int, PRNGKeyArray

# Trajectories that a thread simulates before it asks for more: their lengths differ, so blocks are small.
BLOCK = 16


class Reaction(NamedTuple):
    """What goes in and what comes out, by species, and the rate constant. A species held constant is in the rate."""

    reactants: Mapping[str, int]
    products: Mapping[str, int]
    rate: float


class ReactionNetwork(NamedTuple):
    """Species, reactions between them and the counts at time zero."""

    species: tuple[str, ...]
    reactions: tuple[Reaction, ...]
    initial: tuple[int, ...]


class Tables(NamedTuple):
    """A network as arrays, for compiled code."""

    orders: Int[np.ndarray, "reaction species"]  # how many molecules of each species a reaction takes
    changes: Int[np.ndarray, "reaction species"]
    rates: Float[np.ndarray, " reaction"]
    initial: Int[np.ndarray, " species"]


def tables(network: ReactionNetwork) -> Tables:
    """The network as arrays, after a check that it makes sense."""
    _check(network)
    column = {name: i for i, name in enumerate(network.species)}
    orders = np.zeros((len(network.reactions), len(column)), np.int64)
    changes = np.zeros_like(orders)
    for row, reaction in enumerate(network.reactions):
        for name, count in reaction.reactants.items():
            orders[row, column[name]] += count
            changes[row, column[name]] -= count
        for name, count in reaction.products.items():
            changes[row, column[name]] += count
    rates = np.array([reaction.rate for reaction in network.reactions], float)
    return Tables(orders, changes, rates, np.array(network.initial, np.int64))


def _check(network: ReactionNetwork) -> None:
    if not network.species or not network.reactions or len(set(network.species)) != len(network.species):
        raise ValueError(
            "a reaction network needs species of different names, and reactions; got "
            f"{list(network.species)} and {len(network.reactions)} reactions; give both"
        )
    if len(network.initial) != len(network.species) or any(n < 0 or n != int(n) for n in network.initial):
        raise ValueError(
            f"each of the {len(network.species)} species starts with a whole number of molecules; got "
            f"{list(network.initial)}; give one count a species"
        )
    for reaction in network.reactions:
        unknown = sorted({*reaction.reactants, *reaction.products} - set(network.species))
        if unknown:
            raise ValueError(f"reactions are between known species; got {unknown[0]!r}; known: {list(network.species)}")
        counts = [*reaction.reactants.values(), *reaction.products.values()]
        if any(n < 0 or n != int(n) for n in counts) or not (np.isfinite(reaction.rate) and reaction.rate >= 0):
            raise ValueError(f"counts are whole and rates finite, none negative; got {reaction}; correct it")


def propensities(parts: Tables, counts: Int[np.ndarray, "... species"]) -> Float[np.ndarray, "... reaction"]:
    """Rate at which each reaction fires: its constant times the number of ways to pick its reactants."""
    ways = np.ones((*counts.shape[:-1], len(parts.rates)))
    for (reaction, species), order in np.ndenumerate(parts.orders):
        for taken in range(order):
            ways[..., reaction] *= np.maximum(counts[..., species] - taken, 0) / (taken + 1)
    return parts.rates * ways


def simulate(
    network: ReactionNetwork,
    times: Sequence[float] | Float[np.ndarray, " time"],
    num: int,
    *,
    key: PRNGKeyArray,
    num_threads: int | None = None,
    max_events: int = 10**9,
) -> Int[np.ndarray, "num time species"]:
    """Counts of every species at the given times (from zero on) in `num` independent trajectories.

    A trajectory with more than `max_events` reactions is refused: some networks explode in finite time.
    """
    parts, times = tables(network), np.ascontiguousarray(times, float)
    if times.ndim != 1 or times.size == 0 or times[0] < 0 or np.any(np.diff(times) < 0):
        raise ValueError(f"times must ascend from zero or later; got {times.tolist()[:5]}...; sort them")
    seed = np.asarray(jax.random.bits(key, (2,), np.uint32)).view(np.uint64)[0]
    counts = np.empty((num, times.size, len(network.species)), np.int64)
    kernel = _compiled_kernel()

    def block(first: int) -> bool:
        last = min(first + BLOCK, num)
        return kernel(*parts, times, seed, first, max_events, counts[first:last])

    threads = num_threads or os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        finished = all(list(pool.map(block, range(0, num, BLOCK))))
    if not finished:
        raise ValueError(
            f"a trajectory may have {max_events:.3g} reactions; one had more before t = {times[-1]:g}; "
            "raise max_events, or shorten the times if the network explodes"
        )
    return counts


@functools.cache
def _compiled_kernel() -> Callable[..., Any]:
    """The direct method, compiled at first use; it runs without Python's lock."""
    import numba  # a second of import, needed here alone

    def compiled(function: Callable[..., Any]) -> Any:
        # The type checks that tests wrap around every function are not for the compiler.
        return numba.njit(inspect.unwrap(function), nogil=True)

    mix, rotate = compiled(_mix), compiled(_rotate)

    @compiled
    def uniform(s):
        """xoshiro256++: a number in (0, 1)."""
        bits = rotate(s[0] + s[3], np.uint64(23)) + s[0]
        shifted = s[1] << np.uint64(17)
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotate(s[3], np.uint64(45))
        return (np.float64(bits >> np.uint64(11)) + 0.5) * 2.0**-53

    @compiled
    def propensity(reaction, orders, rates, x):
        value = rates[reaction]
        for species in range(x.size):
            for taken in range(orders[reaction, species]):
                value *= (x[species] - taken) / (taken + 1)
        return value

    @compiled
    def simulate_block(orders, changes, rates, initial, times, seed, first, max_events, counts):
        num_reactions, num_species = orders.shape
        x, s = np.empty(num_species, np.int64), np.empty(4, np.uint64)
        a = np.empty(num_reactions)
        affected = np.zeros((num_reactions, num_reactions), np.bool_)
        for fired in range(num_reactions):
            for reaction in range(num_reactions):
                for species in range(num_species):
                    if changes[fired, species] != 0 and orders[reaction, species] > 0:
                        affected[fired, reaction] = True
        for row in range(counts.shape[0]):
            for word in range(4):
                s[word] = mix(mix(seed + np.uint64(first + row)) + np.uint64(word + 1))
            x[:] = initial
            total = 0.0
            for reaction in range(num_reactions):
                a[reaction] = propensity(reaction, orders, rates, x)
                total += a[reaction]
            t, index, num_events = 0.0, 0, 0
            while True:
                t = t - np.log(uniform(s)) / total if total > 0.0 else np.inf
                while index < times.size and times[index] < t:
                    counts[row, index] = x
                    index += 1
                if index == times.size:
                    break
                num_events += 1
                if num_events > max_events:
                    return False
                threshold, fired = uniform(s) * total, 0
                cumulative = a[0]
                while cumulative <= threshold and fired < num_reactions - 1:
                    fired += 1
                    cumulative += a[fired]
                for species in range(num_species):
                    x[species] += changes[fired, species]
                total = 0.0
                for reaction in range(num_reactions):
                    if affected[fired, reaction]:
                        a[reaction] = propensity(reaction, orders, rates, x)
                    total += a[reaction]
        return True

    return simulate_block


def _mix(z):
    """SplitMix64: neighbouring seeds become unrelated numbers."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _rotate(word, by):
    return (word << by) | (word >> (np.uint64(64) - by))
