"""The network of a control as a choice: one contract for all of them, in the sampler, in `ln.fit` and in files."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import langenode as ln
import problems
from langenode.config import ConfigError
from langenode.fitting.choose import configure
from langenode.posteriors import Reference, bottleneck, langevin, paper_langevin
from langenode.posteriors.controls import AutonomousDrift, StepControl
from langenode.posteriors.networks import Perceptron, Residual, UNet, make_network, width_of
from langenode.storage.container import FitFileError

KEY = jax.random.key(0)
DIM, NUM_STEPS = 3, 4


class Sine(eqx.Module):
    """A network of a user's own, with a leaf that is no array."""

    layer: eqx.nn.Linear
    wave: object

    def __call__(self, x):
        return self.wave(self.layer(x))  # pyright: ignore[reportCallIssue]


def sine(num_inputs, num_outputs, *, key):
    return Sine(eqx.nn.Linear(num_inputs, num_outputs, key=key), jnp.sin)


NETWORKS = {"mlp": "mlp", "residual": "residual", "unet": "unet", "own": sine}
every_network = pytest.mark.parametrize("name", NETWORKS)


def control_of(name, dim=DIM, layers=(4, 2)):
    return StepControl(dim, NUM_STEPS, layers, network=NETWORKS[name], key=KEY)


def perturbed(module, size=0.3):
    numbers, rest = eqx.partition(module, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    moved = jax.tree.map(lambda leaf: leaf + size * rng.normal(size=leaf.shape), numbers)
    return eqx.combine(moved, rest)


# --- the contract of a control


@pytest.mark.parametrize("dim", [1, 3, 40])
@every_network
def test_a_control_starts_as_zero_and_has_the_shape_of_the_state(name, dim):
    control, z = control_of(name, dim), jnp.linspace(-1.0, 2.0, dim)
    for step in range(NUM_STEPS):
        np.testing.assert_array_equal(control(z, jnp.asarray(step)), np.zeros(dim))
    assert control.width > 0


@every_network
def test_a_network_sees_the_state_and_the_step(name):
    network = perturbed(control_of(name)).network
    control = eqx.tree_at(lambda c: c.network, control_of(name), network)  # its affine part is zero
    z = jnp.array([0.3, -0.2, 0.9])
    here, later, elsewhere = control(z, jnp.asarray(0)), control(z, jnp.asarray(3)), control(z + 0.1, jnp.asarray(0))
    assert np.all(here != later) and np.all(here != elsewhere)
    slope = jax.jacfwd(lambda z: control(z, jnp.asarray(1)))(z)
    step = 1e-6
    columns = [
        (control(z + step * unit, jnp.asarray(1)) - control(z - step * unit, jnp.asarray(1))) / (2 * step)
        for unit in jnp.eye(DIM)
    ]
    np.testing.assert_allclose(slope, np.stack(columns, axis=1), atol=1e-8)
    assert np.all(slope != 0.0)


@every_network
def test_the_first_gradient_of_a_control_is_finite_and_moves_it(name):
    numbers, rest = eqx.partition(control_of(name), eqx.is_inexact_array)

    def pushed(numbers):
        return jnp.sum(eqx.combine(numbers, rest)(jnp.ones(DIM), jnp.asarray(1)))

    leaves = jax.tree.leaves(jax.grad(pushed)(numbers).network)
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves) and any(np.any(leaf != 0.0) for leaf in leaves)


@every_network
def test_the_papers_drift_has_a_network_of_ordinary_size(name):
    drift = AutonomousDrift(DIM, (3, 3), 1.0, network=NETWORKS[name], key=KEY)
    values = drift(jnp.array([0.3, -0.2, 0.9]), jnp.asarray(0))
    assert values.shape == (DIM,) and np.all(np.asarray(values) != 0.0)


def test_each_network_is_its_formula():
    x = jnp.array([0.4, -0.7])
    plain = Perceptron((2, 4, 3), key=KEY)
    first, last = plain.layers
    np.testing.assert_allclose(plain(x), last(jnp.tanh(first(x))), rtol=1e-12)

    residual = Residual(2, (4, 5), 3, key=KEY)
    into, a, b, c, d, out = residual.layers
    stream = into(x)
    stream = stream + b(jnp.tanh(a(stream)))
    stream = stream + d(jnp.tanh(c(stream)))
    np.testing.assert_allclose(residual(x), out(stream), rtol=1e-12)

    unet = UNet(2, (6, 4, 3), 5, key=KEY)
    down_1, down_2, down_3, up_2, up_1, out = unet.layers
    one = jnp.tanh(down_1(x))
    two = jnp.tanh(down_2(one))
    three = jnp.tanh(down_3(two))
    above = jnp.concatenate([jnp.tanh(up_2(three)), two])
    above = jnp.concatenate([jnp.tanh(up_1(above)), one])
    np.testing.assert_allclose(unet(x), out(jnp.concatenate([above, x])), rtol=1e-12)
    assert width_of(unet) == 6 + 4 + 3 + 4 + 6 + 5


@pytest.mark.parametrize("kind", ["mlp", "residual", "unet"])
def test_without_hidden_layers_a_network_is_affine(kind):
    network = make_network(kind, 2, (), 3, last_scale=1.0, key=KEY)
    x, y = jnp.array([0.4, -0.7]), jnp.array([1.1, 0.2])
    np.testing.assert_allclose(network(x + y) - network(y), network(x) - network(0.0 * x), rtol=1e-10)


def test_a_network_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"must map 6 numbers to 3; its output has shape \(2,\)"):
        control_of_own(lambda num_in, num_out, *, key: eqx.nn.Linear(num_in, 2, key=key))
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="'mlp', 'residual', 'unet'"):
        control_of_own("transformer")


def control_of_own(network):
    return StepControl(DIM, NUM_STEPS, (4,), network=network, key=KEY)


# --- in a sampler: the weights of paths are those of the chain that is run, whatever pushes it


@pytest.mark.parametrize("name", ["own", *(pytest.param(n, marks=[pytest.mark.slow]) for n in ("residual", "unet"))])
def test_importance_weights_average_to_the_evidence(name):
    problem = problems.linear_gaussian(2, num_data=3, sigma=0.6)
    reference = Reference(jnp.zeros(2), jnp.ones(2))
    chain = langevin(reference, num_steps=4, layers=(4, 2), network=NETWORKS[name], key=KEY)
    moved = problems.perturbed(chain, 0.1)
    _, log_weights = problems.weigh(moved, problem, jax.random.split(jax.random.key(1), 32768))
    problems.assert_evidence(log_weights, problem, precision=0.05)


@pytest.mark.parametrize("name", ["own", *(pytest.param(n, marks=[pytest.mark.slow]) for n in ("residual", "unet"))])
def test_every_trained_sampler_takes_the_network(name):
    reference = problems.reference_of(DIM)
    made = {
        "langevin": langevin(reference, num_steps=2, layers=(4,), network=NETWORKS[name], key=KEY),
        "paper": paper_langevin(reference, reference.mean, num_steps=2, network=NETWORKS[name], key=KEY),
        "bottleneck": bottleneck(reference.mean, latent_dim=2, num_steps=2, layers=(4,), network=NETWORKS[name],
                                 key=KEY),
    }  # fmt: skip
    for sampler in made.values():
        flags = getattr(sampler, "chain", sampler).trained().control.network
        assert any(jax.tree.leaves(flags))
        assert np.all(np.isfinite(problems.quick_jit(lambda s: s.draw(key=KEY).weights)(sampler)))


# --- in a configuration and in files


def test_a_configuration_names_the_network():
    asked = {"method": "langevin", "langevin": {"network": "unet"}}
    assert configure("ou", [asked]).options.network == "unet"
    with pytest.raises(ConfigError, match=r"langevin\.network"):
        configure("ou", [{"method": "langevin", "langevin": {"network": "transformer"}}])
    with pytest.raises(ConfigError, match=r"no file can hold; got network='own'"):
        configure("ou", [{"method": "langevin", "langevin": {"network": "own"}}])


@cache
def lines():
    rng, times = np.random.default_rng(0), np.linspace(0.0, 1.0, 6)
    outputs = rng.normal(1.0, 0.3, size=(12, 1)) * times + 0.01 * rng.normal(size=(12, 6))
    return ln.Dataset.from_arrays(times, outputs)


class Line(eqx.Module):
    slope: jax.Array

    def __call__(self, times, inputs, initial=None):
        return (self.slope * times)[:, None]


def fitted(network):
    sizes = {"training": {"num_updates": 2, "num_samples": 8, "block": 1}, "predict": {"num_samples": 8}}
    options = {"langevin": {"num_steps": 2, "layers": (3,), "network": network}, **sizes}
    model = Line(jnp.asarray(0.5))
    return ln.fit(lines(), model=model, method="langevin", target="population", options=options, progress=False)


@pytest.mark.parametrize("name", [pytest.param("unet", marks=[pytest.mark.slow]), "own"])
def test_a_fit_with_another_network_is_restored_from_its_file(name, tmp_path):
    fit, path = fitted(NETWORKS[name]), tmp_path / "fit.langenode"
    fit.save(path)
    model = Line(jnp.asarray(0.5))
    if name == "own":
        with pytest.raises(FitFileError, match=r"network of your own code.*load_fit\(path, network=\.\.\.\)"):
            ln.load_fit(path, model=model)
        wrong = lambda num_in, num_out, *, key: eqx.nn.MLP(num_in, num_out, 3, 1, key=key)  # noqa: E731
        with pytest.raises(FitFileError, match="must match the model it is read into"):
            ln.load_fit(path, model=model, network=wrong)
    again = ln.load_fit(path, model=model, network=sine if name == "own" else None)
    np.testing.assert_array_equal(again.flat_sample(16), fit.flat_sample(16))
