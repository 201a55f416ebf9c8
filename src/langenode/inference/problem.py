"""An inference problem, and the model run with samples of its weights."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Bool, Float, Int, PRNGKeyArray
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.targets import Population, Target
from langenode.models import Linearised, has_own_noise
from langenode.posteriors import AbstractPosterior, AbstractVariational


class Problem(eqx.Module):
    """All that defines an inference: what varies, what is believed, what is asked, and the posterior."""

    model: Any
    partition: Partition
    prior: GaussianPrior
    likelihood: Likelihood | None
    target: Target
    posterior: AbstractPosterior

    def __check_init__(self):
        if has_own_noise(self.model) and not isinstance(self.target, Population):
            raise ValueError(
                "a model with noise of its own has no likelihood of whole trajectories; got "
                f"target={self.target.name!r}; use target='population'"
            )
        if getattr(self.target, "transition_weight", 0.0) and (self.partition.dim or not has_own_noise(self.model)):
            raise ValueError(
                "the transition likelihood trains a model with noise of its own whose weights are not stochastic; got "
                f"{self.partition.dim} stochastic weights; set stochastic='none', or population.transition_weight=0"
            )
        if not isinstance(self.posterior, AbstractVariational):
            return
        if isinstance(self.target, Population):
            if self.posterior.estimator == "log_variance":
                raise ValueError(
                    "a population loss needs gradients through the path; the log-variance estimator has none; "
                    "use estimator='reparametrised'"
                )
            return
        if not self.posterior.has_density:
            raise ValueError(
                f"target={self.target.name!r} needs a sampler whose weights have a density; a bottleneck has none; "
                "use target='population', or method 'langevin' or 'gaussian-full'"
            )

    @property
    def variational(self) -> AbstractVariational:
        """The posterior as one that is trained; an error where it is stored draws."""
        if not isinstance(self.posterior, AbstractVariational):
            raise TypeError(
                "only a variational posterior is trained; stored draws are final; give langevin or gaussian"
            )
        return self.posterior


def linearised(problem: Problem, weights: Float[Array, " dim"]) -> Problem:
    """The problem with its model linearised about `weights`; the stochastic weights keep their names."""
    partition, offset = problem.partition, len(jax.tree.leaves(problem.model))
    model = Linearised.about(partition.combine(problem.model, weights))
    places = tuple(place + offset for place in partition.positions)  # in the second of two copies
    moved = Partition(places, partition.shapes, partition.leaf_names)
    return Problem(model, moved, problem.prior, problem.likelihood, problem.target, problem.posterior)


def plain_positions(problem: Problem) -> tuple[int, ...]:
    """The places of the stochastic weights in the model as it was built, before a linearisation."""
    if not isinstance(problem.model, Linearised):
        return problem.partition.positions
    offset = len(jax.tree.leaves(problem.model.at))
    return tuple(place - offset for place in problem.partition.positions)


def simulate(
    model: Any,
    partition: Partition,
    weights: Float[Array, "sample dim"],
    times: Float[Array, "case time"],
    inputs: Float[Array, "case time in"],
    initial: Float[Array, "case state"] | Float[Array, "sample case state"] | None = None,
    keys: Array | None = None,
) -> Float[Array, "sample case time out"]:
    """Outputs of every case under every weight vector. Weights that are not stochastic are shared, not repeated.

    `keys`, one per sample, are for models with noise of their own.
    """

    def one_sample(w, start, key):
        return respond(partition.combine(model, w), times, inputs, start, key)

    axis = 0 if initial is not None and initial.ndim == 3 else None
    return jax.vmap(one_sample, in_axes=(0, axis, None if keys is None else 0))(weights, initial, keys)


def respond(
    model: Any,
    times: Float[Array, "case time"],
    inputs: Float[Array, "case time in"],
    initial: Float[Array, "case state"] | None,
    key: PRNGKeyArray | None,
) -> Float[Array, "case time out"]:
    """One model in every case; the key is for noise of its own, which differs from case to case."""
    if key is None or not has_own_noise(model):
        return jax.vmap(model)(times, inputs, initial)
    keys = jax.random.split(key, times.shape[0])
    return jax.vmap(lambda t, x, start, k: model(t, x, start, key=k))(times, inputs, initial, keys)


def draw_members(key: PRNGKeyArray, present: Bool[Array, "member condition"], num: int) -> Int[Array, "num condition"]:
    """For each sample a random member of every condition: the same one in all of them where nobody is absent."""
    num_members, num_conditions = present.shape

    def together() -> Array:
        return jnp.broadcast_to(jax.random.randint(key, (num, 1), 0, num_members), (num, num_conditions))

    def apart() -> Array:
        log_shares = jnp.where(present, 0.0, -jnp.inf).T[None]
        return jax.random.categorical(key, log_shares, axis=-1, shape=(num, num_conditions))

    # A branch, not a choice between results: a number for every member would cost as much as the rest of an update.
    return jax.lax.cond(jnp.all(present), together, apart)
