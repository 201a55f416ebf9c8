"""One-compartment pharmacokinetics with absorption: simulated units, the family behind them, and exact likelihoods.

Log-normal ka, V and CL; readings scatter by a constant and a proportional part. The exact log-likelihood is by adaptive
Gauss-Hermite quadrature in NumPy, which shares no code with the library.
"""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from langenode._types import Float
from langenode.data import Dataset
from langenode.inference.hierarchical.family import Family
from langenode.inference.noise import Levels
from langenode.inference.partition import Partition
from langenode.models import Effects, LogNormal, UnitModel
from langenode.posteriors import Gaussian, Reference, gaussian

DOSE = 320.0
NAMES = ("log ka", "log V", "log CL", "log sd ka", "log sd V", "log sd CL", "log additive", "log relative")


class Truth(NamedTuple):
    """Typical values and their spreads between units on the log scale, and the two parts of the noise."""

    typical: tuple[float, ...] = (1.5, 30.0, 2.7)
    spread: tuple[float, ...] = (0.6, 0.25, 0.35)
    additive: float = 0.1
    relative: float = 0.15

    def numbers(self) -> np.ndarray:
        """All of them as logarithms, in the order of `NAMES`."""
        return np.log([*self.typical, *self.spread, self.additive, self.relative])


class Design(NamedTuple):
    """Between `fewest` and `most` readings per unit at log-spaced times that each unit has of its own."""

    fewest: int = 6
    most: int = 11


RICH, SPARSE = Design(), Design(2, 4)
# Noisier readings belong to the sparse design.
SPARSE_TRUTH = Truth(additive=0.1, relative=0.3)


def concentration(times, dose, log_ka, log_volume, log_clearance, xp=np):
    """The formula in NumPy or JAX; arrays broadcast."""
    ka, volume = xp.exp(log_ka), xp.exp(log_volume)
    ke = xp.exp(log_clearance) / volume
    return dose * ka / volume * (xp.exp(-ke * times) - xp.exp(-ka * times)) / (ka - ke)


def bateman(times, inputs, p):
    """The same as a curve of a `UnitModel`; the input is the dose."""
    ke = p.CL / p.V
    curve = inputs[:, 0] * p.ka / p.V * (jnp.exp(-ke * times) - jnp.exp(-p.ka * times)) / (p.ka - ke)
    return curve[:, None]


def simulate(num: int, design: Design = RICH, truth: Truth | None = None, *, seed: int) -> Dataset:
    """Units with readings after one dose at time zero."""
    truth = Truth() if truth is None else truth
    rng = np.random.default_rng(seed)
    trajectories = []
    for number in range(num):
        count = int(rng.integers(design.fewest, design.most + 1))
        times = np.sort(np.exp(rng.uniform(np.log(0.25), np.log(24.0), count)))
        own = np.log(truth.typical) + np.asarray(truth.spread) * rng.standard_normal(3)
        level = concentration(times, DOSE, *own)
        noise = np.hypot(truth.additive, truth.relative * level) * rng.standard_normal(count)
        inputs = np.full((count, 1), DOSE)
        trajectories.append({"times": times, "outputs": level + noise, "inputs": inputs, "unit": str(number)})
    return Dataset.from_list(trajectories, input_names=["dose"], output_names=["conc"])


def family_at(numbers: np.ndarray) -> Family:
    """The family with the given logarithms, in the order of `NAMES`; estimates start and end in such a family."""
    typical, spread = np.exp(numbers[:3]), np.exp(numbers[3:6])
    effects = Effects(
        **{n: LogNormal(float(t), float(s)) for n, t, s in zip(("ka", "V", "CL"), typical, spread, strict=True)}
    )
    model = UnitModel(effects, bateman, noise="combined")
    model = eqx.tree_at(lambda m: m.log_noise, model, jnp.asarray(numbers[6:])[:, None])
    partition = Partition.of(model, lambda m: m.effects.values)
    distribution = gaussian(Reference(jnp.zeros(3), jnp.ones(3)), "diagonal", key=jax.random.key(0))
    where = lambda g: (g.shift, g.log_scale)  # noqa: E731
    distribution = eqx.tree_at(where, distribution, (jnp.asarray(numbers[:3]), jnp.asarray(numbers[3:6])))
    return Family(distribution, model, partition, Levels(jnp.zeros(1), jnp.ones(1)))


def numbers_of(family: Family) -> np.ndarray:
    """The inverse of `family_at`."""
    effects = family.effects
    assert isinstance(effects, Gaussian)
    return np.concatenate([effects.shift, effects.log_scale, np.ravel(family.model.log_noise)])


# Exact likelihoods


def log_joint(numbers, times, readings, xi, seen=1.0, xp=np):
    """Log density of one unit's readings and white effects, for effects of shape (..., 3), in NumPy or JAX."""
    own = numbers[:3] + xp.exp(numbers[3:6]) * xi
    level = concentration(times, DOSE, *(own[..., place, None] for place in range(3)), xp=xp)
    variance = xp.exp(2.0 * numbers[6]) + (xp.exp(numbers[7]) * level) ** 2
    cells = -0.5 * (readings - level) ** 2 / variance - 0.5 * xp.log(2.0 * np.pi * variance)
    return (seen * cells).sum(-1) - 0.5 * (xi**2).sum(-1) - 1.5 * np.log(2.0 * np.pi)


def quadrature(numbers: np.ndarray, times: np.ndarray, readings: np.ndarray, *, num_nodes: int = 15) -> float:
    """The log-likelihood of one unit by Gauss-Hermite quadrature about its mode."""
    mode, root = _centre(numbers, times, readings)
    grid, log_weights = _nodes(num_nodes)
    values = log_joint(numbers, times, readings, mode + grid @ root.T) + log_weights
    return float(logsumexp(values) + np.log(abs(np.linalg.det(root))))


def _nodes(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in three dimensions, and the logarithms of the weights of an integrand itself."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num)
    grid = np.array(list(itertools.product(nodes, repeat=3)))
    log_weights = np.log(np.array(list(itertools.product(weights, repeat=3)))).sum(1)
    return grid, log_weights + 0.5 * (grid**2).sum(1)


def _centre(numbers: np.ndarray, times: np.ndarray, readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A unit's mode, and a root of the inverse curvature there."""

    def loss(xi):
        value = -log_joint(numbers, times, readings, xi)
        return value if np.isfinite(value) else 1e10

    starts = ((0.0, 0.0, 0.0), (-1.5, -1.0, 0.5))  # absorption may be the slower of the two rates
    mode = min((minimize(loss, start, method="BFGS") for start in starts), key=lambda found: found.fun).x
    return mode, np.linalg.inv(np.linalg.cholesky(_curvature(loss, mode))).T


def _curvature(function, point: np.ndarray, step: float = 1e-3) -> np.ndarray:
    shifts = step * np.eye(len(point))
    found = np.array(
        [
            [
                sum(s * r * function(point + s * a + r * b) for s in (1, -1) for r in (1, -1)) / (4.0 * step**2)
                for a in shifts
            ]
            for b in shifts
        ]
    )
    return 0.5 * (found + found.T)


def exact_log_likelihood(numbers: np.ndarray, data: Dataset, *, num_nodes: int = 15) -> float:
    """The log-likelihood of all units."""
    total = 0.0
    for row in range(data.num_trajectories):
        seen = data.mask[row, :, 0]
        total += quadrature(numbers, data.times[row, seen], data.outputs[row, seen, 0], num_nodes=num_nodes)
    return total


def exact_estimate(
    numbers: np.ndarray, data: Dataset, *, num_nodes: int = 11, num_rounds: int = 2
) -> Float[np.ndarray, " number"]:
    """The maximum of the exact likelihood near some numbers; nodes are centred anew in every round."""
    grid, log_weights = (jnp.asarray(part) for part in _nodes(num_nodes))
    for _ in range(num_rounds):
        seen = data.mask[..., 0]
        centres = [_centre(numbers, t[m], y[m]) for t, y, m in zip(data.times, data.outputs[..., 0], seen, strict=True)]
        modes, roots = (jnp.asarray(np.array(part)) for part in zip(*centres, strict=True))
        arrays = (jnp.asarray(data.times), jnp.asarray(data.outputs[..., 0]), jnp.asarray(seen, float), modes, roots)

        def loss(flat, arrays=arrays):
            value, slope = _loss(jnp.asarray(flat), arrays, grid, log_weights)
            return float(value), np.asarray(slope)

        numbers = minimize(loss, numbers, jac=True, method="L-BFGS-B").x
    return numbers


@jax.jit
@jax.value_and_grad
def _loss(numbers, arrays, grid, log_weights):
    def one(times, readings, seen, mode, root):
        values = log_joint(numbers, times, readings, mode + grid @ root.T, seen, xp=jnp) + log_weights
        return jax.nn.logsumexp(values) + jnp.linalg.slogdet(root)[1]

    return -jnp.sum(jax.vmap(one)(*arrays))
