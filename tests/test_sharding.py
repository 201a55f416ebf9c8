"""Samples and conditions divided over devices and processes: the same losses and draws as on one."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import sharded
from commands import shared_programs
from langenode.inference import sharding
from langenode.inference.errors import FitError

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def started(*words: object, devices: int = 1) -> subprocess.Popen[str]:
    """The script with the compiler's settings of the suite, and its programs."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    environment = {**shared_programs(), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.Popen([sys.executable, sharded.__file__, *map(str, words)], env=environment, text=True)


def assert_same(file: Path, cases: list[str], devices: int = 2) -> None:
    assert len(jax.devices()) == 1
    found = json.loads(file.read_text())
    assert found.pop("devices") == devices
    assert list(found) == cases
    for case, numbers in found.items():
        tolerance = TOLERANCE[case.split()[1]]
        for name, values in numbers.items():
            expected = np.array(sharded.numbers(case)[name], float)
            scale = np.nanmax(np.abs(expected), initial=0.0)
            np.testing.assert_allclose(
                np.array(values, float), expected, rtol=tolerance, atol=tolerance * scale, err_msg=f"{case} {name}"
            )


@pytest.mark.parametrize(
    ("devices", "which"), [(2, "quick"), *(pytest.param(n, "all", marks=[pytest.mark.slow]) for n in (2, 4))]
)
def test_several_devices_give_the_numbers_of_one(tmp_path, devices, which):
    assert started(tmp_path / "found.json", which, devices=devices).wait(300) == 0
    assert_same(tmp_path / "found.json", sharded.CASES if which == "all" else sharded.QUICK, devices)


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    both = [started(tmp_path / f"{index}.json", "all", port, 2, index) for index in range(2)]
    assert [process.wait(300) for process in both] == [0, 0]
    assert not (tmp_path / "1.json").exists()
    assert_same(tmp_path / "0.json", sharded.CASES)


CORES = """
from langenode.inference import sharding
sharding.use_cores()
import jax
print(len(jax.devices()), sharding.devices_for(8, is_trained=True) == sharding.ALONE)
"""


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, "3 True"),
        ({"NPROC": "1"}, "1 True"),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, "2 False"),
    ],
)
def test_cores_are_devices_which_training_does_not_take_unless_they_were_chosen(chosen, expected):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "3", "XLA_FLAGS": "", **chosen}
    done = subprocess.run([sys.executable, "-c", CORES], env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == expected


@dataclasses.dataclass(frozen=True)
class Device:
    process_index: int
    id: int


def test_samples_are_divided_first_then_conditions():
    devices = [Device(index // 4, index) for index in range(8)]

    def shape(num_samples: int, num_conditions: int, among: list = devices[:4]) -> tuple[int, ...]:
        with sharding.over(among):
            found = sharding.devices_for(num_samples, num_conditions, is_trained=True)
        return () if found.mesh is None else found.mesh.devices.shape

    assert shape(256, 3) == (4, 1) and shape(6, 3) == (2, 1) and shape(6, 10) == (2, 2) and shape(5, 3) == ()
    assert shape(8, 1, devices) == (8, 1) and shape(12, 4, devices) == (4, 2)
    with pytest.raises(FitError, match=r"set training\.num_samples to a multiple of 8"):
        shape(12, 3, devices)
    with sharding.over(devices):
        assert sharding.devices_for(12, 3) == sharding.ALONE
