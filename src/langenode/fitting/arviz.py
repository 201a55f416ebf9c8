"""A fit as an arviz InferenceData."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np

from langenode._types import Float
from langenode.data import Dataset
from langenode.fitting import build
from langenode.fitting.fit import Fit, by_leaf
from langenode.inference.readings import reading_log_densities
from langenode.storage.writing import plain


def inference_data(fit: Fit, data: Dataset | None, *, num_samples: int, seed: int | None) -> Any:
    """See `Fit.to_arviz`."""
    try:
        import arviz as az
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("to_arviz needs the arviz package; pip install 'langenode[arviz]'") from error
    leaves = by_leaf(fit.problem, fit.flat_sample(num_samples, seed=seed))
    groups: dict[str, Any] = {"posterior": {name: values[None] for name, values in leaves.items()}}
    if data is not None:
        groups |= _predictions(fit, data, num_samples, seed)
    said = {key: _attribute(value) for key, value in fit.diagnostics.items() if value is not None}
    return az.from_dict(**groups, posterior_attrs={"method": fit.config.method, **said})


def _attribute(value: Any) -> str | float:
    """A value as an attribute of a NetCDF file can hold it; what has parts as JSON."""
    if isinstance(value, str):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(plain(value))


def _predictions(fit: Fit, data: Dataset, num_samples: int, seed: int | None) -> dict[str, Any]:
    _, noisy, prepared = fit._predict(data, num_samples, seed)
    # A cell that nobody observed has no place in these groups: they are flat over the observed ones.
    trajectory, time, out = np.nonzero(prepared.mask)
    groups: dict[str, Any] = {
        "posterior_predictive": {"outputs": noisy[:, prepared.condition[trajectory], time, out][None]},
        "observed_data": {"outputs": prepared.outputs[trajectory, time, out]},
    }
    if fit.config.target != "population":
        density = _log_likelihoods(fit, prepared, num_samples, seed, is_training=data is fit.train)
        groups["log_likelihood"] = {"outputs": density[None]}
    return groups


def _log_likelihoods(
    fit: Fit, prepared: Dataset, num_samples: int, seed: int | None, *, is_training: bool
) -> Float[np.ndarray, "sample reading"]:
    """Those of the model as fitted, in the data's own units: the factor that calibrates bands is no part of it."""
    scaled = build.scaled(fit.config, fit.scaling, prepared)
    weights = jnp.asarray(fit.flat_sample(num_samples, seed=seed))
    density = reading_log_densities(fit.problem, scaled, weights, is_training=is_training)
    slope = fit.scaling.slope_at(prepared.outputs)[prepared.mask]
    return density[:, scaled.mask] + np.log(slope)
