"""The folds of a run as files: what is there is read, and what is missing is made and stored."""

from collections.abc import Callable
from typing import Any

from langenode.data import Dataset
from langenode.experiments.base import Experiment
from langenode.fitting import cross, headers
from langenode.fitting.choose import settle
from langenode.fitting.cross import FoldPoints
from langenode.fitting.fit import Fit
from langenode.runs import stored
from langenode.storage import container
from langenode.storage.folder import RunFolder, write_bytes


class FoldFiles(cross.Kept):
    """Two files per fold: the candidates at maximum likelihood, and the fit. With `anew` both are made again.

    A third has the fit of all weights, where these are compared with last layers.
    """

    def __init__(self, folder: RunFolder, experiment: Experiment, config: Any, data: Dataset, *, anew: bool):
        self.folder, self.experiment, self.config, self.data, self.anew = folder, experiment, config, data, anew

    def points(self, number: int, make: Callable[[], FoldPoints]) -> FoldPoints:
        """The candidates of a fold."""
        path = self.folder.fold_points(number)
        if not self.anew and path.exists():
            return stored.read_fold_points(path, self.experiment, self.config)
        found = make()
        header = {"errors": found.errors, "num_cells": found.num_cells}
        write_bytes(path, container.to_bytes(header, found.models))
        return found

    def fit(self, number: int, make: Callable[[], Fit], name: str = "") -> Fit:
        """The fit of a fold; `name` is that of another one with other stochastic weights."""
        path = self.folder.fold_fit(number, name)
        if not self.anew and path.exists():
            config = settle(self.experiment.config, headers.read_fit_header(path)["config"])
            return stored.read_fit(path, self.experiment, config, self.data)
        fit = make()
        write_bytes(path, fit.to_bytes())
        return fit
