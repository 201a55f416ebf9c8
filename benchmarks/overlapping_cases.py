"""Posteriors of one and two weights whose modes overlap: exact by quadrature, and one program for all of them.

The two predictions are `coefficients @ features(z)` of two weights. A case is data, so what is compiled serves all
cases. A case of one weight does not see the other, whose posterior is the prior, nor the second prediction.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array
from langenode.posteriors.density import Density
from langenode.samplers.guided import GuidedDraws


class Overlapping(eqx.Module):
    """`outputs = coefficients @ features(z) + sigma noise` with prior N(0, I)."""

    coefficients: Array  # (2, feature)
    outputs: Array
    sigma: Array

    def residual(self, z: Array) -> Array:
        return (self.outputs - self.coefficients @ features(z)) / self.sigma

    def log_likelihood(self, z: Array) -> Array:
        constant = jnp.log(self.sigma) + 0.5 * math.log(2.0 * math.pi)
        return -0.5 * jnp.sum(self.residual(z) ** 2) - self.outputs.size * constant


def features(z: Array) -> Array:
    """Of the first weight `1, z, z^2, sin 3z` and `|z|`, smoothed, then of the second one `z` and `z^2`."""
    x, y = z
    return jnp.stack([jnp.ones_like(x), x, x**2, jnp.sin(3.0 * x), jnp.sqrt(x**2 + 0.01), y, y**2])


class Exact(NamedTuple):
    """The log-evidence, and the posterior probability of a region that holds one of the modes."""

    log_evidence: float
    share: float


class Case(NamedTuple):
    """A posterior, and where its regions divide: at `z_0 = border`."""

    name: str
    model: Overlapping
    border: float
    is_control: bool

    def density(self) -> Density:
        return Density(self.model.log_likelihood, self.model.residual, None, 2, np.dtype(float))

    def is_inside(self, z: np.ndarray | Array) -> np.ndarray:
        return np.asarray(z)[:, 0] > self.border

    def exact(self, limit: float = 7.0) -> Exact:
        """By the trapezoid rule: exact to rounding for a smooth integrand, the share to the width of a cell, 0.0035."""
        axes = [np.linspace(-limit, limit, num) for num in (4001, 401)]
        grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
        values = np.asarray(_log_joints(self.model, jnp.asarray(grid)), float)
        shares = np.exp(values - values.max())
        log_cell = sum(np.log(axis[1] - axis[0]) for axis in axes)
        log_evidence = values.max() + np.log(shares.sum()) + log_cell - np.log(2.0 * np.pi)
        return Exact(float(log_evidence), float(shares[self.is_inside(grid)].sum() / shares.sum()))


class Score(NamedTuple):
    """Errors of a run in units of those it states: of its log-evidence and of the share of the region."""

    evidence: float
    share: float
    evidence_errors: float
    share_errors: float

    @property
    def is_right(self) -> bool:
        """Whether both are within four errors."""
        return max(abs(self.evidence_errors), abs(self.share_errors)) <= 4.0


def score(case: Case, exact: Exact, found: GuidedDraws) -> Score:
    """A missing part of the posterior may belong to one mode: what the check adds to the evidence's error counts here.

    The error of a share is that of independent families of paths.
    """
    log_weights = np.asarray(found.log_weights, float)
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()
    is_inside = case.is_inside(found.draws)
    share = float(shares[is_inside].sum())
    families = np.bincount(np.asarray(found.lineage), shares * (is_inside - share))
    share_error = math.hypot(float(np.sqrt(np.sum(families**2))), found.gap.excess if found.gap else 0.0)
    evidence = found.log_evidence - exact.log_evidence
    rounding = 1e-9
    return Score(evidence, share, evidence / (found.log_evidence_error + rounding), (share - exact.share) / share_error)


@eqx.filter_jit
def _log_joints(model: Overlapping, grid: Array) -> Array:
    return jax.vmap(lambda z: model.log_likelihood(z) - 0.5 * jnp.sum(z**2))(grid)


def make_case(
    name: str,
    terms: dict[int, float],
    output: float,
    sigma: float,
    *,
    border: float = 0.0,
    second: tuple[dict[int, float], float] = ({}, 0.0),
    is_control: bool = False,
) -> Case:
    """`terms` are coefficients by the number of their feature; `second` are those and the output of a second cell."""
    rows = [[row.get(i, 0.0) for i in range(7)] for row in (terms, second[0])]
    model = Overlapping(*(jnp.asarray(value, float) for value in (rows, [output, second[1]], sigma)))
    return Case(name, model, border, is_control)


def shifted_square(a: float, output: float, sigma: float) -> Case:
    """`y = (z + a)^2`, modes about `-a + sqrt(y)` and `-a - sqrt(y)`."""
    name = f"(z + {a})^2 = {output}, sigma {sigma}"
    return make_case(name, {0: a * a, 1: 2.0 * a, 2: 1.0}, output, sigma, border=-a)


def all_cases() -> list[Case]:
    """Nine with modes that overlap, two that bend without a second mode, and three controls."""
    return [
        shifted_square(0.5, 1.0, 0.3),
        shifted_square(0.5, 1.0, 0.1),
        shifted_square(1.0, 1.0, 0.5),
        shifted_square(1.0, 0.7, 0.2),
        shifted_square(0.5, 2.0, 0.5),
        make_case("z^2 + 0.3 z = 1, sigma 0.2", {1: 0.3, 2: 1.0}, 1.0, 0.2, border=-0.15),
        make_case("sin 3z = 0.5, sigma 0.3", {3: 1.0}, 0.5, 0.3, border=math.pi / 2.0),
        make_case("abs(z) + 0.2 z = 1, sigma 0.3", {1: 0.2, 4: 1.0}, 1.0, 0.3),
        make_case("two bananas", {2: 1.0, 5: 0.4}, 1.0, 0.4, second=({2: 0.5, 5: 1.0}, 0.6)),
        make_case("ring", {1: 0.3, 2: 1.0, 6: 1.0}, 1.5, 0.3),
        make_case("banana", {2: 1.0, 5: 1.0}, 1.0, 0.2, second=({1: 0.5}, 0.2)),
        make_case("z + 0.2 z^2 = 0.8, sigma 0.3", {1: 1.0, 2: 0.2}, 0.8, 0.3, border=0.7, is_control=True),
        make_case("z = 0.8, sigma 0.3", {1: 1.0}, 0.8, 0.3, border=0.7, is_control=True),
        make_case("z_0 + z_1 / 2 = 0.8, sigma 0.3", {1: 1.0, 5: 0.5}, 0.8, 0.3, border=0.5, is_control=True),
    ]
