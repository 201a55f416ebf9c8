"""What is being inferred, and the loss that says so.

- `Posterior`: one true w. Summed log-likelihood, temperature 1: epistemic, contracts with data.
- `Tempered`: the same with an explicit temperature (the paper averages over trajectories and times).
- `Population`: every unit has its own w; q(w) is to have the data's distribution: aleatory, does not contract.

The first two are a bound, `-ELBO = KL - E[log-likelihood / temperature + log prior - log reference]`. The third is a
distance between distributions plus `kl_weight` times the KL. Its scale is arbitrary, so the KL weight is a choice:
large enough that directions the data do not see stay at the reference, small enough not to bias the ones they do. The
default 1e-4 costs no visible accuracy on the demonstrations; raise it tenfold at a time until the validation score
worsens, then go back one.
"""

import warnings
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Bool, Float
from langenode.inference.sorting import sort_rows

PopulationLoss = Literal["energy", "quantile", "log_mean_exp"]


class Terms(NamedTuple):
    """A loss and its two parts."""

    loss: Float[Array, ""]
    data: Float[Array, ""]
    kl: Float[Array, ""]


class Posterior(eqx.Module):
    """One true weight vector, inferred at temperature 1."""

    name: ClassVar[str] = "posterior"
    temperature: ClassVar[float] = 1.0
    kl_weight: ClassVar[float] = 1.0

    def loss(self, log_target: Array, kl: Array, log_ratio: Array, estimator: str) -> Terms:
        """-ELBO from N_R draws."""
        return negative_elbo(log_target, kl, log_ratio, estimator=estimator)


class Tempered(eqx.Module):
    """One true weight vector, with the log-likelihood divided by `temperature` and the KL times `kl_weight`.

    `kl_weight=2` gives the factor printed in the paper's path KL.
    """

    name: ClassVar[str] = "tempered"
    temperature: float = eqx.field(static=True)
    kl_weight: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        if not self.temperature > 0.0:
            raise ValueError(f"a temperature must be positive; got {self.temperature}; 1 is the plain posterior")

    def loss(self, log_target: Array, kl: Array, log_ratio: Array, estimator: str) -> Terms:
        """The tempered -ELBO from N_R draws."""
        return negative_elbo(log_target, kl, log_ratio, estimator=estimator, kl_weight=self.kl_weight)


def negative_elbo(
    log_target: Float[Array, " sample"],
    kl: Float[Array, " sample"],
    log_ratio: Float[Array, " sample"],
    *,
    estimator: str,
    kl_weight: float = 1.0,
) -> Terms:
    """-ELBO with the gradient estimator asked for.

    `log_target` is the (tempered) log-likelihood plus log prior minus log reference, at each draw.
    `log_variance` returns half the variance of the log weights: not the bound, but zero where the bound is tight, and
    with the bound's gradient in expectation when the paths are drawn from q itself.
    """
    data = -jnp.mean(log_target)
    if estimator == "log_variance":
        return Terms(0.5 * jnp.var(kl_weight * log_ratio - log_target, ddof=1), data, jnp.mean(kl))
    mean_kl = jnp.mean(kl if estimator == "reparametrised" else log_ratio)
    return Terms(data + kl_weight * mean_kl, data, mean_kl)


def warn_of_mismatched_scales(target: Posterior | Tempered, num_observed: int) -> None:
    """Warn where a mean-scaled data term meets an unscaled KL: the result is then a prior-dominated compromise."""
    if target.temperature >= 0.1 * num_observed > 1.0 and target.kl_weight >= 0.1:
        warnings.warn(
            f"the data term is divided by {target.temperature:g}, about the number of observations "
            f"({num_observed}), but the KL is weighted by {target.kl_weight:g}: the two are on different scales, and "
            "bands will not shrink with more data; use target='posterior' for a calibrated posterior, or scale both",
            stacklevel=2,
        )


class Observed(eqx.Module):
    """The data as the population losses need them, over members, conditions, times and outputs.

    `centre` is the mean model's response from each member's own start: it is subtracted from data and predictions, so
    that chance correlation of starts with weights is not booked on the weights. `projection` maps a centred trajectory
    to whitened principal scores: one map for all where no cell is missing, one a member otherwise. `scale` is the
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


class Population(eqx.Module):
    """Every unit has its own weights; match the distribution of the data.

    **Losses:** `energy` compares whole trajectories by whitened principal scores (fair energy score, plus
    `moment_weight` times the squared error of the scores' mean and covariance); `quantile` sorts the replicas at each
    time and takes the L1 distance to the data's quantiles (`saturation`: see `quantile_distance`); `log_mean_exp` is
    the marginal likelihood of a trajectory under the replicas.

    `transition_weight` times minus the mean log density of a reading given the one before is added for models with
    noise of their own, whose memory a distance between marginal laws does not see. `joint`: one unit keeps one w in
    all conditions, so trajectories of all conditions are compared together.
    """

    name: ClassVar[str] = "population"
    kind: PopulationLoss = eqx.field(static=True, default="energy")
    kl_weight: float = eqx.field(static=True, default=1e-4)
    moment_weight: float = eqx.field(static=True, default=0.0)
    joint: bool = eqx.field(static=True, default=False)
    transition_weight: float = eqx.field(static=True, default=0.0)
    saturation: float | None = eqx.field(static=True, default=None)
    power: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.kind not in ("energy", "quantile", "log_mean_exp"):
            raise ValueError(
                f"a population loss must be 'energy', 'quantile' or 'log_mean_exp'; got {self.kind!r}; choose one"
            )
        if self.kl_weight < 0.0:
            raise ValueError(f"kl_weight must not be negative; got {self.kl_weight}; 1e-4 is the default")

    def loss(self, predictions: Array, responses: Array, kl: Array, observed: Observed) -> Terms:
        """The distance to the data plus the weighted KL.

        `predictions` and the mean model's `responses` from the same starts are (sample, condition, time, out).
        """
        if self.kind == "energy":
            data = self._energy(predictions - responses, observed)
        elif self.kind == "quantile":
            data = quantile_distance(predictions, observed, saturation=self.saturation, power=self.power)
        else:
            data = -log_mean_exp_likelihood(predictions, observed, joint=self.joint)
        return Terms(data + self.kl_weight * jnp.mean(kl), data, jnp.mean(kl))

    def energy_score(self, predictions: Array, responses: Array, observed: Observed) -> Float[Array, ""]:
        """The fair energy score of whole trajectories, whatever loss is trained on: also the validation score."""
        return fair_energy_score(*self._scores(predictions - responses, observed))

    def _energy(self, deviations: Array, observed: Observed) -> Float[Array, ""]:
        scores = self._scores(deviations, observed)
        if self.moment_weight == 0.0:
            return fair_energy_score(*scores)
        return fair_energy_score(*scores) + self.moment_weight * moment_error(*scores)

    def _scores(self, deviations: Array, observed: Observed) -> tuple[Array, Array, Array]:
        """Scores of replicas and data, and which members count."""
        ours, theirs = whitened_scores(deviations, observed)
        if not self.joint:
            return ours, theirs, observed.present
        # All conditions side by side, as one; only members that are present in each of them can be compared.
        everywhere = jnp.all(observed.present, axis=1, keepdims=True)
        return ours.reshape(*ours.shape[:2], 1, -1), theirs.reshape(theirs.shape[0], 1, -1), everywhere


def whitened_scores(deviations: Array, observed: Observed) -> tuple[Array, Array]:
    """Principal scores of the replicas, (maps, sample, condition, score), and of the data, (member, condition, score).

    Where cells are missing each member has its own map, which reads only its observed cells, and the replicas are
    looked at through every member's map: data and model lose the same information.
    """
    ours = jnp.einsum("mckto,rcto->mrck", observed.projection, deviations)
    data = jnp.where(observed.mask, observed.outputs - observed.centre, 0.0)
    maps = jnp.broadcast_to(observed.projection, (data.shape[0], *observed.projection.shape[1:]))
    return ours, jnp.einsum("mckto,mcto->mck", maps, data)


def fair_energy_score(ours: Array, theirs: Array, weights: Array) -> Float[Array, ""]:
    """Mean over members j of `E|x_r - y_j| - 1/2 E|x_r - x_r'|`, the second mean over r != r' only (unbiased).

    A small constant under the root keeps the gradient finite where two points coincide.
    """
    num_samples = ours.shape[1]
    is_shared = ours.shape[0] == 1
    cross = _distance(ours[0][None] - theirs[:, None] if is_shared else ours - theirs[:, None]).mean(1)

    @jax.checkpoint
    def spread(points):
        pairs = _distance(points[:, None] - points[None, :])
        off_diagonal = 1.0 - jnp.eye(num_samples, dtype=pairs.dtype)[:, :, None]
        return (pairs * off_diagonal).sum((0, 1)) / (num_samples * (num_samples - 1))

    # One map at a time: with a map for every member all pairs at once would not fit in memory.
    per_member = cross - 0.5 * (spread(ours[0])[None] if is_shared else jax.lax.map(spread, ours))
    return jnp.sum(per_member * weights) / jnp.sum(weights)


def _distance(difference: Array) -> Array:
    return jnp.sqrt(jnp.sum(difference**2, axis=-1) + 1e-8)


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
    """Mean distance, or its square, of the sorted replicas to the data's quantiles at their levels, over `scale`.

    `power` 1 is the Wasserstein-1 distance of the marginal laws. 2 is the square of the Wasserstein-2 distance, in
    which location and spread count separately: where the model cannot follow every mean, it still has to match the
    spread, which 1 lets shrink.

    With `saturation` s a distance d counts as `s log(1 + d / s)`. Where the data have two modes, chance puts some
    replicas of every update into the wrong one; the plain distance pulls them across the gap, and leaves some there.
    """
    num_samples = predictions.shape[0]
    levels = (jnp.arange(num_samples) + 0.5) / num_samples
    count = observed.mask.sum(0)
    members = observed.ordered if power == 1 else _widened(observed.ordered, count)
    quantiles = jax.lax.stop_gradient(_quantiles(members, count, levels))
    ordered = sort_rows(predictions)
    seen = observed.mask.any(0)
    distance = jnp.where(seen, jnp.abs(ordered - jnp.where(seen, quantiles, 0.0)), 0.0) / observed.scale
    if saturation is not None:
        distance = saturation * jnp.log1p(distance / saturation)
    distance = distance**power
    return distance.sum() / (num_samples * jnp.maximum(seen.sum(), 1))


def _widened(ordered: Array, count: Array) -> Array:
    """Members about their mean by sqrt(n / (n - 1)) wider: a law is wider than a sample of it, by 1.6 % for 32."""
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
    """Mean over trajectories of the log of their mean density under the replicas, by the mean number of cells.

    `joint` takes the trajectories of one member in all conditions as one, made by one replica.
    """

    def log_kernel(outputs, mask):
        standard = jnp.where(mask, outputs - predictions, 0.0) / observed.sigma
        cells = -0.5 * standard**2 - jnp.log(observed.sigma) - 0.5 * jnp.log(2.0 * jnp.pi)
        return jnp.where(mask, cells, 0.0).sum((2, 3))

    density = jax.vmap(log_kernel)(observed.outputs, observed.mask)
    if joint:
        density = density.sum(-1)
    # A trajectory without an observed cell has density 1 under every replica: its term is zero.
    log_mean = jax.nn.logsumexp(density, axis=1) - jnp.log(predictions.shape[0])
    return jnp.sum(log_mean) / jnp.maximum(observed.mask.sum(), 1)
