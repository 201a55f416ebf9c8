"""Programs that are compiled in less time compute the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode._compiling import LIGHT_WITHOUT_FUSION, _known, light_jit, quick_jit
from langenode.models import MLP


@pytest.mark.parametrize("compile_it", [light_jit, quick_jit])
def test_the_function_is_the_same_and_may_be_part_of_a_larger_program(compile_it):
    def scaled_norm(x, power: int, *, factor):
        return factor * jnp.sum(jnp.abs(x) ** power)

    compiled, x = compile_it(scaled_norm), np.array([1.0, -2.0, 3.0])
    exact = 2.0 * 36.0
    assert compiled(x, 3, factor=2.0) == pytest.approx(exact, rel=1e-6)
    assert jax.jit(lambda x: compiled(x, 3, factor=2.0))(x) == pytest.approx(exact, rel=1e-6)
    gradient = jax.grad(lambda x: compiled(x, 3, factor=2.0))(jnp.asarray(x))
    np.testing.assert_allclose(gradient, 6.0 * x * np.abs(x), rtol=1e-6)
    assert compiled.__name__ == "scaled_norm"


@pytest.fixture
def optimising():
    """As for a user: the suite itself turns optimisation off, and so these options, too."""
    jax.config.update("jax_disable_most_optimizations", False)
    _known.cache_clear()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    _known.cache_clear()


def test_options_that_are_not_known_are_left_out(optimising):
    assert _known((("xla_no_such_option", True),)) == ()
    options = tuple(LIGHT_WITHOUT_FUSION.items())
    assert _known(options) == (options if jax.default_backend() == "cpu" else ())


def test_a_network_has_the_weights_that_its_layers_draw():
    key = jax.random.key(3)
    network = MLP((2, 5, 1), skip=True, key=key)
    for layer, num_in, part in zip(network.layers, (2, 7), jax.random.split(key, 2), strict=True):
        alone = eqx.nn.Linear(num_in, layer.out_features, key=part)
        assert layer.bias is not None and alone.bias is not None
        np.testing.assert_allclose(layer.weight, alone.weight, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(layer.bias, alone.bias, rtol=1e-5, atol=1e-7)
