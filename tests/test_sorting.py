"""The sorting network against JAX's own sort, values and gradients, for any number of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.sorting import sort_rows, stages


@pytest.mark.parametrize("num", [1, 2, 3, 5, 8, 31, 64, 100])
def test_values_and_gradients_are_those_of_a_sort(num):
    values = jax.random.normal(jax.random.key(num), (num, 3, 4), float)
    weights = jax.random.normal(jax.random.key(num + 1), values.shape, float)
    np.testing.assert_array_equal(sort_rows(values), jnp.sort(values, axis=0))
    ours = jax.grad(lambda x: jnp.sum(weights * sort_rows(x)))(values)
    np.testing.assert_array_equal(ours, jax.grad(lambda x: jnp.sum(weights * jnp.sort(x, axis=0)))(values))


def test_equal_values_share_no_gradient_and_lose_none():
    values = jnp.zeros((6, 2))
    weights = jnp.arange(12.0).reshape(6, 2)
    found = jax.grad(lambda x: jnp.sum(weights * sort_rows(x)))(values)
    np.testing.assert_array_equal(jnp.sort(found, axis=0), weights)


@pytest.mark.parametrize("num", [2, 4, 8])
def test_the_network_sorts_every_row_of_zeros_and_ones(num):
    """Which proves, by the zero-one principle, that it sorts everything."""
    columns = (np.arange(2**num)[None, :] >> np.arange(num)[:, None]) & 1
    np.testing.assert_array_equal(sort_rows(jnp.asarray(columns, float)), np.sort(columns, axis=0))


def test_partners_are_each_others():
    partners, keeps_lesser = stages(16)
    rows = np.arange(16)
    for partner, lesser in zip(partners, keeps_lesser, strict=True):
        np.testing.assert_array_equal(partner[partner], rows)
        assert (lesser != lesser[partner]).all()
