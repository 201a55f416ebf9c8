"""What the data ask for: their mini-batches, how the model is run on them, the loss and the validation score.

`posterior` and `tempered` look at trajectories, each from its own start and with its noise; `population` looks at the
members of each condition, and lets samples start where a random member did.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._compiling import quick_jit
from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.data import Batch, Cases, Dataset
from langenode.inference.algorithm1 import Objective, Outputs, Sample, Terms, negative_elbo, regularised_distance
from langenode.inference.likelihood import Likelihood
from langenode.inference.population import Observed, distance, energy_score, observe
from langenode.inference.predictions import compiled_simulate, measurement_noise, sample_weights
from langenode.inference.problem import Problem, draw_members, respond
from langenode.inference.sharding import Devices
from langenode.inference.targets import Hierarchical, Population, Posterior, Tempered
from langenode.posteriors import cast


class LikelihoodObjective(Objective):
    """The bound of `posterior` and `tempered`: every trajectory from its own start, with its noise."""

    target: Posterior | Tempered
    batch: Batch
    likelihood: Likelihood
    weight: float = eqx.field(static=True, default=1.0)
    num: Float[Array, ""] | None = None  # of trajectories; None where none of the batch is padding

    def pick(
        self, key: PRNGKeyArray, num_trajectories: int | None, num_conditions: int | None
    ) -> "LikelihoodObjective":
        """A random mini-batch, weighted so that its log-likelihood estimates the whole data's."""
        del num_conditions  # trajectories are drawn whatever their condition
        num = self.batch.times.shape[0]
        if num_trajectories is None or num_trajectories >= num:
            return self
        index = _choose(key, num, num_trajectories)
        batch = jax.tree.map(lambda leaf: leaf[index], self.batch)
        return LikelihoodObjective(self.target, batch, self.likelihood.select(index), num / num_trajectories)

    def divided(self, devices: Devices) -> "LikelihoodObjective":
        """The same with its trajectories divided over devices."""
        return eqx.tree_at(lambda one: one.batch, self, devices.by_condition(self.batch))

    @property
    def num_conditions(self) -> int:
        """How many trajectories there are."""
        return self.batch.times.shape[0]

    def run(self, model: Any, *, key_start: PRNGKeyArray, key_noise: PRNGKeyArray) -> Outputs:
        """The outputs for every trajectory of the batch, from its own start."""
        del key_start, key_noise
        return Outputs(jax.vmap(model)(self.batch.times, self.batch.inputs, self.batch.initial))

    def loss(self, problem: Problem, samples: Sample) -> Terms:
        """The (tempered) -ELBO."""
        draws, terms = samples.draw, problem.variational.bound_terms
        log_target = self.weight * self.log_likelihood(problem, samples).sum(1) / self.target.temperature
        if terms.has_end_term:
            log_target = log_target + jax.vmap(problem.prior.log_density)(draws.weights) - draws.log_reference
        kl_weight = terms.kl_factor * self.target.kl_weight
        return negative_elbo(log_target, draws, estimator=problem.variational.estimator, kl_weight=kl_weight)

    def score(self, problem: Problem, samples: Sample) -> Float[Array, ""]:
        """Minus the log predictive density of a trajectory, on average."""
        density = self.log_likelihood(problem, samples)
        each = jax.nn.logsumexp(density, axis=0) - jnp.log(density.shape[0])
        if self.num is None:
            return -jnp.mean(each)
        return -jnp.sum(jnp.where(jnp.arange(len(each)) < self.num, each, 0.0)) / self.num

    def log_likelihood(self, problem: Problem, samples: Sample) -> Float[Array, "sample traj"]:
        """Log density of every trajectory under every sample."""
        log_noise = None
        if self.likelihood.sigma is None:
            weights = samples.draw.weights
            log_noise = jax.vmap(lambda w: problem.partition.combine(problem.model, w).log_noise)(weights)
        batch = self.batch
        return self.likelihood.log_density(
            samples.outputs.predictions, batch.outputs, batch.mask, batch.times, log_noise
        )


class PopulationObjective(Objective):
    """The distance of `population`: members of conditions, and the starts to draw from."""

    couples_samples: ClassVar[bool] = True

    target: Population
    observed: Observed
    times: Float[Array, "condition time"]
    inputs: Float[Array, "condition time in"]
    initial: Float[Array, "member condition state"] | None
    everyone: Observed  # starts and their responses come from all members, also in a mini-batch
    noise: Float[Array, " out"] | None = None  # of the readings, simulated on top of predictions

    def pick(
        self, key: PRNGKeyArray, num_trajectories: int | None, num_conditions: int | None
    ) -> "PopulationObjective":
        """Random members and random conditions."""
        all_members, all_conditions = self.observed.present.shape
        if (num_trajectories or all_members) >= all_members and (num_conditions or all_conditions) >= all_conditions:
            return self
        key_members, key_conditions = jax.random.split(key)
        members = _choose(key_members, all_members, num_trajectories)
        conditions = _choose(key_conditions, all_conditions, num_conditions)
        everyone = self.everyone.select(jnp.arange(all_members), conditions)
        return PopulationObjective(
            self.target,
            self.observed.select(members, conditions),
            self.times[conditions],
            self.inputs[conditions],
            None if self.initial is None else self.initial[:, conditions],
            everyone,
            self.noise,
        )

    def divided(self, devices: Devices) -> "PopulationObjective":
        """The same with the model's conditions divided over devices; the distance needs all of them."""
        times, inputs = devices.by_condition((self.times, self.inputs))
        initial = devices.by_condition(self.initial, axis=1)
        return dataclasses.replace(self, times=times, inputs=inputs, initial=initial)

    @property
    def num_conditions(self) -> int:
        """How many conditions there are."""
        return self.times.shape[0]

    def run(self, model: Any, *, key_start: PRNGKeyArray, key_noise: PRNGKeyArray) -> Outputs:
        """The outputs in every condition of the batch, from the start of a random member."""
        member = draw_members(key_start, self.everyone.present, 1)[0]
        conditions = jnp.arange(self.times.shape[0])
        start = None if self.initial is None else self.initial[member, conditions]
        predictions = respond(model, self.times, self.inputs, start, key_noise)
        if self.noise is not None:
            key = jax.random.fold_in(key_noise, 1)  # the key itself is for noise of the model's own
            predictions = predictions + self.noise * jax.random.normal(key, predictions.shape, predictions.dtype)
        return Outputs(predictions, self.everyone.centre[member, conditions])

    def loss(self, problem: Problem, samples: Sample) -> Terms:
        """The distance to the data plus the weighted KL."""
        data = distance(self.target, *samples.outputs, self.observed)
        if self.target.transition_weight:
            data = data - self.target.transition_weight * self._transition_log_density(problem.model)
        kl_weight = problem.variational.bound_terms.kl_factor * self.target.kl_weight
        return regularised_distance(data, samples.draw, kl_weight=kl_weight)

    def score(self, problem: Problem, samples: Sample) -> Float[Array, ""]:
        """The fair energy score of whole trajectories, whatever loss is trained on."""
        del problem
        return energy_score(*samples.outputs, self.observed, joint=self.target.joint)

    def _transition_log_density(self, model: Any) -> Float[Array, ""]:
        """Mean log density of a reading given the one before, over all members and conditions."""
        observed = self.observed
        per_condition = jax.vmap(model.transition_log_density)
        per_member = jax.vmap(lambda y, mask: per_condition(self.times, self.inputs, y, mask))
        density = per_member(observed.outputs, observed.mask)
        return jnp.sum(density * observed.present) / jnp.sum(observed.present)


def objective(
    problem: Problem,
    data: Dataset,
    dtype: Any,
    *,
    explained: float = 0.999,
    max_components: int = 16,
    component_floor: float = 0.0,
    directions_key: PRNGKeyArray | None = None,
    is_whole: bool = False,
) -> Objective:
    """What the problem's target asks of data, which are scaled already; the options are those of `observe`.

    With `directions_key` the principal components of a population are sought within the span of what the model does
    under draws of the weights, which are those of the reference before training. Where training takes all data at once
    (`is_whole`) their arrays are padded to a size class.
    """
    target = problem.target
    if not isinstance(target, Population):
        if isinstance(target, Hierarchical):
            raise ValueError("a hierarchical fit has an objective of its own; use inference.hierarchical.estimate")
        if problem.likelihood is None:
            raise ValueError(f"target={target.name!r} needs a likelihood; got none; give sigma or infer it")
        found = LikelihoodObjective(target, data.arrays(dtype), cast(problem.likelihood, dtype))
        return _in_class(found) if is_whole else found
    cases, replicates = data.cases(), data.replicates()
    if target.joint and not replicates.present.all(1).any():
        raise ValueError(
            "to compare conditions together some unit must appear in all of them; none does; "
            "use Population(joint=False), or add the missing trajectories"
        )
    centre = mean_responses(problem.model, cases, replicates.initial, replicates.outputs.shape)
    noise = measurement_noise(problem)
    observed = observe(
        replicates,
        centre,
        sigma=None if noise is None else np.broadcast_to(noise, replicates.outputs.shape[1:]),
        max_components=max_components,
        explained=explained,
        component_floor=component_floor,
        noise=noise,
        simulated=None if directions_key is None else simulated_outputs(problem, data, key=directions_key),
    )
    observed = cast(observed, dtype)
    # The marginal likelihood has the noise in its kernel; the other losses see it simulated.
    on_top = None if noise is None or target.kind == "log_mean_exp" else placed(noise, dtype)
    initial = None if replicates.initial is None else placed(replicates.initial, dtype)
    times, inputs = placed(cases.times, dtype), placed(cases.inputs, dtype)
    return PopulationObjective(target, observed, times, inputs, initial, observed, on_top)


def _in_class(whole: LikelihoodObjective) -> LikelihoodObjective:
    """The same with its arrays padded, for the program of their size class; not for mini-batches."""
    batch = whole.batch.in_class()
    num = placed(len(whole.batch.times), batch.times.dtype)
    return LikelihoodObjective(whole.target, batch, whole.likelihood.extended(*batch.times.shape), num=num)


def simulated_outputs(
    problem: Problem, data: Dataset, *, num_samples: int = 256, key: PRNGKeyArray
) -> Float[np.ndarray, "sample condition time out"] | None:
    """Outputs for every condition under draws of the weights, from one start each; None where no weight varies."""
    if problem.partition.dim == 0:
        return None
    cases, initial = data.cases(), data.replicates().initial
    weights = sample_weights(problem.posterior, num_samples, key=key)
    times, inputs = placed(cases.times, weights.dtype), placed(cases.inputs, weights.dtype)
    start = None if initial is None else placed(initial.mean(0), weights.dtype)
    return np.asarray(compiled_simulate(problem.model, problem.partition, weights, times, inputs, start), float)


def mean_responses(model: Any, cases: Cases, initial: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Outputs of one model for every member and condition, from the members' own starts."""
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    times, inputs = placed(cases.times, dtype), placed(cases.inputs, dtype)
    starts = None if initial is None else placed(initial, dtype)
    return np.broadcast_to(np.asarray(_responses(model, times, inputs, starts), float), shape)


@quick_jit
def _responses(model: Any, times: Array, inputs: Array, starts: Array | None) -> Array:
    if starts is None:
        return jax.vmap(model)(times, inputs)
    return jax.vmap(lambda start: jax.vmap(model)(times, inputs, start))(starts)


def _choose(key: PRNGKeyArray, num: int, size: int | None) -> Int[Array, " chosen"]:
    if size is None or size >= num:
        return jnp.arange(num)
    return jax.random.choice(key, num, (size,), replace=False)
