"""Invariants, stress from a potential, tangents and the logarithmic strain, against closed forms and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.models import mechanics
from problems import random_strain, rotation


@pytest.mark.parametrize("num", [3, 6])
def test_components_and_tensors_are_inverse(num):
    row = jnp.arange(1.0, num + 1.0)
    matrix = mechanics.tensor(row)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(mechanics.components(matrix, num), row)


def test_mandel_vectors_have_the_tensors_scalar_product():
    a, b = random_strain(0), random_strain(1)
    vectors = [jax.jit(mechanics.components)(t) * mechanics.MANDEL for t in (a, b)]
    np.testing.assert_allclose(vectors[0] @ vectors[1], np.sum(a * b), rtol=1e-14)


def test_adjugate_and_determinant():
    strains = np.stack([random_strain(seed) for seed in range(3)])
    adjugate, determinant = jax.jit(jax.vmap(lambda e: (mechanics.adjugate(e), mechanics.determinant(e))))(strains)
    exact = np.linalg.det(strains)
    np.testing.assert_allclose(adjugate, exact[:, None, None] * np.linalg.inv(strains), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(determinant, exact, rtol=1e-10, atol=1e-15)


def test_invariants_do_not_depend_on_the_frame():
    strain, rate, turn = random_strain(0), random_strain(1), rotation(2)
    invariants = jax.jit(mechanics.joint_invariants)
    there = invariants(turn @ strain @ turn.T, turn @ rate @ turn.T)
    np.testing.assert_allclose(there, invariants(strain, rate), rtol=1e-10, atol=1e-14)


def test_invariants_by_principal_strains():
    a, b, c = 0.1, -0.2, 0.3
    found = jax.jit(mechanics.invariants)(np.diag([a, b, c]))
    np.testing.assert_allclose(found, [a + b + c, a * b + b * c + c * a, a * b * c], rtol=1e-12)


def test_joint_invariants_by_principal_values():
    e, d = np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, -0.7])
    found = jax.jit(mechanics.joint_invariants)(np.diag(e), np.diag(d))
    wanted = [d.sum(), (d**2).sum(), (d**3).sum(), e @ d, e**2 @ d, e @ d**2, e**2 @ d**2]
    assert found.shape == (10,)
    np.testing.assert_allclose(found[3:], wanted, rtol=1e-12)


def test_basis_is_the_derivative_of_the_invariants():
    strains = np.stack([random_strain(seed) for seed in range(3)])
    both = jax.vmap(lambda e: (mechanics.invariant_basis(e), jax.jacfwd(mechanics.invariants)(e)))
    basis, derivative = map(np.asarray, jax.jit(both)(strains))
    np.testing.assert_allclose(basis, 0.5 * (derivative + np.swapaxes(derivative, 2, 3)), rtol=1e-10, atol=1e-13)


def neo_hookean_like(values):
    return jnp.exp(values[0]) + 0.3 * values[1] ** 2 - values[2] * values[0]


@jax.jit
def energy_of(strain):
    return neo_hookean_like(mechanics.invariants(strain))


@jax.jit
def stress_of(strain):
    return mechanics.stress_from_potential(neo_hookean_like, strain)


@pytest.mark.parametrize("strain", [random_strain(0), random_strain(1), np.zeros((3, 3))])
def test_stress_is_the_finite_difference_of_the_potential(strain):
    found, step = stress_of(strain), 1e-5
    for i in range(3):
        for j in range(i, 3):
            change = np.zeros((3, 3))
            change[i, j] += 0.5 * step
            change[j, i] += 0.5 * step
            difference = (energy_of(strain + change) - energy_of(strain - change)) / (2.0 * step)
            np.testing.assert_allclose(found[i, j], difference, atol=1e-6)


@pytest.mark.parametrize("strain", [random_strain(0), np.zeros((3, 3))])
def test_tangent_is_symmetric_and_the_finite_difference_of_the_stress(strain):
    found = np.asarray(jax.jit(lambda e: mechanics.tangent(stress_of, e))(strain))
    weighted = mechanics.MANDEL[:, None] * found / mechanics.MANDEL[None, :]
    np.testing.assert_allclose(weighted, weighted.T, atol=1e-12)
    components, tensor = jax.jit(mechanics.components), jax.jit(mechanics.tensor)
    row, step = np.asarray(components(strain)), 1e-6
    for k in range(6):
        change = step * np.eye(6)[k]
        ends = [np.asarray(components(stress_of(tensor(row + sign * change)))) for sign in (1, -1)]
        np.testing.assert_allclose(found[:, k], (ends[0] - ends[1]) / (2.0 * step), atol=1e-7)


@pytest.mark.parametrize("principal", [(0.0, 0.0, 0.0), (0.02, -0.01, -0.01), (0.5, -0.2, 0.1)])
def test_log_strain_by_eigenvalues_in_any_frame(principal):
    turn, values = rotation(4), np.array(principal)
    strain = turn @ np.diag(values) @ turn.T
    wanted = turn @ np.diag(0.5 * np.log1p(2.0 * values)) @ turn.T
    np.testing.assert_allclose(jax.jit(mechanics.log_strain)(strain), wanted, atol=1e-10)


def test_log_strain_has_derivatives_in_the_unstrained_state():
    slope = jax.jacfwd(mechanics.log_strain)
    first, second = jax.jit(lambda e: (slope(e), jax.jacfwd(slope)(e)))(np.zeros((3, 3)))
    np.testing.assert_allclose(first.reshape(9, 9), np.eye(9), atol=1e-12)
    assert np.all(np.isfinite(second))


def test_a_positive_factor_is_symmetric_positive_and_nearly_the_exponential():
    import scipy.linalg

    factor = jax.jit(jax.vmap(mechanics.positive_factor))
    weights = np.random.default_rng(0).normal(size=(50, 21)) * np.geomspace(0.01, 30.0, 50)[:, None]
    found = np.asarray(factor(jnp.asarray(weights)))
    np.testing.assert_allclose(found, np.swapaxes(found, 1, 2), rtol=1e-10)
    assert all(np.linalg.eigvalsh(one / np.abs(one).max()).min() > -1e-12 for one in found)
    assert np.linalg.eigvalsh(found[0]).min() > 0.0
    upper = np.zeros((6, 6))
    upper[np.triu_indices(6)] = weights[0]
    np.testing.assert_allclose(found[0], scipy.linalg.expm(upper + np.triu(upper, 1).T), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(mechanics.positive_factor(jnp.zeros(21))), np.eye(6))
