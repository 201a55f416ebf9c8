"""What users of mixed-effects models expect to see: parameters with errors, shrinkage, importance weights."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Float
from langenode.inference.hierarchical import uncertainty
from langenode.inference.hierarchical.conditional import condition, stacked
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.uncertainty import Information
from langenode.inference.hierarchical.units import Units
from langenode.models import SmoothCurve, UnitModel
from langenode.models.effects import Effect
from langenode.posteriors import Gaussian, Standard


def reported(family: Family) -> dict[str, Any]:
    """Parameters by name, as arrays that can be differentiated: typical values, spreads, correlations, noise."""
    model, gaussian = family.model, family.effects
    assert isinstance(model, UnitModel)
    mean = gaussian.reference.mean + gaussian.reference.scale * gaussian.shift  # pyright: ignore[reportAttributeAccessIssue]
    root = gaussian.reference.scale[:, None] * gaussian.covariance_root()  # pyright: ignore[reportAttributeAccessIssue]
    covariance = root @ root.T
    spread = jnp.sqrt(jnp.diag(covariance))
    found: dict[str, Any] = {}
    for place, (name, effect) in enumerate(model.effects.random):
        found[name] = effect.to_parameter(mean[place])
        found[f"sd({_scaled_name(name, effect)})"] = spread[place]
    for place, (name, effect) in enumerate(model.effects.fixed):
        found[name] = effect.to_parameter(model.effects.shared[place])
    if getattr(gaussian, "lower", None) is not None:
        names = [name for name, _ in model.effects.random]
        for row in range(len(names)):
            for column in range(row):
                found[f"corr({names[column]}, {names[row]})"] = covariance[row, column] / (spread[row] * spread[column])
    noise = jnp.exp(model.log_noise)
    rows = (
        [("additive noise", noise)] if noise.ndim == 1 else [("additive noise", noise[0]), ("relative noise", noise[1])]
    )
    for label, values in rows:
        for number, value in enumerate(values):
            found[label if len(values) == 1 else f"{label} {number + 1}"] = value
    return found


def _scaled_name(name: str, effect: Effect) -> str:
    return name if effect.scale == "linear" else f"{effect.scale} {name}"


def parameter_table(family: Family, information: Information) -> list[dict[str, Any]]:
    """Estimate, standard error and relative standard error of every parameter, by the delta method."""

    def values(flat: Any) -> Any:
        return jnp.stack(list(reported(uncertainty.with_flat(family, flat)).values()))

    flat = jnp.asarray(information.flat)
    names, estimates = list(reported(family)), np.asarray(values(flat))
    jacobian = np.asarray(jax.jacfwd(values)(flat))
    errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jacobian, information.covariance, jacobian), 0.0))
    table = []
    for name, estimate, error in zip(names, estimates, errors, strict=True):
        known = bool(error > 0.0)
        relative = float(error / abs(estimate)) if known and estimate else None
        table.append(
            {"name": name, "estimate": float(estimate), "se": float(error) if known else None, "rse": relative}
        )
    return table


class StandardEffects(NamedTuple):
    """Effects that are N(0, 1) between units, by name."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "*draw effect"]


def standard_effects(family: Family, xi: Float[np.ndarray, "*draw noise"]) -> StandardEffects:
    """Return the effects of a unit in standard deviations from the middle: of its parameters where it has them.

    Otherwise the white noise itself, without latents that are not in use. Deviations of occasions are left out.
    """
    gaussian, model = family.effects, family.model
    own = xi[..., : gaussian.num_noise]
    if isinstance(model, SmoothCurve):  # of what a unit adds to the common curve, what has a meaning by itself
        first = own.reshape(*own.shape[:-1], model.num_outputs, -1)[..., :2]
        kinds = [f"{kind} {k + 1}" for k in range(model.num_outputs) for kind in ("level", "slope")]
        names = tuple(kinds) if model.num_outputs > 1 else ("level", "slope")
        return StandardEffects(names, first.reshape(*own.shape[:-1], -1))
    if isinstance(gaussian, Standard):
        used = np.flatnonzero(np.asarray(gaussian.scale) > 0)
        return StandardEffects(tuple(f"latent {place + 1}" for place in used), own[..., used])
    if isinstance(gaussian, Gaussian) and isinstance(model, UnitModel) and gaussian.dim == len(model.effects.random):
        root = np.asarray(gaussian.covariance_root())
        names = tuple(_scaled_name(name, effect) for name, effect in model.effects.random)
        return StandardEffects(names, own @ (root / np.linalg.norm(root, axis=1, keepdims=True)).T)
    return StandardEffects(tuple(f"effect {place + 1}" for place in range(own.shape[-1])), own)


def unit_diagnostics(family: Family, units: Units, *, num_points: int, seed: int, most: int) -> dict[str, Any]:
    """Relative effective sample sizes and k-hats of the units' importance weights, and the shrinkage of each effect.

    At most `most` units are looked at, evenly spread among all.
    Shrinkage is one minus the standard deviation of the units' mean effects, which is one in the distribution.
    """
    with_data = np.flatnonzero(np.asarray(units.weight > 0))
    with_data = with_data[np.unique(np.linspace(0, len(with_data) - 1, min(most, len(with_data))).round().astype(int))]
    some = jax.tree.map(lambda leaf: leaf[with_data], units)
    key = jax.random.key(seed)
    found = condition(stacked([family]), some, 256, num_points=num_points, seed=seed, key=key)
    names, effects = standard_effects(family, found.xi)
    means = effects.mean(1)
    shrinkage = 1.0 - means.std(0, ddof=1 if len(means) > 1 else 0)
    pooled = effects.reshape(len(effects) * effects.shape[1], effects.shape[-1])
    return {
        "ess": {"min": float(found.relative_ess.min()), "median": float(np.median(found.relative_ess))},
        "k_hat": {"max": float(np.nanmax(found.k_hat)), "median": float(np.nanmedian(found.k_hat))},
        "effects": list(names),
        "shrinkage": [float(value) for value in shrinkage],
        # Pooled over units, draws of the effects must be N(0, 1) if the distribution is right.
        "effects_mean": [float(value) for value in pooled.mean(0)],
        "effects_std": [float(value) for value in pooled.std(0)],
    }
