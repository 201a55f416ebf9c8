"""What an experiment is: a configuration with its defaults, a generator, a model, and its own metrics and figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset
from langenode.predictive import Rule
from langenode.problem import Problem


class Splits(NamedTuple):
    """Training data, and held-out data for choices (validation) and for reported numbers (test)."""

    train: Dataset
    validation: Dataset
    test: Dataset


class Results(NamedTuple):
    """What metrics and figures are made of, all read from the run's files."""

    config: Any
    problem: Problem
    splits: Splits
    rule: Rule
    predictions: np.ndarray
    prediction_weights: np.ndarray
    observable: np.ndarray
    weights: np.ndarray
    companion_predictions: np.ndarray | None
    companion_weights: np.ndarray | None
    history: Mapping[str, np.ndarray]
    convergence: Mapping[str, np.ndarray]
    metrics: Mapping[str, Any]
    key: PRNGKeyArray


class Drawing(NamedTuple):
    """A figure with the words and numbers that stand beside it in the report."""

    figure: Any
    title: str
    caption: str
    alt: str
    numbers: Sequence[tuple[str, str]] = ()


def no_companion(config: Any) -> None:
    """No second fit beside the one asked for."""
    del config


def as_configured(config: Any) -> Sequence[Any]:
    """The configured model is the only candidate."""
    return (config,)


class Experiment(NamedTuple):
    """One demonstration, or a user's own data.

    `defaults(method, target, asked)` are the layers below the user's choices, which are `asked`. `simulate` makes (or
    reads) the data. `candidates(config)` are configurations whose models are tried, the plainest first; the best on
    validation data is kept. `companion(config)` is a second fit that figures compare with (the paper's baseline), or
    None. `metrics` adds entries to metrics.json; `figures` gives named figures, in the report's order.
    """

    name: str
    config: type[Config]
    defaults: Callable[[str, str, Mapping[str, Any]], dict[str, Any]]
    default_target: Callable[[str], str]
    simulate: Callable[[Any, PRNGKeyArray], Splits]
    build_model: Callable[[Any, PRNGKeyArray], Any]
    metrics: Callable[[Results], dict[str, Any]]
    figures: Callable[[Results], dict[str, Drawing]]
    default_method: str = "langevin"
    companion: Callable[[Any], Any] = no_companion
    candidates: Callable[[Any], Sequence[Any]] = as_configured
