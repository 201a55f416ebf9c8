"""Where strings become objects: the parts of a problem, built from a configuration and the data."""

import functools
import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._types import OnStep, PRNGKeyArray
from langenode.config import LARGEST_SEED, Config, ConfigError, OutputScale
from langenode.data import Dataset, Scaling, knees, refine, revealed_start, some_of
from langenode.experiments.base import Experiment
from langenode.fitting import methods
from langenode.fitting.methods import Ingredients, Trained
from langenode.fitting.methods.base import ReferenceKind
from langenode.fitting.noise import make_likelihood
from langenode.fitting.priors import check_leaves, make_prior, within_bounds
from langenode.inference import targets
from langenode.inference.algorithm1 import Objective
from langenode.inference.calibration import NUM_ROUNDS, Calibration, Errors, calibrate, prediction_errors
from langenode.inference.free_model import FreeModel
from langenode.inference.likelihood import Likelihood, noise_from_replicates
from langenode.inference.objectives import objective
from langenode.inference.partition import Partition, Where
from langenode.inference.point_fit import fitted_outputs
from langenode.inference.predictions import Rule, pooled_sigma
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.references import laplace_reference, population_reference
from langenode.inference.targets import Target
from langenode.inference.training import TrainSettings
from langenode.posteriors import AbstractPosterior, Empirical, Reference, bounded, cast, point


class Streams(NamedTuple):
    """Independent random keys of a run, one for each use, from its seed."""

    data: PRNGKeyArray
    model: PRNGKeyArray
    sampler: PRNGKeyArray
    training: PRNGKeyArray
    prediction: PRNGKeyArray
    evaluation: PRNGKeyArray

    @classmethod
    def of(cls, seed: int) -> "Streams":
        """The keys of a seed."""
        if not 0 <= seed <= LARGEST_SEED:
            raise ConfigError(f"a seed must be a number from 0 to {LARGEST_SEED}; got {seed}; choose another")
        key = jax.random.key(seed)
        return cls(*(jax.random.fold_in(key, np.uint32(number)) for number in range(len(cls._fields))))


class Assembled(NamedTuple):
    """A problem before anything is trained or drawn, and the names of weights that the data do not determine."""

    problem: Problem
    unidentified: tuple[str, ...]


class Prepared(NamedTuple):
    """Data as training sees them: dimensionless, on a grid that the integrator can follow; and the units they had.

    `some` are those training trajectories that stand for all where every step looks at all of them; None for all.
    """

    train: Dataset
    validation: Dataset | None
    scaling: Scaling
    some: Dataset | None = None

    @property
    def at_once(self) -> Dataset:
        """The training trajectories for steps that look at all of them."""
        return self.train if self.some is None else self.some


# Steps to the mode of a posterior; few where a pass over all data takes minutes.
MOST_STEPS, FEW_STEPS = 50, 4
# No method here can sample more weights than this.
MOST_WEIGHTS, MOST_NUMBERS = 10_000_000, 100_000_000


def new_scaling(config: Config, train: Dataset) -> Scaling:
    """Units from the training data alone. A start with as many numbers as outputs scales like the outputs."""
    kinds = output_kinds(config, train.num_outputs)
    if config.scaling != "standardise":
        if set(kinds) != {"linear"}:
            raise ConfigError(
                f"scales of outputs need scaling='standardise'; got scaling={config.scaling!r} with output_scale="
                f"{list(config.output_scale)}; drop one of the two"
            )
        return Scaling.identity(train) if config.scaling == "none" else Scaling.common(train)
    is_output = train.initial is not None and train.initial.shape[1] == train.num_outputs
    positive = np.array([kind == "positive" for kind in kinds], float)
    return Scaling.standardise(train, initial_like_outputs=is_output, knees=knees(train, kinds), positive=positive)


def output_kinds(config: Config, num_outputs: int) -> tuple[OutputScale, ...]:
    """The scale of every output: linear unless the configuration says another."""
    kinds = config.output_scale or ("linear",)
    if len(kinds) not in (1, num_outputs):
        raise ConfigError(
            f"output_scale must have one entry, or one per output, here {num_outputs}; got {len(kinds)}; change it"
        )
    return tuple(kinds) if len(kinds) == num_outputs else tuple(kinds) * num_outputs


def prepare(config: Config, train: Dataset, validation: Dataset | None) -> Prepared:
    """Scale the data by the training data's units and subdivide long intervals."""
    scaling = new_scaling(config, train)
    held_out = None
    if validation is not None and validation.num_trajectories > 0:
        held_out = scaled(config, scaling, validation)
    whole = scaled(config, scaling, train)
    some = some_of(whole, config.mle.most_trajectories, seed=config.seed)
    return Prepared(whole, held_out, scaling, None if some is whole else some)


def scaled(config: Config, scaling: Scaling, data: Dataset) -> Dataset:
    """One data set as training sees it; where units differ, the first readings are fitted like the others."""
    if config.target == "hierarchical" and config.noise.in_start:
        data = revealed_start(data)
    found = data.scaled(scaling)
    step = config.model.largest_step
    return found if step is None else refine(found, step).data


def untrained(experiment: Experiment, config: Config) -> Any:
    """The experiment's model before training, in the configured precision."""
    structure(experiment, config)  # a model that no memory can hold would end the process
    return _untrained(experiment, config)


def structure(experiment: Experiment, config: Config) -> Any:
    """The same with the shapes of its arrays alone; nothing is computed."""
    try:
        shapes = eqx.filter_eval_shape(_untrained, experiment, config)
    except ValueError as error:  # of a model that cannot be what is asked
        raise ConfigError(str(error).split("\n")[0]) from None
    num = _num_numbers(shapes)
    if num > MOST_WEIGHTS:
        raise ConfigError(f"a model must have at most {MOST_WEIGHTS} weights; model.layers asks for {num}; choose less")
    return shapes


def _num_numbers(shapes: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "shape"))


def _untrained(experiment: Experiment, config: Config) -> Any:
    model = experiment.build_model(config, Streams.of(config.seed).model)
    return cast(model, jnp.dtype(config.precision))


def training_objectives(config: Config, problem: Problem, data: Prepared) -> tuple[Objective, Objective | None]:
    """Training and validation data as the problem's target sees them."""
    options: dict[str, Any] = {
        "explained": config.population.explained,
        "max_components": config.population.max_components,
        "component_floor": config.population.component_floor,
    }
    if config.population.directions == "model":
        options["directions_key"] = Streams.of(config.seed).evaluation
    dtype = jnp.dtype(config.precision)
    is_whole = config.training.batch_trajectories is None
    train = objective(problem, data.train, dtype, **options, is_whole=is_whole)
    if data.validation is None or not _can_validate(problem):
        return train, None
    return train, objective(problem, data.validation, dtype, **options, is_whole=True)


def _can_validate(problem: Problem) -> bool:
    """Noise stored per trajectory does not carry over to other trajectories; populations need none."""
    if isinstance(problem.target, targets.Population):
        return True
    return problem.likelihood is not None and problem.likelihood.sigma is None


def calibrated(
    config: Config, problem: Problem, data: Prepared, *, on_step: OnStep | None = None
) -> Calibration | None:
    """By how much predictions' noise must change, by training and validation data; None where that is not asked.

    Training trajectories are among them because validation trajectories are few, and chance would decide.
    """
    if not wants_calibration(config) or data.validation is None:
        return None
    parts = [part for part in (data.at_once, data.validation) if part is not None]
    rounds = itertools.count(1)

    def errors_at(factor: np.ndarray) -> list[Errors]:
        rule = Rule(noise_factor=factor, starts_at_reading=starts_at_reading(config))
        num, key = config.predict.num_samples, Streams.of(config.seed).evaluation
        found = [prediction_errors(problem, part, num, rule, key=key) for part in parts]
        if on_step is not None:
            on_step(next(rounds), NUM_ROUNDS if starts_at_reading(config) else 1, "")
        return found

    num_outputs = data.train.num_outputs
    return calibrate(errors_at, num_outputs, starts_at_reading=starts_at_reading(config))[0]


def wants_calibration(config: Config) -> bool:
    """Whether the noise of predictions is to be calibrated: that of a population is the noise that was estimated."""
    return config.noise.calibrate and config.target in ("posterior", "hierarchical")


def starts_at_reading(config: Config) -> bool:
    """Replicas of a population start where members were read to start, so the noise is in there already."""
    return config.noise.in_start and config.target == "posterior"


def prediction_rule(config: Config, scaling: Scaling, noise_factor: np.ndarray) -> Rule:
    """How a fit predicts."""
    return Rule(scaling, config.model.largest_step, noise_factor, starts_at_reading(config))


def make_target(config: Config, data: Dataset) -> Target:
    """What is inferred; the number of observed cells is for a temperature of `mean`."""
    if config.target == "posterior":
        return targets.Posterior()
    if config.target == "hierarchical":
        return targets.Hierarchical()
    if config.target == "tempered":
        temperature = config.tempered.temperature
        value = float(data.mask.sum()) if temperature == "mean" else temperature
        return targets.Tempered(value, config.tempered.kl_weight)
    options = config.population
    return targets.Population(
        options.loss,
        options.kl_weight,
        options.moment_weight,
        _is_joint(data),
        options.transition_weight,
        options.saturation,
        options.power,
        options.noise != "none",
        data.num_units if options.new_units else None,
        options.unbiased_spread,
    )


def make_reference(
    kind: ReferenceKind,
    model: Any,
    partition: Partition,
    prior: GaussianPrior,
    likelihood: Likelihood,
    target: Target,
    data: Dataset,
    *,
    is_large: bool = False,
) -> Reference:
    """What the trained distribution is without training: the prior, or a Gaussian about the point estimate."""
    if kind == "prior":
        return Reference(prior.mean, prior.scale)
    if isinstance(target, targets.Population):
        noise = pooled_sigma(likelihood) if target.has_noise else None
        return population_reference(model, partition, data, prior, noise=noise)
    assert isinstance(target, targets.Posterior | targets.Tempered)  # a hierarchical fit is solved elsewhere
    num = FEW_STEPS if is_large else MOST_STEPS
    return laplace_reference(
        model, partition, data, prior, likelihood, temperature=target.temperature, num_iterations=num
    )


def _is_joint(data: Dataset) -> bool:
    """Whether conditions can be compared together: units are crossed with them, and some unit appears in all."""
    return data.has_crossed_units and bool(data.replicates().present.all(1).any())


def assemble(
    config: Config,
    model: Any,
    data: Prepared,
    *,
    start: Any = None,
    where: Where | None = None,
    with_posterior: bool = True,
) -> Assembled:
    """The whole problem, from a model at its maximum likelihood; nothing is trained or drawn yet.

    `start` is the model before, whose weights tell their magnitudes to an automatic prior. `where` chooses the
    stochastic weights in place of the configuration, by a function of the model. Without a posterior of the method's
    there is a place for draws.
    """
    partition = Partition.of(model, config.stochastic if where is None else where)
    check_leaves(config, partition)
    model = within_bounds(config, model, partition)
    weights = partition.flatten(model)
    likelihood = make_likelihood(config, model, data.train, data.scaling)
    target = make_target(config, data.train)
    scatter = likelihood
    if isinstance(target, targets.Population) and target.has_noise:
        # The weights of a population spread as its units do, however precisely these are measured.
        scatter = noise_from_replicates(data.train, fitted_outputs(model, data.train))
    stated = make_prior(config, model if start is None else start, model, partition, scatter, data.train)
    posterior: AbstractPosterior = Empirical(placed(np.asarray(weights)[None]))
    if with_posterior:
        posterior = make_posterior(config, model, partition, stated.prior, likelihood, target, data.train)
    problem = Problem(model, partition, stated.prior, likelihood, target, posterior)
    return Assembled(problem, stated.unidentified)


def make_posterior(
    config: Config,
    model: Any,
    partition: Partition,
    prior: GaussianPrior,
    likelihood: Likelihood,
    target: Target,
    data: Dataset,
) -> AbstractPosterior:
    """The distribution before training; for a method that draws, a place for its draws."""
    weights = partition.flatten(model)
    if partition.dim == 0:
        return point(weights.dtype)
    method = methods.find(config.method)
    if not isinstance(method, Trained):
        return Empirical(weights[None])
    truncation = prior.truncation
    if truncation is not None:  # what is trained is free, and bent into the bounds
        model, prior = FreeModel.about(model, partition, truncation), GaussianPrior(prior.mean, prior.scale)
        weights = partition.flatten(model)
    kind, is_large = method.reference_of(config.options), config.mle.most_trajectories is not None
    reference = make_reference(kind, model, partition, prior, likelihood, target, data, is_large=is_large)
    ingredients = Ingredients(reference, weights, Streams.of(config.seed).sampler)
    num = _num_numbers(eqx.filter_eval_shape(method.make, ingredients, config.options))
    if num > MOST_NUMBERS:
        raise ConfigError(
            f"a distribution of the weights must have at most {MOST_NUMBERS} parameters; the options of {method.name} "
            f"ask for {num}; choose fewer steps or layers"
        )
    made = method.make(ingredients, config.options)
    return made if truncation is None else bounded(made, truncation)


def warn_of_scales(config: Config, target: Target, data: Dataset) -> None:
    """Warn where the data term and the KL are on different scales, unless the method means them so."""
    method = methods.find(config.method)
    is_meant = isinstance(method, Trained) and not method.warns_of_scales
    if not is_meant and isinstance(target, targets.Posterior | targets.Tempered):
        targets.warn_of_mismatched_scales(target, int(data.mask.sum()))


@functools.lru_cache
def _decaying_rate(first: float, num_updates: int, final_share: float) -> Any:
    """One and the same schedule for the same numbers: fits of one size then share their compiled training."""
    import optax

    return optax.cosine_decay_schedule(first, num_updates, final_share)


def train_settings(config: Config) -> TrainSettings:
    """The settings of Algorithm 1."""
    options = config.training
    method = methods.find_trained(config.method)
    rate = _decaying_rate(options.learning_rate, options.num_updates, options.final_rate)
    return TrainSettings(
        num_updates=options.num_updates,
        num_samples=options.num_samples,
        num_chunks=options.num_chunks,
        batch_trajectories=options.batch_trajectories,
        batch_conditions=options.batch_conditions,
        learning_rate=rate,
        diffusion=method.diffusion(config.options, options.num_updates),
        clip=math.inf if options.clip is None else options.clip,
        average=options.average,
        refit_rest=config.rest == "refit",
        block=options.block,
        patience=options.patience,
    )
