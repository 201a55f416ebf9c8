"""The one road to a fit, from Python and in a run folder: point estimate, then training or drawing, then diagnostics.

    prepared data -> find_point -> solve -> Solved

Nothing here knows a run folder. Where training stands is stored in a checkpoint if a path is given, and the next call
with the same path resumes there, bit for bit.
"""

import hashlib
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep, PRNGKeyArray
from langenode.config import Config, to_toml
from langenode.data import Columns, Dataset
from langenode.experiments.base import Experiment
from langenode.fitting import build, fit_file, methods, points
from langenode.fitting.build import Prepared, Streams
from langenode.fitting.fit import Fit
from langenode.fitting.points import PointChoice
from langenode.fitting.priors import penalty_diagnostics, prior_diagnostics
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units.solving import solve_units
from langenode.inference.calibration import Calibration
from langenode.inference.density import whiten
from langenode.inference.errors import FitError
from langenode.inference.importance import log_weights
from langenode.inference.partition import Where
from langenode.inference.problem import Problem, linearised
from langenode.inference.training import FitResult, TrainState, initial_state, train
from langenode.posteriors import Empirical
from langenode.scores import metrics
from langenode.storage import container
from langenode.storage.folder import write_bytes
from langenode.storage.tables import history_columns

# Seconds between two checkpoints.
CHECKPOINT_SECONDS = 20.0
OnBlock = Callable[[TrainState, Any, Problem], None]


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
    """The model at its maximum likelihood, the best of its candidates."""
    return points.choose_model(experiment, config, data, reporter=reporter)


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
        found = _draw(config, problem, data, reporter)
    else:
        found = _train(config, problem, data, reporter, checkpoint, on_block)
    found = found._replace(noise_factor=np.ones(data.train.num_outputs))
    if is_companion:
        return found
    with reporter.task("diagnostics"):
        found = found._replace(diagnostics=_diagnostics(config, start, problem, unidentified, found, data.train))
    with reporter.task("calibration") as task:
        return with_calibration(found, build.calibrated(config, found.problem, data, on_step=task.at))


def _solve_units(
    config: Any, model: Any, data: Prepared, where: Where | None, reporter: Reporter, is_companion: bool
) -> Solved:
    """The same for units that differ: the marginal likelihood is maximised, and nothing is trained or calibrated."""
    with reporter.task("units") as task:
        found = solve_units(
            config, model, data.train, data.scaling, where=where, is_companion=is_companion, on_step=task.at
        )
    nothing = history_columns(np.zeros((0, 3)), np.zeros(0), 1)
    factor = np.ones(data.train.num_outputs)
    return Solved(found.problem, factor, {}, found.diagnostics, nothing, found.seconds)


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
    return Fit(
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


def with_calibration(solved: Solved, calibration: Calibration | None) -> Solved:
    """What was solved, with its noise calibrated."""
    if calibration is None:
        return solved
    record = {"num_independent": calibration.num_independent.tolist(), "is_at_limit": calibration.is_at_limit}
    return solved._replace(noise_factor=calibration.factor, diagnostics={**solved.diagnostics, "calibration": record})


def _diagnostics(
    config: Any, start: Any, problem: Problem, unidentified: tuple[str, ...], found: Solved, train: Dataset
) -> dict[str, Any]:
    """How good the samples are, what they owe to the prior, and the point estimate to its penalty."""
    num, key = config.predict.num_weights, Streams.of(config.seed).evaluation
    record = dict(found.diagnostics)
    if not config.is_drawn and config.target != "population":
        record = importance_diagnostics(found.problem, train, num, key=key)
    if unidentified:
        warnings.warn(
            f"data must determine a weight for its prior not to matter; they do not determine {', '.join(unidentified)}"
            "; give a prior=, or leave such weights out of stochastic=",
            stacklevel=4,
        )
    record |= prior_diagnostics(config, found.problem, unidentified, key=key)
    penalty = penalty_diagnostics(config, start, problem, train)
    return record | ({"mle": penalty} if penalty else {})


# Training


def _train(
    config: Any,
    problem: Problem,
    data: Prepared,
    reporter: Reporter,
    checkpoint: Path | None,
    on_block: OnBlock | None,
) -> Solved:
    settings = build.train_settings(config)
    train_objective, validation_objective = build.training_objectives(config, problem, data)
    identity = _identity(config, data)
    state = None
    if checkpoint is not None and checkpoint.exists():
        state = _resume(checkpoint, identity, initial_state(problem, settings))
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
    return _trained(result, settings.num_updates, settings.block)


def _identity(config: Any, data: Prepared) -> str:
    """Marks a checkpoint as that of one fit: its configuration and its data."""
    digest = hashlib.sha256(to_toml(config).encode())
    for part in (data.train, data.validation):
        if part is not None:
            for array in (part.times, part.inputs, part.outputs, part.mask):
                digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _resume(checkpoint: Path, identity: str, like: TrainState) -> TrainState:
    if container.read_header(checkpoint).get("of") != identity:
        raise container.FitFileError(
            f"a checkpoint must be of the same fit; {checkpoint} has another configuration or other data; delete it, "
            "or name another file"
        )
    # The history has no numbers yet beyond the last update.
    state = container.read_tree(checkpoint, like, is_finite=False)
    if not 0 <= int(state.step) <= len(like.history):
        raise container.FitFileError(
            f"a checkpoint must be of an update that was asked for; {checkpoint} is of {int(state.step)}; delete it"
        )
    return state


class _Between:
    """Between two blocks of updates: show progress, let the caller look, store a checkpoint now and then."""

    def __init__(self, reporter: Reporter, checkpoint: Path | None, identity: str, on_block: OnBlock | None):
        self.reporter, self.checkpoint, self.identity, self.on_block = reporter, checkpoint, identity, on_block
        self.last_save = time.monotonic()

    def __call__(self, state: TrainState, progress: Any, problem: Problem) -> None:
        self.reporter.update(progress)
        if self.on_block is not None:
            self.on_block(state, progress, problem)
        if self.checkpoint is not None and time.monotonic() - self.last_save > CHECKPOINT_SECONDS:
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


def _draw(config: Any, problem: Problem, data: Prepared, reporter: Reporter) -> Solved:
    begin = time.perf_counter()
    reporter.say(f"{config.method}, {config.target}: drawing {problem.partition.dim} weights")
    with reporter.task(config.method) as task:
        found, record = draw(config, problem, data.train, key=Streams.of(config.seed).training, on_step=task.at)
    for line in draw_warnings(record):
        warnings.warn(line, stacklevel=4)
    nothing = history_columns(np.zeros((0, 3)), np.zeros(0), 1)
    return Solved(found, np.ones(1), {}, record, nothing, time.perf_counter() - begin)


def draw(
    config: Config, problem: Problem, train: Dataset, *, key: PRNGKeyArray, on_step: OnStep | None = None
) -> tuple[Problem, dict[str, Any]]:
    """The problem with draws by the configured method, or by its fallback where those are not to be trusted."""
    dtype = jnp.dtype(config.precision)
    method = methods.find_drawn(config.method)
    density = whiten(problem, train, dtype, batch=method.minibatch(config.options))
    sampled = method.draw(density, config.options, key=key, budget=config.budget, **_watched(method, on_step))
    record: dict[str, Any] = {}
    fallback = method.fallback(config.options)
    if not sampled.trust.is_trusted and fallback is not None:
        record = {"replaced": method.name, "why_replaced": sampled.trust.reason}
        method = methods.find_drawn(fallback)
        options = getattr(config, fallback)
        # A stream of its own, which only trained distributions use otherwise.
        key = Streams.of(config.seed).sampler
        if on_step is not None:
            on_step(0, None, fallback)
        sampled = method.draw(density, options, key=key, budget=config.budget, **_watched(method, on_step))
    weights = problem.prior.to_weights(sampled.draws)
    if not np.all(np.isfinite(np.asarray(weights))):
        raise FitError(
            f"draws of the weights must be finite; some of method {method.name} are not; scale the data, add solver "
            "substeps, or use a narrower prior.scale"
        )
    posterior = Empirical(weights.astype(dtype), sampled.log_weights.astype(dtype))
    found = eqx.tree_at(lambda p: p.posterior, problem, posterior)
    if method.predicts_linearised(getattr(config, method.name)):
        assert sampled.centre is not None
        found = linearised(found, problem.prior.to_weights(sampled.centre))
    record |= {"method": method.name, "num_draws": len(weights), **sampled.diagnostics}
    record |= sampled.trust._asdict()
    return found, record | {"reference_rank": method.reference_rank}


def _watched(method: methods.Drawn, on_step: OnStep | None) -> dict[str, Any]:
    """The argument by which a method that has steps shows them."""
    return {} if on_step is None or not method.has_steps else {"on_step": on_step}


def draw_warnings(record: Mapping[str, Any]) -> list[str]:
    """What a user must know about draws, from their record."""
    said = []
    if "replaced" in record:
        said.append(
            f"draws must be trusted to be used; those of {record['replaced']} were not ({record['why_replaced']}); "
            f"those of {record['method']} took their place"
        )
    if not record["is_trusted"]:
        said.append(f"the draws of {record['method']} are not to be trusted: {record['reason']}")
    if record.get("stopped"):
        said.append(f"{record['method']} was stopped by its budget before all {record['num_draws']} draws were made")
    return said
