"""Where strings become objects: the parts of a problem, built from a configuration and the data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset, Scaling, refine
from langenode.experiments.base import Experiment
from langenode.fitting import methods
from langenode.fitting.methods import Ingredients, Trained
from langenode.fitting.priors import make_prior
from langenode.inference import targets
from langenode.inference.algorithm1 import Objective
from langenode.inference.calibration import Calibration, Errors, calibrate, prediction_errors
from langenode.inference.likelihood import Likelihood, given_noise, inferred_noise, noise_from_replicates
from langenode.inference.objectives import objective
from langenode.inference.partition import Partition, Where
from langenode.inference.point_fit import fit_mle, fitted_outputs, replicates_mean, rms_error
from langenode.inference.predictions import Rule
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.references import laplace_reference, population_reference
from langenode.inference.targets import Target
from langenode.inference.training import TrainSettings
from langenode.inference.weight_scales import search_units
from langenode.posteriors import AbstractPosterior, Empirical, Reference, cast, point


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
        key = jax.random.key(seed)
        return cls(*(jax.random.fold_in(key, number) for number in range(len(cls._fields))))


class Assembled(NamedTuple):
    """A problem before anything is trained or drawn, and the names of weights that the data do not determine."""

    problem: Problem
    unidentified: tuple[str, ...]


class Prepared(NamedTuple):
    """Data as training sees them: dimensionless, on a grid that the integrator can follow; and the units they had."""

    train: Dataset
    validation: Dataset | None
    scaling: Scaling


class PointChoice(NamedTuple):
    """The candidate that was kept, its model at maximum likelihood, and all that were tried with their errors.

    `start` is its model before.
    """

    name: str
    config: Any
    model: Any
    tried: list[dict[str, Any]]
    start: Any = None


# A later, less plain candidate must lower the validation error by this much to be kept.
WORTHWHILE = 0.95


def new_scaling(config: Config, train: Dataset) -> Scaling:
    """Units from the training data alone. A start with as many numbers as outputs scales like the outputs."""
    if config.scaling == "none":
        return Scaling.identity(train)
    if config.scaling == "common":
        return Scaling.common(train)
    is_output = train.initial is not None and train.initial.shape[1] == train.num_outputs
    return Scaling.standardise(train, initial_like_outputs=is_output)


def prepare(config: Config, train: Dataset, validation: Dataset | None) -> Prepared:
    """Scale the data by the training data's units and subdivide long intervals."""
    scaling = new_scaling(config, train)
    held_out = None
    if validation is not None and validation.num_trajectories > 0:
        held_out = scaled(config, scaling, validation)
    return Prepared(scaled(config, scaling, train), held_out, scaling)


def scaled(config: Config, scaling: Scaling, data: Dataset) -> Dataset:
    """One data set as training sees it."""
    found = data.scaled(scaling)
    step = config.model.largest_step
    return found if step is None else refine(found, step).data


def untrained(experiment: Experiment, config: Config) -> Any:
    """The experiment's model before training, in the configured precision."""
    model = experiment.build_model(config, Streams.of(config.seed).model)
    return cast(model, jnp.dtype(config.precision))


def choose_model(experiment: Experiment, config: Config, data: Prepared) -> PointChoice:
    """Fit the candidates' models by maximum likelihood; keep the plainest whose validation error is good.

    None is tried after one whose error is below the standard error of the replicates' means: no better one could show.
    """
    kept: PointChoice | None = None
    tried, best = [], np.inf
    judged = data.train if data.validation is None else data.validation
    for name, candidate in experiment.candidates(config).items():
        start = untrained(experiment, candidate)
        model = fit_point(candidate, start, data.train)
        error = rms_error(model, judged)
        tried.append({"name": name, "error": error})
        if kept is None or error < WORTHWHILE * best:
            kept, best = PointChoice(name, candidate, model, tried, start), error
        if best < replicates_mean(judged).standard_error:
            break
    assert kept is not None
    return kept


def fit_point(config: Config, model: Any, train: Dataset) -> Any:
    """The model at its maximum likelihood."""
    options = config.mle
    units = search_units(model, train) if options.units == "automatic" else None
    return fit_mle(
        model,
        train,
        num_adam=options.num_adam,
        num_lbfgs=options.num_lbfgs,
        learning_rate=options.learning_rate,
        penalty=options.penalty,
        units=units,
    ).model


def training_objectives(config: Config, problem: Problem, data: Prepared) -> tuple[Objective, Objective | None]:
    """Training and validation data as the problem's target sees them."""
    options: dict[str, Any] = {
        "explained": config.population.explained,
        "max_components": config.population.max_components,
    }
    dtype = jnp.dtype(config.precision)
    train = objective(problem, data.train, dtype, **options)
    if data.validation is None or not _can_validate(problem):
        return train, None
    return train, objective(problem, data.validation, dtype, **options)


def _can_validate(problem: Problem) -> bool:
    """Noise stored per trajectory does not carry over to other trajectories; populations need none."""
    if isinstance(problem.target, targets.Population):
        return True
    return problem.likelihood is not None and problem.likelihood.sigma is None


def calibrated(config: Config, problem: Problem, data: Prepared) -> Calibration | None:
    """By how much predictions' noise must change, by training and validation data; None where that is not asked.

    Training trajectories are among them because validation trajectories are few, and chance would decide.
    """
    if not wants_calibration(config) or data.validation is None:
        return None
    parts = [part for part in (data.train, data.validation) if part is not None]

    def errors_at(factor: np.ndarray) -> list[Errors]:
        rule = Rule(noise_factor=factor, starts_at_reading=starts_at_reading(config))
        num, key = config.predict.num_samples, Streams.of(config.seed).evaluation
        return [prediction_errors(problem, part, num, rule, key=key) for part in parts]

    num_outputs = data.train.num_outputs
    return calibrate(errors_at, num_outputs, starts_at_reading=starts_at_reading(config))[0]


def wants_calibration(config: Config) -> bool:
    """Whether the noise of predictions is to be calibrated: only a posterior's has noise of its own."""
    return config.noise.calibrate and config.target == "posterior"


def starts_at_reading(config: Config) -> bool:
    """Replicas of a population start where members were read to start, so the noise is in there already."""
    return config.noise.in_start and config.target == "posterior"


def prediction_rule(config: Config, scaling: Scaling, noise_factor: np.ndarray) -> Rule:
    """How a fit predicts."""
    return Rule(scaling, config.model.largest_step, noise_factor, starts_at_reading(config))


def make_target(config: Config, num_observed: int, *, joint: bool = False) -> Target:
    """What is inferred. `num_observed` is the number of observed cells, for a temperature of `mean`."""
    if config.target == "posterior":
        return targets.Posterior()
    if config.target == "tempered":
        temperature = config.tempered.temperature
        value = float(num_observed) if temperature == "mean" else temperature
        return targets.Tempered(value, config.tempered.kl_weight)
    options = config.population
    weights = (options.kl_weight, options.moment_weight)
    return targets.Population(
        options.loss, *weights, joint, options.transition_weight, options.saturation, options.power
    )


def make_likelihood(config: Config, model: Any, data: Dataset, scaling: Scaling) -> Likelihood:
    """The observation noise of scaled data; the configuration gives it in the data's own units."""
    options = config.noise
    if options.kind == "given":
        assert options.sigma is not None  # the configuration has checked it
        noise = given_noise(options.sigma / scaling.output_scale, data)
    elif options.kind == "inferred":
        noise = inferred_noise()
    else:
        noise = noise_from_replicates(data, fitted_outputs(model, data), num_modes=options.num_modes, seed=config.seed)
    if options.correlation_time is not None:
        memory = jnp.asarray(options.correlation_time / scaling.time_scale)
        noise = Likelihood(noise.sigma, noise.mode_weights, memory)
    return noise


def make_reference(
    method: Trained,
    model: Any,
    partition: Partition,
    prior: GaussianPrior,
    likelihood: Likelihood,
    target: Target,
    data: Dataset,
) -> Reference:
    """What the trained distribution is without training: the prior, or a Gaussian about the point estimate."""
    if method.reference == "prior":
        return Reference(prior.mean, prior.scale)
    if isinstance(target, targets.Population):
        return population_reference(model, partition, data, prior)
    return laplace_reference(model, partition, data, prior, likelihood, temperature=target.temperature)


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
    weights = partition.flatten(model)
    likelihood = make_likelihood(config, model, data.train, data.scaling)
    stated = make_prior(config, model if start is None else start, model, partition, likelihood, data.train)
    target = make_target(config, int(data.train.mask.sum()), joint=_is_joint(data.train))
    posterior: AbstractPosterior = Empirical(weights[None])
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
    reference = make_reference(method, model, partition, prior, likelihood, target, data)
    return method.make(Ingredients(reference, weights, Streams.of(config.seed).sampler), config.options)


def warn_of_scales(config: Config, target: Target, data: Dataset) -> None:
    """Warn where the data term and the KL are on different scales, unless the method means them so."""
    method = methods.find(config.method)
    is_meant = isinstance(method, Trained) and not method.warns_of_scales
    if not is_meant and not isinstance(target, targets.Population):
        targets.warn_of_mismatched_scales(target, int(data.mask.sum()))


def train_settings(config: Config) -> TrainSettings:
    """The settings of Algorithm 1."""
    import optax

    options = config.training
    method = methods.find_trained(config.method)
    rate = optax.cosine_decay_schedule(options.learning_rate, options.num_updates, options.final_rate)
    return TrainSettings(
        num_updates=options.num_updates,
        num_samples=options.num_samples,
        num_chunks=options.num_chunks,
        batch_trajectories=options.batch_trajectories,
        batch_conditions=options.batch_conditions,
        learning_rate=rate,
        diffusion=method.diffusion(config.options, options.num_updates),
        clip=options.clip,
        average=options.average,
        refit_rest=config.rest == "refit",
        block=options.block,
        patience=options.patience,
    )
