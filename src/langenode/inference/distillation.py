"""A trained sampler from draws that another method has found: `langevin` or `bottleneck`, in whitened coordinates.

- **langevin** has the draws' mean and covariance as its reference. Its control has the largest likelihood of the draws
  (`posteriors.reversed_paths`), then the smallest mismatch of distributions, as below. It has a density, so importance
  weights check it against the posterior itself. It serves weights that the data determine.
- **bottleneck** is matched in function space, where exchangeable hidden units do not matter. Its latents are the
  principal components of what draws predict, inside and outside the data. The decoder first learns weights that give
  each draw's predictions (regression). Then chain and decoder are trained until the distribution of their predictions
  is that of the draws (energy score, means and variances).

The decoder works in coordinates in which predictions are equally sensitive at the centre, the weights whose predictions
are the draws' mean: some directions are a million times stiffer than others.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, OnStep, PRNGKeyArray
from langenode.inference.distances import total_distances
from langenode.posteriors import Bottleneck, Density, Langevin, Reference, langevin
from langenode.posteriors.distilled import small_bottleneck, with_last_layer
from langenode.posteriors.reversed_paths import log_density_bound
from langenode.samplers.common import MOST_PREDICTIONS
from langenode.samplers.modes import Quadratic, find_mode
from langenode.scores import metrics

SamplerKind = Literal["langevin", "bottleneck"]
# Up to this many weights they are compared beside their predictions: so few are mostly parameters with a meaning.
MOST_COMPARED = 10
# Latents: principal components with this share of the variance of predictions, at most this many.
EXPLAINED, MOST_LATENTS = 0.999, 64
# Rank of the covariance that a Langevin chain's reference has.
MOST_RANK = 64
BATCH, BLOCK, LEARNING_RATE = 256, 100, 5e-3
# Predictions further than this many standard deviations from the mean do not count in the variances.
FURTHEST = 6.0
# Half squares of weights have this weight beside those of standardised predictions, where the centre is searched.
CENTRE_PRIOR = 1e-2
# Largest errors of a distilled sampler that may stand for its draws: of means in standard deviations, and of these.
LARGEST_MEAN_ERROR, LARGEST_STD_ERROR = 0.1, 0.05
NUM_JUDGED = 4096


class Features(eqx.Module):
    """What draws are compared in, standardised: predictions inside, then outside the data; of few weights themselves.

    Numbers that do not vary between draws are left out.
    """

    density: Density
    kept: Array
    mean: Float[Array, " feature"]
    std: Float[Array, " feature"]
    num_inside: int = eqx.field(static=True)

    @classmethod
    def of(cls, density: Density, draws: Float[Array, "draw dim"]) -> "Features":
        """Features with the draws' means and standard deviations."""
        values = np.asarray(_at(_Raw(density), draws), float)
        std = values.std(axis=0)
        kept = np.flatnonzero(std > 1e-6 * np.abs(values).max(axis=0))
        mean, std = (jnp.asarray(part[kept], density.dtype) for part in (values.mean(axis=0), std))
        num_inside = int(np.sum(kept < num_inside_of(density)))
        return cls(density, jnp.asarray(kept), mean, std, num_inside)

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, " feature"]:
        """The features of one weight vector."""
        return (_Raw(self.density)(z)[self.kept] - self.mean) / self.std


class _Raw(eqx.Module):
    density: Density

    def __call__(self, z: Array) -> Array:
        return jnp.concatenate([*_inside(self.density, z), *_outside(self.density, z)])


def _inside(density: Density, z: Array) -> list[Array]:
    weights = [z] if density.dim <= MOST_COMPARED or density.residual is None else []
    return weights + ([] if density.residual is None else [_thinned(density.residual(z))])


def _outside(density: Density, z: Array) -> list[Array]:
    return [] if density.probe is None else [_thinned(density.probe(z))]


def _thinned(values: Array) -> Array:
    return values[:: -(-values.shape[0] // MOST_PREDICTIONS)]


def num_inside_of(density: Density) -> int:
    """How many numbers inside the data (and weights) are compared."""
    like = jax.ShapeDtypeStruct((density.dim,), density.dtype)
    return sum(part.shape[0] for part in jax.eval_shape(lambda z: _inside(density, z), like))


@eqx.filter_jit
def _at(function: Callable[[Array], Array], points: Array) -> Array:
    return jax.lax.map(function, points, batch_size=BATCH)


class Distillation(NamedTuple):
    """A sampler of whitened weights and how near it is to the draws that it was trained on."""

    sampler: Langevin | Bottleneck
    record: dict[str, Any]

    @property
    def is_near(self) -> bool:
        """Whether it may stand for its draws inside the data."""
        found = self.record
        is_near_std = abs(found["std_in"] - 1.0) <= LARGEST_STD_ERROR
        return found["mean_in"] <= LARGEST_MEAN_ERROR and is_near_std


def distil(
    density: Density,
    draws: Float[Array, "draw dim"],
    kind: SamplerKind,
    *,
    key: PRNGKeyArray,
    num_updates: int = 3000,
    on_step: OnStep | None = None,
) -> Distillation:
    """Train a sampler on equally weighted draws of a density."""
    if kind not in ("langevin", "bottleneck"):
        raise ValueError(f"draws are distilled to 'langevin' or 'bottleneck'; got {kind!r}; choose one of them")
    key_train, key_judge = jax.random.split(key)
    draws = jnp.asarray(draws, density.dtype)
    features = Features.of(density, draws)
    if kind == "langevin":
        sampler = _distil_chain(features, draws, num_updates, key_train, on_step)
    else:
        sampler = _distil_bottleneck(features, draws, num_updates, key_train, on_step)
    record = {"kind": kind, "updates": num_updates, **judge(features, sampler, draws, key=key_judge)}
    return Distillation(sampler, record)


# The chain over all weights


def _distil_chain(
    features: Features, draws: Array, num_updates: int, key: PRNGKeyArray, on_step: OnStep | None
) -> Langevin:
    key_make, key_first, key_second = jax.random.split(key, 3)
    chain = langevin(moment_reference(draws), key=key_make)

    def loss(chain: Langevin, key: PRNGKeyArray) -> Array:
        key_pick, key_paths = jax.random.split(key)
        chosen = draws[jax.random.randint(key_pick, (BATCH,), 0, len(draws))]
        bounds = jax.vmap(lambda w, k: log_density_bound(chain, w, key=k))(chosen, jax.random.split(key_paths, BATCH))
        return -jnp.mean(bounds) / chain.dim

    num_second = num_updates // 3
    num_first, rate = num_updates - num_second, LEARNING_RATE
    chain = descend(loss, chain, num_first, rate, key=key_first, on_step=on_step, what="control")
    values = _at(features, draws)
    components = _components(values, draws.shape[1])
    matching = _matching(lambda _, weights: features(weights), values, components)
    # The likelihood leaves standard deviations some per cent short: the bound is not tight.
    return descend(matching, chain, num_second, rate / 10.0, key=key_second, on_step=on_step, what="distribution")


def moment_reference(draws: Float[Array, "draw dim"]) -> Reference:
    """The Gaussian with the draws' mean, and their covariance up to its `MOST_RANK` largest components.

    `L = diag(scale) (I + F F')` has no eigenvalue of its second factor below one, so the scale is that of the
    components which are left.
    """
    values = np.asarray(draws, float)
    std = values.std(axis=0, ddof=1)
    eigenvalues, vectors = np.linalg.eigh(np.atleast_2d(np.corrcoef(values, rowvar=False)))
    rank = min(MOST_RANK, len(std) - 1)
    split = len(std) - rank
    base = np.sqrt(max(np.exp(np.mean(np.log(np.maximum(eigenvalues[:split], 1e-12)))), 1e-12))
    growth = np.sqrt(np.maximum(eigenvalues[split:], 0.0)) / base - 1.0
    factor = vectors[:, split:] * np.sqrt(np.maximum(growth, 0.0)) if rank else None
    mean, scale = (jnp.asarray(part, draws.dtype) for part in (values.mean(axis=0), base * std))
    return Reference(mean, scale, None if factor is None else jnp.asarray(factor, draws.dtype))


# The bottleneck


class _Components(NamedTuple):
    """Principal components of the features: unit directions, and their standard deviations."""

    directions: Float[Array, "feature component"]
    scales: Float[Array, " component"]

    def latents(self, values: Float[Array, "draw feature"]) -> Float[Array, "draw component"]:
        return values @ self.directions / self.scales


def _components(values: Float[Array, "draw feature"], dim: int) -> _Components:
    host = np.asarray(values, float)
    _, scales, directions = np.linalg.svd(host / np.sqrt(len(host)), full_matrices=False)
    shares = np.cumsum(scales**2) / np.sum(scales**2)
    num = min(int(np.sum(shares < EXPLAINED)) + 1, MOST_LATENTS, dim)
    return _Components(*(jnp.asarray(part, values.dtype) for part in (directions[:num].T, scales[:num])))


def _distil_bottleneck(
    features: Features, draws: Array, num_updates: int, key: PRNGKeyArray, on_step: OnStep | None
) -> Bottleneck:
    key_make, key_first, key_second = jax.random.split(key, 3)
    values = _at(features, draws)
    components = _components(values, draws.shape[1])
    latents = components.latents(values)
    centre, root = _centre(features, draws[int(jnp.argmin(jnp.sum(values**2, axis=1)))])
    sampler = small_bottleneck(centre, latents.shape[1], key=key_make)

    def seen(sampler: Bottleneck, decoded: Array) -> Array:
        return features(sampler.centre + root @ (decoded - sampler.centre))

    def regression(sampler: Bottleneck, key: PRNGKeyArray) -> Array:
        chosen = jax.random.randint(key, (BATCH // 2,), 0, len(draws))
        found = jax.vmap(lambda y: seen(sampler, sampler.decode(y)))(latents[chosen])
        return jnp.mean(jnp.sqrt(1.0 + (found - values[chosen]) ** 2) - 1.0)

    num_first = num_updates // 3
    sampler = descend(regression, sampler, num_first, LEARNING_RATE, key=key_first, on_step=on_step, what="decoder")
    rest, rate = num_updates - num_first, LEARNING_RATE / 3.0
    matching = _matching(seen, values, components)
    sampler = descend(matching, sampler, rest, rate, key=key_second, on_step=on_step, what="distribution")
    # The last layer in the weights' own coordinates.
    return with_last_layer(sampler, lambda weight, bias: (root @ weight, root @ bias), sampler.centre)


def _centre(features: Features, start: Array) -> tuple[Array, Float[Array, "dim dim"]]:
    """Weights whose features are the draws' mean, and a root of the inverse of `I + J'J` there, J of the features."""
    linearise = eqx.filter_jit(lambda z: (features(z), jax.jacrev(features)(z)))

    def quadratic(z: np.ndarray) -> Quadratic:
        value, jacobian = (np.asarray(part, float) for part in linearise(jnp.asarray(z, start.dtype)))
        cost = 0.5 * (value @ value + CENTRE_PRIOR * z @ z)
        slope = -(jacobian.T @ value + CENTRE_PRIOR * z)
        is_sound = np.isfinite(cost) and np.isfinite(jacobian).all()
        if not is_sound:
            return Quadratic(np.inf, np.zeros_like(z), np.eye(len(z)))
        return Quadratic(float(cost), slope, jacobian.T @ jacobian + CENTRE_PRIOR * np.eye(len(z)))

    mode = find_mode(quadratic, np.asarray(start, float))
    curvature = mode.curvature + (1.0 - CENTRE_PRIOR) * np.eye(len(mode.point))
    eigenvalues, vectors = np.linalg.eigh(curvature)
    root = vectors / np.sqrt(np.maximum(eigenvalues, 1.0)) @ vectors.T
    return jnp.asarray(mode.point, start.dtype), jnp.asarray(root, start.dtype)


def _matching(
    seen: Callable[[Any, Array], Array], values: Float[Array, "draw feature"], components: _Components
) -> Callable[[Any, PRNGKeyArray], Array]:
    """The loss of a sampler whose draws w have the features `seen(sampler, w)`; those of the draws are `values`."""

    def loss(sampler: Any, key: PRNGKeyArray) -> Array:
        key_pick, key_noise = jax.random.split(key)
        white = jax.random.normal(key_noise, (BATCH, sampler.num_noise), values.dtype)
        found = jax.vmap(lambda noise: seen(sampler, sampler.from_noise(noise)))(white)
        chosen = values[jax.random.randint(key_pick, (BATCH,), 0, len(values))]
        return _mismatch(found, chosen, components.directions)

    return loss


def _mismatch(found: Array, wanted: Array, directions: Array) -> Float[Array, ""]:
    """Fair energy score in principal components, plus squared errors of means and variances of single features.

    Both squares are products of two halves of the samples, so that their own noise does not count.
    """
    ours, theirs = found @ directions, wanted @ directions
    num = len(ours)
    across = total_distances(ours, theirs, False).sum() / (num * len(theirs))
    within = total_distances(ours, ours, True).sum() / (num * (num - 1))
    energy = (across - 0.5 * within) / math.sqrt(directions.shape[1])
    halves = jnp.clip(found, -FURTHEST, FURTHEST).reshape(2, num // 2, -1)
    means, variances = halves.mean(axis=1), (halves**2).mean(axis=1) - 1.0
    return 0.3 * energy + jnp.mean(means[0] * means[1]) + 0.25 * jnp.mean(variances[0] * variances[1])


# Training


def descend(
    loss: Callable[[Any, PRNGKeyArray], Array],
    sampler: Any,
    num_updates: int,
    learning_rate: float,
    *,
    key: PRNGKeyArray,
    on_step: OnStep | None = None,
    what: str = "updates",
) -> Any:
    """The sampler after Adam on a loss of random numbers, with a rate that falls to zero."""
    import optax

    rate = optax.cosine_decay_schedule(learning_rate, max(num_updates, 1))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    params, static = eqx.partition(sampler, sampler.trained())

    def update(step: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        params, state = carry
        key_step = jax.random.fold_in(key, step)
        value, gradient = jax.value_and_grad(lambda p: loss(eqx.combine(p, static), key_step))(params)
        steps, new_state = optimiser.update(gradient, state, params)
        is_fine = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(gradient))
        new = (optax.apply_updates(params, steps), new_state)
        return jax.tree.map(lambda fresh, old: jnp.where(is_fine, fresh, old), new, carry)

    run = eqx.filter_jit(lambda first, last, carry: jax.lax.fori_loop(first, last, update, carry))
    carry = (params, optimiser.init(params))
    for first in range(0, num_updates, BLOCK):
        last = min(first + BLOCK, num_updates)
        carry = run(jnp.asarray(first), jnp.asarray(last), carry)
        if on_step is not None:
            on_step(last, num_updates, what)
    return eqx.combine(carry[0], static)


# How near it is


def judge(features: Features, sampler: Any, draws: Array, *, key: PRNGKeyArray) -> dict[str, Any]:
    """Errors of a sampler against the draws it was trained on, in what they predict.

    `mean_*`: rms error of means in standard deviations; `std_*`: median ratio of standard deviations, inside and
    outside the data; `energy`: fair energy distance of standardised features, with `energy_floor`, that between the
    first and second half of the draws. With a density there are `relative_ess` and `k_hat` of importance weights.
    """
    wanted = np.asarray(_at(features, draws), float)
    found, log_weights = _judged(features, sampler, jax.random.split(key, NUM_JUDGED))
    found = np.asarray(found, float)
    is_fine = np.isfinite(found).all(axis=1)
    record: dict[str, Any] = {"non_finite": int(np.sum(~is_fine))}
    found = found[is_fine]
    num = features.num_inside
    for name, part in (("in", slice(None, num)), ("out", slice(num, None))):
        if wanted[:, part].shape[1]:
            record |= {
                f"mean_{name}": float(np.sqrt(np.mean(found[:, part].mean(axis=0) ** 2))),
                f"std_{name}": float(np.median(found[:, part].std(axis=0) / wanted[:, part].std(axis=0))),
            }
    half = len(wanted) // 2
    record["energy"] = _energy(found, wanted)
    record["energy_floor"] = _energy(wanted[:half], wanted[half:])
    if sampler.has_density:
        logs = np.asarray(log_weights, float)
        record |= {"relative_ess": metrics.relative_ess(logs), "k_hat": metrics.k_hat(logs)}
    return record


@eqx.filter_jit
def _judged(features: Features, sampler: Any, keys: Array) -> tuple[Array, Array]:
    def one(key: Array) -> tuple[Array, Array]:
        draw = sampler.draw(key=key)
        log_weight: Array = features.density.log_posterior(draw.weights) - draw.log_reference - draw.log_ratio
        return features(draw.weights), jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)

    return jax.lax.map(one, keys, batch_size=BATCH)


def _energy(one: np.ndarray, other: np.ndarray, most: int = 1000) -> float:
    """Fair energy distance of at most `most` points of each, over the root of the number of features."""
    one, other = (part[np.linspace(0, len(part) - 1, min(most, len(part))).astype(int)] for part in (one, other))

    def total(a: np.ndarray, b: np.ndarray) -> float:
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T
        return float(np.sqrt(np.maximum(squares, 0.0)).sum())

    within = sum(total(part, part) / (len(part) * (len(part) - 1)) for part in (one, other))
    return (total(one, other) / (len(one) * len(other)) - 0.5 * within) / math.sqrt(one.shape[1])
