"""Microstructures and their effective stiffness, against closed forms, exact relations and bounds."""

import sys

import numpy as np
import pytest

from langenode.simulators.composite import (
    CompositeGeometry,
    Phase,
    composite_stiffness,
    effective_stiffness,
    glass_fraction,
    place_spheres,
    shipped_stiffness,
    stiffnesses,
)
from langenode.simulators.composite.__main__ import main
from langenode.simulators.composite.library import compute_stiffnesses, read_stiffnesses
from langenode.simulators.composite.microstructure import periodic_distances
from langenode.simulators.composite.stiffness import GLASS, MATRIX_AT_ONCE, pardiso_solve, reuss

TO_MANDEL = np.diag([1.0, 1.0, 1.0, np.sqrt(2.0), np.sqrt(2.0), np.sqrt(2.0)])
PRESSURE = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]) / np.sqrt(3.0)
DEVIATOR = np.eye(6) - np.outer(PRESSURE, PRESSURE)


def deviatoric(stiffness):
    """The part that maps deviatoric strain to deviatoric stress, in a basis where norms mean something."""
    return DEVIATOR @ TO_MANDEL @ stiffness @ TO_MANDEL @ DEVIATOR


def isotropic_part(stiffness):
    """Bulk and shear modulus of the nearest isotropic stiffness."""
    return Phase(PRESSURE @ stiffness @ PRESSURE / 3.0, np.trace(deviatoric(stiffness)) / 10.0)


def relative_change(found, reference):
    return np.linalg.norm(deviatoric(found - reference)) / np.linalg.norm(deviatoric(reference))


def voxels_of(microstructure, resolution, glass, matrix):
    fraction = glass_fraction(microstructure, resolution)
    return reuss(fraction, glass.bulk, matrix.bulk), reuss(fraction, glass.shear, matrix.shear)


# Microstructures


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_spheres", "volume_fraction"), [(1, 0.2), (4, 0.2), (8, 0.25)])
def test_spheres_stay_apart_in_the_repeated_cube(num_spheres, volume_fraction, seed):
    spheres = place_spheres(num_spheres, volume_fraction, seed=seed, gap=0.2)
    images = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3), axis=-1).reshape(-1, 3)
    everywhere = (spheres.centres[:, None] + images).reshape(-1, 3)
    distances = np.linalg.norm(spheres.centres[:, None] - everywhere, axis=-1)
    assert np.sort(distances, axis=1)[:, 1].min() >= 2.2 * spheres.radius
    assert np.all((spheres.centres >= 0.0) & (spheres.centres < 1.0))
    assert spheres.volume_fraction == pytest.approx(volume_fraction, rel=1e-12)


def test_the_seed_alone_decides_the_spheres():
    np.testing.assert_array_equal(place_spheres(4, 0.2, seed=3).centres, place_spheres(4, 0.2, seed=3).centres)
    assert np.any(place_spheres(4, 0.2, seed=3).centres != place_spheres(4, 0.2, seed=4).centres)


@pytest.mark.parametrize("resolution", [8, 12, 16])
def test_the_glass_in_the_voxels_is_that_of_the_spheres(resolution):
    for seed in range(4):
        spheres = place_spheres(4, 0.2, seed=seed)
        fraction = glass_fraction(spheres, resolution)
        assert fraction.mean() == pytest.approx(spheres.volume_fraction, rel=5e-3)
        assert fraction.min() == 0.0
        assert fraction.max() == 1.0


def test_voxels_lie_where_the_spheres_are():
    """A voxel well inside a sphere is glass, one well outside is matrix, across the faces of the cube too."""
    spheres = place_spheres(2, 0.2, seed=1)
    fraction = glass_fraction(spheres, 10)
    half_diagonal = np.sqrt(3.0) / 20.0
    for index, found in np.ndenumerate(fraction):
        depth = periodic_distances(spheres.centres, (np.array(index) + 0.5) / 10.0).min() - spheres.radius
        if abs(depth) > half_diagonal:
            assert found == float(depth < 0.0)


@pytest.mark.parametrize(
    "case", [(4, 0.7, 0.3), (1, 0.6, 0.0), (20, 0.5, 0.0), (0, 0.2, 0.3), (4, 0.0, 0.3), (4, 0.2, -1.0)]
)
def test_spheres_that_do_not_fit_are_refused(case, monkeypatch):
    monkeypatch.setattr("langenode.simulators.composite.microstructure.MOST_RESTARTS", 2)
    num_spheres, volume_fraction, gap = case
    with pytest.raises(ValueError, match=r"must fit|one sphere or more"):
        place_spheres(num_spheres, volume_fraction, seed=0, gap=gap)


def test_a_cube_without_voxels_is_refused():
    with pytest.raises(ValueError, match="must be one or more"):
        glass_fraction(place_spheres(1, 0.1, seed=0), 0)


# Finite elements


@pytest.mark.parametrize("phase", [GLASS, MATRIX_AT_ONCE])
def test_a_homogeneous_cube_has_the_stiffness_of_its_material(phase):
    found = effective_stiffness(np.full((5, 5, 5), phase.bulk), np.full((5, 5, 5), phase.shear))
    np.testing.assert_allclose(found, phase.stiffness, rtol=1e-8, atol=1e-8 * phase.shear)


def test_a_material_given_by_youngs_modulus():
    """Uniaxial stress is Young's modulus times strain, and the sides contract by Poisson's ratio."""
    strain = np.linalg.solve(Phase.from_young(60_000.0, 0.33).stiffness, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(strain * 60_000.0, [1.0, -0.33, -0.33, 0.0, 0.0, 0.0], atol=1e-12)


def layered_stiffness(bulk, shear):
    """Exact stiffness of isotropic layers of equal thickness, normal to axis 3 (Backus 1962)."""
    lame, mean = bulk - 2.0 / 3.0 * shear, np.mean
    wave = lame + 2.0 * shear
    c33, slope = 1.0 / mean(1.0 / wave), mean(lame / wave)
    c11 = mean(4.0 * shear * (lame + shear) / wave) + slope**2 * c33
    c12 = c11 - 2.0 * mean(shear)
    expected = np.diag([c11, c11, c33, 1.0 / mean(1.0 / shear), 1.0 / mean(1.0 / shear), mean(shear)])
    expected[0, 1] = expected[1, 0] = c12
    expected[:2, 2] = expected[2, :2] = slope * c33
    return expected


@pytest.mark.parametrize("normal", [0, 1, 2])
@pytest.mark.parametrize("other", [Phase(1500.0, 40.0), GLASS])
def test_layers_have_their_exact_stiffness(normal, other):
    in_layers = np.array([MATRIX_AT_ONCE, other, MATRIX_AT_ONCE, Phase(700.0, 3.0)])
    shape = [1, 1, 1]
    shape[normal] = 4
    bulk, shear = (np.broadcast_to(column.reshape(shape), (4, 4, 4)).copy() for column in in_layers.T)
    found = effective_stiffness(bulk, shear)
    expected = layered_stiffness(*in_layers.T)
    # Axes in the order that makes the layers' normal the third one; Voigt's shear entries follow.
    axes = [*(axis for axis in range(3) if axis != normal), normal]
    order = [*axes, *(3 + axis for axis in axes)]
    np.testing.assert_allclose(found[np.ix_(order, order)], expected, rtol=1e-8, atol=1e-8)


def test_one_shear_modulus_everywhere_makes_hills_exact_stiffness():
    """Then 1 / (K + 4G/3) is the mean of 1 / (K_i + 4G/3), whatever the geometry (Hill 1963)."""
    bulk, shear = voxels_of(place_spheres(4, 0.2, seed=2), 8, Phase(30.0, 2.0), Phase(3.0, 2.0))
    exact = float(1.0 / np.mean(1.0 / (bulk + 8.0 / 3.0)) - 8.0 / 3.0)
    found = effective_stiffness(bulk, shear)
    np.testing.assert_allclose(found, Phase(exact, 2.0).stiffness, rtol=5e-3, atol=0.02)


def test_stiffness_is_symmetric_positive_and_between_reuss_and_voigt():
    bulk, shear = voxels_of(place_spheres(4, 0.2, seed=0), 8, GLASS, MATRIX_AT_ONCE)
    found = effective_stiffness(bulk, shear)
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found).min() > 0.0
    voigt = Phase(float(bulk.mean()), float(shear.mean())).stiffness
    lowest = Phase(float(1.0 / np.mean(1.0 / bulk)), float(1.0 / np.mean(1.0 / shear))).stiffness
    assert np.linalg.eigvalsh(voigt - found).min() > 0.0
    assert np.linalg.eigvalsh(found - lowest).min() > -1e-8


def test_a_shifted_or_turned_cube_is_the_same_composite():
    bulk, shear = voxels_of(place_spheres(4, 0.2, seed=5), 6, GLASS, MATRIX_AT_ONCE)
    found = effective_stiffness(bulk, shear)
    shifted = effective_stiffness(*(np.roll(moduli, (1, 2, 3), axis=(0, 1, 2)) for moduli in (bulk, shear)))
    np.testing.assert_allclose(shifted, found, rtol=1e-8, atol=1e-8)
    turned = effective_stiffness(*(np.ascontiguousarray(moduli.transpose(1, 2, 0)) for moduli in (bulk, shear)))
    order = [1, 2, 0, 4, 5, 3]
    np.testing.assert_allclose(turned, found[np.ix_(order, order)], rtol=1e-8, atol=1e-8)


def test_moduli_that_make_no_sense_are_refused():
    ones = np.ones((3, 3, 3))
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            effective_stiffness(ones, bad * ones)
    with pytest.raises(ValueError, match="at least two"):
        effective_stiffness(np.ones((1, 1, 1)), np.ones((1, 1, 1)))


def test_pardiso_agrees_or_says_how_to_get_it():
    bulk, shear = voxels_of(place_spheres(4, 0.2, seed=0), 4, GLASS, MATRIX_AT_ONCE)
    try:
        import pypardiso  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        with pytest.raises(ImportError, match="pip install pypardiso"):
            effective_stiffness(bulk, shear, solve=pardiso_solve)
    else:
        found = effective_stiffness(bulk, shear, solve=pardiso_solve)
        np.testing.assert_allclose(found, effective_stiffness(bulk, shear), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_finer_voxels_change_the_shear_stiffness_by_less_than_3_percent(seed):
    spheres = place_spheres(4, 0.2, seed=seed)
    coarse, fine = (composite_stiffness(spheres, resolution).per_shear for resolution in (12, 16))
    assert relative_change(coarse, fine) < 0.03


# The library


def test_stiffness_is_linear_in_the_shear_modulus_of_the_matrix():
    """A third solve between the two lies on the shipped line, which also ties the file to the code."""
    matrix = MATRIX_AT_ONCE._replace(shear=0.19)
    found = effective_stiffness(*voxels_of(place_spheres(4, 0.2, seed=7), 12, GLASS, matrix))
    (shipped,) = shipped_stiffness([7])
    assert relative_change(shipped.at(0.19), found) < 1e-3
    assert isotropic_part(shipped.at(0.19)).bulk == pytest.approx(isotropic_part(found).bulk, rel=1e-6)


def test_the_mean_of_the_microstructures_is_nearly_isotropic_though_each_is_not():
    tensors = np.array([deviatoric(cube.per_shear) for cube in shipped_stiffness(range(128))])
    mean, shear = tensors.mean(0), np.trace(tensors.mean(0)) / 10.0
    scatter = np.sqrt(np.sum((tensors - mean) ** 2, axis=(1, 2)).mean())
    assert np.linalg.norm(mean - 2.0 * shear * DEVIATOR) < 5.0 * scatter / np.sqrt(len(tensors))
    assert 0.03 < scatter / np.linalg.norm(mean) < 0.15


def test_pressure_hardly_knows_the_shear_modulus():
    for cube in shipped_stiffness(range(128)):
        bulk = isotropic_part(cube.fixed).bulk
        np.testing.assert_allclose(cube.fixed, Phase(bulk, 0.0).stiffness, atol=1e-6 * bulk)


def hashin_shtrikman(matrix, glass, fraction):
    """The lower bounds, with the softer phase around the stiffer one."""
    bulk = matrix.bulk + fraction / (
        1.0 / (glass.bulk - matrix.bulk) + 3.0 * (1.0 - fraction) / (3.0 * matrix.bulk + 4.0 * matrix.shear)
    )
    around = (matrix.bulk + 2.0 * matrix.shear) / (matrix.shear * (3.0 * matrix.bulk + 4.0 * matrix.shear))
    shear = matrix.shear + fraction / (1.0 / (glass.shear - matrix.shear) + 1.2 * (1.0 - fraction) * around)
    return Phase(bulk, shear)


def test_the_microstructures_respect_the_bounds_of_hashin_and_shtrikman():
    """Spheres in a soft matrix are close to the lower bounds; for the bulk modulus up to the volume error."""
    lower = hashin_shtrikman(MATRIX_AT_ONCE, GLASS, 0.2)
    upper = hashin_shtrikman(GLASS, MATRIX_AT_ONCE, 0.8)
    for cube in shipped_stiffness(range(128)):
        found = isotropic_part(cube.at(MATRIX_AT_ONCE.shear))
        assert lower.shear < found.shear < min(1.2 * lower.shear, upper.shear)
        assert found.bulk == pytest.approx(lower.bulk, rel=5e-4)
        assert found.bulk < upper.bulk


def test_stiffnesses_of_the_default_come_from_the_file_and_others_are_computed():
    shipped = stiffnesses(CompositeGeometry(), [5, 2])
    for found, expected in zip(shipped, shipped_stiffness([5, 2]), strict=True):
        np.testing.assert_array_equal(found, expected)
    geometry = CompositeGeometry(num_spheres=1, resolution=4)
    (found,) = stiffnesses(geometry, [3])
    expected = composite_stiffness(place_spheres(1, 0.2, seed=3), 4)
    np.testing.assert_allclose(found.at(0.2), expected.at(0.2), rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="from 0 to 127; found 128"):
        shipped_stiffness([0, 128])


@pytest.mark.slow
def test_a_shipped_microstructure_can_be_made_again():
    (shipped,) = shipped_stiffness([100])
    made = compute_stiffnesses(CompositeGeometry(), [100])[100]
    np.testing.assert_allclose(shipped.fixed, made.fixed, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(shipped.per_shear, made.per_shear, rtol=1e-6, atol=1e-6)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["composite", *map(str, arguments)])
    main()


def test_the_command_writes_a_file_that_reads_back(tmp_path, monkeypatch, capsys):
    path = tmp_path / "small.csv"
    run(monkeypatch, "--microstructures", 2, "--spheres", 1, "--fraction", 0.1, "--resolution", 4, "--out", path)
    assert "2 microstructures" in capsys.readouterr().out
    assert "--microstructures 2 --spheres 1 --fraction 0.1 --resolution 4 --gap 0.3" in path.read_text()
    expected = compute_stiffnesses(CompositeGeometry(1, 0.1, 4), [0, 1])
    for number, found in read_stiffnesses(path).items():
        np.testing.assert_allclose(found.at(0.2), expected[number].at(0.2), rtol=1e-8, atol=1e-6)
    path.write_text("0,1,2\n")
    with pytest.raises(ValueError, match="has 43 numbers"):
        read_stiffnesses(path)


@pytest.mark.parametrize("bad", [["--microstructures", 0], ["--fraction", 0.9], ["--out", "/nowhere/at/all.csv"]])
def test_a_command_that_cannot_work_stops_with_one_line(bad, tmp_path, monkeypatch, capsys):
    path = tmp_path / "none.csv"
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "--microstructures", 1, "--out", path, *bad)
    assert "; " in capsys.readouterr().err
    assert not path.exists()
