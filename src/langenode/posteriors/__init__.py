"""Distributions of the stochastic weights. They know weight vectors only: no ODE, no data, no files.

Belongs here: distributions that are trained, stored draws, the density that samplers are given, weighted particles.
Does not belong here: an algorithm that turns a density into draws (`samplers`), and training (`inference`).
"""

from langenode.posteriors.base import AbstractPosterior, AbstractVariational, BoundTerms, Draw, Reference, cast
from langenode.posteriors.bottleneck import Bottleneck, bottleneck
from langenode.posteriors.bounds import Bounded, Truncation, bounded
from langenode.posteriors.density import Density, Sampled
from langenode.posteriors.distilled import Distilled
from langenode.posteriors.empirical import Empirical
from langenode.posteriors.gaussian import Gaussian, gaussian
from langenode.posteriors.langevin import Langevin, graded_grid, langevin, uniform_grid
from langenode.posteriors.new_units import NewUnits
from langenode.posteriors.paper import Departures, paper_langevin
from langenode.posteriors.particles import Trust
from langenode.posteriors.point import Point, point
from langenode.posteriors.standard import Standard

__all__ = [
    "AbstractPosterior",
    "AbstractVariational",
    "Bottleneck",
    "BoundTerms",
    "Bounded",
    "Density",
    "Departures",
    "Distilled",
    "Draw",
    "Empirical",
    "Gaussian",
    "Langevin",
    "NewUnits",
    "Point",
    "Reference",
    "Sampled",
    "Standard",
    "Truncation",
    "Trust",
    "bottleneck",
    "bounded",
    "cast",
    "gaussian",
    "graded_grid",
    "langevin",
    "paper_langevin",
    "point",
    "uniform_grid",
]
