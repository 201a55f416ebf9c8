"""What the two material demonstrations share: composite cubes under random loadings, scores and figures.

A loading is a condition, a microstructure a unit: the distribution of the weights should reproduce the spread between
microstructures on unseen loadings.
"""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np
import pydantic
from pydantic import Field

from langenode._types import PRNGKeyArray
from langenode.config import Config, ConfigError, Count, Positive, Section
from langenode.data import Dataset
from langenode.experiments import figures as shared
from langenode.experiments import finite_strain
from langenode.experiments.base import Drawing, Results, Splits
from langenode.inference.point_fit import fitted_outputs
from langenode.scores import metrics as metrics_of
from langenode.simulators import composite

# Microstructures are drawn from this many numbers; for the default composite all of them are shipped.
NUM_NUMBERED = 128
NUM_PICTURES = 3
# The loss for few microstructures with six components, small ones of which would otherwise count as much as large ones
# and make bands too narrow (section `population`).
FEW_MICROSTRUCTURES = {"component_floor": 0.03, "moment_weight": 0.1, "unbiased_spread": True}
# Samples whose single predictions are drawn, as many as the paper has.
NUM_REALISATIONS = 50


class CompositeData(Section):
    """Microstructures, loadings and the matrix; strains are logarithmic, moduli in MPa, times in s.

    With `source = "fe"` the data are a stored set of finite-strain simulations with six components, whose own plan
    replaces the loadings, the microstructures and the matrix here.
    """

    source: Literal["superposition", "fe"] = "superposition"
    """linear superposition of three components, made anew, or a set of finite-strain simulations of six"""
    fe_set: str | None = None
    """file of a set that `simulate --solver fe` has made; none for the set that comes with the package"""
    num_held_out: int = Field(default=4, ge=2)
    """microstructures that only the test sees, with data.source fe"""
    num_microstructures: int = Field(default=32, ge=2, le=NUM_NUMBERED)
    """microstructures (the paper's replicas)"""
    num_walks: int = Field(default=88, ge=3)
    """loadings that are random walks"""
    num_tensions: int = Field(default=12, ge=0, le=18)
    """loadings in uniaxial tension and compression"""
    num_steps: Count = 50
    """time steps per loading"""
    time_step: Positive = 1.0
    """time step, in s"""
    amplitude: Positive = 0.02
    """amplitude of the logarithmic strain"""
    isochoric: bool = True
    """loadings preserve the volume"""
    valid_fraction: float = Field(default=0.15, gt=0, lt=0.5)
    """fraction of the loadings held out for validation"""
    test_fraction: float = Field(default=0.15, gt=0, lt=0.5)
    """fraction of the loadings held out for the test"""
    num_spheres: Count = 4
    """glass spheres per microstructure"""
    volume_fraction: float = Field(default=0.2, gt=0, lt=0.5)
    """volume fraction of glass"""
    resolution: int = Field(default=12, ge=2)
    """voxels per edge of the cell"""
    gap: float = Field(default=0.3, ge=0)
    """smallest gap between spheres, as a fraction of their radius"""
    instantaneous: Positive = 0.362
    """instantaneous shear modulus of the matrix, in MPa"""
    equilibrium: Positive = 0.084
    """equilibrium shear modulus of the matrix, in MPa"""
    shortest: Positive = 1e-6
    """shortest relaxation time, in s"""
    longest: Positive = 3160.0
    """longest relaxation time, in s"""
    num_times: Count = 20
    """terms of the Prony series"""
    prony_weights: tuple[float, ...] | None = None
    """weights of the Prony series; none for equal ones"""

    @pydantic.model_validator(mode="after")
    def _is_a_material(self) -> "CompositeData":
        if not (self.equilibrium < self.instantaneous and self.shortest < self.longest):
            raise ValueError(
                "a matrix that relaxes needs data.equilibrium below data.instantaneous and data.shortest below "
                f"data.longest; found {self.equilibrium:g}, {self.instantaneous:g} and {self.shortest:g}, "
                f"{self.longest:g}; swap them"
            )
        _ = self.prony.moduli  # checks the weights
        return self

    @property
    def prony(self) -> composite.Prony:
        """The relaxation of the matrix."""
        return composite.Prony(
            self.instantaneous, self.equilibrium, self.shortest, self.longest, self.num_times, self.prony_weights
        )


class CompositeConfig(Config):
    """A configuration with composite data."""

    data: CompositeData = CompositeData()


def simulate(config: CompositeConfig, key: PRNGKeyArray) -> Splits:
    """Simulate every microstructure under every loading; whole loadings are held out."""
    options = config.data
    if options.source == "fe":
        return finite_strain.read_splits(options, config.experiment, key)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    numbers = microstructure_numbers(config, rng)
    loadings = composite.make_loadings(
        num_walks=options.num_walks,
        num_tensions=options.num_tensions,
        num_steps=options.num_steps,
        time_step=options.time_step,
        amplitude=options.amplitude,
        isochoric=options.isochoric,
        rng=rng,
    )
    _check_spheres(options, numbers)
    stiffnesses = composite.stiffnesses(_geometry(options), numbers)
    data = composite.composite_data(loadings, numbers, stiffnesses, options.prony)
    fractions = (1.0 - options.valid_fraction - options.test_fraction, options.valid_fraction, options.test_fraction)
    return Splits(*data.split(*fractions, seed=int(rng.integers(2**31))))


def microstructure_numbers(config: CompositeConfig, rng: np.random.Generator) -> list[int]:
    """Draw the numbers of a seed's microstructures."""
    return sorted(rng.choice(NUM_NUMBERED, config.data.num_microstructures, replace=False).tolist())


def _check_spheres(options: CompositeData, numbers: list[int]) -> None:
    """Place all spheres before minutes of finite elements, since the last cube might not hold them."""
    try:
        for number in numbers:
            cube(options, number)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def cube(options: CompositeData, number: int) -> composite.Microstructure:
    """Return a microstructure by its number."""
    return composite.place_spheres(options.num_spheres, options.volume_fraction, seed=number, gap=options.gap)


def _geometry(options: CompositeData) -> composite.CompositeGeometry:
    return composite.CompositeGeometry(options.num_spheres, options.volume_fraction, options.resolution, options.gap)


def mle_response(results: Results, data: Dataset) -> np.ndarray:
    """Return the response of the maximum-likelihood law per condition, in data units: (condition, time, out)."""
    scaling = results.rule.scaling
    assert scaling is not None
    _, first = np.unique(data.condition, return_index=True)
    return scaling.unscale_outputs(fitted_outputs(results.mle, data.scaled(scaling).select(first)))


def metrics(results: Results) -> dict[str, Any]:
    """Return, on held-out loadings, the point fit's error against the mean over microstructures and the std ratio."""
    members, fitted = results.splits.test.replicates().outputs, mle_response(results, results.splits.test)
    found: dict[str, Any] = {"mle": point_errors(fitted, members), "point_fit": shared.point_fit_noise(results)}
    found["std_ratio"] = std_ratio(results.observable, members)
    parts = finite_strain.test_parts(results.splits)
    return found | {
        name: scores_of(fitted, results.observable, part.replicates().outputs) for name, part in parts.items()
    }


def point_errors(fitted: np.ndarray, members: np.ndarray) -> dict[str, float]:
    """Return the error of a response (condition, time, out) against the mean over microstructures."""
    rmse = float(np.sqrt(np.mean((fitted - members.mean(0)) ** 2)))
    return {
        "rmse": rmse,
        "rmse_over_data_std": rmse / float(members.std()),
        "rmse_over_replica_std": rmse / float(np.sqrt(np.mean(members.var(0, ddof=1)))),
    }


def scores_of(fitted: np.ndarray, samples: np.ndarray, members: np.ndarray) -> dict[str, Any]:
    """Return the scores against some of the microstructures of the test."""
    return {
        "num_microstructures": len(members),
        "mle": point_errors(fitted, members),
        "std_ratio": std_ratio(samples, members),
        "coverage": metrics_of.coverage(samples, members)["90"],
    }


def components(results: Results) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return samples and members by component, or by kind of component where there are six."""
    members, names = results.splits.test.replicates().outputs, results.splits.test.output_names
    parts = {name: [k] for k, name in enumerate(names)}
    if len(names) > 3:
        parts = {"normal components": [0, 1, 2], "shear components": [3, 4, 5]}
    return {name: (results.observable[..., part], members[..., part]) for name, part in parts.items()}


def std_ratio(samples: np.ndarray, members: np.ndarray) -> float:
    """Return predicted over observed standard deviation, both averaged over all cells of the held-out loadings."""
    return float(samples.std(0, ddof=1).mean() / members.std(0, ddof=1).mean())


def figures(results: Results, pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Drawing]:
    """Draw the figures of both demonstrations; `pairs` of samples and members are the stochastic parity's panels."""
    made = {
        "microstructures": microstructures(results),
        "mle_parity": mle_parity(results),
        "mle_trajectories": mle_trajectories(results),
        "stochastic_parity": stochastic_parity(pairs),
        "bands": bands(results),
        "calibration": shared.calibration(results),
    }
    if hasattr(results.problem.posterior, "path"):
        made["weight_paths"] = shared.weight_paths(results)
    return made


def microstructures(results: Results) -> Drawing:
    """Draw some of the cubes that the data come from."""
    from langenode import plots

    data, options = results.splits.train, results.config.data
    names = data.unit_names[:NUM_PICTURES]
    cubes = [cube(options, int(name.split()[1])) for name in names]
    figure = plots.sphere_cubes({name: (one.centres, one.radius) for name, one in zip(names, cubes, strict=True)})
    caption = (
        f"{len(names)} of the {data.num_units} periodic cubes: glass spheres in a viscoelastic matrix. Cubes differ "
        "in the positions of the spheres, and therefore in their stiffness along each axis."
    )
    numbers = [("spheres", f"{options.num_spheres}"), ("volume fraction", f"{options.volume_fraction:g}")]
    return Drawing(figure, "Microstructures", caption, "Cubes with spheres at random positions.", numbers)


def mle_parity(results: Results) -> Drawing:
    """Draw the point fit against the mean over microstructures, on training and held-out loadings."""
    from langenode import plots

    panels = {}
    for name, data in (("training", results.splits.train), ("held out", results.splits.test)):
        members = data.replicates().outputs
        panels[name] = plots.SpreadPanel(
            members.mean(0).ravel(), members.std(0, ddof=1).ravel(), mle_response(results, data).ravel(), None
        )
    found = results.metrics["mle"]
    caption = (
        "Stress of the maximum-likelihood law against the mean over microstructures, for every component, time and "
        "loading. Bars: one standard deviation between microstructures. Inset: the region near zero stress."
    )
    numbers = [
        ("rmse / std of the data, held out", f"{found['rmse_over_data_std']:.4f}"),
        ("rmse / std between microstructures, held out", f"{found['rmse_over_replica_std']:.4f}"),
    ]
    figure = plots.spread_parity(panels, label="stress [MPa]", inset=True)
    alt = "Scatter of predicted against mean observed stress along the diagonal, on training and held-out data."
    return Drawing(figure, "The point fit", caption, alt, numbers)


def mle_trajectories(results: Results) -> Drawing:
    """Draw the point fit over time on three held-out loadings, with mean and spread over microstructures."""
    from langenode import plots

    test = results.splits.test
    members, fitted = test.replicates().outputs, mle_response(results, test)
    chosen = shared.best_median_worst(np.sqrt(np.mean((fitted - members.mean(0)) ** 2, axis=(1, 2))))
    panels = [
        plots.SpreadPath(
            test.condition_names[c],
            test.cases().times[c],
            members.mean(0)[c],
            members.std(0, ddof=1)[c],
            fitted[c],
            None,
        )
        for c in chosen
    ]
    figure = plots.spread_paths(
        panels, test.output_names, time_label=shared.label("time", test.units), output_label="stress [MPa]"
    )
    caption = (
        "Held-out loadings on which the maximum-likelihood law is best, median and worst. Lines and shading: mean "
        "over microstructures and one standard deviation; dashed: the fitted law."
    )
    return Drawing(figure, "The point fit over time", caption, "Stress over time, data and fitted law.")


def bands(results: Results) -> Drawing:
    """Draw predicted and observed mean and spread on the held-out loadings of best, median and worst spread ratio."""
    from langenode import plots

    test, samples = results.splits.test, results.observable
    members = test.replicates().outputs
    ratios = samples.std(0, ddof=1).mean((1, 2)) / members.std(0, ddof=1).mean((1, 2))
    chosen = shared.best_median_worst(np.abs(np.log(ratios)))
    panels = [
        plots.SpreadPath(
            f"{kind}: {test.condition_names[c]}",
            test.cases().times[c],
            members.mean(0)[c],
            members.std(0, ddof=1)[c],
            samples.mean(0)[c],
            samples.std(0, ddof=1)[c],
        )
        for kind, c in zip(("best", "median", "worst"), chosen, strict=False)
    ]
    figure = plots.spread_paths(
        panels, test.output_names, time_label=shared.label("time", test.units), output_label="stress [MPa]"
    )
    numbers = [(f"std ratio, {panel.title}", f"{ratios[c]:.2f}") for panel, c in zip(panels, chosen, strict=True)]
    numbers += [("inside the 90 % band", f"{100 * results.metrics['coverage']['90']:.1f} %")]
    caption = (
        "Held-out loadings on which the predicted spread is best, median and worst compared with the data. Coloured: "
        "mean over microstructures and one standard deviation; dashed and grey: the same for the predictions. Below: "
        "the standard deviations alone, dashed for the predictions."
    )
    return Drawing(
        figure,
        "Bands on held-out loadings",
        caption,
        "Stress over time with the spreads of data and predictions.",
        numbers,
    )


def stochastic_parity(panels: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Drawing:
    """Draw predicted against observed mean and spread on held-out loadings; one panel per pair (samples, members)."""
    from langenode import plots

    drawn = {
        name: plots.SpreadPanel(
            members.mean(0).ravel(),
            members.std(0, ddof=1).ravel(),
            samples.mean(0).ravel(),
            samples.std(0, ddof=1).ravel(),
            samples[:NUM_REALISATIONS].reshape(min(len(samples), NUM_REALISATIONS), -1),
        )
        for name, (samples, members) in panels.items()
    }
    figure = plots.spread_parity(drawn, label="stress [MPa]", inset=True)
    numbers = [(f"std ratio, {name}", f"{std_ratio(*pair):.3f}") for name, pair in panels.items()]
    caption = (
        "Predicted mean against the mean over microstructures on held-out loadings. Bars: one standard deviation of "
        "the data (horizontal) and of the predictions (vertical). Light: single predictions "
        f"({NUM_REALISATIONS} samples). Inset, where it can be read: near zero stress. Below: standard deviations. "
        "Panels have axes of their own where their spreads are far apart."
    )
    alt = f"Scatter along the diagonal with horizontal and vertical bars: {', '.join(panels)}."
    return Drawing(figure, "Predicted and observed spread", caption, alt, numbers)
