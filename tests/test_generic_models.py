"""Generic models for data without a known law: their kinds and their starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.partition import Partition
from langenode.models import MLP, Heun, generic_model
from langenode.models.networks import num_parameters


def model_of(kind, **changes):
    options = {"num_inputs": 1, "num_outputs": 2, "num_known": 2, "num_hidden": 3, "layers": (5,), "activation": "tanh"}
    options |= {"solver": Heun(), "has_noise": True, "key": jax.random.key(0)}
    return generic_model(kind, **(options | changes))


TIMES, INPUTS, KNOWN = jnp.linspace(0.0, 1.0, 4), jnp.ones((4, 1)), jnp.array([0.3, -0.7])


@pytest.mark.parametrize(("kind", "size"), [("state", 2), ("hidden", 5), ("observation", 3)])
def test_outputs_have_their_shape_and_the_state_its_size(kind, size):
    model = model_of(kind)
    assert model.hidden(TIMES, INPUTS, KNOWN).shape == (4, size)
    assert model(TIMES, INPUTS, KNOWN).shape == (4, 2)
    assert model.log_noise is not None and model.log_noise.shape == (2,)


@pytest.mark.parametrize("kind", ["state", "hidden"])
def test_where_outputs_are_state_they_start_as_known(kind):
    np.testing.assert_array_equal(model_of(kind)(TIMES, INPUTS, KNOWN)[0], KNOWN)


def test_a_hidden_start_is_affine_in_what_is_known_and_in_the_first_input():
    model = model_of("observation")

    def start(known, first):
        return model.hidden(TIMES, INPUTS.at[0].set(first), known)[0]

    zero = start(jnp.zeros(2), 0.0)
    whole = start(KNOWN, 2.0) - zero
    parts = start(KNOWN, 0.0) - zero + start(jnp.zeros(2), 2.0) - zero
    np.testing.assert_allclose(whole, parts, atol=1e-12)
    assert np.abs(whole).min() > 0.0


def test_an_unknown_start_is_refused_where_outputs_are_state():
    with pytest.raises(ValueError, match="use kind 'observation'"):
        model_of("state", num_known=1)
    assert model_of("observation", num_known=0)(TIMES, INPUTS).shape == (4, 2)


def test_counts_of_weights():
    # 3-5-2 with a skip: 3*5+5 and (5+3)*2+2; and two noise scales.
    assert num_parameters(model_of("state")) == 20 + 18 + 2
    assert Partition.of(model_of("state"), "last_layer").dim == 18 + 2


def test_a_net_with_a_skip_is_affine_far_away():
    net = MLP((1, 8, 1), "tanh", skip=True, key=jax.random.key(1))
    far = jnp.array([1e4, 2e4, 3e4])
    values = jax.vmap(net)(far[:, None])[:, 0]
    np.testing.assert_allclose(values[2] - values[1], values[1] - values[0], rtol=1e-9)
    assert abs(float(values[1] - values[0])) > 1.0


def test_a_net_of_one_layer_has_no_skip():
    assert not MLP((2, 1), skip=True, key=jax.random.key(0)).skip
    assert num_parameters(MLP((2, 1), skip=True, key=jax.random.key(0))) == 3
