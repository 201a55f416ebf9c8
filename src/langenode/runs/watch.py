"""What a run records between two blocks of training: W1 to the data, for the convergence figure."""

from typing import Any

import jax
import numpy as np

from langenode._types import Float, PRNGKeyArray
from langenode.config import TrainingConfig
from langenode.data import has_replicates
from langenode.fitting.build import Prepared
from langenode.inference.predictions import predict
from langenode.inference.problem import Problem
from langenode.inference.training import TrainState
from langenode.scores import metrics
from langenode.storage import tables
from langenode.storage.folder import RunFolder

# How many times during training the W1 to the data is recorded.
NUM_CONVERGENCE_POINTS = 8


class Watch:
    """Called after every block: records W1 at some of them, in the data's own units, where there are replicates."""

    def __init__(self, folder: RunFolder, options: TrainingConfig, data: Prepared, *, key: PRNGKeyArray):
        self.folder, self.train, self.scaling, self.key = folder, data.train, data.scaling, key
        marks = np.unique(np.geomspace(options.block, options.num_updates, NUM_CONVERGENCE_POINTS).astype(int))
        self.marks = [int(mark) for mark in marks] if has_replicates(data.train) else []

    def __call__(self, state: TrainState, progress: Any, problem: Problem) -> None:
        """Take note of a block that is done."""
        del state
        if self.marks and progress.step >= self.marks[0]:
            self.marks = [mark for mark in self.marks if mark > progress.step]
            self._record_w1(progress.step, problem)

    def _record_w1(self, step: int, problem: Problem) -> None:
        replicates = self.train.replicates()
        outputs = predict(problem, self.train, len(replicates.outputs), key=jax.random.fold_in(self.key, step)).outputs
        ours, theirs = (self.scaling.unscale_outputs(part) for part in (outputs.astype(float), replicates.outputs))
        distance = metrics.w1(ours, theirs, mask_b=replicates.mask)
        seen = replicates.mask.any(axis=(0, 1, 3))  # times that the integrator added have no data
        tables.add_convergence(self.folder.convergence, step, _mean_over_cells(distance[:, seen]))


def _mean_over_cells(distance: Float[np.ndarray, "condition time out"]) -> Float[np.ndarray, " time"]:
    """The mean of every time over cells with data; not a number at times when all samples have diverged."""
    is_known = np.isfinite(distance)
    total, count = np.where(is_known, distance, 0.0).sum((0, 2)), is_known.sum((0, 2))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
