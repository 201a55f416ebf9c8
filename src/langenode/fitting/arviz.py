"""A fit as an arviz InferenceData."""

from typing import Any

import numpy as np

from langenode.data import Dataset
from langenode.fitting.fit import Fit, by_leaf


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
    kept = {key: value for key, value in fit.diagnostics.items() if value is not None}
    said = {key: value if isinstance(value, str) else float(value) for key, value in kept.items()}
    return az.from_dict(**groups, posterior_attrs={"method": fit.config.method, **said})


def _predictions(fit: Fit, data: Dataset, num_samples: int, seed: int | None) -> dict[str, Any]:
    prediction, noisy, prepared = fit._predict(data, num_samples, seed)
    members = prepared.replicates()
    # A cell that nobody observed has no place in these groups: they are flat over the observed ones.
    trajectory, condition, time, out = np.nonzero(members.mask)
    cells = (slice(None), condition, time, out)
    observed = members.outputs[trajectory, condition, time, out]
    groups: dict[str, Any] = {
        "posterior_predictive": {"outputs": noisy[cells][None]},
        "observed_data": {"outputs": observed},
    }
    if fit.config.target != "population":
        # In scaled units, where the noise is Gaussian; the slope of the scale turns the density into that of a reading.
        known = prediction._replace(outputs=fit.from_known_starts(prepared, num_samples, seed))
        scale, expected = fit.noise_of(known)[cells], fit.scaling.scale_outputs(known.outputs)[cells]
        error = (fit.scaling.scale_outputs(members.outputs)[trajectory, condition, time, out] - expected) / scale
        slope = fit.scaling.slope_at(members.outputs)[trajectory, condition, time, out]
        density = -0.5 * error**2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi) + np.log(slope)
        groups["log_likelihood"] = {"outputs": density[None]}
    return groups
