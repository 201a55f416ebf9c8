"""Figures of fits in which units differ: what users of mixed-effects models look at first."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float
from langenode.data import Dataset
from langenode.experiments.base import Drawing, Results
from langenode.experiments.figures import best_median_worst, label
from langenode.scores import metrics as metrics_of
from langenode.scores import predictive_check

# Panels of individual fits.
MOST_PANELS = 12


class OwnFit(NamedTuple):
    """One trajectory of a unit on a fine grid: the typical unit, the unit's own prediction and its 90 % band."""

    trajectory: int
    times: Float[np.ndarray, " fine"]
    typical: Float[np.ndarray, "fine out"]
    own: Float[np.ndarray, "fine out"]
    low: Float[np.ndarray, "fine out"]
    high: Float[np.ndarray, "fine out"]


class UnitViews(NamedTuple):
    """Training units beside the fitted distribution, at the estimate of what all units share; in the data's units.

    `typical` are predictions in the middle of the distribution, `own` those of each unit given its readings,
    `simulated` are readings of new units at the same times and inputs. `npde` is NaN where nothing was read.
    """

    data: Dataset
    typical: Float[np.ndarray, "traj time out"]
    own: Float[np.ndarray, "traj time out"]
    simulated: Float[np.ndarray, "sim traj time out"]
    npde: Float[np.ndarray, "traj time out"]
    effect_names: tuple[str, ...]
    effects: Float[np.ndarray, "draw effect"]
    fits: Sequence[OwnFit]


def unit_figures(results: Results) -> dict[str, Drawing]:
    """Draw everything that the training units show; nothing without them."""
    views: UnitViews | None = results.views
    if views is None:
        return {}
    found = {
        "predictive_check": _predictive_check(views),
        "individual_fits": _individual_fits(views),
        "observed_predicted": _observed_predicted(views),
        "npde": _npde(views, results.metrics["hierarchical"].get("npde", {})),
    }
    if views.effect_names:  # none where one set of weights was kept for all
        found["effects"] = _effects(views, results.metrics["hierarchical"])
    if results.metrics["hierarchical"].get("parameters"):
        found["parameters"] = _parameters(results.metrics["hierarchical"]["parameters"])
    return found


def held_out_bands(results: Results) -> Drawing:
    """Draw the best, median and worst held-out trajectory with the stored predictions, at their own times."""
    from langenode import plots

    test, samples = results.splits.test, results.observable
    scale = np.where(np.std(samples, axis=(0, 1, 2)) > 0.0, np.std(samples, axis=(0, 1, 2)), 1.0)
    readings = test.replicates()
    cells = metrics_of.crps_of_cells(samples / scale, readings.outputs / scale, mask=readings.mask)
    seen = readings.mask.sum((0, 2, 3))
    scores = np.nansum(cells, axis=(0, 2, 3)) / np.maximum(seen, 1)
    # Conditions in which nothing is left to predict have no score.
    places = np.flatnonzero(seen > 0)
    chosen = [int(places[k]) for k in best_median_worst(scores[places])] if len(places) else [0]
    titles = [
        f"{kind}: {test.condition_names[i]}" for kind, i in zip(("best", "median", "worst"), chosen, strict=False)
    ]
    panels = []
    for title, index in zip(titles, chosen, strict=True):
        first = int(np.flatnonzero(test.condition == index)[0])
        length = int(test.lengths[first])
        shown = np.where(readings.mask[:, index, :length], readings.outputs[:, index, :length], np.nan)
        model, noisy = (values[:, index, :length] for values in (results.predictions, samples))
        panels.append(plots.BandPanel(title, test.times[first, :length], model, noisy, shown))
    figure = plots.prediction_bands(panels, time_label=label("time", test.units), output_labels=_labels(test))
    caption = (
        "The best, median and worst held-out trajectories by their continuous ranked probability score, as new units "
        "of which at most the start is known. Dark: 90 % band of the model. Light: 90 % band of new readings. Dots: "
        "data."
    )
    numbers = [(f"CRPS / std, {title}", f"{scores[i]:.3g}") for title, i in zip(titles, chosen, strict=True)]
    alt = f"Predicted bands over time with held-out readings, for {', '.join(titles)}."
    return Drawing(figure, "Held-out trajectories", caption, alt, numbers)


def _predictive_check(views: UnitViews) -> Drawing:
    from langenode import plots

    data = views.data
    is_corrected = has_different_inputs(data)
    panels = []
    for k, name in enumerate(_labels(data)):
        seen = data.mask[..., k]
        times, readings = data.times[seen], data.outputs[..., k][seen]
        simulated = views.simulated[..., k][:, seen]
        interval = predictive_check.intervals(times)
        if is_corrected:
            options: dict[str, Any] = {"is_ratio": bool(readings.min(initial=0.0) >= 0.0)}
            typical = views.typical[..., k][seen]
            readings, simulated = (
                predictive_check.corrected(x, typical, interval, **options) for x in (readings, simulated)
            )
        found = predictive_check.percentiles(times, readings, simulated, interval)
        panels.append(plots.CheckPanel(name, times, readings, *found))
    figure = plots.predictive_check(panels, time_label=label("time", data.units))
    caption = (
        "Lines: 5, 50 and 95 % of the training readings in intervals of time. Shaded: the same percentiles of data "
        f"sets simulated from the fitted distribution (90 % of {len(views.simulated)} sets). A line outside its shade "
        "is something that the fitted distribution does not reproduce."
    )
    if is_corrected:
        caption += " Inputs differ between units: values are corrected by the typical unit's prediction."
    alt = "Percentiles of readings over time with ranges of simulated percentiles."
    return Drawing(figure, "Visual predictive check", caption, alt)


def has_different_inputs(data: Dataset) -> bool:
    """Return whether trajectories differ in their inputs, by level or over time."""
    return data.num_inputs > 0 and bool(np.ptp(data.inputs, axis=(0, 1)).max() > 0.0)


def _individual_fits(views: UnitViews) -> Drawing:
    from langenode import plots

    data, panels = views.data, []
    for fit in views.fits:
        for k, name in enumerate(_labels(data)):
            seen = data.mask[fit.trajectory, :, k]
            title = trajectory_name(data, fit.trajectory)
            panels.append(
                plots.IndividualPanel(
                    title if data.num_outputs == 1 else f"{title}, {name}",
                    fit.times,
                    fit.typical[:, k],
                    fit.own[:, k],
                    fit.low[:, k],
                    fit.high[:, k],
                    data.times[fit.trajectory, seen],
                    data.outputs[fit.trajectory, seen, k],
                )
            )
    ylabel = _labels(data)[0] if data.num_outputs == 1 else "output"
    figure = plots.individual_fits(panels[:MOST_PANELS], time_label=label("time", data.units), ylabel=ylabel)
    caption = (
        "Training units: readings (dots), the typical unit in the middle of the fitted distribution (dashed), and the "
        "unit's own prediction given all its readings (line) with the 90 % band of readings."
    )
    if data.num_trajectories > len(views.fits):
        caption += f" {len(views.fits)} of {data.num_trajectories} trajectories are shown."
    return Drawing(figure, "Individual fits", caption, "Readings and fits of several units over time, one panel each.")


def _observed_predicted(views: UnitViews) -> Drawing:
    from langenode import plots

    data, panels = views.data, []
    for k, name in enumerate(_labels(data)):
        seen = data.mask[..., k]
        predicted = (views.typical[..., k][seen], views.own[..., k][seen])
        panels.append(plots.ObservedPanel(name, data.outputs[..., k][seen], *predicted))
    caption = (
        "Training readings against the prediction of the typical unit and against the unit's own, with the line of "
        "equality. Scatter on the left is the difference between units plus noise, on the right noise alone."
    )
    alt = "Observed values against predictions of the typical unit and of each unit."
    return Drawing(plots.observed_predicted(panels), "Observed against predicted, training units", caption, alt)


def _npde(views: UnitViews, summary: Any) -> Drawing:
    from langenode import plots

    data = views.data
    seen = np.isfinite(views.npde)
    times = np.broadcast_to(data.times[..., None], views.npde.shape)[seen]
    figure = plots.error_panels(
        times, views.typical[seen], views.npde[seen], time_label=label("time", data.units), prediction=_prediction(data)
    )
    caption = (
        "Normalised prediction distribution errors of the training readings, by simulation of new units, decorrelated "
        "within units. If the model is right they are N(0, 1) at all times and levels: 90 % between the dotted lines."
    )
    numbers = []
    if summary:
        numbers = [
            ("mean", f"{summary['mean']:.3f}"),
            ("variance", f"{summary['variance']:.3f}"),
            ("p (Kolmogorov-Smirnov)", f"{summary['ks_p_value']:.2g}"),
        ]
    alt = "Errors against time and against the prediction, and their histogram beside the standard normal density."
    return Drawing(figure, "Prediction errors (NPDE)", caption, alt, numbers)


def _prediction(data: Dataset) -> str:
    return f"typical {_labels(data)[0]}" if data.num_outputs == 1 else "typical prediction"


def _effects(views: UnitViews, found: Any) -> Drawing:
    from langenode import plots

    shrinkage = [float(value) for value in found.get("shrinkage", [])]
    figure = plots.effect_panels(views.effects, views.effect_names, shrinkage)
    caption = (
        "Draws of the units' effects given their readings, pooled over units, in standard deviations of the fitted "
        "distribution: N(0, 1) (black) if it is right. Draws are shown, not the units' best estimates, which lie too "
        "close to zero by the shrinkage."
    )
    numbers = [
        (f"shrinkage, {name}", f"{round(100 * value)} %")
        for name, value in zip(views.effect_names, shrinkage, strict=False)
    ]
    return Drawing(figure, "Effects of the units", caption, "Histograms and pairs of the units' effects.", numbers)


def _parameters(rows: Sequence[Any]) -> Drawing:
    from langenode import plots

    known = [row for row in rows if row["se"] is not None]
    estimates, errors = (np.array([row[key] for row in known], float) for key in ("estimate", "se"))
    figure = plots.intervals([row["name"] for row in known], estimates, 1.645 * errors)
    caption = "Estimates with 90 % intervals (1.645 standard errors), relative to the estimate."
    if len(known) < len(rows):
        names = ", ".join(row["name"] for row in rows if row["se"] is None)
        caption += f" Without a standard error, and not shown: {names}."
    return Drawing(figure, "Parameters", caption, "Parameters of the fitted distribution with their intervals.")


def trajectory_name(data: Dataset, trajectory: int) -> str:
    """Return the unit of a trajectory, with its condition where the unit has several."""
    unit = data.unit_names[data.unit[trajectory]]
    if np.sum(data.unit == data.unit[trajectory]) == 1:
        return unit
    return f"{unit}, {data.condition_names[data.condition[trajectory]]}"


def _labels(data: Dataset) -> list[str]:
    return [label(name, data.units) for name in data.output_names]
