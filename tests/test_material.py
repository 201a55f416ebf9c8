"""Material laws: counts, stress against energy, frames, tangents, dissipation, steps, and a closed form."""

import itertools

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
}
# The plainest and the richest; those between have the same parts.
TWO_LAWS = [
    pytest.param(name, marks=[pytest.mark.slow] if name in ("anisotropic", "corrected") else []) for name in TENSOR_LAWS
]
SMALL = 0.03


def internal_state(law, seed):
    """Return the internal variables after a path of a few steps."""
    strains = [jnp.zeros((3, 3)), *(random_strain(seed + i, SMALL) for i in range(4))]
    internal = law.start(float)
    for before, after in itertools.pairwise(strains):
        internal = advance(law, internal, before, after, jnp.asarray(0.1))
    return internal


@eqx.filter_jit
def advance(law, *step):
    return law.advance(*step)


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


def difference_of_energy(energy, strain):
    energy = jax.jit(energy)
    step, found = 1e-6, np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            change = jnp.zeros((3, 3)).at[i, j].add(0.5 * step).at[j, i].add(0.5 * step)
            found[i, j] = (energy(strain + change) - energy(strain - change)) / (2.0 * step)
    return found


@pytest.mark.parametrize("strain", [random_strain(0, SMALL), jnp.zeros((3, 3))])
@pytest.mark.parametrize("convex", [False, True])
def test_hyperelastic_stress_is_the_difference_of_its_potential(convex, strain):
    law, none = potential(convex=convex), jnp.zeros(0)
    found = law.stress(strain, none)
    np.testing.assert_allclose(found, difference_of_energy(lambda e: law.energy(e, none), strain), atol=1e-6)


@pytest.mark.parametrize("strain", [random_strain(0, SMALL), jnp.zeros((3, 3))])
@pytest.mark.parametrize("name", TWO_LAWS)
def test_tensor_stress_is_the_difference_of_its_potential(name, strain):
    law = TENSOR_LAWS[name]
    internal = internal_state(law, 10)
    found = stress_of(law, strain, internal)
    np.testing.assert_allclose(found, difference_of_energy(lambda e: law.energy(e, internal), strain), atol=1e-6)


def test_paper_stress_is_the_difference_of_its_potential():
    law, strain = paper_law(), random_strain(0, SMALL)
    internal, observation = internal_state(law, 10), law.observation
    assert isinstance(observation, PotentialStress)
    found = difference_of_energy(lambda e: observation.energy(e, internal), strain)
    np.testing.assert_allclose(law.stress(strain, internal), found, atol=1e-6)


@pytest.mark.parametrize("name", ["paper", "paper with rates", "maxwell", "corrected"])
def test_isotropic_laws_turn_with_the_frame(name):
    laws = {**TENSOR_LAWS, "paper": paper_law(), "paper with rates": paper_law(rate_potential=True)}
    law, turn = laws[name], rotation(5)
    strains = [jnp.zeros((3, 3)), *(random_strain(20 + i, SMALL) for i in range(4))]
    here, there = law.start(float), law.start(float)
    for before, after in itertools.pairwise(strains):
        dt = jnp.asarray(0.1)
        here = advance(law, here, before, after, dt)
        there = advance(law, there, turn @ before @ turn.T, turn @ after @ turn.T, dt)
        turned = stress_of(law, turn @ after @ turn.T, there)
        np.testing.assert_allclose(turned, turn @ stress_of(law, after, here) @ turn.T, rtol=1e-8, atol=1e-10)


def test_hyperelastic_stress_turns_with_the_frame():
    law, strain, turn = potential(), random_strain(6, SMALL), rotation(7)
    turned = law.stress(turn @ strain @ turn.T, jnp.zeros(0))
    np.testing.assert_allclose(turned, turn @ law.stress(strain, jnp.zeros(0)) @ turn.T, rtol=1e-9, atol=1e-12)


def test_an_anisotropic_law_does_not_turn_with_the_frame():
    law, strain, turn = TENSOR_LAWS["anisotropic"], random_strain(6, SMALL), rotation(7)
    turned = law.stress(turn @ strain @ turn.T, law.start(float))
    assert float(jnp.abs(turned - turn @ law.stress(strain, law.start(float)) @ turn.T).max()) > 1e-3


@pytest.mark.parametrize("name", TWO_LAWS)
def test_tangent_at_fixed_state_is_symmetric_and_a_difference(name):
    law, strain = TENSOR_LAWS[name], random_strain(8, SMALL)
    internal = internal_state(law, 30)
    stress = jax.jit(lambda e: law.stress(e, internal))
    found = jax.jit(lambda e: mechanics.tangent(stress, e))(strain)
    weighted = mechanics.MANDEL[:, None] * found / mechanics.MANDEL[None, :]
    np.testing.assert_allclose(weighted, weighted.T, rtol=1e-9, atol=1e-9 * float(jnp.abs(found).max()))
    np.testing.assert_allclose(found, difference_of_stress(stress, strain), atol=1e-6 * float(jnp.abs(found).max()))


@pytest.mark.parametrize(
    "name", ["anisotropic", pytest.param("corrected anisotropic", marks=[pytest.mark.slow]), "paper"]
)
def test_algorithmic_tangent_is_the_difference_of_a_whole_step(name):
    law = {**TENSOR_LAWS, "paper": paper_law()}[name]
    before, after, internal = random_strain(8, SMALL), random_strain(9, SMALL), internal_state(law, 30)

    @jax.jit
    def stress(strain):
        return law.stress(strain, law.advance(internal, before, strain, jnp.asarray(0.1)))

    found = jax.jit(lambda e: mechanics.tangent(stress, e))(after)
    np.testing.assert_allclose(found, difference_of_stress(stress, after), atol=1e-6 * float(jnp.abs(found).max()))
    fixed = jax.jit(lambda e: mechanics.tangent(lambda e: law.stress(e, internal), e))(after)
    assert float(jnp.abs(found - fixed).max()) > 1e-3 * float(jnp.abs(found).max())  # a step relaxes, a jump does not


def difference_of_stress(stress, strain):
    row, step, columns = mechanics.components(strain), 1e-6, []
    for k in range(6):
        ends = [stress(mechanics.tensor(row.at[k].add(sign * step))) for sign in (1, -1)]
        columns.append((mechanics.components(ends[0]) - mechanics.components(ends[1])) / (2.0 * step))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("name", TWO_LAWS)
def test_dissipation_is_never_negative_on_random_paths(name):
    law = TENSOR_LAWS[name]
    steps = 0.01 * jax.random.normal(KEY, (100, 60, 6), float)
    rows = jnp.concatenate([jnp.zeros((100, 1, 6)), jnp.cumsum(steps, axis=1)], axis=1)

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


def test_dissipation_is_the_power_that_is_not_stored():
    law = TENSOR_LAWS["corrected anisotropic"]
    start, end, num = random_strain(0, SMALL), random_strain(1, SMALL), 4000
    dt = jnp.asarray(1.0 / num)
    path = start + (end - start) * jnp.linspace(0.0, 1.0, num + 1)[:, None, None]

    def step(carry, ends):
        internal, work, lost = carry
        before, after = ends
        middle = 0.5 * (before + after)
        half = law.advance(internal, before, middle, 0.5 * dt)
        work = work + jnp.sum(law.stress(middle, half) * (after - before))
        lost = lost + dt * law.dissipation(middle, half)
        return (law.advance(internal, before, after, dt), work, lost), None

    internal = internal_state(law, 40)
    begin = law.energy(start, internal)
    scan = jax.jit(lambda carry: jax.lax.scan(step, carry, (path[:-1], path[1:]))[0])
    internal, work, lost = scan((internal, jnp.zeros(()), jnp.zeros(())))
    stored = law.energy(end, internal) - begin
    np.testing.assert_allclose(work - stored, lost, rtol=1e-4)


@pytest.mark.parametrize("name", TWO_LAWS)
def test_a_law_along_the_axes_is_the_law_of_all_components(name):
    law = TENSOR_LAWS[name]
    times = jnp.linspace(0.0, 1.0, 12)
    rows = 0.02 * jnp.cumsum(jax.random.normal(KEY, (12, 3), float), axis=0) / 3.0
    full = eqx.filter_jit(law)(times, jnp.pad(rows, ((0, 0), (0, 3))))
    np.testing.assert_allclose(full[:, :3], eqx.filter_jit(law)(times, rows), rtol=1e-9, atol=1e-12)
    if name == "maxwell":
        np.testing.assert_allclose(full[:, 3:], 0.0, atol=1e-12)


def test_step_strain_relaxes_as_the_prony_series():
    law = TENSOR_LAWS["maxwell"]
    times = jnp.concatenate([jnp.array([0.0, 1e-9]), jnp.linspace(0.1, 2.0, 20)])
    stretch = jnp.array([0.02, -0.01, -0.01])
    rows = jnp.concatenate([jnp.zeros((1, 3)), jnp.broadcast_to(jnp.expm1(2.0 * stretch) / 2.0, (21, 3))])
    moduli, taus = jnp.exp(law.log_moduli), jnp.exp(law.log_times)
    modulus = moduli[0] + jnp.exp(-times[1:, None] / taus) @ moduli[1:]
    wanted = 2.0 * modulus[:, None] * stretch / law.strain_scale / jnp.exp(2.0 * stretch)
    np.testing.assert_allclose(eqx.filter_jit(law)(times, rows)[1:], wanted, rtol=1e-6)


def errors_of_steps(law, counts, reference):
    law = eqx.filter_jit(law)

    def run(num):
        times = jnp.linspace(0.0, 1.0, num + 1)
        path = jnp.stack([0.05 * times, -0.03 * times, 0.01 * times], axis=1)
        return np.asarray(law(times, path)[-1])

    exact = run(reference)
    return np.array([np.abs(run(num) - exact).max() for num in counts])


def test_a_step_without_networks_is_exact_in_log_strain():
    law = eqx.filter_jit(TENSOR_LAWS["anisotropic"])

    def run(num):
        times = jnp.linspace(0.0, 1.0, num + 1)
        path = jnp.stack([0.05 * times, -0.03 * times, 0.01 * times], axis=1)
        return np.asarray(law(times, jnp.expm1(2.0 * path) / 2.0)[-1])

    np.testing.assert_allclose(run(1), run(64), rtol=1e-9)


@pytest.mark.parametrize("name", [pytest.param("corrected anisotropic", marks=[pytest.mark.slow]), "paper"])
def test_steps_are_of_second_order(name):
    law = {**TENSOR_LAWS, "paper": paper_law()}[name]
    counts = np.array([16, 32, 64, 128])
    slope = np.polyfit(np.log(1.0 / counts), np.log(errors_of_steps(law, counts, 4096)), 1)[0]
    assert abs(slope - 2.0) < 0.4


def test_padding_changes_nothing():
    rows = 0.02 * jax.random.normal(KEY, (6, 3), float)
    times = jnp.linspace(0.0, 1.0, 6)
    padded = jnp.concatenate([times, times[-1:]]), jnp.concatenate([rows, rows[-1:]])
    for law in (TENSOR_LAWS["corrected"], paper_law(), paper_law(rate_potential=True)):
        law = eqx.filter_jit(law)
        np.testing.assert_allclose(law(*padded)[:6], law(times, rows), rtol=1e-12)


def test_convex_potential_is_convex_in_the_invariants():
    law = potential(convex=True)
    points = jax.random.normal(KEY, (64, 3), float)
    curvature = jax.vmap(jax.hessian(lambda x: law.potential(x)[0]))(points)
    assert float(jnp.linalg.eigvalsh(curvature).min()) >= -1e-12


def test_the_unstrained_state_has_no_stress_whatever_the_networks_say():
    law = TENSOR_LAWS["corrected anisotropic"]
    np.testing.assert_allclose(law.stress(jnp.zeros((3, 3)), law.start(float)), 0.0, atol=1e-12)


def test_hyperelastic_law_is_a_model_without_hidden_state():
    model = NeuralODE(None, potential(), num_hidden=0)
    rows = 0.02 * jax.random.normal(KEY, (5, 3), float)
    outputs = model(jnp.arange(5.0), rows)
    one = mechanics.components(potential().stress(jnp.diag(rows[2]), jnp.zeros(0)), 3)
    np.testing.assert_allclose(outputs[2], one, rtol=1e-12)
