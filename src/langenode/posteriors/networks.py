"""The network of a control: a perceptron, a residual net, an encoder-decoder with skip connections, or a user's own.

`posteriors` knows no models, so these small nets are Equinox's, not ours of `models`. The order of a weight vector has
no meaning, so all are made of full matrices: the convolutions of a U-Net for images would couple weights by the
accident of their places.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._compiling import quick_jit
from langenode._types import Array, Float, PRNGKeyArray

NetworkName = Literal["mlp", "residual", "unet"]
# `factory(num_inputs, num_outputs, key=key)` makes a module that maps a vector to a vector.
NetworkFactory = Callable[..., Any]


class Perceptron(eqx.Module):
    """A tanh net with layers of the given sizes, its last layer scaled by `last_scale`."""

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, sizes: Sequence[int], last_scale: float = 1.0, *, key: PRNGKeyArray):
        self.layers = _layers(tuple(itertools.pairwise(sizes)), last_scale, key)

    @property
    def width(self) -> int:
        """The sum of the layers' sizes, without the input: the numbers that one evaluation makes."""
        return width_of(self)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point."""
        for layer in self.layers[:-1]:
            x = jnp.tanh(layer(x))
        return self.layers[-1](x)

    def affine_maps(self) -> tuple[tuple[Float[Array, "_ _"], ...], tuple[Float[Array, "1 _"], ...]]:
        """Matrices and biases of all layers, for products with rows: `x @ matrix + bias`."""
        biases = [layer.bias for layer in self.layers]
        assert all(bias is not None for bias in biases)  # eqx.nn.Linear allows None
        return tuple(layer.weight.T for layer in self.layers), tuple(bias[None] for bias in biases if bias is not None)


class Residual(eqx.Module):
    """`h = A x + a`, then `h <- h + C tanh(B h + b) + c` for each entry of `widths`, then an affine map of h.

    The stream h is as wide as the first entry; each entry is the inner width of its block.
    """

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, num_in: int, widths: Sequence[int], num_out: int, last_scale: float = 1.0, *, key: PRNGKeyArray):
        stream = widths[0] if widths else num_in
        sizes = [(num_in, stream), *(pair for width in widths for pair in ((stream, width), (width, stream)))]
        sizes.append((stream, num_out))
        self.layers = _layers(tuple(sizes), last_scale, key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point."""
        first, *inner, last = self.layers
        stream = first(x)
        for into, back in zip(inner[::2], inner[1::2], strict=True):
            stream = stream + back(jnp.tanh(into(stream)))
        return last(stream)


class UNet(eqx.Module):
    """An encoder through `widths`, and a decoder back through them that also sees the encoder's levels.

    On the way up each level is joined with that of the encoder of the same width, and the last affine map with the
    input itself. Its inputs may have any number of entries.
    """

    layers: tuple[eqx.nn.Linear, ...]
    depth: int = eqx.field(static=True)

    def __init__(self, num_in: int, widths: Sequence[int], num_out: int, last_scale: float = 1.0, *, key: PRNGKeyArray):
        down = list(zip((num_in, *widths[:-1]), widths, strict=False))
        # Above the lowest level what arrives is joined: the decoder's own numbers and the encoder's.
        arriving = [width * (1 if level == 0 else 2) for level, width in enumerate(reversed(widths))]
        up = list(zip(arriving[:-1], list(reversed(widths))[1:], strict=True))
        sizes = [*down, *up, ((arriving[-1] if widths else 0) + num_in, num_out)]
        self.layers = _layers(tuple(sizes), last_scale, key)
        self.depth = len(widths)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point."""
        levels = [x]
        for layer in self.layers[: self.depth]:
            levels.append(jnp.tanh(layer(levels[-1])))
        features = levels.pop() if self.depth else x[:0]
        for layer in self.layers[self.depth : -1]:
            features = jnp.concatenate([jnp.tanh(layer(features)), levels.pop()])
        return self.layers[-1](jnp.concatenate([features, x]))


class Scaled(eqx.Module):
    """A module whose outputs are multiplied by trained factors: at zero it starts as zero, whatever it is."""

    module: Any
    scale: Float[Array, " out"]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate at one point."""
        return self.scale * self.module(x)


@quick_jit
def _layers(sizes: tuple[tuple[int, int], ...], last_scale: float, key: PRNGKeyArray) -> tuple[eqx.nn.Linear, ...]:
    """Affine maps with random weights, drawn by one program; the last one scaled."""
    keys = jax.random.split(key, len(sizes))
    layers = [eqx.nn.Linear(num_in, num_out, key=k) for (num_in, num_out), k in zip(sizes, keys, strict=True)]
    layers[-1] = jax.tree.map(lambda leaf: last_scale * leaf, layers[-1])
    return tuple(layers)


def make_network(
    kind: NetworkName | NetworkFactory,
    num_in: int,
    widths: Sequence[int],
    num_out: int,
    *,
    last_scale: float,
    key: PRNGKeyArray,
) -> Any:
    """A network of a named kind, or by a user's factory, whose output starts `last_scale` times its ordinary size."""
    if kind == "mlp":
        return Perceptron((num_in, *widths, num_out), last_scale, key=key)
    if kind == "residual":
        return Residual(num_in, widths, num_out, last_scale, key=key)
    if kind == "unet":
        return UNet(num_in, widths, num_out, last_scale, key=key)
    if not callable(kind):
        raise ValueError(f"network must be 'mlp', 'residual', 'unet' or a function; got {kind!r}; choose one of them")
    module = kind(num_in, num_out, key=key)
    _check_own(module, num_in, num_out)
    return module if last_scale == 1.0 else Scaled(module, jnp.full(num_out, last_scale))


def _check_own(module: Any, num_in: int, num_out: int) -> None:
    """Refuse a module that does not map a vector of one size to one of the other."""
    found = eqx.filter_eval_shape(module, jax.ShapeDtypeStruct((num_in,), jnp.result_type(float)))
    shape = getattr(found, "shape", None)
    if shape != (num_out,):
        raise ValueError(
            f"a network of your own must map {num_in} numbers to {num_out}; its output has shape {shape}; make it by "
            "the two sizes that your function is given: network(num_inputs, num_outputs, key=key)"
        )


def width_of(network: Any) -> int:
    """The numbers that one evaluation makes, judged by the vectors among its parameters (one bias per layer)."""
    return sum(leaf.shape[0] for leaf in jax.tree.leaves(network) if eqx.is_inexact_array(leaf) and leaf.ndim == 1)
