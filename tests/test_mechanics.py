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
    vectors = [mechanics.components(t) * mechanics.MANDEL for t in (a, b)]
    np.testing.assert_allclose(vectors[0] @ vectors[1], jnp.sum(a * b), rtol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_adjugate_and_determinant(seed):
    strain = random_strain(seed)
    np.testing.assert_allclose(
        mechanics.adjugate(strain), jnp.linalg.det(strain) * jnp.linalg.inv(strain).T, rtol=1e-9, atol=1e-14
    )
    np.testing.assert_allclose(mechanics.determinant(strain), jnp.linalg.det(strain), rtol=1e-10, atol=1e-15)


def test_invariants_do_not_depend_on_the_frame():
    strain, rate, turn = random_strain(0), random_strain(1), rotation(2)
    there = mechanics.joint_invariants(turn @ strain @ turn.T, turn @ rate @ turn.T)
    np.testing.assert_allclose(there, mechanics.joint_invariants(strain, rate), rtol=1e-10, atol=1e-14)


def test_invariants_by_principal_strains():
    a, b, c = 0.1, -0.2, 0.3
    found = mechanics.invariants(jnp.diag(jnp.array([a, b, c])))
    np.testing.assert_allclose(found, [a + b + c, a * b + b * c + c * a, a * b * c], rtol=1e-12)


def test_joint_invariants_by_principal_values():
    e, d = np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, -0.7])
    found = mechanics.joint_invariants(jnp.diag(jnp.array(e)), jnp.diag(jnp.array(d)))
    wanted = [d.sum(), (d**2).sum(), (d**3).sum(), e @ d, e**2 @ d, e @ d**2, e**2 @ d**2]
    assert found.shape == (10,)
    np.testing.assert_allclose(found[3:], wanted, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_basis_is_the_derivative_of_the_invariants(seed):
    strain = random_strain(seed)
    derivative = jax.jacfwd(mechanics.invariants)(strain)
    symmetric = 0.5 * (derivative + jnp.swapaxes(derivative, 1, 2))
    np.testing.assert_allclose(mechanics.invariant_basis(strain), symmetric, rtol=1e-10, atol=1e-13)


def neo_hookean_like(values):
    return jnp.exp(values[0]) + 0.3 * values[1] ** 2 - values[2] * values[0]


@pytest.mark.parametrize("strain", [random_strain(0), random_strain(1), jnp.zeros((3, 3))])
def test_stress_is_the_finite_difference_of_the_potential(strain):
    found = mechanics.stress_from_potential(neo_hookean_like, strain)
    step = 1e-5
    for i in range(3):
        for j in range(i, 3):
            change = jnp.zeros((3, 3)).at[i, j].add(0.5 * step).at[j, i].add(0.5 * step)
            ends = [neo_hookean_like(mechanics.invariants(strain + sign * change)) for sign in (1, -1)]
            np.testing.assert_allclose(found[i, j], (ends[0] - ends[1]) / (2.0 * step), atol=1e-6)


@pytest.mark.parametrize("strain", [random_strain(0), jnp.zeros((3, 3))])
def test_tangent_is_symmetric_and_the_finite_difference_of_the_stress(strain):
    def stress(values):
        return mechanics.stress_from_potential(neo_hookean_like, values)

    found = mechanics.tangent(stress, strain)
    weighted = mechanics.MANDEL[:, None] * found / mechanics.MANDEL[None, :]
    np.testing.assert_allclose(weighted, weighted.T, atol=1e-12)
    row, step = mechanics.components(strain), 1e-6
    for k in range(6):
        ends = [stress(mechanics.tensor(row.at[k].add(sign * step))) for sign in (1, -1)]
        difference = (mechanics.components(ends[0]) - mechanics.components(ends[1])) / (2.0 * step)
        np.testing.assert_allclose(found[:, k], difference, atol=1e-7)


@pytest.mark.parametrize("principal", [(0.0, 0.0, 0.0), (0.02, -0.01, -0.01), (0.5, -0.2, 0.1)])
def test_log_strain_by_eigenvalues_in_any_frame(principal):
    turn, values = rotation(4), jnp.array(principal)
    strain = turn @ jnp.diag(values) @ turn.T
    wanted = turn @ jnp.diag(0.5 * jnp.log1p(2.0 * values)) @ turn.T
    np.testing.assert_allclose(mechanics.log_strain(strain), wanted, atol=1e-10)


def test_log_strain_has_derivatives_in_the_unstrained_state():
    slope = jax.jacfwd(mechanics.log_strain)(jnp.zeros((3, 3)))
    np.testing.assert_allclose(slope.reshape(9, 9), np.eye(9), atol=1e-12)
    curvature = jax.jacfwd(jax.jacfwd(mechanics.log_strain))(jnp.zeros((3, 3)))
    assert bool(jnp.isfinite(curvature).all())
