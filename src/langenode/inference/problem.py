"""An inference problem, and the data as its target sees them.

`posterior` and `tempered` look at trajectories, each from its own start and with its noise; `population` looks at the
members of each condition, and lets replicas start where a random member did.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Bool, Float, Int, PRNGKeyArray
from langenode.data import Batch, Cases, Dataset
from langenode.inference.likelihood import Likelihood
from langenode.inference.observing import observe
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.targets import (
    Observed,
    Population,
    Posterior,
    Tempered,
    Terms,
)
from langenode.models import Linearised, has_own_noise
from langenode.posteriors import AbstractPosterior, AbstractVariational, Draw, cast

Target = Posterior | Tempered | Population


class Problem(eqx.Module):
    """All that defines an inference: what varies, what is believed, what is asked, and the law that is trained."""

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

    `keys`, one a sample, are for models with noise of their own.
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
    """For each replica a random member of every condition: the same one in all of them where nobody is absent."""
    num_members, num_conditions = present.shape
    together = jax.random.randint(key, (num, 1), 0, num_members)
    apart = jax.random.categorical(key, jnp.where(present, 0.0, -jnp.inf).T[None], axis=-1, shape=(num, num_conditions))
    return jnp.where(jnp.all(present), together, apart)


class Outcome(NamedTuple):
    """One replica: its draw and its predictions."""

    draw: Draw
    predictions: Float[Array, "*sample case time out"]


class PopulationOutcome(NamedTuple):
    """One replica: its draw, its predictions, and the mean model's response from the same start."""

    draw: Draw
    predictions: Float[Array, "*sample case time out"]
    responses: Float[Array, "*sample case time out"]


class TrajectoryView(eqx.Module):
    """The data for `posterior` and `tempered`: every trajectory from its own start, with its noise."""

    batch: Batch
    likelihood: Likelihood
    weight: float = eqx.field(static=True, default=1.0)

    def pick(self, key: PRNGKeyArray, num_trajectories: int | None, num_conditions: int | None) -> "TrajectoryView":
        """A random mini-batch, weighted so that its log-likelihood estimates the whole data's."""
        del num_conditions  # trajectories are drawn whatever their condition
        num = self.batch.times.shape[0]
        if num_trajectories is None or num_trajectories >= num:
            return self
        index = _choose(key, num, num_trajectories)
        batch = jax.tree.map(lambda leaf: leaf[index], self.batch)
        return TrajectoryView(batch, self.likelihood.select(index), num / num_trajectories)

    def run(self, problem: Problem, key: PRNGKeyArray) -> Outcome:
        """One replica on every trajectory of the batch."""
        draw = _variational(problem).draw(key=key)
        model = problem.partition.combine(problem.model, draw.weights)
        return Outcome(draw, jax.vmap(model)(self.batch.times, self.batch.inputs, self.batch.initial))

    def log_likelihood(self, problem: Problem, outcomes: Outcome) -> Float[Array, "sample traj"]:
        """Log density of every trajectory under every replica."""
        log_noise = None
        if self.likelihood.sigma is None:
            weights = outcomes.draw.weights
            log_noise = jax.vmap(lambda w: problem.partition.combine(problem.model, w).log_noise)(weights)
        return self.likelihood.log_density(
            outcomes.predictions, self.batch.outputs, self.batch.mask, self.batch.times, log_noise
        )

    def log_target(self, problem: Problem, outcomes: Outcome) -> Float[Array, " sample"]:
        """(Tempered) log-likelihood plus log prior minus log reference, for every replica."""
        assert not isinstance(problem.target, Population)
        draws = outcomes.draw
        log_likelihood = self.log_likelihood(problem, outcomes).sum(1)
        log_prior = jax.vmap(problem.prior.log_density)(draws.weights)
        return self.weight * log_likelihood / problem.target.temperature + log_prior - draws.log_reference

    def terms(self, problem: Problem, outcomes: Outcome) -> Terms:
        """The loss from all replicas."""
        assert not isinstance(problem.target, Population)
        draws = outcomes.draw
        estimator = _variational(problem).estimator
        return problem.target.loss(self.log_target(problem, outcomes), draws.kl, draws.log_ratio, estimator)

    def score(self, problem: Problem, outcomes: Outcome) -> Float[Array, ""]:
        """What early stopping watches: minus the log predictive density of a trajectory, on average."""
        density = self.log_likelihood(problem, outcomes)
        return -jnp.mean(jax.nn.logsumexp(density, axis=0) - jnp.log(density.shape[0]))


class PopulationView(eqx.Module):
    """The data for `population`: members of conditions, and the starts to draw from."""

    observed: Observed
    times: Float[Array, "condition time"]
    inputs: Float[Array, "condition time in"]
    initial: Float[Array, "member condition state"] | None
    everyone: Observed  # starts and their responses come from all members, also in a mini-batch

    def pick(self, key: PRNGKeyArray, num_trajectories: int | None, num_conditions: int | None) -> "PopulationView":
        """Random members and random conditions."""
        key_members, key_conditions = jax.random.split(key)
        all_members, all_conditions = self.observed.present.shape
        members = _choose(key_members, all_members, num_trajectories)
        conditions = _choose(key_conditions, all_conditions, num_conditions)
        everyone = self.everyone.select(jnp.arange(all_members), conditions)
        return PopulationView(
            self.observed.select(members, conditions),
            self.times[conditions],
            self.inputs[conditions],
            None if self.initial is None else self.initial[:, conditions],
            everyone,
        )

    def run(self, problem: Problem, key: PRNGKeyArray) -> PopulationOutcome:
        """One replica in every condition of the batch, from the start of a random member."""
        key_draw, key_member = jax.random.split(key)
        draw = _variational(problem).draw(key=key_draw)
        model = problem.partition.combine(problem.model, draw.weights)
        member = draw_members(key_member, self.everyone.present, 1)[0]
        conditions = jnp.arange(self.times.shape[0])
        start = None if self.initial is None else self.initial[member, conditions]
        predictions = respond(model, self.times, self.inputs, start, jax.random.fold_in(key, 2))
        return PopulationOutcome(draw, predictions, self.everyone.centre[member, conditions])

    def terms(self, problem: Problem, outcomes: PopulationOutcome) -> Terms:
        """The loss from all replicas."""
        target = problem.target
        assert isinstance(target, Population)
        terms = target.loss(outcomes.predictions, outcomes.responses, outcomes.draw.kl, self.observed)
        if not target.transition_weight:
            return terms
        extra = -target.transition_weight * self._transition_log_density(problem.model)
        return Terms(terms.loss + extra, terms.data + extra, terms.kl)

    def _transition_log_density(self, model: Any) -> Float[Array, ""]:
        """Mean log density of a reading given the one before, over all members and conditions."""
        observed = self.observed
        per_condition = jax.vmap(model.transition_log_density)
        per_member = jax.vmap(lambda y, mask: per_condition(self.times, self.inputs, y, mask))
        density = per_member(observed.outputs, observed.mask)
        return jnp.sum(density * observed.present) / jnp.sum(observed.present)

    def score(self, problem: Problem, outcomes: PopulationOutcome) -> Float[Array, ""]:
        """What early stopping watches: the fair energy score of whole trajectories, whatever loss is trained on."""
        assert isinstance(problem.target, Population)
        return problem.target.energy_score(outcomes.predictions, outcomes.responses, self.observed)


View = TrajectoryView | PopulationView


def view(problem: Problem, data: Dataset, dtype: Any, *, explained: float = 0.999, max_components: int = 16) -> View:
    """The data as the problem's target sees them."""
    if not isinstance(problem.target, Population):
        if problem.likelihood is None:
            raise ValueError(f"target={problem.target.name!r} needs a likelihood; got none; give sigma or infer it")
        likelihood = cast(problem.likelihood, dtype)
        return TrajectoryView(data.arrays(dtype), likelihood)
    cases, replicates = data.cases(), data.replicates()
    if problem.target.joint and not replicates.present.all(1).any():
        raise ValueError(
            "to compare conditions together some unit must appear in all of them; none does; "
            "use Population(joint=False), or add the missing trajectories"
        )
    centre = mean_responses(problem.model, cases, replicates.initial, replicates.outputs.shape)
    observed = observe(replicates, centre, max_components=max_components, explained=explained)
    observed = cast(observed, dtype)
    initial = None if replicates.initial is None else jnp.asarray(replicates.initial, dtype)
    times, inputs = jnp.asarray(cases.times, dtype), jnp.asarray(cases.inputs, dtype)
    return PopulationView(observed, times, inputs, initial, observed)


def mean_responses(model: Any, cases: Cases, initial: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Outputs of one model for every member and condition, from the members' own starts."""
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    times, inputs = jnp.asarray(cases.times, dtype), jnp.asarray(cases.inputs, dtype)
    if initial is None:
        outputs = eqx.filter_jit(lambda m: jax.vmap(m)(times, inputs))(model)
        return np.broadcast_to(np.asarray(outputs, float), shape)
    starts = jnp.asarray(initial, dtype)
    outputs = eqx.filter_jit(lambda m: jax.vmap(lambda start: jax.vmap(m)(times, inputs, start))(starts))(model)
    return np.asarray(outputs, float)


def _choose(key: PRNGKeyArray, num: int, size: int | None) -> Int[Array, " chosen"]:
    if size is None or size >= num:
        return jnp.arange(num)
    return jax.random.choice(key, num, (size,), replace=False)


def _variational(problem: Problem) -> AbstractVariational:
    assert isinstance(problem.posterior, AbstractVariational)
    return problem.posterior
