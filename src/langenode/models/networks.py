"""Multilayer perceptrons, and the number of weights in a tree."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from langenode._compiling import quick_jit
from langenode._types import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
}
# A stored weight of a convex net whose softplus, 0.018, starts small and can still be trained.
SMALL_STORED = -4.0


class MLP(eqx.Module):
    """A perceptron with layers of the given sizes: `sizes = (3, 3, 3, 1)` is the net 3-3-3-1.

    The activation is applied between layers, not after the last. It is stored by name, so that a fitted net can be
    written to a file without code. With one layer, `sizes = (1, 1)`, the net is the affine map `W x + b`. With `skip`
    the last layer also sees the inputs: far from the data such a net extrapolates as an affine map.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: str = eqx.field(static=True)
    skip: bool = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: str = "tanh", *, skip: bool = False, key: PRNGKeyArray):
        if len(sizes) < 2 or min(sizes[1:]) < 1:
            raise ValueError(
                f"a network needs an input size and at least one positive layer size; found {tuple(sizes)}; "
                "give sizes such as (2, 16, 16, 1)"
            )
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"an activation must be one of {', '.join(sorted(ACTIVATIONS))}; found {activation!r}; choose one"
            )
        widths = list(sizes[:-1])
        if skip and len(sizes) > 2:
            widths[-1] += sizes[0]
        self.layers = _linear_layers(tuple(widths), tuple(sizes[1:]), key)
        self.activation = activation
        self.skip = skip and len(sizes) > 2

    @property
    def sizes(self) -> tuple[int, ...]:
        """The layer sizes, from input to output."""
        return (int(self.layers[0].in_features), *(int(layer.out_features) for layer in self.layers))

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point; batch with `jax.vmap`."""
        activation = ACTIVATIONS[self.activation]
        features = x
        for layer in self.layers[:-1]:
            features = activation(affine(layer, features))
        return affine(self.layers[-1], jnp.concatenate([features, x]) if self.skip else features)


@quick_jit
def _linear_layers(num_in: tuple[int, ...], num_out: tuple[int, ...], key: PRNGKeyArray) -> tuple[eqx.nn.Linear, ...]:
    """Affine maps with random weights, drawn by one program."""
    keys = jax.random.split(key, len(num_in))
    return tuple(eqx.nn.Linear(i, o, key=k) for i, o, k in zip(num_in, num_out, keys, strict=True))


def affine(layer: eqx.nn.Linear, x: Float[Array, " in"]) -> Float[Array, " out"]:
    """Return `W x + b`, as the product of a row with W^T: of many points it has the points first, uncopied."""
    assert layer.bias is not None  # eqx.nn.Linear allows None
    return x @ layer.weight.T + layer.bias


class ConvexMLP(eqx.Module):
    """A perceptron that is convex in its inputs: softplus activations, and positive weights after the first layer.

    The stored weights of those layers are unconstrained; their softplus is used. The count equals that of the plain
    net.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, sizes: Sequence[int], *, key: PRNGKeyArray):
        self.layers = MLP(sizes, "softplus", key=key).layers

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point; batch with `jax.vmap`."""
        features = self.layers[0](x)
        for layer in self.layers[1:]:
            assert layer.bias is not None  # eqx.nn.Linear allows None
            features = jax.nn.softplus(layer.weight) @ jax.nn.softplus(features) + layer.bias
        return features


def shrink_convex(network: ConvexMLP) -> ConvexMLP:
    """Return the net with a last layer that is almost zero: positive weights cannot be zero, and start small."""
    last = network.layers[-1]
    assert last.bias is not None  # eqx.nn.Linear allows None
    small = (jnp.full_like(last.weight, SMALL_STORED), jnp.zeros_like(last.bias))
    return eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, small)


def scale_last_layer(network: MLP, factor: float) -> MLP:
    """Return the net with its last layer's weights and bias multiplied by `factor` (0: the net starts as zero)."""
    return eqx.tree_at(
        lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, replace_fn=lambda leaf: factor * leaf
    )


def num_parameters(tree: PyTree) -> int:
    """Return the number of real numbers in the arrays of a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))
