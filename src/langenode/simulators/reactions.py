"""Chemical reactions among small numbers of molecules: exact trajectories by Gillespie's direct method.

A reaction fires at a rate (its propensity) of `rate` times the number of ways to pick its reactants: mass action. Each
trajectory has a random stream of its own, so results depend on the key alone, whatever the number of threads.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

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
    from langenode.simulators.direct_method import simulate_block  # brings Numba and compiles: seconds, once

    parts, times = tables(network), np.ascontiguousarray(times, float)
    if times.ndim != 1 or times.size == 0 or times[0] < 0 or np.any(np.diff(times) < 0):
        raise ValueError(f"times must ascend from zero or later; got {times.tolist()[:5]}...; sort them")
    seed = np.asarray(jax.random.bits(key, (2,), np.uint32)).view(np.uint64)[0]
    counts = np.empty((num, times.size, len(network.species)), np.int64)

    def block(first: int) -> bool:
        last = min(first + BLOCK, num)
        return simulate_block(*parts, times, seed, first, max_events, counts[first:last])

    threads = num_threads or os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        finished = all(list(pool.map(block, range(0, num, BLOCK))))
    if not finished:
        raise ValueError(
            f"a trajectory may have {max_events:.3g} reactions; one had more before t = {times[-1]:g}; "
            "raise max_events, or shorten the times if the network explodes"
        )
    return counts
