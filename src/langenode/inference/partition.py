"""Which weights are stochastic: the bridge between a model and a flat weight vector.

Any subset of a model's leaves can be stochastic (paper, section 3: full, last layer, ...). The others stay what they
are, one copy for all samples: `combine` is called inside `jax.vmap` over the flat vectors, so a shared leaf is never
repeated in memory, and a product with a shared matrix is one product for all samples.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from langenode._arrays import placed
from langenode._types import Array, Float

Where = str | Callable[[Any], Any]
# How many layers of every network these names stand for.
LAST_LAYERS = {"last_layer": 1, "last_two_layers": 2, "last_three_layers": 3}


class Partition(eqx.Module):
    """The stochastic leaves of a model, by position, with their shapes and names.

    Made by `Partition.of(model, where)`. Holds no weights itself: it serves every model of the same structure.
    """

    positions: tuple[int, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    leaf_names: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, model: Any, where: Where = "all") -> "Partition":
        """Select leaves: `"all"`, `"last_layer"` (of every network), or a function `model -> leaves or sub-models`.

        `"last_two_layers"` and `"last_three_layers"` select more, `"structure"` a material law's structural factor,
        `"unit"` the latent inputs of a unit, and `"none"` nothing: for models whose own noise is all that varies.
        """
        if where == "none":
            return cls.at(model, ())
        leaves = jax.tree.leaves(model)
        picked = sorted(i for i in _chosen_positions(model, where) if eqx.is_inexact_array(leaves[i]))
        if not picked:
            raise ValueError(
                f"at least one weight must be stochastic; stochastic={where!r} selects none; choose others"
            )
        return cls.at(model, picked)

    @classmethod
    def at(cls, model: Any, positions: Sequence[int]) -> "Partition":
        """Select leaves by their positions, as a file stores them."""
        leaves, picked = jax.tree_util.tree_leaves_with_path(model), tuple(positions)
        return cls(
            positions=picked,
            shapes=tuple(tuple(leaves[i][1].shape) for i in picked),
            leaf_names=tuple(jax.tree_util.keystr(leaves[i][0]).lstrip(".") for i in picked),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many weights each stochastic leaf holds."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def dim(self) -> int:
        """How many weights are stochastic."""
        return sum(self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for every stochastic weight, in the order of the flat vector."""
        names = []
        for leaf, shape in zip(self.leaf_names, self.shapes, strict=True):
            for flat in range(math.prod(shape)):
                index = ",".join(str(i) for i in np.unravel_index(flat, shape)) if shape else ""
                names.append(f"{leaf}[{index}]" if shape else leaf)
        return tuple(names)

    def flatten(self, model: Any) -> Float[Array, " dim"]:
        """The stochastic weights of a model as one vector."""
        leaves = jax.tree.leaves(model)
        if not self.positions:
            return jnp.zeros(0, jnp.result_type(*(leaf for leaf in leaves if eqx.is_inexact_array(leaf))))
        chosen = [leaves[i] for i in self.positions]
        if any(isinstance(leaf, Tracer) for leaf in chosen):
            return jnp.concatenate([jnp.ravel(leaf) for leaf in chosen])
        return placed(np.concatenate([np.ravel(leaf) for leaf in chosen]))

    def combine(self, model: Any, weights: Float[Array, " dim"]) -> Any:
        """The model with its stochastic weights replaced; all other leaves are the model's own, not copies."""
        leaves, structure = jax.tree.flatten(model)
        offset = 0
        for position, shape, size in zip(self.positions, self.shapes, self.sizes, strict=True):
            leaves[position] = weights[offset : offset + size].reshape(shape)
            offset += size
        return jax.tree.unflatten(structure, leaves)

    def is_rest(self, model: Any) -> Any:
        """A tree of booleans: True at the weights that are not stochastic (those that `rest="refit"` trains)."""
        leaves, structure = jax.tree.flatten(model)
        stochastic = set(self.positions)
        flags = [eqx.is_inexact_array(leaf) and i not in stochastic for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, flags)


class _Place:
    """Stands for a leaf where a function chooses some; unlike a plain number, nothing else can be taken for it."""

    def __init__(self, position: int):
        self.position = position


def _chosen_positions(model: Any, where: Where) -> set[int]:
    leaves, structure = jax.tree.flatten(model)
    if callable(where):
        # The function is applied to the tree of places in place of the tree of weights.
        chosen = jax.tree.leaves(where(jax.tree.unflatten(structure, [_Place(i) for i in range(len(leaves))])))
        if not all(isinstance(place, _Place) for place in chosen):
            raise ValueError(
                "a function of the model must choose weights or parts of it; it chose something that is neither; "
                "return them untouched, as in lambda model: model.dynamics"
            )
        return {place.position for place in chosen}
    if where == "all":
        return set(range(len(leaves)))
    if where in LAST_LAYERS:
        return _last_layer_positions(model, LAST_LAYERS[where])
    if where in ("structure", "unit"):
        return _named_positions(model, where)
    raise ValueError(
        "stochastic must be 'all', 'last_layer', 'last_two_layers', 'last_three_layers', 'structure', 'unit', 'none' "
        "or a function of the model; "
        f"got {where!r}; use one of these"
    )


def _last_layer_positions(model: Any, num: int) -> set[int]:
    """The last entries of every `layers` tuple; an inferred noise scale is stochastic too."""
    layers, last = _layers(model)
    chosen = {i for i, (name, index) in enumerate(layers) if index >= 0 and index > last[name] - num}
    return noise_positions(model) | chosen


def network_positions(model: Any) -> set[int]:
    """The leaves of networks with hidden layers; a single layer is an affine map, whose numbers have units."""
    layers, last = _layers(model)
    return {i for i, (name, index) in enumerate(layers) if index >= 0 and last[name] > 0}


def noise_positions(model: Any) -> set[int]:
    """The leaves that are log noise scales."""
    return _named_positions(model, "log_noise")


def _layers(model: Any) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """The network and layer of every leaf, and the number of each network's last layer."""
    layers = [_layer_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(model)]
    last: dict[str, int] = {}
    for name, index in layers:
        last[name] = max(last.get(name, -1), index)
    return layers, last


def _named_positions(model: Any, name: str) -> set[int]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(model)]
    return {i for i, path in enumerate(paths) if getattr(path[-1], "name", None) == name}


def _layer_of(path: Any) -> tuple[str, int]:
    """The network a leaf belongs to and its layer's number; -1 for a leaf outside every `layers` tuple."""
    for position in range(len(path) - 1):
        if getattr(path[position], "name", None) == "layers" and hasattr(path[position + 1], "idx"):
            return jax.tree_util.keystr(path[: position + 1]), path[position + 1].idx
    return "", -1
