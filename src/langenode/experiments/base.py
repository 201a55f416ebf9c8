"""The definition of an experiment: a configuration with its defaults, a generator, a model, metrics and figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import PRNGKeyArray
from langenode.config import Config, merge
from langenode.data import Dataset
from langenode.inference.predictions import Rule
from langenode.inference.problem import Problem


class Splits(NamedTuple):
    """Training data, and held-out data for decisions (validation) and for reported numbers (test)."""

    train: Dataset
    validation: Dataset
    test: Dataset


class Companion(NamedTuple):
    """Another fit of the same data, for comparison: its outputs for the test conditions, and samples of its weights."""

    predictions: np.ndarray
    weights: np.ndarray


class Results(NamedTuple):
    """The inputs of metrics and figures, all read from the run's files."""

    config: Any
    problem: Problem
    splits: Splits
    rule: Rule
    predictions: np.ndarray
    prediction_weights: np.ndarray
    observable: np.ndarray
    weights: np.ndarray
    companions: Mapping[str, Companion]
    mle: Any
    history: Mapping[str, np.ndarray]
    convergence: Mapping[str, np.ndarray]
    metrics: Mapping[str, Any]
    key: PRNGKeyArray
    folds: np.ndarray | None = None  # of every test trajectory, where each was held out from the fit that predicts it
    views: Any = None  # of the training units, where units differ: `unit_figures.UnitViews`


class Drawing(NamedTuple):
    """A figure with its title, caption, alt text and the numbers shown beside it in the report."""

    figure: Any
    title: str
    caption: str
    alt: str
    numbers: Sequence[tuple[str, str]] = ()


# Trained methods with a gradient estimator to choose.
WITH_ESTIMATOR = ("langevin", "gaussian-full", "gaussian-lowrank", "gaussian-diagonal")


def chain(num_steps: int, **options: Any) -> dict[str, Any]:
    """A layer with the steps of the learned chain, and further options of it."""
    return {"langevin": {"num_steps": num_steps, **options}}


def sticking_chain(num_steps: int) -> dict[str, Any]:
    """The same for a posterior, whose bound has less noise in its gradient by sticking the landing."""
    return merge({name: {"estimator": "sticking"} for name in WITH_ESTIMATOR}, chain(num_steps))


def literal(*, has_input_rule: bool = True, **training: Any) -> dict[str, Any]:
    """A layer with what the paper's method has in every demonstration: inputs, point fit and optimiser as printed.

    The optimiser is plain Adam: no limit on the gradient, no average of the parameters, no decay of the rate.
    `has_input_rule`: whether the model integrates a hidden state by a rule that has a choice of inputs.
    """
    layer: dict[str, Any] = {"mle": {"weighting": "replicates"}}
    layer["training"] = {"clip": None, "average": 0.0, "final_rate": 1.0, **training}
    return {**layer, "model": {"input_rule": "paper"}} if has_input_rule else layer


def no_companions(config: Any) -> dict[str, Any]:
    """Default of `companions`: no other fit."""
    del config
    return {}


def never(config: Any) -> bool:
    """Default of `has_exact_posterior`: never."""
    del config
    return False


def as_configured(config: Any) -> dict[str, Any]:
    """Default of `candidates`: the configured model only."""
    return {"the model": config}


def no_folds(config: Any, data: Dataset) -> np.ndarray | None:
    """Default of `folds`: training, validation and test data, whatever their number."""
    del config, data


class Experiment(NamedTuple):
    """One demonstration, or a user's own data.

    `defaults(method, target, asked)` are the layers below the user's choices, which are `asked`. `simulate` makes (or
    reads) the data. `candidates(config)` are configurations, by name, whose models are tried, the plainest first; the
    best on validation data is kept. `companions(config)` are other fits, by name, that figures compare with. `metrics`
    adds entries to metrics.json; `figures` gives named figures, in the report's order. `has_exact_posterior(config)`
    says whether the weights are few enough for sums over a grid to give their posterior. `folds(config, train)` numbers
    the fold of every trajectory where all data are training data and each is held out once; None where test data exist.
    `default_target` is what is inferred where the user says nothing; None leaves it to the method.
    """

    name: str
    config: type[Config]
    defaults: Callable[[str, str, Mapping[str, Any]], dict[str, Any]]
    simulate: Callable[[Any, PRNGKeyArray], Splits]
    build_model: Callable[[Any, PRNGKeyArray], Any]
    metrics: Callable[[Results], dict[str, Any]]
    figures: Callable[[Results], dict[str, Drawing]]
    default_method: str = "langevin"
    default_target: str | None = None
    companions: Callable[[Any], Mapping[str, Any]] = no_companions
    candidates: Callable[[Any], Mapping[str, Any]] = as_configured
    has_exact_posterior: Callable[[Any], bool] = never
    folds: Callable[[Any, Dataset], np.ndarray | None] = no_folds
