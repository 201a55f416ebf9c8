"""`simulate --solver fe`: what is made, resumed, refused and left out, and the demonstrations on such data."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from clusters import children_of, cluster, wait_for
from commands import done, langenode, options, plain_environment
from langenode.data import load_data
from langenode.experiments import composite, finite_strain
from langenode.fitting.choose import configure
from langenode.simulators.composite.finite_strain import sets

TINY = options("data.num_steps=4 data.num_spheres=1")
ASKED = ["--solver", "fe", "--microstructures", "2", "--loadings", "2", "--grid", "2", "--workers", "1", *TINY]


def test_a_set_is_made_resumed_and_merged(tmp_path):
    found = done("simulate", "viscoelastic", *ASKED, "--out", "set", cwd=tmp_path)
    assert "4 simulations in" in found.out and "data.fe_set=set/set.npz" in found.out
    merged, data = sets.read_set(tmp_path / "set" / "set.npz"), load_data(tmp_path / "set" / "data.nc")
    assert merged.stress.shape == (4, 5, 6) and merged.plan.resolution == 2
    assert (data.num_units, data.num_conditions, data.output_names) == (2, 2, sets.STRESS_NAMES)
    kept = tmp_path / "set" / "cube-001-loading-001.npz"
    before = kept.stat().st_mtime_ns
    (tmp_path / "set" / "cube-000-loading-000.npz").unlink()
    again = done("simulate", "viscoelastic", *ASKED, "--out", "set", cwd=tmp_path)
    assert "3 of them done already" in again.err and kept.stat().st_mtime_ns == before
    refused = langenode("simulate", "viscoelastic", *ASKED, "--seed", "5", "--out", "set", cwd=tmp_path)
    assert refused.code == 2 and "was asked otherwise" in refused.err and kept.exists()


def test_a_simulation_that_failed_is_said_and_left_out(tmp_path):
    plan = sets.Plan(num_microstructures=2, num_loadings=2, num_steps=4, num_spheres=1, resolution=2)
    sets.write_plan(tmp_path / "set", plan)
    failure = {"microstructure": 1, "loading": "walk 001", "step": 3, "reason": "step 3: it did not converge"}
    (tmp_path / "set" / "cube-001-loading-001.failed.json").write_text(json.dumps(failure))
    found = done("simulate", "viscoelastic", *ASKED, "--out", "set", "--json", cwd=tmp_path)
    said = json.loads(found.out)
    assert said["failures"] == [failure] and said["simulations"] == 3
    assert len(sets.read_set(tmp_path / "set" / "set.npz").stress) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ou", "--solver", "fe"], "--solver fe simulates hyperelastic or viscoelastic"),
        (["viscoelastic", "--grid", "4"], "--grid is an option of --solver fe"),
        (["viscoelastic", "--solver", "fe", *options("data.volume_fraction=0.45 data.num_spheres=9")], "must fit"),
    ],
)
def test_wrong_requests_are_refused(words, message, tmp_path):
    found = langenode("simulate", *words, "--out", "set", cwd=tmp_path)
    assert found.code == 2 and message in found.err, found.err
    assert not (tmp_path / "set" / "plan.json").exists()


@pytest.mark.parametrize("experiment", ["viscoelastic", "hyperelastic"])
def test_the_shipped_sets_are_complete_and_divided_by_loading_and_microstructure(experiment):
    import jax

    found = sets.read_set(sets.SHIPPED[experiment])
    plan = found.plan
    assert plan.num_microstructures >= 16 and not found.failures
    assert len(found.stress) == plan.num_microstructures * plan.num_loadings and np.all(np.isfinite(found.stress))
    assert sets.SHIPPED[experiment].stat().st_size < 4e6
    np.testing.assert_array_equal(found.log_strain, plan.loadings.log_strain)
    config = configure(experiment, [{"data": {"source": "fe"}}])
    splits = composite.simulate(config, jax.random.key(0))
    assert splits.test.num_units == plan.num_microstructures == splits.train.num_units + config.data.num_held_out
    assert not set(splits.test.condition_names) & set(splits.train.condition_names)
    parts = finite_strain.test_parts(splits)
    assert parts["held_out_microstructures"].num_units == config.data.num_held_out
    again = composite.simulate(config, jax.random.key(0))
    assert again.train.unit_names == splits.train.unit_names


def test_the_shipped_viscoelastic_set_is_what_the_demonstration_needs():
    plan = sets.read_set(sets.SHIPPED["viscoelastic"]).plan
    assert (plan.num_loadings, plan.num_steps, plan.num_spheres, plan.resolution) == (24, 50, 4, 8)


@pytest.mark.slow
def test_a_set_is_the_same_by_a_scheduler_and_after_a_killed_worker(tmp_path, monkeypatch):
    """The worker dies in the midst of a loading; those that were done are kept, and its own is made again."""
    done("simulate", "viscoelastic", *ASKED, "--out", "one", cwd=tmp_path)
    with cluster(tmp_path, monkeypatch) as found:
        words = [word for word in ASKED if word not in ("--workers", "1")]
        done("simulate", "viscoelastic", *words, "--scheduler", found.scheduler_address, "--out", "two", cwd=tmp_path)
    words = [sys.executable, "-m", "langenode", "simulate", "viscoelastic", *ASKED, "--out", "three"]
    first = tmp_path / "three" / "cube-000-loading-000.npz"
    with subprocess.Popen(words, cwd=tmp_path, env=plain_environment(), stderr=subprocess.DEVNULL) as command:
        wait_for(first.exists, 120.0)
        written, workers = first.stat().st_mtime_ns, children_of(command.pid)
        assert len(workers) == 1
        os.kill(workers[0], signal.SIGKILL)
        assert command.wait(240) == 0
    assert first.stat().st_mtime_ns == written
    one, *others = (sets.read_set(tmp_path / name / "set.npz").stress for name in ("one", "two", "three"))
    for other in others:
        np.testing.assert_array_equal(other, one)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["viscoelastic", "hyperelastic"])
def test_a_shipped_simulation_can_be_made_again(experiment, tmp_path):
    found = sets.read_set(sets.SHIPPED[experiment])
    sets.write_plan(tmp_path, found.plan)
    chosen = found.plan.num_loadings + 3
    path = sets.simulate_loading(str(tmp_path), int(found.cubes[chosen]), int(found.loadings[chosen]))
    with np.load(path) as file:
        stress = file["stress"]
    np.testing.assert_allclose(stress, found.stress[chosen], atol=1e-5 * np.abs(stress).max())
