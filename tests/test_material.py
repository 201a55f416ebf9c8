"""Material laws: counts, stress against energy, frames, tangents, dissipation, steps, and a closed form."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.partition import Partition
from langenode.models import (
    NeuralODE,
    PotentialStress,
    hyperelastic_potential,
    internal_variable_law,
    mechanics,
    num_parameters,
    tensor_law,
)
from problems import random_strain, rotation

KEY = jax.random.key(0)


def potential(*, convex=False, key=KEY):
    return hyperelastic_potential((3, 3), "softplus", convex=convex, strain_scale=0.05, key=key)


def paper_law(*, rate_potential=False):
    return internal_variable_law(
        num_hidden=6, layers=(16, 16), rate_potential=rate_potential, strain_scale=0.05, rate_scale=0.3, key=KEY
    )


def maxwell(*, correction_layers: tuple[int, ...] | None = None, structure=None):
    law = tensor_law(
        num_branches=3,
        correction_layers=correction_layers,
        strain_scale=0.05,
        shortest=0.05,
        longest=1.0,
        bulk_ratio=50.0,
        key=KEY,
    )
    law = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, law)
    if correction_layers is not None:  # networks with nonzero output
        key_energy, key_mobility = jax.random.split(jax.random.key(3))
        loud = [
            jax.random.normal(k, net.layers[-1].weight.shape)
            for k, net in ((key_energy, law.energy_correction), (key_mobility, law.mobility))
        ]
        law = eqx.tree_at(lambda m: (m.energy_correction.layers[-1].weight, m.mobility.layers[-1].weight), law, loud)
    return law if structure is None else eqx.tree_at(lambda m: m.structure, law, jnp.asarray(structure))


ANISOTROPIC = (1.1, 0.9, 1.0, 0.08, -0.05, 0.03)
TENSOR_LAWS = {
    "maxwell": maxwell(),
    "anisotropic": maxwell(structure=ANISOTROPIC),
    "corrected": maxwell(correction_layers=(6,)),
    "corrected anisotropic": maxwell(correction_layers=(6,), structure=ANISOTROPIC),
    "full": maxwell(structure=0.1 * np.random.default_rng(4).normal(size=21)),
    "corrected full": maxwell(correction_layers=(6,), structure=0.1 * np.random.default_rng(4).normal(size=21)),
}
# The plainest; the others take longer to compile.
LAWS = [pytest.param(name, marks=[] if name == "maxwell" else [pytest.mark.slow]) for name in TENSOR_LAWS]
SMALL = 0.03


def internal_state(law, seed):
    """Return the internal variables after a path of a few steps."""
    strains = np.stack([np.zeros((3, 3)), *(random_strain(seed + i, SMALL) for i in range(4))])
    return state_after(law, jnp.asarray(strains), jnp.asarray(0.1))


@eqx.filter_jit
def state_after(law, strains, dt):
    ends = (strains[:-1], strains[1:])
    return jax.lax.scan(lambda internal, e: (law.advance(internal, *e, dt), None), law.start(float), ends)[0]


@eqx.filter_jit
def stresses_along(law, strains):
    """The stress after each step of a path."""

    def step(internal, ends):
        internal = law.advance(internal, *ends, jnp.asarray(0.1))
        return internal, law.stress(ends[1], internal)

    return jax.lax.scan(step, law.start(float), (strains[:-1], strains[1:]))[1]


@eqx.filter_jit
def stress_of(law, *point):
    return law.stress(*point)


def test_counts_of_the_paper():
    law, preset = paper_law(), paper_law(rate_potential=True)
    assert num_parameters(potential()) == 28
    assert num_parameters(potential(convex=True)) == 28
    assert num_parameters(law.flow) == 646
    assert num_parameters(law.observation) == 449
    assert num_parameters(preset.observation) == 561
    assert num_parameters(preset) == 1207
    assert Partition.of(potential(), "last_layer").dim == 4
    assert Partition.of(law, "last_layer").dim == 102 + 17
    assert Partition.of(preset, "last_layer").dim == 119
    assert Partition.of(maxwell(), "structure").dim == 6


def test_structure_can_be_asked_of_a_law_that_has_one_only():
    with pytest.raises(ValueError, match="selects none"):
        Partition.of(paper_law(), "structure")


def assert_stress_is_the_difference_of(energy, stress, strain_sizes=(SMALL, 0.0)):
    """At a random strain and at none, component by component: one program for all of it."""
    step, strains = 1e-6, [random_strain(0, size) for size in strain_sizes]
    changes = np.zeros((3, 3, 3, 3))
    for i, j in itertools.product(range(3), repeat=2):
        changes[i, j, i, j] += 0.5 * step
        changes[i, j, j, i] += 0.5 * step
    ends = np.stack([[strain + changes, strain - changes] for strain in strains])

    @jax.jit
    def evaluate(strains, ends):
        return jax.vmap(stress)(strains), jax.vmap(energy)(ends.reshape(-1, 3, 3)).reshape(ends.shape[:-2])

    found, energies = map(np.asarray, evaluate(np.stack(strains), ends))
    np.testing.assert_allclose(found, (energies[:, 0] - energies[:, 1]) / (2.0 * step), atol=1e-6)
    assert np.abs(found[0]).max() > 1e-3


@pytest.mark.parametrize("convex", [False, True])
def test_hyperelastic_stress_is_the_difference_of_its_potential(convex):
    law, none = potential(convex=convex), jnp.zeros(0)
    assert_stress_is_the_difference_of(lambda e: law.energy(e, none), lambda e: law.stress(e, none))


@pytest.mark.parametrize("structure", ["normal", "full"])
def test_a_structural_potential_is_stress_free_and_its_stress_a_difference(structure):
    law = hyperelastic_potential(
        (3, 3), "softplus", convex=False, strain_scale=0.05, stress_free=True, structure=structure, key=KEY
    )
    law = jax.tree.map(lambda leaf: leaf.astype(float) if eqx.is_inexact_array(leaf) else leaf, law)
    plain = eqx.tree_at(lambda m: m.structure, law, None)
    none, strain = jnp.zeros(0), random_strain(0, SMALL)
    np.testing.assert_allclose(stress_of(law, strain, none), stress_of(plain, strain, none), rtol=1e-9, atol=1e-15)
    weights = law.structure + 0.1 * np.random.default_rng(1).normal(size=law.structure.shape)
    law = eqx.tree_at(lambda m: m.structure, law, weights)
    np.testing.assert_array_equal(stress_of(law, np.zeros((3, 3)), none), np.zeros((3, 3)))
    assert_stress_is_the_difference_of(lambda e: law.energy(e, none), lambda e: law.stress(e, none), (SMALL,))
    assert Partition.of(law, "structure").dim == weights.size


@pytest.mark.parametrize("name", LAWS)
def test_tensor_stress_is_the_difference_of_its_potential(name):
    law = TENSOR_LAWS[name]
    internal = internal_state(law, 10)
    assert_stress_is_the_difference_of(lambda e: law.energy(e, internal), lambda e: law.stress(e, internal))


def test_paper_stress_is_the_difference_of_its_potential():
    law = paper_law()
    internal, observation = internal_state(law, 10), law.observation
    assert isinstance(observation, PotentialStress)
    assert_stress_is_the_difference_of(
        lambda e: observation.energy(e, internal), lambda e: law.stress(e, internal), (SMALL,)
    )


@pytest.mark.parametrize(
    "name", ["paper", "paper with rates", "maxwell", pytest.param("corrected", marks=[pytest.mark.slow])]
)
def test_isotropic_laws_turn_with_the_frame(name):
    laws = {**TENSOR_LAWS, "paper": paper_law(), "paper with rates": paper_law(rate_potential=True)}
    law, turn = laws[name], rotation(5)
    strains = np.stack([np.zeros((3, 3)), *(random_strain(20 + i, SMALL) for i in range(4))])
    here, there = stresses_along(law, strains), stresses_along(law, turn @ strains @ turn.T)
    np.testing.assert_allclose(there, turn @ np.asarray(here) @ turn.T, rtol=1e-8, atol=1e-10)


def test_hyperelastic_stress_turns_with_the_frame():
    law, strain, turn = potential(), random_strain(6, SMALL), rotation(7)
    turned, here = stress_of(law, turn @ strain @ turn.T, jnp.zeros(0)), stress_of(law, strain, jnp.zeros(0))
    np.testing.assert_allclose(turned, turn @ np.asarray(here) @ turn.T, rtol=1e-9, atol=1e-12)


def test_an_anisotropic_law_does_not_turn_with_the_frame():
    law, strain, turn = TENSOR_LAWS["anisotropic"], random_strain(6, SMALL), rotation(7)
    turned, here = (np.asarray(stress_of(law, e, law.start(float))) for e in (turn @ strain @ turn.T, strain))
    assert np.abs(turned - turn @ here @ turn.T).max() > 1e-3


@pytest.mark.parametrize("name", LAWS)
def test_tangent_at_fixed_state_is_symmetric_and_a_difference(name):
    law, strain = TENSOR_LAWS[name], random_strain(8, SMALL)
    internal = internal_state(law, 30)
    found, difference = tangent_and_difference(lambda e: law.stress(e, internal), strain)
    mandel, largest = np.asarray(mechanics.MANDEL), np.abs(found).max()
    weighted = mandel[:, None] * found / mandel[None, :]
    np.testing.assert_allclose(weighted, weighted.T, rtol=1e-9, atol=1e-9 * largest)
    np.testing.assert_allclose(found, difference, atol=1e-6 * largest)


@pytest.mark.parametrize(
    "name", ["paper", *(pytest.param(n, marks=[pytest.mark.slow]) for n in ("anisotropic", "corrected anisotropic"))]
)
def test_algorithmic_tangent_is_the_difference_of_a_whole_step(name):
    law = {**TENSOR_LAWS, "paper": paper_law()}[name]
    before, after = jnp.asarray(random_strain(8, SMALL)), random_strain(9, SMALL)
    internal = internal_state(law, 30)

    def stress(strain):
        return law.stress(strain, law.advance(internal, before, strain, jnp.asarray(0.1)))

    found, difference = tangent_and_difference(stress, after)
    np.testing.assert_allclose(found, difference, atol=1e-6 * np.abs(found).max())
    fixed = jax.jit(lambda e: mechanics.tangent(lambda e: law.stress(e, internal), e))(after)
    assert np.abs(found - fixed).max() > 1e-3 * np.abs(found).max()  # a step relaxes, a jump does not


def tangent_and_difference(stress, strain, step=1e-6):
    """The tangent, and the same by central differences, in one program."""
    row = np.asarray(mechanics.components(jnp.asarray(strain)))
    rows = np.stack([row + step * np.eye(6), row - step * np.eye(6)])

    @jax.jit
    def evaluate(strain, rows):
        one = lambda row: mechanics.components(stress(mechanics.tensor(row)))  # noqa: E731
        return mechanics.tangent(stress, strain), jax.vmap(jax.vmap(one))(rows)

    tangent, ends = map(np.asarray, evaluate(strain, rows))
    return tangent, ((ends[0] - ends[1]) / (2.0 * step)).T


@pytest.mark.parametrize("name", LAWS)
def test_dissipation_is_never_negative_on_random_paths(name):
    law = TENSOR_LAWS[name]
    steps = 0.01 * np.random.default_rng(0).normal(size=(100, 60, 6))
    rows = np.concatenate([np.zeros((100, 1, 6)), np.cumsum(steps, axis=1)], axis=1)

    def step(internal, ends):
        internal = law.advance(internal, *ends, jnp.asarray(0.05))
        return internal, law.dissipation(ends[1], internal)

    @jax.jit
    @jax.vmap
    def lost_along(path):
        strains = jax.vmap(mechanics.tensor)(path)
        return jax.lax.scan(step, law.start(float), (strains[:-1], strains[1:]))[1]

    lost = lost_along(rows)
    assert float(lost.min()) >= 0.0
    assert float(lost[:, -1].min()) > 0.0


@pytest.mark.slow
def test_dissipation_is_the_power_that_is_not_stored():
    law = TENSOR_LAWS["corrected anisotropic"]
    start, end, num = random_strain(0, SMALL), random_strain(1, SMALL), 4000
    dt = jnp.asarray(1.0 / num)
    path = start + (end - start) * np.linspace(0.0, 1.0, num + 1)[:, None, None]

    def step(carry, ends):
        internal, work, lost = carry
        before, after = ends
        middle = 0.5 * (before + after)
        half = law.advance(internal, before, middle, 0.5 * dt)
        work = work + jnp.sum(law.stress(middle, half) * (after - before))
        lost = lost + dt * law.dissipation(middle, half)
        return (law.advance(internal, before, after, dt), work, lost), None

    @jax.jit
    def along(internal, path):
        first = (internal, jnp.zeros(()), jnp.zeros(()))
        last, work, lost = jax.lax.scan(step, first, (path[:-1], path[1:]))[0]
        return work, law.energy(path[-1], last) - law.energy(path[0], internal), lost

    work, stored, lost = along(internal_state(law, 40), path)
    np.testing.assert_allclose(work - stored, lost, rtol=1e-4)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_along_the_axes_is_the_law_of_all_components(name):
    law = TENSOR_LAWS[name]
    times = jnp.linspace(0.0, 1.0, 12)
    rows = 0.02 * np.cumsum(np.random.default_rng(0).normal(size=(12, 3)), axis=0) / 3.0
    evaluate = eqx.filter_jit(lambda law, *ways: [law(times, rows) for rows in ways])
    full, along = map(np.asarray, evaluate(law, jnp.asarray(np.pad(rows, ((0, 0), (0, 3)))), jnp.asarray(rows)))
    np.testing.assert_allclose(full[:, :3], along, rtol=1e-9, atol=1e-12)
    if name == "maxwell":
        np.testing.assert_allclose(full[:, 3:], 0.0, atol=1e-12)


def test_step_strain_relaxes_as_the_prony_series():
    law = TENSOR_LAWS["maxwell"]
    times = np.concatenate([[0.0, 1e-9], np.linspace(0.1, 2.0, 20)])
    stretch = np.array([0.02, -0.01, -0.01])
    rows = np.concatenate([np.zeros((1, 3)), np.broadcast_to(np.expm1(2.0 * stretch) / 2.0, (21, 3))])
    moduli, taus = np.exp(law.log_moduli), np.exp(law.log_times)
    modulus = moduli[0] + np.exp(-times[1:, None] / taus) @ moduli[1:]
    wanted = 2.0 * modulus[:, None] * stretch / law.strain_scale / np.exp(2.0 * stretch)
    np.testing.assert_allclose(eqx.filter_jit(law)(times, rows)[1:], wanted, rtol=1e-6)


def errors_of_steps(law, counts, reference):
    law = eqx.filter_jit(law)

    def run(num):
        times = np.linspace(0.0, 1.0, num + 1)
        path = np.stack([0.05 * times, -0.03 * times, 0.01 * times], axis=1)
        return np.asarray(law(times, path))[-1]

    exact = run(reference)
    return np.array([np.abs(run(num) - exact).max() for num in counts])


def test_a_step_without_networks_is_exact_in_log_strain():
    law = eqx.filter_jit(TENSOR_LAWS["anisotropic"])

    def run(num):
        times = np.linspace(0.0, 1.0, num + 1)
        path = np.stack([0.05 * times, -0.03 * times, 0.01 * times], axis=1)
        return np.asarray(law(times, np.expm1(2.0 * path) / 2.0))[-1]

    np.testing.assert_allclose(run(1), run(64), rtol=1e-9)


@pytest.mark.parametrize("name", [pytest.param("corrected anisotropic", marks=[pytest.mark.slow]), "paper"])
def test_steps_are_of_second_order(name):
    law = {**TENSOR_LAWS, "paper": paper_law()}[name]
    counts = np.array([16, 32, 64, 128])
    slope = np.polyfit(np.log(1.0 / counts), np.log(errors_of_steps(law, counts, 4096)), 1)[0]
    assert abs(slope - 2.0) < 0.4


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=[pytest.mark.slow]) for n in ("corrected", "paper")), "paper with rates"]
)
def test_padding_changes_nothing(name):
    """Also where rates are taken over a last step of no length."""
    laws = {**TENSOR_LAWS, "paper": paper_law(), "paper with rates": paper_law(rate_potential=True)}
    rows, times = 0.02 * np.random.default_rng(0).normal(size=(6, 3)), np.linspace(0.0, 1.0, 6)
    padded = np.append(times, times[-1:]), np.append(rows, rows[-1:], axis=0)
    evaluate = eqx.filter_jit(lambda law, one, two: (law(*one), law(*two)))
    longer, plain = evaluate(laws[name], padded, (times, rows))
    np.testing.assert_allclose(np.asarray(longer)[:6], plain, rtol=1e-12)


def test_convex_potential_is_convex_in_the_invariants():
    law = potential(convex=True)
    points = np.random.default_rng(0).normal(size=(64, 3))
    curvature = jax.jit(jax.vmap(jax.hessian(lambda x: law.potential(x)[0])))(points)
    assert np.linalg.eigvalsh(curvature).min() >= -1e-12


def randomised(tree, seed):
    """The same tree with normal numbers in place of its own."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)) if eqx.is_array(leaf) else leaf, tree)


@eqx.filter_jit
def curvatures(network, points):
    return jax.vmap(jax.hessian(lambda x: network(x)[0]))(points)


@pytest.mark.parametrize("name", ["paper", "paper with rates", "correction"])
def test_convex_viscoelastic_potential_is_convex_in_its_inputs(name):
    """Whatever the weights, in all inputs together; a plain network is not."""

    def curvature(convex):
        if name == "correction":
            options = {"num_branches": 3, "shortest": 0.05, "longest": 1.0, "bulk_ratio": 50.0}
            law: Any = tensor_law(correction_layers=(6, 5), strain_scale=0.05, convex=convex, key=KEY, **options)
            network, num = law.energy_correction, 10
        else:
            law = internal_variable_law(num_hidden=6, layers=(8, 8), rate_potential=name != "paper", strain_scale=0.05,
                                        rate_scale=0.3, convex=convex, key=KEY)  # fmt: skip
            network, num = law.observation.potential, 9 if name == "paper" else 16
        points = jnp.asarray(np.random.default_rng(1).normal(size=(32, num)))
        found = [curvatures(randomised(network, seed), points) for seed in range(3)]
        return np.linalg.eigvalsh(np.stack(found)).min()

    assert curvature(True) >= -1e-10 and curvature(False) < -1e-3


def test_a_convex_correction_starts_small():
    options = {"num_branches": 3, "shortest": 0.05, "longest": 1.0, "bulk_ratio": 50.0, "strain_scale": 0.05}
    plain, convex = (tensor_law(correction_layers=layers, convex=True, key=KEY, **options) for layers in (None, (6,)))
    strain = jnp.asarray(random_strain(0, SMALL))
    one, two = (stress_of(law, strain, law.start(float)) for law in (plain, convex))
    assert 0.0 < np.abs(one - two).max() < 0.05 * np.abs(one).max()


def test_a_trainable_start_is_where_the_internal_variables_start():
    law = internal_variable_law(num_hidden=2, layers=(4,), rate_potential=False, strain_scale=0.05, rate_scale=0.3,
                                trainable_start=True, key=KEY)  # fmt: skip
    np.testing.assert_array_equal(law.start(float), np.zeros(2))
    assert "initial" in Partition.of(law, "all").leaf_names
    moved = eqx.tree_at(lambda m: m.initial, law, jnp.array([0.3, -0.2]))
    rows, times = jnp.asarray(0.02 * np.random.default_rng(0).normal(size=(4, 3))), jnp.linspace(0.0, 1.0, 4)
    outputs = jax.jit(lambda: (law(times, rows, moved.initial), moved(times, rows), law(times, rows)))
    given, own, plain = map(np.asarray, outputs())
    np.testing.assert_allclose(given, own, rtol=1e-12)
    assert np.abs(own - plain).max() > 1e-3


def test_the_unstrained_state_has_no_stress_whatever_the_networks_say():
    law = TENSOR_LAWS["corrected anisotropic"]
    np.testing.assert_allclose(stress_of(law, jnp.zeros((3, 3)), law.start(float)), 0.0, atol=1e-12)


def test_hyperelastic_law_is_a_model_without_hidden_state():
    model = NeuralODE(None, potential(), num_hidden=0)
    rows = 0.02 * np.random.default_rng(0).normal(size=(5, 3))

    @jax.jit
    def evaluate(rows):
        one = potential().stress(jnp.diag(rows[2]), jnp.zeros(0))
        return model(jnp.arange(5.0), rows)[2], mechanics.components(one, 3)

    np.testing.assert_allclose(*evaluate(rows), rtol=1e-12)
