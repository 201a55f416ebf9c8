"""The one road to a fit, from Python and in a run folder: point estimate, then training or drawing, then diagnostics.

    prepared data -> find_point -> solve -> Solved

Nothing here knows a run folder. Where training stands is stored in a checkpoint if a path is given, and the next call
with the same path resumes there, bit for bit.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode._types import PRNGKeyArray
from langenode.data import Columns, Dataset, Extent
from langenode.experiments.base import Experiment
from langenode.fitting import build, checkpoints, drawing, fit_file, methods, points
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.fit import Fit
from langenode.fitting.points import PointChoice
from langenode.fitting.priors import penalty_diagnostics, prior_diagnostics
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units.errors import unit_errors
from langenode.fitting.units.predicting import stack_of
from langenode.fitting.units.solving import solve_units
from langenode.inference.calibration import Calibration, calibration_of
from langenode.inference.errors import FitError
from langenode.inference.importance import log_weights
from langenode.inference.partition import Where
from langenode.inference.predictions import sample_weights
from langenode.inference.problem import Problem
from langenode.inference.program_memory import choose_memory
from langenode.inference.training import FitResult, TrainState, initial_state, train
from langenode.scores import metrics
from langenode.scores.motion import motion
from langenode.storage import container
from langenode.storage.folder import write_bytes
from langenode.storage.tables import history_columns

OnBlock = Callable[[TrainState, Any, Problem], None]
# How far training has moved a sampler is seen by as many draws as predictions have, whose program is there; of a chain
# longer than this, by few.
LONG_CHAIN, FEW_DRAWS = 1000, 128


class Solved(NamedTuple):
    """A fitted problem with the course of the fit.

    `training` are counts of updates (empty where nothing was trained); `diagnostics` say how good the samples are:
    importance weights of a trained distribution, or the method's own for draws.
    """

    problem: Problem
    noise_factor: np.ndarray  # (out,), on the noise that was inferred, for calibrated bands
    training: dict[str, Any]
    diagnostics: dict[str, Any]
    history: dict[str, np.ndarray]  # loss, data term, KL and validation score of every update; empty without training
    seconds: float


def find_point(experiment: Experiment, config: Any, data: Prepared, *, reporter: Reporter = QUIET) -> PointChoice:
    """The model at its maximum likelihood, the best of its candidates; and which weights vary, where that is asked."""
    point = points.choose_model(experiment, config, data, reporter=reporter)
    if data.validation is None:
        return point
    from langenode.fitting import weights  # which solves

    return weights.choose_weights(point, data, reporter) if weights.are_open(config) else point


def solve(
    config: Any,
    model: Any,
    data: Prepared,
    *,
    start: Any = None,
    where: Where | None = None,
    reporter: Reporter = QUIET,
    checkpoint: Path | None = None,
    on_block: OnBlock | None = None,
    is_companion: bool = False,
) -> Solved:
    """Train or draw what the configuration asks for, starting from a model at its maximum likelihood.

    `start` is the model before that. A companion, which a figure compares with, is fitted without warnings,
    diagnostics and calibration.
    """
    if config.target == "hierarchical":
        return _solve_units(config, model, data, where, reporter, is_companion)
    with reporter.task("prior and reference"):
        problem, unidentified = build.assemble(config, model, data, start=start, where=where)
    if not is_companion:
        build.warn_of_scales(config, problem.target, data.train)
    if config.is_drawn:
        found = _draw(config, problem, data, reporter, checkpoint)
    else:
        found = _train(config, problem, data, reporter, checkpoint, on_block)
    found = found._replace(noise_factor=np.ones(data.train.num_outputs))
    if is_companion:
        return found
    with reporter.task("diagnostics"):
        if not config.is_drawn:
            found = found._replace(training={**found.training, **_motion(config, problem, found.problem)})
        found = found._replace(diagnostics=_diagnostics(config, start, problem, unidentified, found, data))
    with reporter.task("calibration") as task:
        return with_calibration(found, build.calibrated(config, found.problem, data, on_step=task.at))


def _solve_units(
    config: Any, model: Any, data: Prepared, where: Where | None, reporter: Reporter, is_companion: bool
) -> Solved:
    """The same for units that differ: the marginal likelihood is maximised, and nothing is trained."""
    with reporter.task("units") as task:
        found = solve_units(
            config, model, data.train, data.scaling, where=where, is_companion=is_companion, on_step=task.at
        )
    nothing = history_columns(np.zeros((0, 3)), np.zeros(0), 1)
    factor = np.ones(data.train.num_outputs)
    solved = Solved(found.problem, factor, {}, found.diagnostics, nothing, found.seconds)
    if is_companion or data.validation is None or not build.wants_calibration(config):
        return solved
    with reporter.task("calibration"):
        num, key = config.predict.num_samples, Streams.of(config.seed).evaluation
        stack = stack_of(solved.problem)
        errors = [
            unit_errors(config, stack, part, data.scaling, num, key=key) for part in (data.train, data.validation)
        ]
        return with_calibration(solved, calibration_of(errors))


def fit_of(
    solved: Solved,
    point: PointChoice,
    data: Prepared,
    *,
    train: Dataset,
    validation: Dataset | None,
    columns: Columns | None = None,
) -> Fit:
    """What was solved, with all that predictions and scores need; `train` and `validation` are in their own units."""
    fit = Fit(
        problem=fit_file.portable(solved.problem),
        config=point.config,
        scaling=data.scaling,
        input_names=train.input_names,
        output_names=train.output_names,
        noise_factor=solved.noise_factor,
        columns=Columns() if columns is None else columns,
        training=solved.training,
        diagnostics=solved.diagnostics,
        history=solved.history,
        seconds=solved.seconds,
        train=train,
        validation=validation,
        point_model=point.model,
    )
    if train.num_trajectories == 0:
        return fit
    return dataclasses.replace(fit, extent=Extent.of(fit.prepared(train)))


def with_calibration(solved: Solved, calibration: Calibration | None) -> Solved:
    """What was solved, with its noise calibrated."""
    if calibration is None:
        return solved
    record = {"num_independent": calibration.num_independent.tolist(), "is_at_limit": calibration.is_at_limit}
    record["num_trajectories"] = calibration.num_trajectories
    return solved._replace(noise_factor=calibration.factor, diagnostics={**solved.diagnostics, "calibration": record})


def _diagnostics(
    config: Any, start: Any, problem: Problem, unidentified: tuple[str, ...], found: Solved, data: Prepared
) -> dict[str, Any]:
    """How good the samples are, what they owe to the prior, and the point estimate to its penalty."""
    num, key = config.predict.num_weights, Streams.of(config.seed).evaluation
    record = dict(found.diagnostics)
    if not config.is_drawn and config.target != "population":
        if data.some is None:
            record = importance_diagnostics(found.problem, data.train, num, key=key)
        else:
            record = {"unchecked": f"all {data.train.num_trajectories} training trajectories would be needed"}
    if unidentified:
        warnings.warn(
            f"data must determine a weight for its prior not to matter; they do not determine {', '.join(unidentified)}"
            "; give a prior=, or leave such weights out of stochastic=",
            stacklevel=4,
        )
    record |= prior_diagnostics(config, found.problem, unidentified, key=key)
    penalty = penalty_diagnostics(config, start, problem, data.at_once)
    return record | ({"mle": penalty} if penalty else {})


# Training


def _motion(config: Any, before: Problem, after: Problem) -> dict[str, Any]:
    """How far training has moved the sampler, by draws with the same random numbers."""
    if before.partition.dim == 0:
        return {}
    chain = getattr(before.posterior, "chain", before.posterior)
    key, is_long = Streams.of(config.seed).evaluation, getattr(chain, "num_steps", 1) > LONG_CHAIN
    num = min(FEW_DRAWS, config.predict.num_samples) if is_long else config.predict.num_samples
    draws = (np.asarray(sample_weights(problem.posterior, num, key=key), float) for problem in (before, after))
    found = motion(*draws)
    # A Gaussian fitted about the point estimate may be the answer already; the prior is not.
    kind = methods.find_trained(config.method).reference_of(config.options)
    return {"motion": {**found, "begins_at": kind}} if found else {}


def _train(
    config: Any,
    problem: Problem,
    data: Prepared,
    reporter: Reporter,
    checkpoint: Path | None,
    on_block: OnBlock | None,
) -> Solved:
    settings = build.train_settings(config)
    choice = choose_memory(problem.variational, settings.num_samples // settings.num_chunks)
    if choice is not None:
        reporter.say(str(choice))
        problem = _keeping(problem, choice.memory)
    train_objective, validation_objective = build.training_objectives(config, problem, data)
    identity = checkpoints.identity(config, data)
    num, total = settings.batch_trajectories, data.train.num_trajectories
    if num is not None and num < total:
        reporter.say(f"training: every update looks at {num} of {total} trajectories, chosen at random")
    state = None
    if checkpoint is not None and checkpoint.exists():
        state = checkpoints.resume_training(checkpoint, identity, initial_state(problem, settings))
        reporter.say(f"resuming at update {int(state.step)}")
    first = 0 if state is None else int(state.step)
    with reporter.training(f"{config.method}, {config.target}", first=first):
        result = train(
            problem,
            train_objective,
            settings,
            key=Streams.of(config.seed).training,
            validation=validation_objective,
            state=state,
            on_block=_Between(reporter, checkpoint, identity, on_block),
            budget=config.budget,
        )
    result = result._replace(problem=_keeping(result.problem, None))
    return _trained(result, settings.num_updates, settings.block)


def _keeping(problem: Problem, memory: Any) -> Problem:
    """The problem with another amount kept for gradients of its sampler."""
    return dataclasses.replace(problem, posterior=problem.variational.with_memory(memory))


class _Between:
    """Between two blocks of updates: show progress, let the caller look, store a checkpoint now and then."""

    def __init__(self, reporter: Reporter, checkpoint: Path | None, identity: str, on_block: OnBlock | None):
        self.reporter, self.checkpoint, self.identity, self.on_block = reporter, checkpoint, identity, on_block
        self.last_save = time.monotonic()

    def __call__(self, state: TrainState, progress: Any, problem: Problem) -> None:
        self.reporter.update(progress)
        if self.on_block is not None:
            self.on_block(state, progress, problem)
        if self.checkpoint is not None and time.monotonic() - self.last_save > checkpoints.SECONDS:
            write_bytes(self.checkpoint, container.to_bytes({"step": progress.step, "of": self.identity}, state))
            self.last_save = time.monotonic()


def _trained(result: FitResult, num_asked: int, block: int) -> Solved:
    state = result.state
    num_updates = int(state.step)
    return Solved(
        problem=result.problem,
        noise_factor=np.ones(1),
        training={"updates": num_updates, "asked": num_asked, "skipped": int(state.skipped)},
        diagnostics={},
        history=history_columns(np.asarray(state.history)[:num_updates], np.asarray(state.validation), block),
        seconds=result.seconds,
    )


def importance_diagnostics(problem: Problem, train: Dataset, num_samples: int, *, key: PRNGKeyArray) -> dict[str, Any]:
    """ELBO, log-evidence, relative ESS and k-hat of a trained distribution. `train` is scaled.

    A draw under which the model is not finite has the weight zero; `non_finite` counts them, and the ELBO is that of
    the others.
    """
    logs = np.asarray(log_weights(problem, train, num_samples, key=key)[1], float)
    finite = logs[np.isfinite(logs)]
    if len(finite) == 0:
        raise FitError(
            "some weights of a fit must give the data a finite likelihood; none does; lower training.learning_rate, or "
            "scale the data"
        )
    evidence = metrics.log_evidence(logs)
    return {
        "elbo": float(finite.mean()),
        "elbo_se": float(finite.std() / np.sqrt(len(finite))),
        "log_evidence": evidence.value,
        "log_evidence_se": evidence.standard_error,
        "relative_ess": metrics.relative_ess(logs),
        "k_hat": metrics.k_hat(logs),
        "non_finite": metrics.num_non_finite(logs),
    }


# Drawing


def _draw(config: Any, problem: Problem, data: Prepared, reporter: Reporter, checkpoint: Path | None) -> Solved:
    begin = time.perf_counter()
    reporter.say(f"{config.method}, {config.target}: drawing {problem.partition.dim} weights")
    stored = None if checkpoint is None else checkpoints.DrawCheckpoint(checkpoint, checkpoints.identity(config, data))
    key = Streams.of(config.seed).training
    with reporter.task(config.method) as task:
        found, record = drawing.draw(config, problem, data.train, key=key, on_step=task.at, checkpoint=stored)
    for line in drawing.draw_warnings(record):
        warnings.warn(line, stacklevel=4)
    nothing = history_columns(np.zeros((0, 3)), np.zeros(0), 1)
    return Solved(found, np.ones(1), {}, record, nothing, time.perf_counter() - begin)
