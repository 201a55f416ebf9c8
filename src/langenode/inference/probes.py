"""Predictions outside the data: trajectories whose inputs and starts lie beyond those of the training data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._types import Array, Float
from langenode.data import Batch

# Inputs and starts are moved from their centre by this factor; a start that all share, by this much to either side.
STRETCH, SHIFT = 1.5, 1.0
MOST_CASES = 12


class Probe(eqx.Module):
    """The predictions of a whitened model for some trajectories, in one vector."""

    model: Any  # its `at(z)` is a model
    cases: Batch

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, " predictions"]:
        """All outputs at all times."""
        return jnp.ravel(jax.vmap(self.model.at(z))(self.cases.times, self.cases.inputs, self.cases.initial))


def outside(cases: Batch) -> Batch:
    """At most a dozen of the cases, with inputs and starts stretched about their centres, beyond the range of all.

    Where neither inputs nor starts differ between cases, the start is shifted to both sides.
    """
    # Plain arithmetic by NumPy: JAX would compile a program for every step of it.
    every: Any = jax.tree.map(np.asarray, cases)
    chosen = _outermost(cases)
    part = jax.tree.map(lambda leaf: leaf[chosen], every)
    inputs, initial = _stretched(part.inputs, every.inputs), part.initial
    if initial is not None:
        stretched = _stretched(initial, every.initial)
        if not _varies(every.initial) and not _varies(every.inputs):
            stretched = np.concatenate([initial - SHIFT, initial + SHIFT])
            part, inputs = (jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), tree) for tree in (part, inputs))
        initial = stretched
    return jax.tree.map(placed, part._replace(inputs=inputs, initial=initial))


def _outermost(cases: Batch) -> np.ndarray:
    """The cases farthest from the centre of all, by starts and mean inputs in units of their spread."""
    parts = [np.asarray(cases.inputs, float).mean(axis=1)]
    if cases.initial is not None:
        parts.append(np.asarray(cases.initial, float).reshape(len(cases.times), -1))
    features = np.concatenate(parts, axis=1)
    spread = features.std(axis=0)
    distance = np.abs(features - features.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    order = np.argsort(-distance.max(axis=1, initial=0.0), kind="stable")
    return np.sort(order[:MOST_CASES])


def _stretched(values: np.ndarray, of_all: np.ndarray) -> np.ndarray:
    axes = tuple(range(values.ndim - 1))
    centre = 0.5 * (of_all.max(axis=axes) + of_all.min(axis=axes)) if of_all.size else 0.0
    return centre + STRETCH * (values - centre)


def _varies(values: np.ndarray) -> bool:
    return bool(values.size and np.ptp(values, axis=0).max() > 0.0)
