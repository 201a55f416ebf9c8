"""The generic model of units with few readings: smooth curves, linear in what is common and in what differs."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.latent_curve import CLOCK_RANGE

# Sines behind a common curve, and behind what a unit adds to it: they resolve lengths down to about 0.2 and 0.3.
NUM_COMMON, NUM_OWN = 24, 16
# The sines vanish at this multiple of the range of the times, so that curves are free at its ends.
BOUNDARY = 1.5
# Lengths are kept where the sines resolve them.
SHORTEST = 0.15
# What a unit adds is never less than this share of what it adds in the middle of the times.
LEAST_WINDOW = 1e-3


class Sizes(NamedTuple):
    """How large and how smooth curves are: logarithms, in units of the spread of the readings and of the times.

    A curve is a level, a straight line and a smooth part, which varies over a `length`; `input_level` and `input_shape`
    are the sizes of what inputs add to it, and the last five are those of what a unit adds. `own_growth` alone is
    no size: its hyperbolic tangent says how much of all that a unit adds grows in proportion to the clock.
    """

    length: Float[Array, "*out"]
    shape: Float[Array, "*out"]
    slope: Float[Array, "*out"]
    input_level: Float[Array, "*out"]
    input_shape: Float[Array, "*out"]
    own_level: Float[Array, "*out"]
    own_shape: Float[Array, "*out"]
    own_slope: Float[Array, "*out"]
    own_length: Float[Array, "*out"]
    own_growth: Float[Array, "*out"]


# The centre of the prior, where nothing grows, and its standard deviations.
TYPICAL = Sizes(*(float(np.log(size)) for size in (0.4, 1.0, 1.0, 0.2, 0.2, 0.3, 0.3, 0.3, 0.4)), own_growth=0.0)  # pyright: ignore[reportArgumentType]
UNCERTAINTY = Sizes(0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, own_growth=1.0)  # pyright: ignore[reportArgumentType]


class SmoothCurve(eqx.Module):
    """Outputs as a common curve, what constant inputs add to it, and a curve of each unit's own; all smooth and linear.

        y(t) = phi(s)^T b + sum_k x_k phi(s)^T b_k + psi(s)^T unit,    s(t) = log(1 + c t) / log(1 + c)

    The features phi and psi are a constant, a straight line and sines with the spectrum of a Gaussian process of
    squared-exponential covariance (Solin and Särkkä, 2020), each times its size: `weights` b and `unit` are then
    standard normal. What a unit adds may grow along the clock, or fade: psi has a factor that is linear in s. Units
    that begin larger then grow faster, too.

    It is a network of one hidden layer whose features are fixed but for their sizes; since it is linear, all but the
    sizes and the noise can be integrated in closed form. Where the start is known exactly, a unit's own curve is
    conditioned on it (Matheron's rule): with k its covariance,

        y(t) = f(t) + r(t) (start - f(0)),    r(t) = k(t, 0) / k(0, 0)
    """

    is_linear_in_unit: ClassVar[bool] = True

    unit: Float[Array, " own"]
    weights: Float[Array, "out feature"]
    sizes: Sizes
    log_noise: Float[Array, " out"]
    clock: float = eqx.field(static=True)

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory; times are in units of the longest duration."""
        del key
        own = self.unit.reshape(self.num_outputs, -1)

        start = jnp.zeros(self.num_outputs) if initial is None else initial

        def one(sizes: Sizes, weights: Array, unit: Array, start: Array) -> Array:
            found = self.features(sizes, times, inputs, is_anchored=initial is not None)
            return found.common @ weights + found.own @ unit + found.of_start * start

        return jax.vmap(one, out_axes=1)(self.sizes, self.weights, own, start)

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""
        return self.weights.shape[0]

    def spread_by(self, factor: Float[Array, " out"]) -> "SmoothCurve":
        """The model of units that differ by `factor` times as much, with as much more noise."""
        more = jnp.log(factor)
        grown = {name: getattr(self.sizes, name) + more for name in ("own_level", "own_shape", "own_slope")}
        at = lambda m: (m.sizes, m.log_noise)  # noqa: E731
        return eqx.tree_at(at, self, (self.sizes._replace(**grown), self.log_noise + more))

    def features(
        self, sizes: Sizes, times: Float[Array, " time"], inputs: Float[Array, "time in"], *, is_anchored: bool
    ) -> "Features":
        """Return the features of one output, whose `sizes` are given; anchored curves begin at a known start."""
        shown = jnp.log1p(self.clock * times) / np.log1p(self.clock) if self.clock > 0 else times
        place = CLOCK_RANGE * (shown - 0.5)
        size = Sizes(*(jnp.exp(value) for value in sizes))
        line, waves = place[:, None], smooth_features(place, size.length, NUM_COMMON)
        ones = jnp.ones_like(line)
        common = [ones, size.slope * line, size.shape * waves]
        added = jnp.concatenate([size.input_level * ones, size.input_shape * line, size.input_shape * waves], axis=1)
        by_input = (inputs[:, :, None] * added[:, None, :]).reshape(len(place), -1)
        own_waves = smooth_features(place, size.own_length, NUM_OWN)
        own = jnp.concatenate([size.own_level * ones, size.own_slope * line, size.own_shape * own_waves], axis=1)
        growing = window(place, sizes.own_growth)[:, None]
        own, by_input = growing * own, growing * by_input
        whole = jnp.concatenate([*common, by_input], axis=1)
        if not is_anchored:
            return Features(whole, own, jnp.zeros_like(place))
        carried = own @ own[0] / (own[0] @ own[0])
        return Features(whole - carried[:, None] * whole[0], own - carried[:, None] * own[0], carried)


class Features(NamedTuple):
    """What the common weights, a unit's own and its start are multiplied by at every time."""

    common: Float[Array, "time feature"]
    own: Float[Array, "time own"]
    of_start: Float[Array, " time"]


def window(place: Float[Array, " time"], growth: Array) -> Float[Array, " time"]:
    """A factor that is linear in time, one in the middle, and for large `growth` nearly zero at the beginning."""
    return jnp.maximum(1.0 + jnp.tanh(growth) * place / (0.5 * CLOCK_RANGE), LEAST_WINDOW)


def smooth_features(place: Float[Array, " time"], length: Array, num: int) -> Float[Array, "time feature"]:
    """Return sines whose weighted sum with standard normal weights is nearly a Gaussian process of variance one.

    Its covariance is `exp(-d^2 / (2 length^2))`: `sum_j S(w_j) sin(w_j (s + L)) sin(w_j (s' + L)) / L` with the
    spectral density `S(w) = sqrt(2 pi) length exp(-(w length)^2 / 2)` at `w_j = j pi / (2 L)`.
    """
    edge = BOUNDARY * CLOCK_RANGE / 2.0
    frequency = jnp.arange(1, num + 1) * jnp.pi / (2.0 * edge)
    length = jnp.maximum(length, SHORTEST)
    density = jnp.sqrt(2.0 * jnp.pi) * length * jnp.exp(-0.5 * (frequency * length) ** 2)
    waves = jnp.sin(frequency * (jnp.clip(place, -edge, edge)[:, None] + edge)) / jnp.sqrt(edge)
    return jnp.sqrt(density) * waves


def smooth_curve(*, num_inputs: int, num_outputs: int, clock: float) -> SmoothCurve:
    """Build the model with typical sizes, before it is fitted."""
    num_features = (2 + NUM_COMMON) * (1 + num_inputs)
    return SmoothCurve(
        unit=jnp.zeros(num_outputs * (2 + NUM_OWN)),
        weights=jnp.zeros((num_outputs, num_features)),
        sizes=Sizes(*(jnp.full(num_outputs, value) for value in TYPICAL)),
        log_noise=jnp.log(jnp.full(num_outputs, 0.2)),
        clock=clock,
    )
