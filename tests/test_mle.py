"""The point fit and the references about it, on problems that are linear in their weights and so have exact answers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from langenode.data import Dataset
from langenode.fitting import compiling
from langenode.inference import descent
from langenode.inference.errors import FitError
from langenode.inference.likelihood import Likelihood, given_noise, inferred_noise
from langenode.inference.partition import Partition
from langenode.inference.point_fit import fit_mle, fitted_outputs
from langenode.inference.priors import GaussianPrior
from langenode.inference.references import (
    LARGEST_FULL_COVARIANCE,
    laplace_reference,
    population_reference,
    trajectory_jacobians,
)
from langenode.models import MLP, Adaptive, NeuralODE, OnConcatenation, neural_ode

NUM_IN = 3


def affine(num_in=NUM_IN, num_out=1, log_noise=None):
    """y = W x + b: no hidden state, one layer."""
    network = MLP((num_in, num_out), key=jax.random.key(0))
    return NeuralODE(None, OnConcatenation(network), num_hidden=0, log_noise=log_noise)


def regression_data(num_out=1, num_traj=4, noise=0.3, missing=0.2):
    """Trajectories of a linear law with noise and gaps."""
    rng = np.random.default_rng(9)
    inputs = rng.normal(size=(num_traj, 6, NUM_IN))
    law = rng.normal(size=(NUM_IN, num_out)) * np.logspace(0, 1, num_out)
    outputs = inputs @ law + 0.5 + noise * np.logspace(0, 1, num_out) * rng.normal(size=(num_traj, 6, num_out))
    outputs[rng.uniform(size=outputs.shape) < missing] = np.nan
    return Dataset.from_arrays(np.arange(6.0), outputs, inputs=inputs)


def design(data, output=0):
    """The rows (x, 1) and values of the observed cells of one output: the order of the weights is W, then b."""
    seen = data.mask[..., output]
    return np.column_stack([data.inputs[seen], np.ones(seen.sum())]), data.outputs[seen, output]


def covariance_of(reference):
    """L L' with L = diag(scale) (I + F F')."""
    scale, factor = np.asarray(reference.scale, float), np.asarray(reference.factor, float)
    root = scale[:, None] * (np.eye(len(scale)) + factor @ factor.T)
    return root @ root.T


def prior_for(partition, mean=0.3):
    return GaussianPrior(jnp.asarray(np.full(partition.dim, mean)), jnp.asarray(np.linspace(0.5, 1.5, partition.dim)))


# --- maximum likelihood


NUM_ADAM, NUM_LBFGS = 50, 150


@pytest.fixture(scope="module")
def fit():
    model = affine(num_out=2, log_noise=jnp.array([-1.5, 0.5]))
    return fit_mle(model, regression_data(num_out=2), num_adam=NUM_ADAM, num_lbfgs=NUM_LBFGS)


def test_fit_is_the_least_squares_of_every_output(fit):
    data = regression_data(num_out=2)
    layer = fit.model.observation.network.layers[0]
    for output in range(2):
        rows, values = design(data, output)
        expected = np.linalg.lstsq(rows, values)[0]
        found = np.append(layer.weight[output], layer.bias[output])
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        # The noise scale is at its maximum likelihood too: the rms of the residuals.
        rms = np.sqrt(np.mean((values - rows @ expected) ** 2))
        np.testing.assert_allclose(np.exp(fit.model.log_noise[output]), rms, rtol=1e-6)
    np.testing.assert_allclose(fit.losses[-1], loss_of(fit.model, data), rtol=1e-10)


def test_penalty_makes_it_ridge_regression():
    data, penalty = regression_data(), 0.1
    fit = fit_mle(affine(), data, num_adam=50, num_lbfgs=60, penalty=penalty)
    rows, values = design(data)
    scale = len(values) * values.std() ** 2
    expected = np.linalg.solve(rows.T @ rows / scale + penalty * np.eye(NUM_IN + 1), rows.T @ values / scale)
    np.testing.assert_allclose(Partition.of(fit.model).flatten(fit.model), expected, rtol=1e-6)


def loss_of(model, data):
    spread = np.array([data.outputs[data.mask[..., o], o].std() for o in range(data.num_outputs)])
    scaled = np.where(data.mask, data.outputs - fitted_outputs(model, data), 0.0) / spread
    return (scaled**2).sum() / data.mask.sum()


def test_l_bfgs_goes_on_from_adam_and_makes_it_better(fit):
    data = regression_data(num_out=2)
    steps, compilation = [], []

    def on_step(*words):
        steps.append(words)
        compilation.append(compiling.seconds())

    adam = fit_mle(affine(num_out=2), data, num_adam=NUM_ADAM, num_lbfgs=0, on_step=on_step)
    assert steps == [(done, NUM_ADAM, "Adam") for done in range(5, NUM_ADAM + 1, 5)]
    assert len(set(compilation)) == 1, "a later block was compiled again"
    assert len(adam.losses) == NUM_ADAM < len(fit.losses) <= NUM_ADAM + NUM_LBFGS + 1
    assert np.all(np.diff(fit.losses[NUM_ADAM:]) <= 0.0)
    np.testing.assert_allclose(fit.losses[:NUM_ADAM], adam.losses, rtol=1e-12)
    np.testing.assert_allclose(fit.losses[NUM_ADAM], loss_of(adam.model, data), rtol=1e-10)
    assert loss_of(fit.model, data) < loss_of(adam.model, data)


# --- searches outside compiled code


def rosenbrock(x):
    value = 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2
    return value, np.array([-400.0 * x[0] * (x[1] - x[0] ** 2) - 2.0 * (1.0 - x[0]), 200.0 * (x[1] - x[0] ** 2)])


def test_l_bfgs_finds_the_end_of_a_curved_valley_and_every_step_lowers_the_value():
    steps = []
    found = descent.l_bfgs(rosenbrock, np.array([-1.2, 1.0]), 100, steps.append)
    np.testing.assert_allclose(found.weights, 1.0, atol=1e-8)
    assert np.all(np.diff(found.values) < 0.0) and steps == list(range(1, len(found.values)))
    assert len(descent.l_bfgs(rosenbrock, np.ones(2), 100, steps.append).values) == 1  # nothing is lower


def test_l_bfgs_turns_back_from_where_the_value_is_not_finite():
    """sqrt(1 - x) has no value beyond 1, and its slope leads there."""

    def root(x):
        left = np.sqrt(1.0 - x[0]) if x[0] < 1.0 else np.nan
        return float(left), np.array([-0.5 / left])

    found = descent.l_bfgs(root, np.zeros(1), 20, lambda _: None)
    assert np.isfinite(found.values).all() and found.values[-1] < found.values[0] and found.weights[0] < 1.0
    nowhere = descent.l_bfgs(lambda x: (np.nan, np.full(1, np.nan)), np.zeros(1), 20, lambda _: None)
    assert len(nowhere.values) == 1 and nowhere.weights[0] == 0.0


def test_adam_is_that_of_optax():
    start, num = np.array([-1.2, 1.0]), 30
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.1, num, alpha=descent.FINAL_RATE))
    )
    weights, state = jnp.asarray(start), optimiser.init(jnp.asarray(start))
    for _ in range(num):
        steps, state = optimiser.update(jnp.asarray(rosenbrock(np.asarray(weights))[1]), state)
        weights = jnp.asarray(optax.apply_updates(weights, steps))
    np.testing.assert_allclose(descent.adam(rosenbrock, start, 0.1, num, lambda _: None).weights, weights, rtol=1e-10)


def test_a_fit_that_is_not_finite_is_refused():
    class Broken(eqx.Module):
        weight: jax.Array

        def __call__(self, hidden, inputs):
            return jnp.log(-(self.weight**2)) * inputs[:1]

    model = NeuralODE(None, Broken(jnp.ones(1)), num_hidden=0)
    with pytest.raises(FitError, match="must stay finite"):
        fit_mle(model, regression_data(), num_adam=2, num_lbfgs=0)


def test_fitted_outputs_start_from_each_trajectorys_own_start():
    data = Dataset.from_arrays(np.linspace(0.0, 1.0, 3), np.zeros((2, 3)), initial=np.array([1.0, 5.0]))
    network = MLP((1, 1), key=jax.random.key(0))
    model = NeuralODE(OnConcatenation(network), num_hidden=1)
    fitted = fitted_outputs(model, data)
    np.testing.assert_array_equal(fitted[:, 0, 0], [1.0, 5.0])
    assert isinstance(fitted, np.ndarray)


# --- derivatives


def small_network():
    return neural_ode(
        num_inputs=1, num_outputs=2, num_hidden=1, dynamics_layers=(2,), observation_layers=(), key=jax.random.key(3)
    )


@pytest.mark.parametrize("num_times", [2, 9], ids=["more weights than cells", "fewer"])
def test_jacobians_equal_finite_differences(num_times):
    rng = np.random.default_rng(4)
    outputs = rng.normal(size=(3, num_times, 2))
    outputs[rng.uniform(size=outputs.shape) < 0.2] = np.nan
    times = np.linspace(0.0, 1.0, num_times)
    data = Dataset.from_arrays(times, outputs, inputs=rng.normal(size=(3, num_times, 1)), initial=rng.normal(size=3))
    model = small_network()
    partition = Partition.of(model)
    assert (partition.dim > num_times * 2) == (num_times == 2)
    batch = data.arrays(np.float64)
    residual, jacobian = eqx.filter_jit(trajectory_jacobians)(model, partition, batch)
    run = jax.jit(jax.vmap(lambda w: jax.vmap(partition.combine(model, w))(batch.times, batch.inputs, batch.initial)))
    weights, step = partition.flatten(model), 1e-5
    shifts = step * jnp.eye(partition.dim)
    values = np.asarray(run(jnp.concatenate([weights + shifts, weights - shifts, weights[None]])))
    differences = (values[: partition.dim] - values[partition.dim : -1]) / (2.0 * step)
    expected = np.where(data.mask[..., None], np.moveaxis(differences, 0, -1), 0.0)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(residual, np.where(data.mask, data.outputs - values[-1], 0.0), rtol=1e-12)
    assert not np.any(np.asarray(residual)[~data.mask])


def test_jacobians_of_code_without_forward_mode():
    @jax.custom_vjp
    def triple(x):
        return 3.0 * x

    triple.defvjp(lambda x: (3.0 * x, None), lambda _, slope: (3.0 * slope,))

    class Tripled(eqx.Module):
        weight: jax.Array

        def __call__(self, hidden, inputs):
            return triple(self.weight * inputs[:1])

    data = regression_data(missing=0.0)
    model = NeuralODE(None, Tripled(jnp.array(0.7)), num_hidden=0)
    _, jacobian = trajectory_jacobians(model, Partition.of(model), data.arrays(np.float64))
    np.testing.assert_allclose(jacobian[..., 0], 3.0 * data.inputs[..., :1], rtol=1e-12)


@pytest.mark.slow
def test_jacobians_through_the_adaptive_solver():
    class Decay(eqx.Module):
        rate: jax.Array

        def __call__(self, hidden, inputs):
            return -self.rate * hidden

    times = np.linspace(0.0, 1.0, 5)
    data = Dataset.from_arrays(times, np.zeros((2, 5)), initial=np.array([1.0, 2.0]))
    model = NeuralODE(Decay(jnp.array(0.7)), num_hidden=1, solver=Adaptive(rtol=1e-9, atol=1e-11))
    _, jacobian = eqx.filter_jit(trajectory_jacobians)(model, Partition.of(model), data.arrays(np.float64))
    expected = -times * np.exp(-0.7 * times) * np.array([[1.0], [2.0]])
    np.testing.assert_allclose(jacobian[..., 0, 0], expected, rtol=1e-6, atol=1e-12)


# --- the reference of `posterior`


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_laplace_is_exact_for_a_linear_gaussian_problem(temperature):
    data, model = regression_data(), affine()
    partition = Partition.of(model)
    prior = prior_for(partition)
    sigma = np.random.default_rng(1).uniform(0.2, 0.6, size=data.outputs.shape)
    reference = laplace_reference(model, partition, data, prior, given_noise(sigma, data), temperature=temperature)
    rows, values = design(data)
    weight = 1.0 / (sigma[data.mask] ** 2 * temperature)
    precision = np.diag(np.asarray(prior.scale) ** -2.0)
    covariance = np.linalg.inv((rows * weight[:, None]).T @ rows + precision)
    mean = covariance @ (rows.T @ (weight * values) + precision @ np.asarray(prior.mean))
    np.testing.assert_allclose(reference.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(covariance_of(reference), covariance, rtol=1e-8)


def test_laplace_of_some_weights_holds_the_others():
    data, model = regression_data(), affine()
    partition = Partition.of(model, lambda m: m.observation.network.layers[0].bias)
    prior = prior_for(partition)
    reference = laplace_reference(model, partition, data, prior, given_noise(0.5, data))
    rows, values = design(data)
    left = values - rows[:, :-1] @ np.asarray(Partition.of(model).flatten(model))[:-1]
    variance = 1.0 / (len(left) / 0.25 + 1.0 / float(prior.scale[0]) ** 2)
    np.testing.assert_allclose(covariance_of(reference), [[variance]], rtol=1e-8)
    expected = variance * (left.sum() / 0.25 + 0.3 / float(prior.scale[0]) ** 2)
    np.testing.assert_allclose(reference.mean, [expected], rtol=1e-8)


def test_laplace_of_a_mixture_takes_the_widest_mode():
    data, model = regression_data(), affine()
    partition = Partition.of(model)
    sigma = jnp.stack([jnp.full(data.outputs.shape, s) for s in (0.2, 0.6)])
    mixture = laplace_reference(model, partition, data, prior_for(partition), Likelihood(sigma, jnp.array([0.5, 0.5])))
    plain = laplace_reference(model, partition, data, prior_for(partition), given_noise(0.6, data))
    np.testing.assert_allclose(covariance_of(mixture), covariance_of(plain), rtol=1e-10)


@pytest.mark.parametrize("temperature", [1.0, 7.0])
def test_laplace_of_an_inferred_noise_scale(temperature):
    data = regression_data(num_out=2)
    model = affine(num_out=2, log_noise=jnp.zeros(2))
    partition = Partition.of(model)
    prior = prior_for(partition)
    reference = laplace_reference(model, partition, data, prior, inferred_noise(), temperature=temperature)
    covariance = covariance_of(reference)
    places = np.array([partition.names.index(f"log_noise[{output}]") for output in range(2)])
    final = partition.combine(model, reference.mean)
    residual = np.where(data.mask, data.outputs - fitted_outputs(final, data), 0.0)
    for output, place in enumerate(places):
        num = data.mask[..., output].sum()
        log_rms = np.log(np.sqrt((residual[..., output] ** 2).sum() / num))
        information, precision = 2.0 * num / temperature, float(prior.scale[place]) ** -2.0
        expected = (information * log_rms + precision * 0.3) / (information + precision)
        np.testing.assert_allclose(reference.mean[place], expected, rtol=1e-8)
        np.testing.assert_allclose(covariance[place, place], 1.0 / (information + precision), rtol=1e-8)
    others = np.delete(np.arange(partition.dim), places)
    np.testing.assert_allclose(covariance[np.ix_(places, others)], 0.0, atol=1e-12)


def test_only_the_noise_scale_itself_has_the_information_of_a_noise_scale():
    """A weight whose name begins like that of the noise scale is a weight like any other."""

    class Line(eqx.Module):
        log_noise_free: jax.Array
        log_noise: jax.Array

        def __call__(self, times, inputs, initial=None, *, key=None):
            return self.log_noise_free[0] * inputs[:, :1]

    data = regression_data()
    model = Line(jnp.zeros(1), jnp.zeros(1))
    partition = Partition.of(model)
    assert partition.names == ("log_noise_free[0]", "log_noise[0]")
    reference = laplace_reference(model, partition, data, prior_of(2), inferred_noise())
    x, y = data.inputs[data.mask[..., 0], 0], data.outputs[data.mask]
    sigma = np.sqrt(np.mean(y**2))  # the residuals of the model at zero
    slope = (x @ y / sigma**2) / (x @ x / sigma**2 + 1.0)
    np.testing.assert_allclose(reference.mean[0], slope, rtol=1e-8)
    expected = np.diag([1.0 / (x @ x / sigma**2 + 1.0), 1.0 / (2.0 * len(y) + 1.0)])
    np.testing.assert_allclose(covariance_of(reference), expected, rtol=1e-8, atol=1e-12)

    rest = laplace_reference(
        model, Partition.of(model, lambda m: m.log_noise_free), data, prior_of(1), inferred_noise()
    )
    np.testing.assert_allclose(covariance_of(rest), expected[:1, :1], rtol=1e-8)


def prior_of(dim):
    return GaussianPrior(jnp.zeros(dim), jnp.ones(dim))


def test_laplace_stands_at_the_mode_of_a_nonlinear_problem():
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-2.0, 2.0, size=(3, 10, 1))
    outputs = np.sin(2.0 * inputs) + 0.1 * rng.normal(size=inputs.shape)
    data = Dataset.from_arrays(np.arange(10.0), outputs, inputs=inputs)
    model = NeuralODE(None, OnConcatenation(MLP((1, 4, 1), key=jax.random.key(0))), num_hidden=0)
    partition = Partition.of(model)
    prior = GaussianPrior(jnp.zeros(partition.dim), jnp.ones(partition.dim))
    noise, batch = given_noise(0.1, data), data.arrays(np.float64)

    def log_posterior(w):
        predictions = jax.vmap(partition.combine(model, w))(batch.times, batch.inputs)
        return noise.log_density(predictions[None], *batch[2:4], batch.times).sum() + prior.log_density(w)

    reference = laplace_reference(model, partition, data, prior, noise, num_iterations=300)
    slope = np.asarray(jax.jit(jax.grad(log_posterior))(reference.mean))
    # What a Newton step would still gain, in nats: the mean is within a hundredth of a standard deviation.
    assert slope @ covariance_of(reference) @ slope < 1e-4


def test_laplace_survives_single_precision_and_a_bad_condition():
    rng = np.random.default_rng(12)
    inputs = rng.normal(size=(3, 30, 3))
    inputs[..., 2] = inputs[..., 1] + 1e-3 * rng.normal(size=(3, 30))  # two inputs that are nearly one
    outputs = inputs @ [1.0, 0.5, 0.2] + 1e-3 * rng.normal(size=(3, 30))
    data = Dataset.from_arrays(np.arange(30.0), outputs, inputs=inputs)
    partition = Partition.of(affine())
    references = []
    for dtype in (jnp.float32, jnp.float64):
        model = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), affine())
        prior = GaussianPrior(jnp.zeros(4, dtype), jnp.ones(4, dtype))
        references.append(laplace_reference(model, partition, data, prior, given_noise(1e-3, data)))
    single, double = references
    assert single.mean.dtype == single.scale.dtype == jnp.float32
    std = np.sqrt(np.diag(covariance_of(double)))
    assert std[2] > 100.0 * std[0]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance_of(single))), std, rtol=0.01)
    np.testing.assert_allclose((single.mean - double.mean) / std, 0.0, atol=0.2)


def test_laplace_of_many_weights_keeps_the_diagonal():
    num_in = LARGEST_FULL_COVARIANCE
    rng = np.random.default_rng(6)
    inputs = rng.normal(size=(1, 5, num_in))
    data = Dataset.from_arrays(np.arange(5.0), rng.normal(size=(1, 5)), inputs=inputs)
    model = affine(num_in)
    partition = Partition.of(model)
    prior = GaussianPrior(jnp.zeros(partition.dim), jnp.ones(partition.dim))
    reference = laplace_reference(model, partition, data, prior, given_noise(0.5, data), num_iterations=2)
    assert reference.factor is None
    rows, _ = design(data)
    expected = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows / 0.25 + np.eye(num_in + 1))))
    np.testing.assert_allclose(reference.scale, expected, rtol=1e-8)


# --- the reference of `population`


def random_coefficients(num_units=40):
    """Each unit has its own (W, b); seen in two conditions, of which neither alone tells them."""
    rng = np.random.default_rng(10)
    weights = rng.normal(size=(num_units, 3)) * [1.0, 0.5, 2.0] + [1.0, -1.0, 0.5]  # W1, W2, b
    loadings = np.zeros((2, 4, 2))
    loadings[0, :, 0] = loadings[1, :, 1] = np.linspace(-1.0, 1.0, 4)
    outputs = np.einsum("ctd,ud->uct", loadings, weights[:, :2]) + weights[:, None, 2:]
    order = rng.permutation(2 * num_units)
    data = Dataset.from_arrays(
        np.arange(4.0),
        outputs.reshape(-1, 4)[order],
        inputs=np.tile(loadings, (num_units, 1, 1))[order],
        unit=np.repeat(np.arange(num_units), 2)[order],
    )
    return data, weights


def test_population_reference_has_the_units_own_mean_and_spread():
    data, weights = random_coefficients()
    model = affine(2)
    partition = Partition.of(model)
    prior = GaussianPrior(jnp.zeros(3), jnp.full(3, 3.0))
    reference = population_reference(model, partition, data, prior, relative_noise=1e-4)
    np.testing.assert_allclose(reference.mean, weights.mean(0), rtol=1e-5)
    np.testing.assert_allclose(reference.scale, weights.std(0), rtol=1e-5)
    assert reference.factor is None


def test_population_reference_is_one_ridge_step_a_unit():
    data, _ = random_coefficients()
    model = affine(2)
    partition = Partition.of(model)
    prior = GaussianPrior(jnp.zeros(3), jnp.array([0.5, 1.0, 3.0]))
    reference = population_reference(model, partition, data, prior, relative_noise=0.5)
    start = np.asarray(partition.flatten(model))
    residual = data.outputs - fitted_outputs(model, data)
    noise = 0.5 * np.sqrt(np.mean(residual**2))
    steps = []
    for unit in range(data.num_units):
        rows = data.unit == unit
        jacobian = np.column_stack([data.inputs[rows].reshape(-1, 2), np.ones(8)])
        normal = jacobian.T @ jacobian / noise**2 + np.diag(np.array([0.5, 1.0, 3.0]) ** -2)
        steps.append(np.linalg.solve(normal, jacobian.T @ residual[rows].ravel() / noise**2))
    np.testing.assert_allclose(reference.mean, start + np.mean(steps, 0), rtol=1e-8)
    np.testing.assert_allclose(reference.scale, np.std(steps, 0), rtol=1e-8)


def test_population_reference_keeps_width_where_the_data_see_nothing():
    data, _ = random_coefficients()
    blind = Dataset.from_arrays(
        data.times, data.outputs, inputs=data.inputs * [1.0, 0.0], unit=data.unit, condition=data.condition
    )
    model = affine(2)
    partition = Partition.of(model)
    prior = GaussianPrior(jnp.zeros(3), jnp.full(3, 3.0))
    reference = population_reference(model, partition, blind, prior)
    np.testing.assert_allclose(reference.scale[1], 0.3, rtol=1e-10)
    np.testing.assert_allclose(reference.mean[1], partition.flatten(model)[1], rtol=1e-10)


def test_a_reference_of_weights_that_compensate_each_other_is_no_wider_than_twice_the_data():
    """y = (a + b) x: a and b alone are unseen, so a ridge step a unit leaves them the prior's width, far too wide."""

    class Sum(eqx.Module):
        a: jax.Array
        b: jax.Array

        def __call__(self, times, inputs, initial=None, *, key=None):
            return (self.a + self.b) * inputs

    rng = np.random.default_rng(0)
    slopes = 1.0 + 0.01 * rng.normal(size=24)
    x = np.linspace(0.0, 1.0, 6)[None, :, None]
    data = Dataset.from_arrays(np.arange(6.0), slopes[:, None, None] * x, inputs=np.tile(x, (24, 1, 1)))
    model = Sum(jnp.asarray(0.5), jnp.asarray(0.5))
    partition = Partition.of(model, "all")
    reference = population_reference(model, partition, data, GaussianPrior(jnp.zeros(2), jnp.ones(2)))
    spread = np.sqrt(np.sum(np.asarray(reference.scale) ** 2))
    assert spread == pytest.approx(2.0 * np.sqrt(np.mean((slopes - 1.0) ** 2)), rel=1e-3)
