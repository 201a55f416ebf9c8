"""Arrays to Matplotlib figures.

Belongs here: what a figure looks like. Does not belong here: computing a metric; densities are smoothed for display
only.
"""

from langenode.plots.chains import bands_beyond, r_hat_over_time
from langenode.plots.framework import framework
from langenode.plots.general import (
    BandPanel,
    ParityPanel,
    calibration,
    density_panels,
    dependence,
    distance_curves,
    end_density,
    loss_history,
    new_figure,
    parity,
    prediction_bands,
    sweep_lines,
    trajectory_panels,
    w1_convergence,
    weight_paths,
)
from langenode.plots.material import (
    SpreadPanel,
    SpreadPath,
    deformed_cubes,
    group_dependence,
    sphere_cubes,
    spread_parity,
    spread_paths,
)
from langenode.plots.methods import accuracy_against_time, method_bands
from langenode.plots.score import ScoreField, score_fields
from langenode.plots.skill import beside_plain
from langenode.plots.units import (
    CheckPanel,
    IndividualPanel,
    ObservedPanel,
    effect_panels,
    error_panels,
    individual_fits,
    intervals,
    observed_predicted,
    predictive_check,
)
from langenode.plots.weights import AnalyticLaw, weight_densities

__all__ = [
    "AnalyticLaw",
    "BandPanel",
    "CheckPanel",
    "IndividualPanel",
    "ObservedPanel",
    "ParityPanel",
    "ScoreField",
    "SpreadPanel",
    "SpreadPath",
    "accuracy_against_time",
    "bands_beyond",
    "beside_plain",
    "calibration",
    "deformed_cubes",
    "density_panels",
    "dependence",
    "distance_curves",
    "effect_panels",
    "end_density",
    "error_panels",
    "framework",
    "group_dependence",
    "individual_fits",
    "intervals",
    "loss_history",
    "method_bands",
    "new_figure",
    "observed_predicted",
    "parity",
    "prediction_bands",
    "predictive_check",
    "r_hat_over_time",
    "score_fields",
    "sphere_cubes",
    "spread_parity",
    "spread_paths",
    "sweep_lines",
    "trajectory_panels",
    "w1_convergence",
    "weight_densities",
    "weight_paths",
]
