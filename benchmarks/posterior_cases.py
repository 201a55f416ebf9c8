"""Posteriors whose truth is known, by a formula, by quadrature or by a long run: the cases of `posteriors.py`.

A case is named `name` or `name@seed`, the seed being that of its data. `net-N` is the softplus net 3-N-N-1.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from langenode._types import Array
from langenode.models import Forwards, hyperelastic_potential
from langenode.models.sensitivities import at_every_time, evolve
from langenode.posteriors.density import Density
from langenode.simulators import ou

DTYPE = np.float32
NET_DATA = {3: 80}  # of the others: 200
DECAY_OUTSIDE = (-2.0, -1.1, -0.2, 2.7, 3.6, 4.5)  # starts beyond those of the data


class Reference(NamedTuple):
    """Moments of the judged quantities, the log-evidence and its error; exact draws where there are some.

    `mean_out` and `std_out` are those of predictions at the probe inputs outside the data.
    """

    mean: np.ndarray
    std: np.ndarray
    log_evidence: float | None
    log_evidence_error: float | None
    draws: np.ndarray | None
    made: dict[str, Any]
    mean_out: np.ndarray | None = None
    std_out: np.ndarray | None = None


class Case(NamedTuple):
    """A posterior, what of it is judged (weights, or predictions where weights have symmetries), and its truth.

    `exact` is None where only a long run gives it.
    """

    name: str
    density: Density
    judged: Callable[[Array], Array]
    exact: Callable[[], Reference] | None


class Observed(eqx.Module):
    """Outputs with Gaussian noise of given sigma about a model's predictions."""

    model: eqx.Module
    inputs: Array | None
    outputs: Array
    sigma: float = eqx.field(static=True)

    def residual(self, z: Array) -> Array:
        return (self.outputs - self.model(z, self.inputs)) / self.sigma  # pyright: ignore[reportCallIssue]

    def log_likelihood(self, z: Array) -> Array:
        return self._constant - 0.5 * jnp.sum(self.residual(z) ** 2)

    def minibatch(self, z: Array, key: Array) -> Array:
        """A tenth of the rows, at least 8, drawn without replacement."""
        num = self.outputs.shape[0]
        size = min(num, max(8, num // 10))
        rows = jax.random.choice(key, num, (size,), replace=False)
        predicted = self.model(z, None if self.inputs is None else self.inputs[rows])  # pyright: ignore[reportCallIssue]
        squares = ((self.outputs[rows] - predicted) / self.sigma) ** 2
        return self._constant - 0.5 * num / size * jnp.sum(squares)

    @property
    def _constant(self) -> float:
        return -self.outputs.size * (math.log(self.sigma) + 0.5 * math.log(2.0 * math.pi))

    def density(self, dim: int, outside: Array | None = None) -> Density:
        return Density(
            log_likelihood=self.log_likelihood,
            residual=Forwards(self.residual),
            minibatch=None if self.inputs is None else self.minibatch,
            dim=dim,
            dtype=DTYPE,
            probe=None if outside is None else Predictions(self.model, outside),
        )


class Weights(eqx.Module):
    """Judges the whitened weights themselves."""

    def __call__(self, z: Array) -> Array:
        return z


class Predictions(eqx.Module):
    """Judges the model's predictions at some inputs."""

    model: eqx.Module
    inputs: Array | None
    thin: int = eqx.field(static=True, default=1)

    def __call__(self, z: Array) -> Array:
        return self.model(z, self.inputs)[:: self.thin]  # pyright: ignore[reportCallIssue]


# --- linear in the weights: exact


class Linear(eqx.Module):
    """`inputs @ z`, a row of inputs a datum."""

    def __call__(self, z: Array, inputs: Array) -> Array:
        return inputs @ z


def _linear_case(name: str, design: np.ndarray, sigma: float, seed: int) -> Case:
    rng = np.random.default_rng(seed + 1)
    num, dim = design.shape
    outputs = design @ rng.normal(size=dim) + sigma * rng.normal(size=num)
    observed = Observed(Linear(), jnp.asarray(design, DTYPE), jnp.asarray(outputs, DTYPE), sigma)
    design, outputs = (np.asarray(a, float) for a in (observed.inputs, observed.outputs))  # as rounded

    def exact() -> Reference:
        covariance = np.linalg.inv(np.eye(dim) + design.T @ design / sigma**2)
        mean = covariance @ design.T @ outputs / sigma**2
        marginal = design @ design.T + sigma**2 * np.eye(num)
        log_evidence = -0.5 * outputs @ np.linalg.solve(marginal, outputs) - 0.5 * np.linalg.slogdet(marginal)[1]
        log_evidence -= 0.5 * num * math.log(2.0 * math.pi)
        draws = np.random.default_rng(0).multivariate_normal(mean, covariance, 2000)
        return Reference(mean, np.sqrt(np.diag(covariance)), log_evidence, 0.0, draws, {"by": "formula"})

    return Case(name, observed.density(dim), Weights(), exact)


def linear(name: str, seed: int) -> Case:
    """Ten weights, thirty data."""
    return _linear_case(name, np.random.default_rng(seed).normal(size=(30, 10)), 0.3, seed)


def last_layer(name: str, seed: int) -> Case:
    """The last layer of a net with 100 tanh features of two inputs, 80 data."""
    rng = np.random.default_rng(seed)
    inputs, into = rng.uniform(-1.5, 1.5, (80, 2)), rng.normal(size=(3, 100))
    features = np.tanh(inputs @ into[:2] + into[2])
    return _linear_case(name, features, 0.1, seed)


# --- the OU model: two weights, quadrature


class Relaxation(eqx.Module):
    """`dh/dt = W h + b`, solved exactly; `(W, b) = scale z`."""

    scale: float = eqx.field(static=True)

    def __call__(self, z: Array, inputs: Array) -> Array:
        W, b = self.scale * z[0], self.scale * z[1]
        times, starts = inputs[:, 0], inputs[:, 1]
        is_small = jnp.abs(W) < 1e-3
        safe = jnp.where(is_small, 1.0, W)
        grown = jnp.where(is_small, times + 0.5 * W * times**2, jnp.expm1(safe * times) / safe)
        return starts * jnp.exp(W * times) + b * grown


def relaxation(name: str, seed: int) -> Case:
    """Five noisy trajectories of one truth (-8, 8), prior scale 10, noise 0.05: the demonstration's posterior."""
    parameters = ou.OUParameters(rate_std=0.0, level_std=0.0, noise=0.05)
    data = ou.simulate(parameters, 5, key=jax.random.key(seed))
    times = np.linspace(0.0, parameters.end_time, parameters.num_times)
    starts = np.asarray(data.initial, float).reshape(-1)
    inputs = np.stack([np.tile(times, 5), np.repeat(starts, len(times))], axis=1)
    outputs = np.asarray(data.outputs, float).reshape(-1)
    observed = Observed(Relaxation(10.0), jnp.asarray(inputs, DTYPE), jnp.asarray(outputs, DTYPE), 0.05)
    inputs, outputs = (np.asarray(a, float) for a in (observed.inputs, observed.outputs))

    def log_posterior(z: np.ndarray) -> np.ndarray:
        W, b = 10.0 * z[:, :1], 10.0 * z[:, 1:]
        decay = np.exp(W * inputs[:, 0])
        predicted = inputs[:, 1] * decay + b * (decay - 1.0) / W
        squares = np.sum(((outputs - predicted) / 0.05) ** 2, axis=1)
        return observed._constant - 0.5 * squares - 0.5 * np.sum(z**2, axis=1) - math.log(2.0 * math.pi)

    return Case(name, observed.density(2), Weights(), lambda: _quadrature(log_posterior, np.array([-0.8, 0.8])))


def _quadrature(log_posterior: Callable[[np.ndarray], np.ndarray], guess: np.ndarray) -> Reference:
    """Moments of two weights on a grid of 161^2 points, seven of Laplace's standard deviations to each side."""
    from scipy.optimize import minimize

    scaled = minimize(lambda z: -log_posterior(z[None])[0], guess, method="BFGS", options={"gtol": 1e-6})
    step, eye = 1e-4, np.eye(2)
    points = np.stack([scaled.x + step * (i * a + j * b) for a in eye for b in eye for i in (1, -1) for j in (1, -1)])
    signs = np.tile([1.0, -1.0, -1.0, 1.0], 4)
    hessian = -(signs * log_posterior(points)).reshape(2, 2, 4).sum(-1) / (4 * step**2)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    axis = np.linspace(-7.0, 7.0, 161)
    grid = scaled.x + np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2) @ root.T
    values = np.concatenate([log_posterior(block) for block in np.array_split(grid, 40)])
    shares = np.exp(values - values.max())
    log_evidence = values.max() + math.log(shares.sum() * (axis[1] - axis[0]) ** 2 * np.linalg.det(root))
    shares /= shares.sum()
    mean = shares @ grid
    std = np.sqrt(shares @ (grid - mean) ** 2)
    draws = grid[np.random.default_rng(0).choice(len(grid), 2000, p=shares)]
    return Reference(mean, std, log_evidence, 0.0, draws, {"by": "quadrature"})


# --- nets: long runs


class NeuralDecay(eqx.Module):
    """`dh/dt = 3 MLP(h)`, 1-8-1 tanh, 20 Heun steps on [0, 1]; inputs are the starts, outputs by start and time."""

    width: int = eqx.field(static=True, default=8)

    def __call__(self, z: Array, inputs: Array) -> Array:
        into, shift, out = (z[i * self.width : (i + 1) * self.width] for i in range(3))

        def rate(h):
            return 3.0 * (jnp.tanh(h * into + shift) @ out + z[-1])

        def heun(h, dt):
            first = rate(h)
            return h + 0.5 * dt * (first + rate(h + dt * first))

        steps = jnp.full(20, 0.05, z.dtype)
        return jax.vmap(lambda start: evolve(heun, start, steps))(inputs).ravel()


def decay(name: str, seed: int) -> Case:
    """25 weights; the truth is `dh/dt = -4 (h - 1)`, noise 0.05."""
    times, starts = np.linspace(0.0, 1.0, 21)[1:], np.array([2.0, 1.5, 0.5, 0.0, 2.5])
    truth = 1.0 + (starts[:, None] - 1.0) * np.exp(-4.0 * times)
    outputs = truth + 0.05 * np.random.default_rng(seed).normal(size=truth.shape)
    starts = jnp.asarray(starts, DTYPE)
    observed = Observed(NeuralDecay(), starts, jnp.asarray(outputs.ravel(), DTYPE), 0.05)
    probe = Predictions(NeuralDecay(), jnp.asarray(DECAY_OUTSIDE, DTYPE))
    density = Density(observed.log_likelihood, Forwards(observed.residual), None, dim=25, dtype=DTYPE, probe=probe)
    return Case(name, density, Predictions(NeuralDecay(), starts), None)


class Net(eqx.Module):
    """A perceptron of one output whose weights and biases are z itself."""

    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.softplus)

    @property
    def dim(self) -> int:
        return sum((i + 1) * o for i, o in zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def __call__(self, z: Array, inputs: Array) -> Array:
        return at_every_time(lambda row: self._at(z, row), inputs)

    def _at(self, z: Array, row: Array) -> Array:
        features, begin = row, 0
        for layer, (i, o) in enumerate(zip(self.sizes[:-1], self.sizes[1:], strict=True)):
            matrix, shift = z[begin : begin + i * o].reshape(i, o), z[begin + i * o : begin + (i + 1) * o]
            features = (self.activation(features) if layer else features) @ matrix + shift
            begin += (i + 1) * o
        return features[0]


def net(name: str, seed: int) -> Case:
    """3-N-N-1 softplus on `softplus(2 x1) + x2^2/2 + 0.4 x1 x3` in [-1.5, 1.5]^3, noise 0.1, weights ~ N(0, I)."""
    width = int(name.split("@")[0].removeprefix("net-"))
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1.5, 1.5, (NET_DATA.get(width, 200), 3))
    truth = np.logaddexp(0.0, 2.0 * inputs[:, 0]) + 0.5 * inputs[:, 1] ** 2 + 0.4 * inputs[:, 0] * inputs[:, 2]
    outputs = truth + 0.1 * rng.normal(size=len(inputs))
    model = Net((3, width, width, 1))
    grid = jnp.asarray(np.random.default_rng(1000).uniform(-1.5, 1.5, (60, 3)), DTYPE)
    observed = Observed(model, jnp.asarray(inputs, DTYPE), jnp.asarray(outputs, DTYPE), 0.1)
    return Case(name, observed.density(model.dim, outside_inputs()), Predictions(model, grid), None)


def outside_inputs(num: int = 60) -> Array:
    """Inputs in [-3, 3]^3 with a coordinate beyond 1.7, where there are no data."""
    inputs = np.random.default_rng(1001).uniform(-3.0, 3.0, (20 * num, 3))
    return jnp.asarray(inputs[np.max(np.abs(inputs), axis=1) > 1.7][:num], DTYPE)


class Hyperelastic(eqx.Module):
    """The potential of three invariants 3-3-3-1 softplus, its weights z; inputs are strains along the cube's axes."""

    unravel: Callable[[Array], Any] = eqx.field(static=True)
    static: Any = eqx.field(static=True)

    def __call__(self, z: Array, inputs: Array) -> Array:
        law = eqx.combine(self.unravel(z), self.static)
        return at_every_time(lambda strain: law(jnp.zeros(0, z.dtype), strain), inputs).ravel()


def hyperelastic(name: str, seed: int) -> Case:
    """Four loadings of eight strains; the truth is a quadratic potential with a cubic term, stress noise 0.05."""
    law = hyperelastic_potential((3, 3), "softplus", convex=False, strain_scale=0.1, key=jax.random.key(0))
    arrays, static = eqx.partition(law, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(arrays)
    paths = np.array([[1.0, -0.4, -0.4], [0.8, 0.8, -0.7], [1.0, -1.0, 0.0], [0.6, 0.6, 0.6]])
    strains = (0.1 * paths[:, None] * np.linspace(-1.0, 1.0, 8)[:, None]).reshape(-1, 3)
    scaled = strains / 0.1
    truth = 0.5 * scaled.sum(1, keepdims=True) + scaled + 0.3 * scaled**2
    outputs = truth + 0.05 * np.random.default_rng(seed).normal(size=truth.shape)
    inputs, model = jnp.asarray(strains, DTYPE), Hyperelastic(unravel, static)
    observed = Observed(model, inputs, jnp.asarray(outputs.ravel(), DTYPE), 0.05)
    density = Density(observed.log_likelihood, Forwards(observed.residual), None, dim=len(flat), dtype=DTYPE)
    return Case(name, density, Predictions(model, inputs, 2), None)


# --- log densities without data: exact


class Funnel(eqx.Module):
    """Neal's: `v ~ N(0, 9)`, nine `x_i ~ N(0, e^v)`; `v = 3 z_0`, `x = 10 z`."""

    def log_likelihood(self, z: Array) -> Array:
        v, x = 3.0 * z[0], 10.0 * z[1:]
        log_x = -0.5 * jnp.sum(x**2) * jnp.exp(-v) - 4.5 * v - 4.5 * math.log(2.0 * math.pi) + 9.0 * math.log(10.0)
        return log_x + 0.5 * jnp.sum(z[1:] ** 2) + 4.5 * math.log(2.0 * math.pi)


def funnel(name: str, seed: int) -> Case:
    """Ten dimensions; v is N(0, 1) in z, the others have standard deviation `e^2.25 / 10`."""
    density = Density(Funnel().log_likelihood, None, None, dim=10, dtype=DTYPE)

    def exact() -> Reference:
        white = np.random.default_rng(seed).normal(size=(2000, 10))
        draws = np.concatenate([white[:, :1], 0.1 * np.exp(1.5 * white[:, :1]) * white[:, 1:]], axis=1)
        std = np.append(1.0, np.full(9, 0.1 * math.exp(2.25)))
        return Reference(np.zeros(10), std, 0.0, 0.0, draws, {"by": "formula"})

    return Case(name, density, Weights(), exact)


class Mixture(eqx.Module):
    """Equal Gaussian modes in the plane."""

    centres: Array
    scale: float = eqx.field(static=True)

    def log_likelihood(self, z: Array) -> Array:
        squares = jnp.sum((z - self.centres) ** 2, axis=1) / self.scale**2
        log_modes = -0.5 * squares - 2.0 * math.log(self.scale)
        return jax.nn.logsumexp(log_modes) - math.log(self.centres.shape[0]) + 0.5 * jnp.sum(z**2)


def mixture(name: str, seed: int) -> Case:
    """Forty modes, uniform in [-40, 40]^2 with standard deviation 1.3, divided by 25: prior N(0, I) covers them."""
    centres = np.asarray(np.random.default_rng(seed).uniform(-40.0, 40.0, (40, 2)) / 25.0, DTYPE)
    law = Mixture(jnp.asarray(centres), 1.3 / 25.0)
    density = Density(law.log_likelihood, None, None, dim=2, dtype=DTYPE)

    def exact() -> Reference:
        std = np.sqrt(np.var(centres, axis=0) + law.scale**2)
        rng = np.random.default_rng(0)
        draws = centres[rng.integers(40, size=2000)] + law.scale * rng.normal(size=(2000, 2))
        return Reference(centres.mean(0).astype(float), std, 0.0, 0.0, draws, {"by": "formula"})

    return Case(name, density, Weights(), exact)


MAKERS: dict[str, Callable[[str, int], Case]] = {
    "linear": linear,
    "last-layer": last_layer,
    "ou": relaxation,
    "decay": decay,
    "hyperelastic": hyperelastic,
    "funnel": funnel,
    "mixture": mixture,
}
NAMES = (*MAKERS, "net-3", "net-15")


def make_case(name: str) -> Case:
    """The case of a name, `name` or `name@seed`."""
    kind, _, seed = name.partition("@")
    is_net = kind.startswith("net-") and kind.removeprefix("net-").isdigit()
    if kind not in MAKERS and not is_net:
        raise ValueError(f"a case must be one of {', '.join(MAKERS)} or net-N; got {kind!r}; choose one of them")
    return (net if is_net else MAKERS[kind])(name, int(seed or 0))
