"""Figures that experiments share: bands, parity, calibration, weights and training, with captions and numbers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.config import Config
from langenode.data import refine
from langenode.experiments.base import Drawing, Results
from langenode.inference.likelihood import mode_membership, point_fit_error
from langenode.inference.point_fit import fitted_outputs
from langenode.inference.predictions import observable, predict
from langenode.scores import metrics as metrics_of

# Times of a panel: nearly all grids of readings are then refined to fewer than 128, one size class.
NUM_BAND_TIMES, NUM_BAND_SAMPLES = 96, 512
# Paths of the sampler that are drawn, as many as in the paper, and most weights of which they are shown.
NUM_PATHS, MOST_WEIGHTS = 50, 6
# What follows the name of a layer in that of a weight.
INDEX = re.compile(r"(\.(weight|bias))?\[[\d,]+\]$")
METHOD_LABELS = {"langevin": "Langevin", "bottleneck": "Langevin, bottleneck", "paper": "Langevin (paper)"}


def bands(results: Results) -> Drawing:
    """Draw the best, median and worst held-out condition with the predicted bands, smooth between the readings."""
    from langenode import plots

    test = results.splits.test
    chosen, scores = _representative_conditions(results)
    kinds = ("best", "median", "worst")
    titles = [f"{kind}: {test.condition_names[i]}" for kind, i in zip(kinds, chosen, strict=False)]
    panels = [_band_panel(results, title, index) for title, index in zip(titles, chosen, strict=True)]
    figure = plots.prediction_bands(panels, time_label=label("time", test.units), output_labels=_labels(results))
    caption = (
        "The best, median and worst held-out trajectories by their continuous ranked probability score. Dark: 90 % "
        "band of the model. Light: 90 % band of new observations. Dots: data."
    )
    numbers = [(f"CRPS / std, {title}", f"{scores[i]:.3g}") for title, i in zip(titles, chosen, strict=True)]
    numbers += [("inside the 90 % band", f"{100 * results.metrics['coverage']['90']:.1f} %")]
    alt = f"Predicted bands over time with held-out readings, for {', '.join(titles)}."
    return Drawing(figure, "Held-out trajectories", caption, alt, numbers)


def _band_panel(results: Results, title: str, index: int) -> Any:
    from langenode import plots

    data = results.splits.test.select(results.splits.test.condition == index)
    length = int(data.lengths[0])
    times = data.times[0, :length]
    fine = refine(data, max(np.ptp(times), 1e-300) / NUM_BAND_TIMES)
    prediction = predict(results.problem, fine.data, NUM_BAND_SAMPLES, results.rule, key=results.key)
    rng = np.random.default_rng(results.config.seed)
    noisy = observable(results.problem, prediction, results.rule, rng=rng)
    members = fine.data.replicates()
    readings = np.where(members.mask[:, 0], members.outputs[:, 0], np.nan)
    return plots.BandPanel(title, fine.data.times[0], prediction.outputs[:, 0], noisy[:, 0], readings)


def _representative_conditions(results: Results) -> tuple[list[int], np.ndarray]:
    """Return the best, median and worst test condition (fewer if there are fewer than three), and all scores."""
    members = results.splits.test.replicates()
    scale = np.std(results.observable, axis=(0, 1, 2))
    scale = np.where(scale > 0.0, scale, 1.0)  # outputs of different units count equally
    samples, data = results.observable / scale, members.outputs / scale
    scores = np.array(
        [
            metrics_of.crps(samples[:, [c]], data[:, [c]], mask=members.mask[:, [c]])
            for c in range(members.outputs.shape[1])
        ]
    )
    return best_median_worst(scores), scores


def best_median_worst(scores: np.ndarray) -> list[int]:
    """Return the positions of the lowest, median and highest score; fewer if there are fewer than three."""
    order = np.argsort(scores)
    return list(dict.fromkeys(int(order[i]) for i in (0, len(order) // 2, -1)))


def parity(results: Results, relative_rmse: Mapping[str, float]) -> Drawing:
    """Draw predicted median and band against every held-out reading."""
    from langenode import plots

    members, names = results.splits.test.replicates(), results.splits.test.output_names
    quantiles = np.quantile(results.observable, [0.05, 0.5, 0.95], axis=0)
    panels = []
    for k, label in enumerate(_labels(results)):
        seen = members.mask[..., k]
        low, mid, high = (np.broadcast_to(q[None, ..., k], seen.shape)[seen] for q in quantiles)
        panels.append(plots.ParityPanel(label, members.outputs[..., k][seen], low, mid, high))
    numbers = [(f"rmse / std, {name}", f"{relative_rmse[name]:.3f}") for name in names]
    caption = "Predicted median and 90 % band of observations against the observed value, for each held-out reading."
    alt = "Scatter of predicted against observed values with 90 % bars; a good fit lies along the diagonal."
    return Drawing(plots.parity(panels), "Predicted and observed", caption, alt, numbers)


def calibration(results: Results) -> Drawing:
    """Draw observed against nominal coverage."""
    from langenode import plots

    members = results.splits.test.replicates()
    levels = tuple(range(5, 100, 5))
    inside = metrics_of.coverage(results.observable, members.outputs, levels=levels, mask=members.mask)
    figure = plots.calibration(np.array(levels), 100 * np.array(list(inside.values())))
    caption = (
        "Fraction of held-out readings inside a band against its nominal level: on the line the bands are calibrated, "
        "below it too narrow, above it too wide."
    )
    numbers = [(f"{k} % band", f"{100 * v:.1f} %") for k, v in results.metrics["coverage"].items()]
    return Drawing(figure, "Calibration", caption, "Observed against nominal coverage of central bands.", numbers)


def beside_plain(results: Results) -> dict[str, Drawing]:
    """Draw scores of the fit and of plain predictors, where there are any."""
    from langenode import plots

    skill = results.metrics.get("skill")
    if not skill:
        return {}
    rows = {"this fit": skill, **skill["baselines"]}
    columns = [[row[key] for row in rows.values()] for key in ("crps", "crps_se", "coverage")]
    crps, error, coverage = (np.array(column, dtype=float) for column in columns)
    check = results.metrics.get("coverage_check")
    limits = None if check is None else (100 * check["low"], 100 * check["high"])
    figure = plots.beside_plain(list(rows), crps, error, 100 * coverage, limits)
    caption = (
        "The fit beside three plain predictors on the same held-out readings: training trajectories resampled, a "
        "Gaussian process on time, start and inputs (gp), the start carried on. Bars: standard error, by trajectory."
    )
    ratio = f"{skill['ratio']:.3g}" + ("" if skill["ratio_se"] is None else f" ± {skill['ratio_se']:.2g}")
    numbers = [(f"CRPS over that of {skill['best']}", ratio)]
    alt = "CRPS and coverage of the 90 % band, of the fit and of three plain predictors."
    return {"skill": Drawing(figure, "Beside plain predictors", caption, alt, numbers)}


@quick_jit
def _paths(posterior: Any, keys: Array) -> Float[Array, "path knot dim"]:
    return jax.vmap(lambda key: posterior.path(key=key))(keys)


def weight_paths(results: Results, names: Sequence[str] | None = None) -> Drawing:
    """Draw runs of the sampler in pseudo-time from their start, for some weights of each layer."""
    from langenode import plots

    posterior: Any = results.problem.posterior
    grid = np.asarray(getattr(posterior, "chain", posterior).grid)
    names = results.problem.partition.names if names is None else names
    chosen = some_of_each_layer(names, results.weights.std(0))
    keys = jax.random.split(results.key, NUM_PATHS)
    paths = np.asarray(_paths(posterior, keys))[:, :, chosen]
    point = np.asarray(results.problem.partition.flatten(results.mle))
    figure = plots.weight_paths(grid, paths, [names[int(i)] for i in chosen], point[chosen])
    caption = (
        f"{NUM_PATHS} weight trajectories of the sampler over all its {len(grid) - 1} steps in pseudo-time, with their "
        "mean; the samples are their end points. Diamonds: maximum likelihood."
    )
    if len(chosen) < len(names):
        caption += " Of each layer the weight that varies most, and the one of median spread."
    numbers = [("steps", f"{len(grid) - 1}"), ("pseudo-time", f"{grid[-1] - grid[0]:g}")]
    alt = "Random paths of weights from a common start to their scattered ends."
    return Drawing(figure, "Weights in pseudo-time", caption, alt, numbers)


def some_of_each_layer(names: Sequence[str], spread: np.ndarray) -> np.ndarray:
    """Return positions of all weights where they are few, else of the largest and the median spread in each layer."""
    if len(names) <= MOST_WEIGHTS:
        return np.arange(len(names))
    layers: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        layers.setdefault(INDEX.sub("", name), []).append(position)
    ordered = [sorted(members, key=lambda i: -spread[i]) for members in layers.values()]
    picked = [members[0] for members in ordered] + [members[len(members) // 2] for members in ordered]
    return np.sort(np.array(list(dict.fromkeys(picked))[:MOST_WEIGHTS], dtype=int))


def pair_dependence(weights: np.ndarray) -> tuple[metrics_of.DistanceCorrelation, dict[str, float]]:
    """Return distance correlations of all pairs of weights, and their medians with the level of independent weights."""
    found = metrics_of.distance_correlation_matrix(weights, num_permutations=1, rng=np.random.default_rng(0))
    pairs = np.triu_indices(weights.shape[1], k=1)
    medians = {
        "median": float(np.median(found.biased[pairs])),
        "independence": found.independence,
        "corrected_median": float(np.median(found.corrected[pairs])),
        "num_samples": len(weights),
    }
    return found, medians


def point_fit_noise(results: Results, num_modes: int = 1) -> dict[str, float | None]:
    """Return sigma of the point fit over sigma of the training data, with several modes that of each trajectory's."""
    scaling = results.rule.scaling
    assert scaling is not None
    train = results.splits.train.scaled(scaling)
    modes = mode_membership(train, num_modes, seed=results.config.seed) if num_modes > 1 else None
    return {"sigma_mle_over_data": point_fit_error(train, fitted_outputs(results.mle, train), modes)}


def dependence(results: Results, num_samples: int) -> Drawing:
    """Draw the distance correlation of every pair of weights, with the level of independent weights."""
    from langenode import plots

    weights = results.weights[:num_samples]
    found, medians = pair_dependence(weights)
    figure = plots.dependence(found.biased, found.independence)
    caption = (
        f"Distance correlation of every pair of the {weights.shape[1]} weights over {len(weights)} samples, and its "
        "histogram. Even for independent weights it is positive: the dashed line is their median."
    )
    numbers = [
        ("median of pairs", f"{medians['median']:.3f}"),
        ("independent weights", f"{medians['independence']:.3f}"),
        ("bias-corrected squared, median", f"{medians['corrected_median']:.3f}"),
    ]
    alt = "A matrix of distance correlations between weights, and a histogram of its entries."
    return Drawing(figure, "Dependence between weights", caption, alt, numbers)


def training(results: Results) -> dict[str, Drawing]:
    """Draw the loss history, if something was trained."""
    return {"loss": _loss(results)} if "training" in results.metrics else {}


def _loss(results: Results) -> Drawing:
    from langenode import plots

    training = results.metrics["training"]
    caption = "Loss and path KL over the updates of training; both should have levelled off."
    numbers = [("updates", f"{training['updates']}"), ("skipped updates", f"{training['skipped']}")]
    alt = "Loss and path KL against the update."
    return Drawing(plots.loss_history(results.history), "Training", caption, alt, numbers)


def _labels(results: Results) -> list[str]:
    test = results.splits.test
    return [label(name, test.units) for name in test.output_names]


def method_label(config: Config) -> str:
    """Return the name of a method in legends."""
    if config.stochastic == "none":
        return "neural SDE"
    return METHOD_LABELS.get(config.method, config.method)


def label(name: str, units: Mapping[str, str]) -> str:
    """Return a column's name with its unit, if it has one."""
    return f"{name} [{units[name]}]" if name in units and units[name] not in name else name
