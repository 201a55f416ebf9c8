"""A small hierarchical fit of a user's own equations: from data to a file and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import langenode as ln
from langenode.data import Dataset
from langenode.models import Effects, LogNormal, UnitModel

pytestmark = pytest.mark.slow  # compilation of a whole fit

SMALL = {
    "hierarchical": {"num_points": 8, "num_laplace": 4, "num_importance": 1, "num_draws": 2},
    "predict": {"num_samples": 16},
}


class Decay(eqx.Module):
    """A curve with whole numbers among its arrays, which nothing trains, and a weight that all units share."""

    powers: jax.Array
    share: jax.Array

    def __call__(self, times, inputs, p):
        return jnp.sum(self.share**self.powers * jnp.exp(-p.k * times)[:, None], axis=1, keepdims=True)


def model():
    curve = Decay(jnp.arange(1, 3), jnp.asarray(0.7))
    return UnitModel(Effects(k=LogNormal(0.6, 0.3)), curve, noise="additive")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    times = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
    rows = []
    for number in range(8):
        level = 1.2 * np.exp(-0.5 * np.exp(0.4 * rng.standard_normal()) * times)
        rows.append({"times": times, "outputs": level + 0.05 * rng.standard_normal(5), "unit": str(number)})
    return Dataset.from_list(rows, output_names=["y"])


@pytest.fixture(scope="module", params=["gaussian-diagonal", "bottleneck"])
def fit(data, request):
    return ln.fit(data, model=model(), method=request.param, seed=1, options=SMALL, progress=False)


def test_a_file_gives_the_same_predictions(fit, data, tmp_path):
    fit.save(tmp_path / "units.langenode")
    again = ln.load_fit(tmp_path / "units.langenode", model=model())
    one, two = (found.predict(data.select([0, 1])) for found in (fit, again))
    np.testing.assert_array_equal(one["outputs"].to_numpy(), two["outputs"].to_numpy())
    np.testing.assert_array_equal(
        fit.problem.posterior.sample(5, key=jax.random.key(0)), again.problem.posterior.sample(5, key=jax.random.key(0))
    )


def test_whole_numbers_of_a_model_are_what_they_were(fit):
    np.testing.assert_array_equal(fit.problem.model.curve.powers, [1, 2])


def test_what_is_shared_differs_between_members_and_what_is_a_unit_s_own_between_samples(fit):
    posterior = fit.problem.posterior
    names = fit.problem.partition.names
    samples = np.asarray(posterior.sample(40, key=jax.random.key(0)))
    num_values = {name: len(np.unique(samples[:, place])) for place, name in enumerate(names)}
    assert num_values.pop("effects.values[0]") == 40
    assert set(num_values.values()) == {2}
