"""Sums of distances between points: values and derivatives are those of the plain formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.distances import SMALLEST_SQUARE, total_distances
from langenode.inference.population import fair_energy_score


def plain(points, others, is_self):
    pairs = jnp.sqrt(jnp.sum((others[:, None] - points[None]) ** 2, axis=-1) + SMALLEST_SQUARE)
    return jnp.sum(pairs * (1.0 - jnp.eye(len(points))) if is_self else pairs, axis=1)


@pytest.mark.parametrize("num_components", [1, 3, 20])  # the last is more than one pass of the loop
def test_values_and_derivatives_are_those_of_the_plain_formula(num_components):
    rng = np.random.default_rng(0)
    points, others = rng.normal(size=(5, num_components)), rng.normal(size=(4, num_components))
    cotangent = np.arange(1.0, 5.0)

    def value_and_derivatives(function, points, others):
        total = lambda p, o: cotangent @ function(p, o, False)  # noqa: E731
        derivatives = [derive(total, (0, 1))(points, others) for derive in (jax.grad, jax.hessian)]
        return function(points, others, False), derivatives

    run = jax.jit(lambda p, o: [value_and_derivatives(f, p, o) for f in (total_distances, plain)])
    (ours, our_derivatives), (theirs, their_derivatives) = run(points, others)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    for a, b in zip(jax.tree.leaves(our_derivatives), jax.tree.leaves(their_derivatives), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11)


def test_a_set_and_itself():
    points = np.random.default_rng(0).normal(size=(6, 2))
    points[4:] = 0.25  # two points in one place: the gradient stays finite

    def value_and_gradient(function, points):
        return function(points, points, True), jax.grad(lambda p: jnp.sum(function(p, p, True) ** 2))(points)

    run = jax.jit(lambda p: [value_and_gradient(f, p) for f in (total_distances, plain)])
    (ours, our_gradient), (theirs, their_gradient) = run(points)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    assert np.abs(their_gradient).max() > 1.0
    np.testing.assert_allclose(our_gradient, their_gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_maps", [1, 4])
def test_the_energy_score_is_its_definition(num_maps):
    """With one map for all members, and with one for each."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(num_maps, 5, 2, 3)), rng.normal(size=(4, 2, 3))
    weights = np.array([[1, 1], [1, 0], [1, 1], [0, 1]])
    total = 0.0
    for member, condition in np.argwhere(weights):
        points = ours[member % num_maps, :, condition]
        cross = np.sqrt(((points - theirs[member, condition]) ** 2).sum(-1) + SMALLEST_SQUARE).mean()
        pairs = np.sqrt(((points[:, None] - points) ** 2).sum(-1) + SMALLEST_SQUARE)
        total += cross - 0.5 * pairs[~np.eye(5, dtype=bool)].mean()
    np.testing.assert_allclose(jax.jit(fair_energy_score)(ours, theirs, weights), total / weights.sum(), rtol=1e-12)
