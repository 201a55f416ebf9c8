"""What happens between two blocks of training: progress is shown, a checkpoint stored, W1 to the data recorded."""

import time
from typing import Any

import jax
import numpy as np

from langenode.storage import container
from langenode.scores import metrics
from langenode.storage import tables
from langenode._types import PRNGKeyArray
from langenode.config import TrainingConfig
from langenode.data import Dataset, Scaling
from langenode.data import has_replicates
from langenode.inference.algorithm1 import TrainState
from langenode.inference.predictions import predict
from langenode.inference.problem import Problem
from langenode.runs.progress import Reporter
from langenode.storage.folder import RunFolder, write_bytes

# At so many moments of training the W1 to the data is recorded, for the convergence figure.
NUM_CONVERGENCE_POINTS = 8
CHECKPOINT_SECONDS = 20.0


class Watch:
    """Called after every block: shows progress, stores a checkpoint now and then, records W1 on the way.

    The training data are scaled; W1 is recorded in the data's own units, where there are replicates to compare with.
    """

    def __init__(
        self,
        folder: RunFolder,
        reporter: Reporter,
        options: TrainingConfig,
        train: Dataset,
        scaling: Scaling,
        *,
        key: PRNGKeyArray,
    ):
        self.folder, self.reporter, self.train, self.scaling, self.key = folder, reporter, train, scaling, key
        marks = np.unique(np.geomspace(options.block, options.num_updates, NUM_CONVERGENCE_POINTS).astype(int))
        self.marks = [int(mark) for mark in marks] if has_replicates(train) else []
        self.last_save = time.monotonic()

    def __call__(self, state: TrainState, progress: Any, problem: Problem) -> None:
        """Take note of a block that is done."""
        self.reporter.update(progress)
        if self.marks and progress.step >= self.marks[0]:
            self.marks = [mark for mark in self.marks if mark > progress.step]
            self._record_w1(progress.step, problem)
        if time.monotonic() - self.last_save > CHECKPOINT_SECONDS:
            write_bytes(self.folder.checkpoint, container.to_bytes({"step": progress.step}, state))
            self.last_save = time.monotonic()

    def _record_w1(self, step: int, problem: Problem) -> None:
        replicates = self.train.replicates()
        outputs = predict(problem, self.train, len(replicates.outputs), key=jax.random.fold_in(self.key, step)).outputs
        distance = metrics.w1(outputs.astype(float), replicates.outputs, mask_b=replicates.mask)
        seen = ~np.all(np.isnan(distance), axis=(0, 2))  # times that the integrator added have no data
        per_time = np.nanmean(self.scaling.unscale_spread(distance[:, seen]), axis=(0, 2))
        tables.add_convergence(self.folder.convergence, step, per_time)
