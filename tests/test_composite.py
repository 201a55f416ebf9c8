"""Composite data: relaxation and superposition against closed forms, loadings, and the resulting data set."""

import jax
import numpy as np
import pytest

from langenode.experiments import composite as experiment
from langenode.fitting.choose import configure
from langenode.simulators import composite
from langenode.simulators.composite import CompositeStiffness, Prony, library
from langenode.simulators.composite.loading import random_walks, tension_tests
from langenode.simulators.composite.stiffness import DEVIATORIC, VOLUMETRIC

KEY = jax.random.key(0)


def isotropic(bulk=1000.0, shear=1.0):
    return CompositeStiffness(bulk * VOLUMETRIC, shear * DEVIATORIC)


def loadings(seed=0, **changed):
    options = {"num_walks": 5, "num_tensions": 3, "num_steps": 20, "time_step": 1.0, "amplitude": 0.02, **changed}
    return composite.make_loadings(**options, rng=np.random.default_rng(seed))


def test_the_prony_series_is_the_papers():
    prony = Prony()
    assert len(prony.times) == 20 and prony.times[0] == pytest.approx(1e-6) and prony.times[-1] == pytest.approx(3160)
    np.testing.assert_allclose(np.diff(np.log10(prony.times)), 0.5, atol=1e-4)
    assert prony.equilibrium + prony.moduli.sum() == pytest.approx(prony.instantaneous)


def test_weights_of_the_prony_series_must_fit():
    assert Prony(num_times=2, weights=(1.0, 3.0)).moduli == pytest.approx([0.0695, 0.2085])
    for weights in ((1.0,), (1.0, -1.0), (0.0, 0.0)):
        with pytest.raises(ValueError, match="a weight of at least 0 for each of its 2 times"):
            _ = Prony(num_times=2, weights=weights).moduli


def test_a_step_relaxes_and_a_ramp_creeps_as_the_integral_says():
    prony, times = Prony(shortest=0.1, longest=10.0, num_times=5), np.array([0.0, 0.3, 1.0, 4.0])
    decay = np.exp(-times[:, None] / prony.times)
    step = composite.relax(prony, times, np.ones((4, 1)))[:, 0]
    np.testing.assert_allclose(step, prony.equilibrium + decay @ prony.moduli, rtol=1e-12)
    ramp = composite.relax(prony, times, times[:, None])[:, 0]
    integral = prony.equilibrium * times + (1.0 - decay) @ (prony.moduli * prony.times)
    np.testing.assert_allclose(ramp, integral, rtol=1e-12)


def test_quick_loadings_see_the_instantaneous_modulus_and_slow_ones_that_at_rest():
    strain = loadings().log_strain
    for time_step, modulus in ((1e-12, 0.362), (1e9, 0.084)):
        found = composite.relax(Prony(), time_step * np.arange(21), strain)
        np.testing.assert_allclose(found, modulus * strain, rtol=1e-4, atol=1e-12)


def test_an_isotropic_cube_answers_with_its_moduli_in_log_strain():
    paths = loadings(time_step=1e-15, isochoric=False)
    stress = composite.respond(paths, [isotropic(bulk=5.0, shear=2.0)], Prony())[0]
    strain = paths.log_strain
    trace = strain.sum(-1, keepdims=True)
    conjugate = 5.0 * trace + 2.0 * 2.0 * 0.362 * (strain - trace / 3.0)
    np.testing.assert_allclose(stress, conjugate / np.exp(2.0 * strain), rtol=1e-5, atol=1e-10)


def test_six_components_answer_as_three_and_turn_with_the_axes():
    """Superposition is the same in any axes: an isotropic cube under a turned path has the turned stress."""
    paths = loadings(isochoric=False)
    padded = paths._replace(log_strain=np.pad(paths.log_strain, ((0, 0), (0, 0), (0, 3))))
    cube = CompositeStiffness(np.diag([3.0, 4.0, 5.0, 1.0, 1.0, 1.0]), np.diag([1.0, 2.0, 3.0, 1.0, 1.0, 1.0]))
    found = composite.respond(padded, [cube], Prony())
    np.testing.assert_allclose(found[..., :3], composite.respond(paths, [cube], Prony()), rtol=1e-9, atol=1e-12)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    there = padded._replace(log_strain=turned(padded.log_strain, turn))
    stress = composite.respond(there, [isotropic()], Prony())
    expected = turned(composite.respond(padded, [isotropic()], Prony()), turn)
    np.testing.assert_allclose(stress, expected, atol=1e-9 * np.abs(expected).max())


def turned(rows, turn):
    rows_of, columns = [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]
    tensors = np.zeros((*rows.shape[:-1], 3, 3))
    tensors[..., rows_of, columns] = tensors[..., columns, rows_of] = rows
    return (turn @ tensors @ turn.T)[..., rows_of, columns]


def test_walks_keep_the_volume_and_have_the_amplitude():
    walks = random_walks(4000, 30, 0.02, isochoric=True, rng=np.random.default_rng(0))
    assert np.abs(walks.sum(-1)).max() < 1e-15 and not walks[:, 0].any()
    free = random_walks(4000, 30, 0.02, isochoric=False, rng=np.random.default_rng(0))
    assert np.abs(free.sum(-1)).max() > 0.01
    for paths in (walks, free):
        rms = np.sqrt((paths[:, -1] ** 2).mean())
        assert rms == pytest.approx(0.02, abs=5 * 0.02 / np.sqrt(2 * 8000))


def test_tension_tests_ramp_and_hold_without_changing_the_volume():
    names, paths = tension_tests(18, 50, 0.02)
    assert len(set(names)) == 18 and names[0] == "uniaxial 1 full"
    np.testing.assert_allclose(paths.sum(-1), 0.0, atol=1e-17)
    np.testing.assert_array_equal(paths[:, 25:], paths[:, 25:26].repeat(26, axis=1))
    assert np.abs(paths).max() == pytest.approx(0.02)
    assert tension_tests(0, 50, 0.02)[1].shape == (0, 51, 3)
    with pytest.raises(ValueError, match="18 tension tests"):
        tension_tests(19, 50, 0.02)


def test_a_loading_is_a_condition_and_a_microstructure_a_unit():
    paths, numbers = loadings(), [3, 7]
    data = composite.composite_data(paths, numbers, [isotropic(), isotropic(shear=1.1)], Prony())
    assert (data.num_conditions, data.num_units, data.num_trajectories) == (8, 2, 16)
    assert data.has_crossed_units and data.replicates().present.all()
    assert set(data.condition_names) == set(paths.names) and data.unit_names == ("cube 003", "cube 007")
    members = data.replicates().outputs
    np.testing.assert_allclose(np.abs(members[1]), 1.1 * np.abs(members[0]), rtol=1e-3, atol=1e-6)
    assert data.units["S11"] == "MPa" and data.units["time"] == "s"


# The experiments' data


def test_the_default_data_need_no_finite_elements(monkeypatch):
    monkeypatch.setattr(library, "composite_stiffness", None)
    splits = experiment.simulate(configure("viscoelastic", []), KEY)
    assert splits.train.num_conditions + splits.validation.num_conditions + splits.test.num_conditions == 100
    assert {part.num_units for part in splits} == {32}
    assert splits.train.num_times == 51
    seen = [set(part.condition_names) for part in splits]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]


def test_a_seed_draws_its_loadings_and_its_microstructures():
    config = configure("viscoelastic", [])
    first, again, other = (experiment.simulate(config, jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test.outputs, again.test.outputs)
    assert first.test.unit_names == again.test.unit_names != other.test.unit_names


def test_another_composite_is_computed(monkeypatch):
    asked = []

    def stiffness(spheres, resolution):
        asked.append((len(spheres.centres), resolution))
        return isotropic()

    monkeypatch.setattr(library, "composite_stiffness", stiffness)
    layer = {
        "data": {"num_spheres": 2, "resolution": 5, "volume_fraction": 0.1, "num_microstructures": 3, "num_walks": 4}
    }
    splits = experiment.simulate(configure("hyperelastic", [layer]), KEY)
    assert asked == [(2, 5)] * 3 and splits.train.num_units == 3


def test_hyperelastic_steps_are_far_below_the_shortest_relaxation_time():
    config = configure("hyperelastic", [])
    assert config.data.time_step * config.data.num_steps < 0.1 * Prony().shortest
    assert configure("viscoelastic", []).data.time_step == 1.0


def test_std_ratio_is_of_mean_spreads():
    rng = np.random.default_rng(0)
    members = rng.normal(size=(6, 2, 3, 1))
    assert experiment.std_ratio(2.0 * members + 5.0, members) == pytest.approx(2.0)
