"""Gillespie's direct method, compiled by Numba: the inner loop of `reactions`, imported on first use.

Importing Numba takes a second, so nothing else should import this module. The functions release Python's lock.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function with Numba, without the run-time type checks that tests wrap around every function."""
    return numba.njit(inspect.unwrap(function), nogil=True)


@compiled
def mix(z):
    """Mix by SplitMix64: neighbouring seeds become unrelated numbers."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def rotate(word, by):
    """Rotate the bits of a word to the left."""
    return (word << by) | (word >> (np.uint64(64) - by))


@compiled
def uniform(s):
    """Draw a number in (0, 1) by xoshiro256++ with the state `s`."""
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
    """Return the rate constant times the number of ways to choose the reactants."""
    value = rates[reaction]
    for species in range(x.size):
        for taken in range(orders[reaction, species]):
            value *= (x[species] - taken) / (taken + 1)
    return value


@compiled
def affected_reactions(orders, changes):
    """Return which propensities change when a reaction fires: (fired, affected)."""
    num_reactions, num_species = orders.shape
    affected = np.zeros((num_reactions, num_reactions), np.bool_)
    for fired in range(num_reactions):
        for reaction in range(num_reactions):
            for species in range(num_species):
                if changes[fired, species] != 0 and orders[reaction, species] > 0:
                    affected[fired, reaction] = True
    return affected


@compiled
def pick(a, threshold):
    """Return the reaction in whose share of the total the threshold falls."""
    fired, cumulative = 0, a[0]
    while cumulative <= threshold and fired < a.size - 1:
        fired += 1
        cumulative += a[fired]
    return fired


@compiled
def simulate_one(orders, changes, rates, initial, affected, times, s, max_events, counts):
    """Simulate one trajectory into `counts`, (time, species); False if it has more than `max_events` reactions."""
    x, a = initial.copy(), np.empty(rates.size)
    for reaction in range(rates.size):
        a[reaction] = propensity(reaction, orders, rates, x)
    total, t, index = a.sum(), 0.0, 0
    for _ in range(max_events + 1):
        t = t - np.log(uniform(s)) / total if total > 0.0 else np.inf
        while index < times.size and times[index] < t:
            counts[index] = x
            index += 1
        if index == times.size:
            return True
        fired = pick(a, uniform(s) * total)
        for species in range(x.size):
            x[species] += changes[fired, species]
        total = 0.0
        for reaction in range(rates.size):
            if affected[fired, reaction]:
                a[reaction] = propensity(reaction, orders, rates, x)
            total += a[reaction]
    return False


@compiled
def simulate_block(orders, changes, rates, initial, times, seed, first, max_events, counts):
    """Simulate trajectories from number `first` on into `counts`, each with its own random stream."""
    affected = affected_reactions(orders, changes)
    s = np.empty(4, np.uint64)
    for row in range(counts.shape[0]):
        for word in range(4):
            s[word] = mix(mix(seed + np.uint64(first + row)) + np.uint64(word + 1))
        if not simulate_one(orders, changes, rates, initial, affected, times, s, max_events, counts[row]):
            return False
    return True
