"""Configuration, run folder and fit file: complete or absent, and errors that say what to do."""

import json
import os
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.config import Config, ConfigError, merge, parse_overrides, read_toml, to_toml
from langenode.experiments.ou import OUConfig
from langenode.experiments.own import OwnConfig
from langenode.fitting.choose import configure, settle
from langenode.posteriors import Reference, langevin
from langenode.storage import container
from langenode.storage.folder import RunFolder, RunFolderError, write_bytes, write_json

# What makes a folder a run.
OURS = {"seed": 0, "versions": {"langenode": "0"}}


def test_layers_are_merged_key_by_key():
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}


def test_overrides_are_toml_values_or_text():
    parsed = parse_overrides(["model.layers=[8, 8]", "training.learning_rate=1e-3", "target=posterior", "a.b=none"])
    assert parsed["model"] == {"layers": [8, 8]}
    assert parsed["training"] == {"learning_rate": 1e-3}
    assert parsed["target"] == "posterior" and parsed["a"] == {"b": "none"}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"trainin": {}}, "did you mean training?"),
        ({"training": {"num_update": 3}}, "did you mean training.num_updates?"),
        ({"training": {"num_updates": 0}}, "training.num_updates"),
        ({"method": "magic"}, "method"),
        ({"data": {"noise": -1.0}}, "data.noise"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(layer, message):
    with pytest.raises(ConfigError) as caught:
        configure("ou", [layer])
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["training", "=3", "a..b=1"])
def test_a_malformed_override_is_refused(text):
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        parse_overrides([text])


def test_a_resolved_configuration_survives_its_file(tmp_path):
    config = configure("ou", [{"method": "paper", "seed": 4, "model": {"layers": [8]}}])
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert settle(OUConfig, read_toml(path)) == config
    assert config.target == "tempered" and config.paper.num_steps == 10_000


def test_unreadable_configuration_files(tmp_path):
    with pytest.raises(ConfigError, match="there is no"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(ConfigError, match="must be TOML"):
        read_toml(tmp_path / "bad.toml")


def test_defaults_depend_on_method_and_target():
    assert configure("ou", []).target == "population"
    posterior = configure("ou", [{"target": "posterior"}])
    assert posterior.data.num_trajectories == 5 and posterior.noise.sigma == posterior.data.noise
    assert isinstance(posterior, Config)


def test_a_failed_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_json_has_no_nan(tmp_path):
    write_json(tmp_path / "m.json", {"a": np.array([1.0, np.nan]), "b": np.float32(2.0), "c": (1, float("inf"))})
    assert json.loads((tmp_path / "m.json").read_text()) == {"a": [1.0, None], "b": 2.0, "c": [1, None]}


def test_a_run_folder_is_not_overwritten_without_force(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin("x = 1", OURS, force=False)
    with pytest.raises(RunFolderError, match="use --force"):
        folder.begin("x = 2", OURS, force=False)
    assert folder.config.read_text() == "x = 1"
    folder.begin("x = 2", OURS, force=True)
    assert folder.config.read_text() == "x = 2"


def test_force_never_removes_what_is_not_a_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="holds none"):
        RunFolder(tmp_path).begin("x = 1", OURS, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_the_lock_refuses_a_second_process_and_survives_a_dead_one(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.locked(), pytest.raises(RunFolderError, match="in use"), RunFolder(tmp_path).locked():
        pass
    folder.lock.write_text("999999999")  # no such process
    with folder.locked():
        assert folder.lock.read_text() == str(os.getpid())
    assert not folder.lock.exists()


def sampler(key=0, dim=3):
    return langevin(Reference(jnp.zeros(dim), jnp.ones(dim)), num_steps=2, layers=(4,), key=jax.random.key(key))


def test_a_tree_survives_its_file_bit_for_bit(tmp_path):
    tree = {"q": sampler(), "number": jnp.asarray(3), "flag": jnp.asarray([True, False])}
    path = tmp_path / "fit.langenode"
    path.write_bytes(container.to_bytes({"seed": 7}, tree))
    again = container.read_tree(path, {"q": sampler(1), "number": jnp.asarray(0), "flag": jnp.zeros(2, bool)})
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(again), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert container.read_header(path)["seed"] == 7


def test_wrong_fit_files_are_refused_with_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "fit.langenode"
    content = container.to_bytes({}, sampler())
    with pytest.raises(container.FitFileError, match="found no"):
        container.read_header(path)
    for broken in (b"", content[:100], content[:-8], b"not a fit at all"):
        path.write_bytes(broken)
        with pytest.raises(container.FitFileError, match="must be complete"):
            container.read_header(path)
    path.write_bytes(content)
    with pytest.raises(container.FitFileError, match="must match the model"):
        container.read_tree(path, sampler(dim=4))
    monkeypatch.setattr(container, "FORMAT_VERSION", 0)
    with pytest.raises(container.FitFileError, match="upgrade"):
        container.read_header(path)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "other.langenode")
    with pytest.raises(container.FitFileError, match="written by langenode"):
        container.read_header(tmp_path / "other.langenode")


def test_none_is_a_word_that_switches_off_what_can_be_switched_off():
    """TOML has no null; a word that is a choice of its own stays one."""
    words = {"experiment": "own", "scaling": "none", "model": {"largest_step": "none"}, "noise": {"sigma": "none"}}
    config = settle(OwnConfig, words)
    assert config.scaling == "none" and config.model.largest_step is None and config.noise.sigma is None
    assert 'largest_step = "none"' in to_toml(config) and "sigma" not in to_toml(config)
    assert settle(OwnConfig, tomllib.loads(to_toml(config))) == config
    with pytest.raises(ConfigError):
        settle(OwnConfig, {"experiment": "own", "langevin": {"num_steps": "none"}})
