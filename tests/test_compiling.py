"""Programs that are compiled in less time compute the same."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode import _compiling
from langenode._compiling import LIGHT_WITHOUT_FUSION, _known, light_jit, make_room, quick_jit
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


@pytest.mark.skipif(not _compiling.OWN_MAPS.exists(), reason="needs Linux")
def test_programs_are_forgotten_before_there_is_no_room_for_more(tmp_path, monkeypatch):
    forgotten = []
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(True))
    used = len(_compiling.OWN_MAPS.read_bytes().splitlines())
    for most, is_full in ((100 * used, False), (used, True)):
        (tmp_path / "most").write_text(f"{most}\n")
        monkeypatch.setattr(_compiling, "MOST_MAPS", tmp_path / "most")
        make_room()
        assert bool(forgotten) == is_full
    monkeypatch.setattr(_compiling, "MOST_MAPS", tmp_path / "absent")
    make_room()
    assert len(forgotten) == 1


def test_a_network_has_the_weights_that_its_layers_draw():
    key = jax.random.key(3)
    network = MLP((2, 5, 1), skip=True, key=key)
    for layer, num_in, part in zip(network.layers, (2, 7), jax.random.split(key, 2), strict=True):
        alone = eqx.nn.Linear(num_in, layer.out_features, key=part)
        assert layer.bias is not None and alone.bias is not None
        np.testing.assert_allclose(layer.weight, alone.weight, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(layer.bias, alone.bias, rtol=1e-5, atol=1e-7)


BATCHES = """
import jax, jax.numpy as jnp, numpy as np
from jax.scipy.linalg import solve_triangular

rows = np.random.default_rng(0).standard_normal((64, 20, 20)).astype("float32")
matrices = rows @ rows.transpose(0, 2, 1) + np.eye(20, dtype="float32")

@jax.jit
def solve(matrices, values):
    factors = [jnp.linalg.cholesky(matrices * (k + 1.0)) for k in range(6)]
    return sum(solve_triangular(one, values, lower=True).sum() for one in factors)

values = np.ones((64, 20, 100), "float32")
for _ in range(400):
    solve(matrices, values).block_until_ready()
"""


@pytest.mark.slow
def test_batches_of_small_matrices_do_not_wait_for_each_other():
    """With JAX 0.10.2, which pyproject.toml excludes, this program stood still within 10 to 250 of its rounds."""
    subprocess.run([sys.executable, "-c", BATCHES], timeout=240, check=True)
