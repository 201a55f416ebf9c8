"""Skill before trust: a fit beside three plain predictors on the same held-out trajectories."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import OnStep
from langenode.data import Dataset
from langenode.fitting.plain_predictors import PREDICTORS
from langenode.scores.skill import Scores, pooled, scores_by_trajectory, skill

NUM_SAMPLES = 512


class Fold(NamedTuple):
    """A division of the data: what was fitted, what was held out, and the fit's samples of observations there."""

    train: Dataset
    test: Dataset
    samples: np.ndarray  # (sample, condition, time, out) for the conditions of `test`


def skill_of(folds: Sequence[Fold], *, seed: int, on_step: OnStep | None = None) -> dict[str, Any] | None:
    """Return the scores of a fit and of the plain predictors, pooled over folds; None where nothing can be compared."""
    folds = [fold for fold in folds if fold.train.num_trajectories and fold.test.mask.any()]
    if not folds:
        return None
    ours = pooled([fold_scores(fold, fold.samples) for fold in folds])
    plain: dict[str, Scores | None] = {}
    for name in PREDICTORS:
        if on_step is not None:  # their times differ too much to say what is left
            on_step(len(plain), None, name)
        plain[name] = plain_scores(name, folds, seed)
    return skill(ours, plain, folds[0].test.output_names)


def plain_scores(name: str, folds: Sequence[Fold], seed: int) -> Scores | None:
    """Return the scores of a plain predictor, pooled over folds; None where the data do not allow it."""
    parts = []
    for number, fold in enumerate(folds):
        rng = np.random.default_rng([seed, number])
        samples = PREDICTORS[name](fold.train, fold.test, NUM_SAMPLES, rng=rng)
        if samples is None:
            return None
        parts.append(fold_scores(fold, samples))
    return pooled(parts)


def fold_scores(fold: Fold, samples: np.ndarray) -> Scores:
    """Return the scores of samples of observations on what a fold held out."""
    members = fold.test.replicates()
    return scores_by_trajectory(samples, members.outputs, members.mask, spread_of(fold.train))


def spread_of(train: Dataset) -> np.ndarray:
    """Return the standard deviation of the training readings, per output; 1 where there is none."""
    columns = [train.outputs[..., k][train.mask[..., k]] for k in range(train.num_outputs)]
    spread = np.array([values.std() if values.size else 0.0 for values in columns])
    return np.where(spread > 0.0, spread, 1.0)
