"""Finite-strain finite elements of a cell: closed forms, exact derivatives, orders, and steps that fail."""

import json
from typing import Any

import numpy as np
import pytest

from langenode.simulators import composite
from langenode.simulators.composite import Prony, place_spheres
from langenode.simulators.composite.finite_strain import (
    CellProblem,
    PathError,
    Settings,
    Solver,
    follow,
    make_cell,
    potential,
    problem_of,
    sets,
    step,
    stretch,
    voxel_materials,
)
from langenode.simulators.composite.finite_strain.materials import relaxation
from langenode.simulators.composite.loading import make_six_component_loadings, tensor_walks

SPHERES, MATRIX = place_spheres(1, 0.2, seed=0), Prony()
ROWS, COLUMNS = [0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]


def walk(num_steps=3, amplitude=0.05, seed=0, num=6):
    return tensor_walks(1, num_steps, amplitude, rng=np.random.default_rng(seed))[0][:, :num]


def small_problem(resolution=4, boundary: Any = "periodic", prony=MATRIX, on_iteration=None, **options: Any):
    return problem_of(SPHERES, prony, Settings(resolution, boundary, **options), on_iteration)


def closed_form(prony, times, log_strain):
    """The homogeneous matrix: every Prony term advanced exactly for a linear S0, and the pressure."""
    memory, before, stresses = np.zeros((prony.num_times, 3, 3)), np.zeros((3, 3)), []
    for dt, row in zip(np.diff(times), log_strain[1:], strict=True):
        mean = stretch(row)
        inverse, j = np.linalg.inv(mean.T @ mean), np.linalg.det(mean)
        unit = j ** (-2.0 / 3.0) * (np.eye(3) - np.trace(mean.T @ mean) / 3.0 * inverse)
        x = (dt / prony.times)[:, None, None]
        memory = np.exp(-x) * memory - np.expm1(-x) / x * (unit - before)
        before = unit
        relaxing = prony.equilibrium * unit + np.tensordot(prony.moduli, memory, 1)
        stresses.append(relaxing + 920.0 * (j - 1.0) * j * inverse)
    return np.array(stresses)[:, ROWS, COLUMNS]


@pytest.mark.parametrize("boundary", ["periodic", "faces"])
@pytest.mark.parametrize("isochoric", [True, False])
def test_a_homogeneous_cube_has_the_stress_of_its_material(boundary, isochoric):
    times = np.array([0.0, 1e-6, 0.01, 1.0, 3.0])
    strain = walk(4)
    if boundary == "faces":
        strain[:, 3:] = 0.0
    if not isochoric:
        strain[:, :3] += 0.01 * np.arange(5.0)[:, None]
    problem = CellProblem(make_cell(2, boundary), voxel_materials(np.zeros((2, 2, 2)), MATRIX), MATRIX)
    expected = closed_form(MATRIX, times, strain)
    found = follow(problem, times, strain)[1:]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_a_cube_of_glass_is_st_venant_kirchhoff():
    problem = CellProblem(make_cell(2), voxel_materials(np.ones((2, 2, 2)), MATRIX), MATRIX)
    strain = walk(1)
    found = follow(problem, np.array([0.0, 1.0]), strain)[1]
    green = 0.5 * (stretch(strain[1]) @ stretch(strain[1]) - np.eye(3))
    glass = composite.Phase.from_young(60_000.0, 0.33)
    lame = glass.bulk - 2.0 / 3.0 * glass.shear
    expected = lame * np.trace(green) * np.eye(3) + 2.0 * glass.shear * green
    np.testing.assert_allclose(found, expected[ROWS, COLUMNS], rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_voxels_that_hold_both_are_composites_in_series():
    fraction = np.array([0.0, 0.25, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0]).reshape(2, 2, 2)
    found = voxel_materials(fraction, MATRIX)
    glass = composite.Phase.from_young(60_000.0, 0.33)
    assert found.bulk[1] == pytest.approx(1.0 / (0.25 / glass.bulk + 0.75 / 920.0))
    assert MATRIX.instantaneous * found.stiffening[1] == pytest.approx(1.0 / (0.25 / glass.shear + 0.75 / 0.362))
    assert (found.stiffening[0], found.bulk[0], found.shear[0]) == (1.0, 920.0, 0.0)
    assert (found.stiffening[2], found.bulk[2], found.shear[2]) == (0.0, 0.0, glass.shear)


def test_a_step_relaxes_exactly_what_is_linear_in_time():
    prony = Prony(shortest=0.1, longest=10.0, num_times=5)
    factors = relaxation(prony, 0.7)
    # A ramp in one step and in seven gives the same stress: prony.relax is exact, too.
    ramp = composite.relax(prony, np.array([0.0, 0.7]), np.array([[0.0], [1.0]]))[1, 0]
    assert factors.modulus == pytest.approx(ramp, rel=1e-13)
    assert relaxation(prony, 0.0).modulus == pytest.approx(prony.instantaneous, rel=1e-15)


def deformed(boundary):
    """A cell of two phases in a deformed state, with a history."""
    cell = make_cell(3, boundary)
    fraction = np.random.default_rng(0).uniform(size=(3, 3, 3)).round(1)
    voxels = voxel_materials(fraction, MATRIX)
    moduli = potential.Moduli(0.2 * voxels.stiffening, voxels.bulk, voxels.lame, voxels.shear)
    rng = np.random.default_rng(1)
    history = 0.01 * rng.normal(size=(27, 8, 3, 3))
    history += np.swapaxes(history, -1, -2)
    return cell, 0.01 * rng.normal(size=cell.num), stretch(walk()[-1]), history, moduli


@pytest.mark.parametrize("boundary", ["periodic", "faces"])
def test_forces_and_stiffness_are_derivatives_of_the_energy(boundary):
    cell, unknowns, mean, history, moduli = deformed(boundary)
    change = np.random.default_rng(2).normal(size=cell.num)

    def respond(unknowns, mean=mean):
        return potential.respond(cell.at_voxels(unknowns), mean, cell.gradients, history, moduli)

    def forces(unknowns):
        return cell.gather(np.asarray(respond(unknowns).forces))

    h = 1e-5
    energies = [float(respond(unknowns + k * h * change).energy) for k in (-2, -1, 1, 2)]
    slope = (energies[0] - 8.0 * energies[1] + 8.0 * energies[2] - energies[3]) / (12.0 * h)
    assert forces(unknowns) @ change == pytest.approx(slope, rel=1e-7)
    matrix = cell.matrix(potential.stiffness(cell.at_voxels(unknowns), mean, cell.gradients, history, moduli))
    fits = [forces(unknowns + k * h * change) for k in (-2, -1, 1, 2)]
    expected = (fits[0] - 8.0 * fits[1] + 8.0 * fits[2] - fits[3]) / (12.0 * h)
    np.testing.assert_allclose(matrix @ change, expected, atol=1e-8 * np.abs(expected).max())
    assert abs(matrix - matrix.T).max() <= 1e-12 * abs(matrix).max()
    turn = np.zeros((3, 3))
    turn[0, 1] = 1.0
    by_mean = [float(respond(unknowns, mean + k * h * turn).energy) for k in (-2, -1, 1, 2)]
    slope = (by_mean[0] - 8.0 * by_mean[1] + 8.0 * by_mean[2] - by_mean[3]) / (12.0 * h)
    assert float(respond(unknowns).mean_stress[0, 1]) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("boundary", ["periodic", "faces"])
def test_the_boundary_is_a_map_of_unknowns(boundary):
    cell = make_cell(3, boundary)
    assert cell.num == (3 * 27 - 3 if boundary == "periodic" else 3 * 64 - 6 * 16)
    moved = cell.at_voxels(np.random.default_rng(0).normal(size=cell.num)).reshape(3, 3, 3, 8, 3)
    low, high = [0, 1, 2, 3], [4, 5, 6, 7]  # the corners of a voxel on its two faces normal to the first axis
    if boundary == "periodic":
        np.testing.assert_array_equal(moved[0, :, :, low], moved[-1, :, :, high])
    else:
        assert not moved[0, :, :, low, 0].any() and not moved[-1, :, :, high, 0].any()
        assert moved[0, :, :, low, 1].any()


def test_newton_converges_quadratically_in_the_energy_norm():
    """Each energy norm is the square of the one before, relative to a scale, once the first one is behind."""
    seen = []
    problem = small_problem(solver="direct", tolerance=1e-10, on_iteration=seen.append)
    follow(problem, np.array([0.0, 1.0]), walk(1, amplitude=0.01, seed=1))
    norms = np.array([iteration.energy_norm for iteration in seen])
    orders = np.diff(np.log(norms))
    assert len(norms) == 4 and orders[2] / orders[1] == pytest.approx(2.0, abs=0.4), norms
    assert all(iteration.share == 1.0 for iteration in seen)


def test_a_tolerance_a_hundredth_and_a_direct_solver_change_nothing_to_speak_of():
    strain, times = walk(4), np.arange(5.0)
    plain, tight, direct = (
        follow(small_problem(solver=solver, tolerance=tolerance), times, strain)
        for solver, tolerance in (("kept", 1e-5), ("kept", 1e-7), ("direct", 1e-7))
    )
    scale = np.abs(direct).max()
    assert np.abs(plain - tight).max() < 1e-5 * scale
    assert np.abs(tight - direct).max() < 1e-6 * scale
    assert np.abs(plain[0]).max() == 0.0


def test_one_factor_serves_many_systems():
    seen = []
    problem = small_problem(on_iteration=seen.append)
    follow(problem, np.arange(5.0), walk(4, 0.02))
    assert problem.solver.num_factors <= 2 < len(seen) and problem.solver.num_steps > 0


def test_work_over_closed_cycles_is_never_negative():
    prony = Prony(shortest=0.1, longest=10.0, num_times=4)
    for seed, dt in ((0, 0.1), (1, 3.0)):
        there = walk(4, 0.05, seed)
        strain = np.concatenate([there, there[-2::-1]])
        stress = follow(small_problem(2, prony=prony), dt * np.arange(len(strain)), strain)
        green = np.array([0.5 * (stretch(row) @ stretch(row) - np.eye(3)) for row in strain])[:, ROWS, COLUMNS]
        double = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
        work = 0.5 * (stress[1:] + stress[:-1]) * np.diff(green, axis=0) @ double
        assert work.sum() > 0.0


def test_faces_and_periods_differ_but_not_by_much():
    strain = walk(3)
    strain[:, 3:] = 0.0
    found = {
        boundary: follow(small_problem(boundary=boundary), np.arange(4.0), strain) for boundary in ("periodic", "faces")
    }
    distance = np.linalg.norm(found["faces"] - found["periodic"]) / np.linalg.norm(found["periodic"])
    assert 0.001 < distance < 0.3


def test_flat_faces_carry_no_shear():
    with pytest.raises(ValueError, match="carry no shear"):
        follow(small_problem(2, "faces"), np.arange(3.0), walk(2))
    with pytest.raises(ValueError, match="two voxels or more"):
        make_cell(1)


# Steps that fail


def test_a_step_that_fails_is_cut_and_the_answer_is_that_of_shorter_steps(monkeypatch):
    strain = walk(1, 0.1)
    times = np.array([0.0, 1.0])
    whole = step._Step.solve

    def fails_when_long(self):
        if self.dt > 0.5:
            raise step.StepError("too long")
        return whole(self)

    monkeypatch.setattr(step._Step, "solve", fails_when_long)
    cut = follow(small_problem(2), times, strain)[-1]
    problem = small_problem(2)
    monkeypatch.undo()
    half, _ = problem.advance(problem.start(), 0.5 * (np.eye(3) + stretch(strain[1])), 0.5)
    _, response = problem.advance(half, stretch(strain[1]), 0.5)
    expected = step.second_piola(stretch(strain[1]), np.asarray(response.mean_stress))[ROWS, COLUMNS]
    np.testing.assert_allclose(cut, expected, rtol=1e-6, atol=1e-8)


def test_a_step_that_cannot_converge_is_an_error_with_its_number(monkeypatch):
    monkeypatch.setattr(step, "DEEPEST_CUT", 1)
    strain = walk(3, 0.01)
    strain[2:] = 3.0 * np.array([1.0, -1.0, 0.0, 1.0, 0.0, 0.0])
    with pytest.raises(PathError, match=r"step 2: a load step must converge; it did not, cut into 2 parts") as raised:
        follow(small_problem(), np.arange(4.0), strain)
    assert raised.value.step == 2


def test_a_matrix_that_is_not_finite_is_never_factorised(monkeypatch):
    from scipy.sparse import csr_array

    matrix = csr_array(np.diag([1.0, np.nan]))
    with pytest.raises(ArithmeticError, match="must be finite"):
        Solver().solve(matrix, np.ones(2), 1e-3)
    with pytest.raises(ArithmeticError, match="must be regular"):
        Solver().solve(csr_array(np.diag([1.0, 0.0])), np.ones(2), 1e-3)


def test_the_kept_factor_is_replaced_where_it_serves_no_more():
    from scipy.sparse import csr_array

    rng, solver = np.random.default_rng(0), Solver()
    first = np.eye(200)
    spread = np.diag(10.0 ** rng.uniform(-6, 6, 200))
    spread[0, 1] = spread[1, 0] = 1e-7
    for matrix in (first, spread):
        load = rng.normal(size=200)
        found = solver.solve(csr_array(matrix), load, 1e-8)
        np.testing.assert_allclose(matrix @ found, load, rtol=1e-6, atol=1e-9)
    assert solver.num_factors == 2
    with pytest.raises(ArithmeticError, match="positive definite"):
        solver.solve(csr_array(-first), np.ones(200), 1e-8)


# Loadings and sets


def test_six_component_loadings_keep_the_volume_and_prefer_no_direction():
    loadings = make_six_component_loadings(
        24, num_steps=10, time_step=2.0, amplitude=0.02, is_normal=False, rng=np.random.default_rng(0)
    )
    assert len(set(loadings.names)) == 24 and loadings.log_strain.shape == (24, 11, 6)
    assert np.abs(loadings.log_strain[..., :3].sum(-1)).max() < 1e-15
    is_sheared = np.any(loadings.log_strain[..., 3:], axis=(1, 2))
    assert is_sheared.sum() == 12 and not is_sheared[:8].any()
    ends = tensor_walks(4000, 5, 0.02, rng=np.random.default_rng(1))[:, -1]
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    turned = np.einsum("ai,nij,bj->nab", turn, np.array([full(row) for row in ends]), turn)[:, ROWS, COLUMNS]
    for found in (ends, turned):
        np.testing.assert_allclose(found[:, :3].std(), 0.02, rtol=5.0 / np.sqrt(2 * 8000))
        np.testing.assert_allclose(found[:, 3:].std(), 0.02 * np.sqrt(0.75), rtol=5.0 / np.sqrt(2 * 8000))
    flat = make_six_component_loadings(
        9, num_steps=4, time_step=1.0, amplitude=0.02, is_normal=True, rng=np.random.default_rng(0)
    )
    assert not flat.log_strain[..., 3:].any()


def full(row):
    found = np.zeros((3, 3))
    found[ROWS, COLUMNS] = found[COLUMNS, ROWS] = row
    return found


PLAN = sets.Plan(num_microstructures=2, num_loadings=2, num_steps=2, num_spheres=1, resolution=2)


def test_a_set_is_simulated_file_by_file_and_merged(tmp_path):
    sets.write_plan(tmp_path, PLAN)
    assert sets.read_plan(tmp_path) == PLAN
    paths = [sets.simulate_loading(str(tmp_path), *pair) for pair in PLAN.tasks.values()]
    assert [path.endswith(f"{name}.npz") for name, path in zip(PLAN.tasks, paths, strict=True)]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    found = sets.read_simulations(tmp_path)
    assert found.stress.shape == (4, 3, 6) and list(found.cubes) == [0, 0, 1, 1] and not found.failures
    sets.write_set(tmp_path / "all.npz", found)
    read = sets.read_set(tmp_path / "all.npz")
    np.testing.assert_allclose(read.stress, found.stress, rtol=1e-6)
    np.testing.assert_array_equal(read.log_strain, PLAN.loadings.log_strain)
    assert (read.plan, sets.complete_cubes(read)) == (PLAN, [0, 1])


def test_what_is_there_is_not_simulated_again(tmp_path, monkeypatch):
    sets.write_plan(tmp_path, PLAN)
    (tmp_path / "cube-000-loading-001.npz").write_bytes(b"made before")
    monkeypatch.setattr(sets, "follow", None)
    assert sets.simulate_loading(str(tmp_path), 0, 1) == str(tmp_path / "cube-000-loading-001.npz")


def test_a_loading_that_fails_is_recorded_and_left_out(tmp_path, monkeypatch):
    sets.write_plan(tmp_path, PLAN)

    def fail(problem, times, strain):
        raise PathError(2, "a load step must converge")

    sets.simulate_loading(str(tmp_path), 0, 0)
    monkeypatch.setattr(sets, "follow", fail)
    path = sets.simulate_loading(str(tmp_path), 0, 1)
    assert json.loads((tmp_path / "cube-000-loading-001.failed.json").read_text()) == {
        "microstructure": 0,
        "loading": PLAN.loadings.names[1],
        "step": 2,
        "reason": "step 2: a load step must converge",
    }
    assert path.endswith(".failed.json")
    found = sets.read_simulations(tmp_path)
    assert len(found.stress) == 1 and found.failures[0]["step"] == 2 and np.all(np.isfinite(found.stress))


# An independent code


def phases_of(fem, resolution, fraction, values, moduli):
    """The bodies of each phase on one mesh of points; `moduli` of a phase are those of glass or (shear, bulk)."""
    mesh = fem.Cube(n=resolution + 1)
    middles = mesh.points[mesh.cells].mean(1)
    places = np.floor(middles * resolution).astype(int)
    found = fraction[tuple(places.T)]
    bodies = []
    for value, (first, second) in zip(values, moduli, strict=True):
        part = fem.Mesh(mesh.points, mesh.cells[found == value], "hexahedron")
        field = fem.FieldContainer([fem.Field(fem.RegionHexahedron(part), dim=3)])
        if value == 1.0:
            svk = fem.Hyperelastic(fem.saint_venant_kirchhoff, mu=float(first), lmbda=float(second), k=2)
            bodies.append((fem.SolidBody(svk, field), field))
        else:
            bodies.append((fem.SolidBodyNearlyIncompressible(fem.NeoHooke(mu=first), field, bulk=second), field))
    return mesh, bodies


def periodic_map(mesh, resolution):
    """The matrix from unknowns to displacements: nodes on opposite faces move together, the first one not at all."""
    from scipy.sparse import csr_array

    numbers = np.rint(mesh.points * resolution).astype(int) % resolution @ [resolution**2, resolution, 1]
    columns = (3 * numbers[:, None] + np.arange(3)).ravel() - 3
    kept = columns >= 0
    return csr_array(
        (np.ones(kept.sum()), (np.flatnonzero(kept), columns[kept])), (len(columns), 3 * resolution**3 - 3)
    )


@pytest.mark.slow
def test_felupe_finds_the_same_stresses():
    """Matrix, boundary voxels and glass in a periodic cell, elastic at once: felupe's elements and materials."""
    fem = pytest.importorskip("felupe")
    from scipy.sparse.linalg import spsolve

    resolution, values = 6, (0.0, 0.5, 1.0)
    fraction = np.round(2.0 * composite.glass_fraction(SPHERES, resolution)) / 2.0
    assert set(np.unique(fraction)) == set(values)
    voxels = voxel_materials(fraction, MATRIX)
    picks = [int(np.flatnonzero(fraction.ravel() == value)[0]) for value in values]
    stiff, bulk = MATRIX.instantaneous * voxels.stiffening[picks], voxels.bulk[picks]
    glass = (voxels.shear[picks[2]], voxels.lame[picks[2]])
    mesh, bodies = phases_of(
        fem, resolution, fraction, values, [*zip(stiff[:2].tolist(), bulk[:2].tolist(), strict=True), glass]
    )
    reduce = periodic_map(mesh, resolution)
    strain = walk(20, 0.03, seed=3)
    found = follow(CellProblem(make_cell(resolution), voxels, MATRIX), np.zeros(21), strain)
    displacement, mean, forces = np.zeros(3 * len(mesh.points)), np.eye(3), np.zeros(3 * len(mesh.points))
    for n in range(1, 21):
        affine = (mesh.points @ (stretch(strain[n]) - mean).T).ravel()
        mean = stretch(strain[n])
        for iteration in range(20):
            for _, field in bodies:
                field[0].values[:] = displacement.reshape(-1, 3)
            forces = sum(body.assemble.vector(field).toarray().ravel() for body, field in bodies)
            if iteration > 1 and np.linalg.norm(reduce.T @ forces) < 1e-11:
                break
            matrix = sum(body.assemble.matrix(field) for body, field in bodies)
            load = forces + (matrix @ affine if iteration == 0 else 0.0)
            change = -(reduce @ spsolve((reduce.T @ matrix @ reduce).tocsc(), reduce.T @ load))
            displacement = displacement + change + (affine if iteration == 0 else 0.0)
        mean_stress = np.asarray(forces).reshape(-1, 3).T @ mesh.points
        expected = step.second_piola(mean, mean_stress)[ROWS, COLUMNS]
        error = np.abs(found[n] - expected).max() / np.abs(expected).max()
        print(f"step {n}: largest strain {np.abs(strain[n]).max():.3f}, relative difference {error:.1e}")
        assert error < 1e-4
