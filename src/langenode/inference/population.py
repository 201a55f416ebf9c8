"""Distances between the predicted and the observed population, and replicates made ready for them.

`observe` prepares replicates once and on the host: centres, scales and principal directions. `distance` is the loss of
a `Population` target, `energy_score` what validation watches.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Bool, Float
from langenode.data import Replicates
from langenode.inference.distances import total_distances
from langenode.inference.principal import Components, principal_maps
from langenode.inference.sorting import sort_rows
from langenode.inference.targets import Population
from langenode.posteriors.base import log_normal


class Observed(eqx.Module):
    """The data as the population losses need them, over members, conditions, times and outputs.

    `centre` is the mean model's response from each member's own start: it is subtracted from data and predictions, so
    that chance correlation of starts with weights is not booked on the weights. `projection` maps a centred trajectory
    to whitened principal scores: one map for all where no cell is missing, one per member otherwise. `scale` is the
    spread of each output, and `sigma` the kernel's width in `log_mean_exp`. `ordered` are the outputs sorted over
    members, missing ones last as NaN: sorting them anew costs as much as an update, so a whole population keeps it.
    """

    outputs: Float[Array, "member condition time out"]
    mask: Bool[Array, "member condition time out"]
    centre: Float[Array, "member condition time out"]
    present: Bool[Array, "member condition"]
    projection: Float[Array, "maps condition score time out"]
    scale: Float[Array, " out"]
    sigma: Float[Array, "condition time out"]
    ordered: Float[Array, "member condition time out"]

    def select(self, members: Array, conditions: Array) -> "Observed":
        """Some members and some conditions."""

        def pick(leaf):
            return leaf[members][:, conditions]

        projection = self.projection if self.projection.shape[0] == 1 else self.projection[members]
        is_whole = members.shape[0] == self.outputs.shape[0]
        ordered = self.ordered[:, conditions] if is_whole else _ordered(pick(self.outputs), pick(self.mask))
        return Observed(
            pick(self.outputs),
            pick(self.mask),
            pick(self.centre),
            pick(self.present),
            projection[:, conditions],
            self.scale,
            self.sigma[conditions],
            ordered,
        )


def _ordered(outputs: Array, mask: Array) -> Array:
    """Sorted over members; missing cells are NaN and sort last."""
    return jnp.sort(jnp.where(mask, outputs, jnp.nan), axis=0)


def observe(
    replicates: Replicates,
    centre: np.ndarray,
    *,
    sigma: np.ndarray | None = None,
    max_components: int = 16,
    explained: float = 0.999,
    component_floor: float = 0.0,
    noise: np.ndarray | None = None,
    simulated: np.ndarray | None = None,
) -> Observed:
    """Prepare replicates for the population losses: centre, principal directions, scales.

    `centre` is the mean model's response from each member's start, shaped like the outputs. As many principal
    components are kept as explain the fraction `explained` of the variance, `max_components` at most. Each counts by
    what it carries (`principal.Components`); `noise` is the standard deviation of measurement noise, one per output.
    `simulated` outputs of the model, (sample, condition, time, out), are what the components must be made of.
    """
    outputs, mask = np.asarray(replicates.outputs), np.asarray(replicates.mask)
    deviation = np.where(mask, outputs - centre, 0.0)
    scale = _spread_per_output(deviation, mask)
    flat = (deviation / scale).reshape(*outputs.shape[:2], -1)
    components = Components(max_components, explained, component_floor)
    if noise is not None:
        variance = np.broadcast_to((noise / scale) ** 2, outputs.shape[2:])
        components = components._replace(noise=variance.ravel())
    maps = []
    for c in range(outputs.shape[1]):
        if simulated is not None:
            rows = ((simulated[:, c] - np.median(simulated[:, c], axis=0)) / scale).reshape(len(simulated), -1)
            components = components._replace(span=rows)
        maps.append(principal_maps(flat[:, c], mask.reshape(flat.shape)[:, c], components))
    size = max(m.shape[1] for m in maps)
    num_maps = max(m.shape[0] for m in maps)
    projection = np.zeros((num_maps, outputs.shape[1], size, flat.shape[-1]))
    for condition, m in enumerate(maps):
        projection[:, condition, : m.shape[1]] = m
    projection = projection.reshape(num_maps, outputs.shape[1], size, *outputs.shape[2:]) / scale
    kernel = np.broadcast_to(0.1 * scale, outputs.shape[1:]) if sigma is None else sigma
    # A member counts in a condition where at least one of its cells was observed.
    ordered = np.sort(np.where(mask, outputs, np.nan), axis=0)
    fields = (outputs, mask, centre, mask.any((2, 3)), projection, scale, kernel, ordered)
    return Observed(*(jnp.asarray(field) for field in fields))


def _spread_per_output(deviation: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Rms over conditions and times of the between-member spread of each output; 1 where there is none."""
    count = mask.sum(0)
    mean = deviation.sum(0) / np.maximum(count, 1)
    variance = (np.where(mask, deviation - mean, 0.0) ** 2).sum(0) / np.maximum(count - 1, 1)
    # Cells with fewer than two members (padding, for one) have no spread to average.
    spread = np.sqrt(variance.sum((0, 1)) / np.maximum((count >= 2).sum((0, 1)), 1))
    return np.where(spread > 0.0, spread, 1.0)


# Distances


def distance(target: Population, predictions: Array, responses: Array | None, observed: Observed) -> Float[Array, ""]:
    """The distance of the predictions from the data that the target asks for.

    `predictions` and the mean model's `responses` from the same starts are (sample, condition, time, out); without
    responses the predictions are compared as they are.
    """
    if target.kind == "quantile":
        return quantile_distance(predictions, observed, saturation=target.saturation, power=target.power)
    if target.kind == "log_mean_exp":
        return -log_mean_exp_likelihood(predictions, observed, joint=target.joint)
    ours, theirs, present = _scores(predictions, responses, observed, joint=target.joint)
    scores = ours, _unbiased(theirs, present) if target.unbiased_spread else theirs, present
    if target.moment_weight == 0.0:
        return fair_energy_score(*scores)
    return fair_energy_score(*scores) + target.moment_weight * moment_error(*scores)


def energy_score(predictions: Array, responses: Array | None, observed: Observed, *, joint: bool) -> Float[Array, ""]:
    """The fair energy score of whole trajectories, whatever loss is trained on: the validation score."""
    return fair_energy_score(*_scores(predictions, responses, observed, joint=joint))


def _scores(
    predictions: Array, responses: Array | None, observed: Observed, *, joint: bool
) -> tuple[Array, Array, Array]:
    """Scores of samples and data, and which members count."""
    ours, theirs = whitened_scores(predictions if responses is None else predictions - responses, observed)
    if not joint:
        return ours, theirs, observed.present
    # All conditions side by side, as one; only members that are present in each of them can be compared.
    everywhere = jnp.all(observed.present, axis=1, keepdims=True)
    return ours.reshape(*ours.shape[:2], 1, -1), theirs.reshape(theirs.shape[0], 1, -1), everywhere


def _unbiased(theirs: Array, present: Array) -> Array:
    """Members' scores spread about their mean by sqrt(n / (n - 1)), as a population is wider than a sample."""
    count = present.sum(0)[:, None]
    mean = (theirs * present[..., None]).sum(0) / jnp.maximum(count, 1)
    return mean + jnp.sqrt(count / jnp.maximum(count - 1, 1)).astype(theirs.dtype) * (theirs - mean)


def whitened_scores(deviations: Array, observed: Observed) -> tuple[Array, Array]:
    """Principal scores of the samples, (maps, sample, condition, score), and of the data, (member, condition, score).

    Where cells are missing each member has its own map, which reads only its observed cells, and the samples are
    looked at through every member's map: data and model lose the same information.
    """
    ours = jnp.einsum("mckto,rcto->mrck", observed.projection, deviations)
    data = jnp.where(observed.mask, observed.outputs - observed.centre, 0.0)
    maps = jnp.broadcast_to(observed.projection, (data.shape[0], *observed.projection.shape[1:]))
    return ours, jnp.einsum("mckto,mcto->mck", maps, data)


def fair_energy_score(ours: Array, theirs: Array, weights: Array) -> Float[Array, ""]:
    """Mean over members j of `E|x_r - y_j| - 1/2 E|x_r - x_r'|`, the second mean over r != r' only (unbiased)."""
    num_samples = ours.shape[1]

    def cross(points: Array, members: Array) -> Array:
        return _in_each_condition(lambda p, m: total_distances(p, m, False), points, members) / num_samples

    def spread(points: Array) -> Array:
        totals = _in_each_condition(lambda p: total_distances(p, p, True), points)
        return totals.sum(0) / (num_samples * (num_samples - 1))

    if ours.shape[0] == 1:
        per_member = cross(ours[0], theirs) - 0.5 * spread(ours[0])
    else:
        # One map at a time: with a map for every member all pairs at once would not fit in memory.
        per_member = jax.vmap(cross)(ours, theirs[:, None])[:, 0] - 0.5 * jax.lax.map(spread, ours)
    return jnp.sum(per_member * weights) / jnp.sum(weights)


def _in_each_condition(function: Callable[..., Array], *sets: Float[Array, "_ condition score"]) -> Array:
    return jax.vmap(function, in_axes=1, out_axes=1)(*sets)


def moment_error(ours: Array, theirs: Array, weights: Array) -> Float[Array, ""]:
    """Squared error of the mean and of the covariance of the scores, averaged over conditions."""
    weights = weights.astype(ours.dtype) / jnp.maximum(weights.sum(0), 1)
    our_weights = jnp.ones((1, ours.shape[2]), ours.dtype) if ours.shape[0] == 1 else weights
    our_mean = jnp.einsum("mrck,mc->ck", ours, our_weights) / ours.shape[1]
    their_mean = jnp.einsum("mck,mc->ck", theirs, weights)
    ours, theirs = ours - our_mean, theirs - their_mean
    our_covariance = jnp.einsum("mrck,mrcl,mc->ckl", ours, ours, our_weights) / ours.shape[1]
    their_covariance = jnp.einsum("mck,mcl,mc->ckl", theirs, theirs, weights)
    num_conditions = ours.shape[2]
    squares = jnp.sum((our_mean - their_mean) ** 2) + jnp.sum((our_covariance - their_covariance) ** 2)
    return squares / num_conditions


def quantile_distance(
    predictions: Array, observed: Observed, *, saturation: float | None = None, power: int = 1
) -> Float[Array, ""]:
    """Mean distance, or its square, of the sorted samples to the data's quantiles at their levels, over `scale`.

    `power` 1 is the Wasserstein-1 distance of the marginal distributions. 2 is the square of the Wasserstein-2
    distance, in which location and spread count separately: where the model cannot follow every mean, it still has to
    match the spread, which 1 lets shrink.

    With `saturation` s a distance d counts as `s log(1 + d / s)`. Where the data have two modes, chance puts some
    samples of every update into the wrong one; the plain distance pulls them across the gap, and leaves some there.
    """
    num_samples = predictions.shape[0]
    levels = (jnp.arange(num_samples) + 0.5) / num_samples
    count = observed.mask.sum(0)
    members = observed.ordered if power == 1 else _widened(observed.ordered, count)
    quantiles = _quantiles(members, count, levels)
    ordered = sort_rows(predictions)
    seen = observed.mask.any(0)
    distance = jnp.where(seen, jnp.abs(ordered - jnp.where(seen, quantiles, 0.0)), 0.0) / observed.scale
    if saturation is not None:
        distance = saturation * jnp.log1p(distance / saturation)
    distance = distance**power
    return distance.sum() / (num_samples * jnp.maximum(seen.sum(), 1))


def _widened(ordered: Array, count: Array) -> Array:
    """Members spread about their mean by sqrt(n / (n - 1)): a population is wider than a sample, by 1.6 % for 32."""
    mean = jnp.nansum(ordered, axis=0) / jnp.maximum(count, 1)
    return mean + jnp.sqrt(count / jnp.maximum(count - 1, 1)).astype(ordered.dtype) * (ordered - mean)


def _quantiles(ordered: Array, count: Array, levels: Array) -> Array:
    """Quantiles over the members that are observed (midpoint rule)."""
    place = jnp.clip(levels[:, None, None, None] * count - 0.5, 0.0, jnp.maximum(count - 1, 0))
    low = jnp.floor(place).astype(int)
    high = jnp.minimum(low + 1, jnp.maximum(count - 1, 0))
    fraction = place - low
    pick = lambda index: jnp.take_along_axis(ordered, index, axis=0)  # noqa: E731
    return (1.0 - fraction) * pick(low) + fraction * pick(high)


def log_mean_exp_likelihood(predictions: Array, observed: Observed, *, joint: bool) -> Float[Array, ""]:
    """Mean over trajectories of the log of their mean density under the samples, divided by the mean number of cells.

    `joint` takes the trajectories of one member in all conditions as one, made by one sample.
    """

    def log_kernel(outputs: Array, mask: Array) -> Array:
        residual = jnp.where(mask, outputs - predictions, 0.0)
        return jnp.where(mask, log_normal(residual, 0.0, observed.sigma), 0.0).sum((2, 3))

    density = jax.vmap(log_kernel)(observed.outputs, observed.mask)
    if joint:
        density = density.sum(-1)
    # A trajectory without an observed cell has density 1 under every sample: its term is zero.
    log_mean = jax.nn.logsumexp(density, axis=1) - jnp.log(predictions.shape[0])
    return jnp.sum(log_mean) / jnp.maximum(observed.mask.sum(), 1)
