"""`fit` and `load_fit`: the way from data to a `Fit` in Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._compiling import make_room
from langenode.config import Config, ConfigError, merge, merge_all
from langenode.data import Columns, Dataset, Extent, revealed_start
from langenode.experiments import EXPERIMENTS, own
from langenode.experiments.base import Experiment
from langenode.fitting import build, choose_target, cross, fit_file, headers, plan, solve
from langenode.fitting.choose import settle
from langenode.fitting.fit import USER_MODEL, Fit
from langenode.fitting.priors import PriorArgument, prior_layer
from langenode.fitting.progress import Reporter
from langenode.inference.partition import Where
from langenode.posteriors import cast
from langenode.storage.container import FitFileError


def fit(
    data: Dataset,
    *,
    validation: Dataset | None = None,
    model: Any = None,
    method: str | None = None,
    target: str | None = None,
    stochastic: Where | None = None,
    rest: str | None = None,
    prior: PriorArgument = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
    checkpoint: str | Path | None = None,
) -> Fit:
    """Fit a model to data and learn how uncertain it is.

    **Arguments:**

    - `data`: training trajectories; `validation`: others, by which the kind of model and the noise are judged. Without
      them a generic model is judged as by the command: below 40 trajectories by cross-validation (`diagnostics` of the
      fit have an entry `cross_validation`), otherwise by a quarter of them that is set aside and not trained on
      (`fit.validation`). `options={"data": {"folds": None}}` omits both.
    - `model`: your own, `model(times, inputs, initial) -> outputs` of arrays (an Equinox module, e.g. a `NeuralODE`
      with a right-hand side in plain JAX), in the data's own units; or None for a generic neural ODE.
    - `method`, `target`, `stochastic`, `rest`: the four questions of the README; None leaves them to the data.
      `stochastic` may be a function of the model that returns the parts to vary, e.g. `lambda m: m.dynamics`.
    - `prior`: the standard deviation of the weights' normal prior, or a mapping from names of leaves (those of
      `fit.problem.partition.leaf_names`) to a standard deviation or to `(mean, standard deviation)`, e.g.
      `{"rate": (0.5, 0.2)}`. Without a mean the prior is centred at the point estimate. Other leaves of your model have
      a weakly informative prior scaled from the model and the data (docs/guide/own-data.md, "The prior").
    - `options`: further sections of a configuration, e.g. `{"training": {"num_updates": 500}}`; see
      docs/reference/configuration.md. The network of a trained control may be a function of yours, `(num_inputs,
      num_outputs, key=key) -> module`: `{"langevin": {"network": function}}`.
    - `progress`: show what is being done, on standard error.
    - `checkpoint`: a file in which training is stored now and then; a call with the same arguments and an existing
      file resumes there. It is removed when training ends.
    """
    make_room()
    where = stochastic if callable(stochastic) else None
    named = {"method": method, "target": target, "rest": rest, "seed": seed}
    named["stochastic"] = stochastic if where is None else "function"
    given = {key: value for key, value in named.items() if value is not None}
    asked = merge_all([options or {}, prior_layer(prior), given])
    experiment, config = plan.plan_data(data, asked) if model is None else plan.plan_model(model, data, asked, where)
    reporter = Reporter(quiet=not progress)
    compared = None
    if model is None and choose_target.is_open(asked, config):
        compared = choose_target.settle_data(data, asked, config, validation, reporter)
    if compared is not None:
        reporter.say(f"target: {compared.target} ({compared.why})")
        experiment, config = plan.plan_data(data, {**asked, "target": compared.target})
    parts = _divide(experiment, config, asked, data, validation, model, reporter)
    crossed = None
    if parts.fold is not None:
        crossed = cross.cross_validate(experiment, config, parts.fitted, parts.fold, reporter=reporter)
        prepared, point = crossed.whole, cross.final_point(experiment, config, crossed)
    else:
        prepared = build.prepare(config, parts.fitted, parts.held_out)
        point = solve.find_point(experiment, config, prepared, reporter=reporter)
    path = None if checkpoint is None else Path(checkpoint)
    solved = solve.solve(
        point.config, point.model, prepared, start=point.start, where=where, reporter=reporter, checkpoint=path
    )
    if path is not None:
        path.unlink(missing_ok=True)
    solved = solved if crossed is None else crossed.finished(solved)
    if compared is not None:
        solved = solved._replace(diagnostics={**solved.diagnostics, "targets": compared._asdict()})
    return solve.fit_of(solved, point, prepared, train=parts.train, validation=parts.validation)


class _Parts(NamedTuple):
    """Training and validation data as given and as they are fitted; the folds of the former, where there are any."""

    train: Dataset
    validation: Dataset | None
    fitted: Dataset
    held_out: Dataset | None
    fold: np.ndarray | None


def _divide(
    experiment: Experiment,
    config: Config,
    asked: Mapping[str, Any],
    data: Dataset,
    validation: Dataset | None,
    model: Any,
    reporter: Reporter,
) -> _Parts:
    """Find what is judged on: the given validation data, folds, or trajectories that are set aside for it."""
    fitted = plan.as_fitted(data, config, model)
    if validation is not None:
        return _Parts(data, validation, fitted, plan.as_fitted(validation, config, model), None)
    fold = experiment.folds(config, fitted)
    aside = None
    if fold is None and isinstance(config, own.OwnConfig):
        is_wanted = config.data.folds is not None or "split" in asked.get("data", {})
        aside = own.set_aside(fitted, config) if is_wanted else None
    if aside is None:
        return _Parts(data, None, fitted, None, fold)
    num, total = aside[1].num_trajectories, fitted.num_trajectories
    reporter.say(f"validation: {num} of {total} trajectories are set aside for the choices of model and noise")
    return _Parts(revealed_start(aside[0]), revealed_start(aside[1]), *aside, None)


def load_fit(path: str | Path, *, model: Any = None, network: Any = None) -> Fit:
    """Read a fit from its file. A model or network of your own code must be given again: a file never carries code."""
    path = Path(path)
    header = _with_network(path, headers.read_fit_header(path), network)
    name = header["experiment"]
    if name == USER_MODEL and model is None:
        raise FitFileError(
            f"{path} was fitted with a model of your own code, which a file never carries; none was given; "
            "use load_fit(path, model=...)"
        )
    if name != USER_MODEL and name not in EXPERIMENTS:
        raise FitFileError(f"a fit must be of a known experiment; {path} is of {name!r}; upgrade langenode")
    try:
        config = settle(Config if name == USER_MODEL else EXPERIMENTS[name].config, header["config"])
        structure = _structure(name, config, model)
    except ConfigError as error:
        raise FitFileError(f"the configuration in {path} must make sense; {error}") from None
    return read_fit(path, header, config, structure)


def _with_network(path: Path, header: Mapping[str, Any], network: Any) -> Mapping[str, Any]:
    """The header with the user's network in its place; refused where one is needed and none is given."""
    config = header["config"] if isinstance(header["config"], Mapping) else {}
    method = str(config.get("method"))
    options = config.get(method)
    if not isinstance(options, Mapping) or options.get("network") != "own":
        return header
    if network is None:
        raise FitFileError(
            f"{path} was fitted with a network of your own code, which a file never carries; none was given; use "
            "load_fit(path, network=...) with the function that made it"
        )
    return {**header, "config": merge(config, {method: {"network": network}})}


def _structure(name: str, config: Config, model: Any) -> Any:
    if name == USER_MODEL:
        return cast(model, jnp.dtype(config.precision))
    return build.structure(EXPERIMENTS[name], config)


def read_fit(path: Path, header: Mapping[str, Any], config: Config, model: Any) -> Fit:
    """A fit from its file, whose header is a checked one and whose configuration is known.

    Of `model` only the structure matters.
    """
    if header["experiment"] != config.experiment:
        raise FitFileError(
            f"a fit must be of its run's experiment, {config.experiment}; {path} is of {header['experiment']!r}; "
            "fit again"
        )
    _check_sizes(path, header, config)
    try:
        columns: dict[str, Any] = {part: plan.names(part, value) for part, value in header["columns"].items()}
    except ConfigError as error:
        raise FitFileError(f"a fit file must make sense; {path}: {error}") from None
    return Fit(
        problem=fit_file.read_problem(path, header, config, model),
        config=config,
        scaling=headers.stored_scaling(path, header),
        input_names=tuple(header["input_names"]),
        output_names=tuple(header["output_names"]),
        noise_factor=np.asarray(header["noise_factor"], float),
        columns=Columns(**columns),
        extent=None if header["extent"] is None else Extent.from_dict(header["extent"]),
        training=header["training"],
        diagnostics=header["diagnostics"],
    )


def _check_sizes(path: Path, header: Mapping[str, Any], config: Config) -> None:
    """A generic model has the inputs and outputs that the file names."""
    if not isinstance(config, own.OwnConfig):
        return
    for kind in ("input", "output"):
        found, wanted = len(header[f"{kind}_names"]), getattr(config.model, f"num_{kind}s")
        if found != wanted:
            raise FitFileError(
                f"a fit file must name the {kind}s of its model, {wanted}; {path} names {found}; create it again"
            )
