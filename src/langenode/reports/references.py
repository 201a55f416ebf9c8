"""Distances of runs from a reference posterior of the same problem on the same data.

The reference is exact where a run's metrics.json offers it (`reference_posterior`, moments of the weights), else the
trusted draws of a method that may serve as reference (`reference_rank` in its diagnostics, the lowest first). No run is
compared with itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.scores import metrics as metrics_of
from langenode.storage.folder import RunFolder
from langenode.storage.tables import StoredPrediction, read_predictions

# What makes two runs samplers of one posterior.
PROBLEM = ("experiment", "target", "stochastic", "rest", "scaling", "model", "prior", "noise", "tempered", "data")
# The cost is that of all pairs of draws; more draws add little accuracy.
MOST_DRAWS = 512
# Cells whose reference spread is below this fraction of the output's largest are left out.
LEAST_SPREAD = 1e-4
DISTANCES = ("distance", "mean_error", "std_ratio", "energy_distance", "evidence_error")


class Measured(NamedTuple):
    """Distances of a run's posterior: `to` a reference, `of` the weights or the predictions; None where not measured.

    `mean_error` is in standard deviations of the reference, rms over weights or cells; `std_ratio` is the median of the
    run's standard deviation over the reference's; `distance` combines both, the rms of `hypot(mean error, std ratio -
    1)`: the Wasserstein-2 distance of normal marginals. `energy_distance` is the squared one of the weights, to the
    draws of `energy_to`; `evidence_error` is the log-evidence minus the exact one. All use the `num_draws` of the
    stored predictions, so that no method gains by drawing more for its report.
    """

    to: str | None = None
    of: str | None = None
    distance: float | None = None
    mean_error: float | None = None
    std_ratio: float | None = None
    energy_distance: float | None = None
    energy_to: str | None = None
    evidence_error: float | None = None
    num_draws: int | None = None


class Member(NamedTuple):
    """A run: its name, folder, configuration and metrics."""

    name: str
    folder: RunFolder
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]


def measure(members: Sequence[Member]) -> dict[str, Measured]:
    """Return the distances of runs on one data set, by name."""
    found: dict[str, Measured] = {}
    for alike in _by_problem(members):
        sampler = trusted_sampler(alike)
        draws = None if sampler is None else _stored(sampler)
        for member in alike:
            own = None if sampler is None or member.name == sampler.name else draws
            found[member.name] = _measured(member, own, None if sampler is None else sampler.name)
    return found


def trusted_sampler(members: Sequence[Member]) -> Member | None:
    """The run whose draws may stand for the posterior."""
    ranked = []
    for number, member in enumerate(members):
        said = member.metrics.get("posterior") or {}
        is_trusted = said.get("is_trusted") is True and "replaced" not in said
        if is_trusted and said.get("reference_rank") is not None and member.folder.predictions.is_file():
            ranked.append((said["reference_rank"], number))
    return members[min(ranked)[1]] if ranked else None


def _by_problem(members: Sequence[Member]) -> list[list[Member]]:
    groups: dict[str, list[Member]] = {}
    for member in members:
        asked = {key: member.config.get(key) for key in PROBLEM}
        groups.setdefault(json.dumps(asked, sort_keys=True, default=str), []).append(member)
    return list(groups.values())


def _stored(member: Member) -> StoredPrediction | None:
    return read_predictions(member.folder.predictions) if member.folder.predictions.is_file() else None


def _measured(member: Member, draws: StoredPrediction | None, name: str | None) -> Measured:
    own, exact, found = _stored(member), _exact(member), Measured()
    if own is None:
        return found
    if exact is not None and len(exact["mean"]) == own.weights.shape[1]:
        ours = own.weights.astype(float)
        distances = moment_distances(ours.mean(0), ours.std(0), *_moments(exact))
        found = Measured(str(exact.get("how", "exact")), "weights", *distances)
        found = found._replace(evidence_error=_evidence_error(member, exact))
    found = found._replace(num_draws=len(own.outputs))
    if draws is None or own.outputs.shape[1:] != draws.outputs.shape[1:]:
        return found
    if found.to is None:
        moments = (own.outputs.mean(0), own.outputs.std(0), draws.outputs.mean(0), draws.outputs.std(0))
        found = Measured(name, "predictions", *moment_distances(*moments), num_draws=len(own.outputs))
    if own.weights.shape[1:] == draws.weights.shape[1:] and own.weights.shape[1]:
        found = found._replace(energy_distance=weights_distance(own.weights, draws.weights), energy_to=name)
    return found


def _exact(member: Member) -> Mapping[str, Any] | None:
    exact = member.metrics.get("reference_posterior")
    return exact if isinstance(exact, Mapping) and {"mean", "std"} <= set(exact) else None


def _evidence_error(member: Member, exact: Mapping[str, Any]) -> float | None:
    found, wanted = (member.metrics.get("posterior") or {}).get("log_evidence"), exact.get("log_evidence")
    return None if found is None or wanted is None else float(found) - float(wanted)


def _moments(exact: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(exact["mean"], float), np.asarray(exact["std"], float)


def moment_distances(
    mean: np.ndarray, std: np.ndarray, reference_mean: np.ndarray, reference_std: np.ndarray
) -> tuple[float | None, float | None, float | None]:
    """Return `distance`, `mean_error` and `std_ratio` over all cells in which the reference has a spread."""
    largest = np.max(reference_std, axis=tuple(range(reference_std.ndim - 1)), keepdims=reference_std.ndim > 1)
    seen = np.isfinite(mean) & np.isfinite(std) & (reference_std > LEAST_SPREAD * largest)
    if mean.shape != reference_mean.shape or not seen.any():
        return None, None, None
    error = (mean - reference_mean)[seen] / reference_std[seen]
    ratio = std[seen] / reference_std[seen]
    distance = np.sqrt(np.mean(error**2 + (ratio - 1.0) ** 2))
    return float(distance), float(np.sqrt(np.mean(error**2))), float(np.median(ratio))


def weights_distance(weights: np.ndarray, reference: np.ndarray) -> float:
    """Return the squared energy distance of weights scaled by the reference spread; unbiased, so possibly below 0."""
    spread = reference.std(0)
    kept = spread > 0.0
    if not kept.any():
        return float("nan")
    ours, theirs = (draws[:MOST_DRAWS, None, None, kept] / spread[kept] for draws in (weights, reference))
    return metrics_of.energy_distance(ours.astype(float), theirs.astype(float))
