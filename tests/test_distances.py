"""Sums of distances between points: values and derivatives are those of the plain formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.distances import SMALLEST_SQUARE, total_distances
from langenode.inference.population import fair_energy_score

KEYS = jax.random.split(jax.random.key(0), 3)


def plain(points, others, is_self):
    pairs = jnp.sqrt(jnp.sum((others[:, None] - points[None]) ** 2, axis=-1) + SMALLEST_SQUARE)
    return jnp.sum(pairs * (1.0 - jnp.eye(len(points))) if is_self else pairs, axis=1)


@pytest.mark.parametrize("num_components", [1, 3, 20])  # the last is more than one pass of the loop
def test_values_and_derivatives_are_those_of_the_plain_formula(num_components):
    points, others = (jax.random.normal(key, (num, num_components)) for key, num in zip(KEYS, (5, 4), strict=False))
    cotangent = jnp.arange(1.0, 5.0)
    np.testing.assert_allclose(total_distances(points, others, False), plain(points, others, False), rtol=1e-13)
    for derivative in (jax.grad, jax.hessian):
        ours, theirs = (
            derivative(lambda p, o, f=f: cotangent @ f(p, o, False), (0, 1))(points, others)
            for f in (total_distances, plain)
        )
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11), ours, theirs)


def test_a_set_and_itself():
    points = jax.random.normal(KEYS[0], (6, 2)).at[5].set(0.25)
    points = points.at[4].set(points[5])  # two points in one place: the gradient stays finite
    np.testing.assert_allclose(total_distances(points, points, True), plain(points, points, True), rtol=1e-13)
    ours, theirs = (jax.grad(lambda p, f=f: jnp.sum(f(p, p, True) ** 2))(points) for f in (total_distances, plain))
    assert np.abs(theirs).max() > 1.0
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_maps", [1, 4])
def test_the_energy_score_is_its_definition(num_maps):
    """With one map for all members, and with one for each."""
    ours, theirs = jax.random.normal(KEYS[0], (num_maps, 5, 2, 3)), jax.random.normal(KEYS[1], (4, 2, 3))
    weights = jnp.array([[1, 1], [1, 0], [1, 1], [0, 1]])
    total = 0.0
    for member, condition in np.argwhere(weights):
        points = np.asarray(ours[member % num_maps, :, condition])
        cross = np.sqrt(((points - theirs[member, condition]) ** 2).sum(-1) + SMALLEST_SQUARE).mean()
        pairs = np.sqrt(((points[:, None] - points) ** 2).sum(-1) + SMALLEST_SQUARE)
        total += cross - 0.5 * pairs[~np.eye(5, dtype=bool)].mean()
    np.testing.assert_allclose(fair_energy_score(ours, theirs, weights), total / weights.sum(), rtol=1e-12)
