"""What stages read of a run's files: each is compared with the configuration and the data before it is used."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from langenode.config import ConfigError, to_toml
from langenode.data import Dataset, load_data
from langenode.experiments.base import Experiment, Splits
from langenode.fitting import build, facade, headers, weights
from langenode.fitting.cross import FoldPoints
from langenode.fitting.fit import Fit
from langenode.fitting.points import PointChoice
from langenode.storage import container, tables
from langenode.storage.container import FitFileError
from langenode.storage.folder import RunFolder, RunFolderError
from langenode.storage.records import what_is_wrong
from langenode.storage.tables import StoredPrediction


def has_config(folder: RunFolder, config: Any) -> bool:
    """Whether the run in a folder has exactly this configuration."""
    return folder.config.is_file() and folder.config.read_bytes() == to_toml(config).encode("utf-8")


def read_splits(paths: Sequence[Path], experiment: Experiment, config: Any) -> Splits:
    """Training, validation and test data, which have the same columns; with folds there are no validation data."""
    train, test = load_data(paths[0]), load_data(paths[2])
    splits = Splits(train, train.select([]), test)
    if folds_of(experiment, config, splits) is None:
        splits = splits._replace(validation=load_data(paths[1]))
    for path, data in zip(paths, splits, strict=True):
        for what in ("input_names", "output_names"):
            if getattr(data, what) != getattr(splits.train, what):
                raise RunFolderError(
                    f"the data of a run must have the same columns; {path} and {paths[0]} differ in {what}; make the "
                    "run again"
                )
    return splits


def folds_of(experiment: Experiment, config: Any, splits: Splits) -> np.ndarray | None:
    """The fold of every trajectory; None where the data were divided once.

    Training data that are a part of all may be few enough for folds, though all were not: then others are tested on.
    """
    if splits.test.num_trajectories != splits.train.num_trajectories:
        return None
    return experiment.folds(config, splits.train)


def read_point(path: Path, experiment: Experiment, config: Any) -> PointChoice:
    """The model at its maximum likelihood, and the configuration that was settled with it."""
    header = headers.read_point_header(path)
    try:
        model = type(config.model).model_validate(header["model"])
        noise = type(config.noise).model_validate(header.get("noise", config.noise.model_dump()))
        settled = config.model_copy(update={"model": model, "noise": noise, **_chosen_weights(header, config)})
        structure = build.structure(experiment, settled)
    except pydantic.ValidationError as error:
        raise FitFileError(f"a fit file must make sense; {path}: {what_is_wrong(error)}; fit again") from None
    except ConfigError as error:
        raise FitFileError(f"the configuration in {path} must make sense; {error}") from None
    try:
        model = container.read_tree(path, structure)
    except FitFileError as error:
        raise FitFileError(f"{error}; or config.toml beside it has been changed") from None
    return PointChoice(header["chosen"], settled, model, header["tried"])


def _chosen_weights(header: Mapping[str, Any], config: Any) -> dict[str, str]:
    """The method and the weights that were chosen by held-out score, where that was asked for."""
    if not getattr(config, "choose_weights", False):
        return {}
    chosen = {name: header.get(name) for name in ("method", "stochastic")}
    if chosen not in weights.CANDIDATES.values():
        raise ConfigError(f"weights chosen by score must be last_layer or all; got {chosen}; fit again")
    return chosen  # pyright: ignore[reportReturnType]


def read_fold_points(path: Path, experiment: Experiment, config: Any) -> FoldPoints:
    """The candidates of a fold at maximum likelihood, with their errors, the plainest first."""
    header = headers.read_fold_header(path)
    candidates = experiment.candidates(config)
    unknown = sorted(set(header["errors"]) - set(candidates))
    if unknown:
        raise FitFileError(f"a fold must have candidates of its run; {path} has {unknown[0]!r}; fit again with --force")
    names = [name for name in candidates if name in header["errors"]]
    models = container.read_tree(path, {name: build.structure(experiment, candidates[name]) for name in names})
    return FoldPoints(models, {name: header["errors"][name] for name in names}, header["num_cells"])


def read_fit(path: Path, experiment: Experiment, config: Any, train: Dataset) -> Fit:
    """A fit of this configuration to data with these columns."""
    header = headers.read_fit_header(path)
    for what in ("input_names", "output_names"):
        if tuple(header[what]) != getattr(train, what):
            raise FitFileError(
                f"a fit must have the columns of its run's data; {path} has other {what}; fit again with --force"
            )
    return facade.read_fit(path, header, config, build.structure(experiment, config))


def predictions_for(path: Path, test: Dataset, dim: int) -> StoredPrediction:
    """Stored samples for these data, with their stochastic weights."""
    found = tables.read_predictions(path)
    wanted = (*test.cases().times.shape, test.num_outputs)
    if found.outputs.shape[1:] != wanted or found.weights.shape[1] != dim:
        raise RunFolderError(
            f"{path} must hold samples of {wanted} outputs and {dim} weights; it has {found.outputs.shape[1:]} and "
            f"{found.weights.shape[1]}; run: langenode predict {path.parent} --force"
        )
    return found
