"""Chemical reactions among small numbers of molecules: exact trajectories by Gillespie's direct method.

A reaction fires at a rate (its propensity) of `rate` times the number of ways to choose its reactants: mass action.
Each trajectory has its own random stream, so results depend on the key alone, whatever the number of threads.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from langenode._types import Float, Int, PRNGKeyArray

# Trajectories per block of work for a thread; small, because their costs differ.
BLOCK = 16


class Reaction(NamedTuple):
    """Reactants and products by species, and the rate constant. A species held constant is part of the rate."""

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

    orders: Int[np.ndarray, "reaction species"]  # molecules of each species that a reaction consumes
    changes: Int[np.ndarray, "reaction species"]
    rates: Float[np.ndarray, " reaction"]
    initial: Int[np.ndarray, " species"]


def tables(network: ReactionNetwork) -> Tables:
    """Return the network as arrays, after checking it."""
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
            "a reaction network needs species of different names, and reactions; found "
            f"{list(network.species)} and {len(network.reactions)} reactions; give both"
        )
    if len(network.initial) != len(network.species) or any(n < 0 or n != int(n) for n in network.initial):
        raise ValueError(
            f"each of the {len(network.species)} species must start with a whole number of molecules; found "
            f"{list(network.initial)}; give one count per species"
        )
    for reaction in network.reactions:
        unknown = sorted({*reaction.reactants, *reaction.products} - set(network.species))
        if unknown:
            raise ValueError(f"reactions must be between {list(network.species)}; found {unknown[0]!r}; rename it")
        counts = [*reaction.reactants.values(), *reaction.products.values()]
        if any(n < 0 or n != int(n) for n in counts) or not (np.isfinite(reaction.rate) and reaction.rate >= 0):
            raise ValueError(f"counts must be whole, rates finite, none negative; found {reaction}; correct it")


def propensities(parts: Tables, counts: Int[np.ndarray, "... species"]) -> Float[np.ndarray, "... reaction"]:
    """Return the rate at which each reaction fires: its constant times the number of ways to choose its reactants."""
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
    """Simulate the counts of every species at the given times (from zero on) in `num` independent trajectories.

    Raise if a trajectory has more than `max_events` reactions: some networks explode in finite time.
    """
    from langenode.simulators.direct_method import simulate_block  # imports Numba and compiles: seconds, once

    parts, times = tables(network), np.ascontiguousarray(times, float)
    if times.ndim != 1 or times.size == 0 or times[0] < 0 or np.any(np.diff(times) < 0):
        raise ValueError(f"times must ascend from zero or later; found {times.tolist()[:5]}...; sort them")
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
            f"a trajectory must have at most {max_events:.3g} reactions; one had more before t = {times[-1]:g}; "
            "raise max_events, or shorten the times if the network explodes"
        )
    return counts
