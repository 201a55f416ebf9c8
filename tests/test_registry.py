"""One registry: a method or an experiment that is added in one place is found in all others."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import done
from langenode import config as configuration
from langenode.config import ConfigError
from langenode.experiments import DEMONSTRATIONS, EXPERIMENTS
from langenode.fitting import methods as registry
from langenode.fitting import reference_pages
from langenode.fitting.choose import configure, unused_options
from langenode.runs import methods as comparison

ROOT = Path(__file__).parent.parent

# A whole method, in ten lines.
TOY = '''
from langenode.config import DrawnOptions
from langenode.fitting.methods import Drawn

class Options(DrawnOptions):
    num: int = 8
    """draws of the prior"""

def draw(density, options, *, key, budget):
    import jax, jax.numpy as jnp
    from langenode.posteriors import Sampled, Trust
    draws = jax.random.normal(key, (options.num, density.dim), density.dtype)
    return Sampled(draws, jnp.zeros(options.num, density.dtype), {}, Trust(False, "draws of the prior"))

METHOD = Drawn(name="toy", summary="Draws of the prior.", options=Options, draw=draw)
'''

# A whole experiment, which changes one thing about another.
RELAXATION = """
from langenode.experiments import ou

EXPERIMENT = ou.EXPERIMENT._replace(name="relaxation")
"""


def distribution(folder: Path, group: str, name: str, module: str, text: str, value: str) -> None:
    """A package as an installer would leave it: a module, and metadata with an entry point."""
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{value}\n")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with the toy method and the toy experiment, seen by this process and by those it starts."""
    # The command's choices are made at its import: made here, they would hold the toys for every later file.
    importlib.import_module("langenode.cli.options")
    distribution(tmp_path, "langenode.methods", "toy", "toymethod", TOY, "METHOD")
    distribution(tmp_path, "langenode.experiments", "relaxation", "toyexperiment", RELAXATION, "EXPERIMENT")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    registry.methods.cache_clear()
    yield tmp_path
    registry.methods.cache_clear()
    for name in ("toymethod", "toyexperiment"):
        sys.modules.pop(name, None)


def help_of_run():
    """By a process of its own: the command's choices are made when it is imported."""
    command = [sys.executable, "-m", "langenode", "run", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.usefixtures("installed")
def test_a_method_in_ten_lines_is_found_everywhere(tmp_path):
    # help and the list of methods
    assert "toy" in help_of_run() and "Draws of the prior." in done("methods", "--json").out
    # the starting configuration for a user's data
    rows = [f"{i},{t},{(1 + i) * 0.5**t}" for i in range(6) for t in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["id,t,x", *rows]) + "\n")
    done("check", "table.csv", cwd=tmp_path)
    line = next(line for line in (tmp_path / "config.toml").read_text().splitlines() if line.startswith("# method = "))
    assert ", toy" in line
    # comparisons, and notes on options without effect
    plan = comparison.make_plan("ou", [{"target": "posterior"}], comparison.parse_methods("all"), None)
    assert "toy" in [point.name for point in plan.points]
    asked = {"target": "posterior", "method": "map", "toy": {"num": 3}}
    assert unused_options(configure("ou", [asked]), [asked]) == [("toy.num", "method map")]
    # what it cannot do is refused in its own words, misspelt options with a hint
    with pytest.raises(ConfigError, match="method toy serves posterior and tempered"):
        configure("ou", [{"method": "toy", "target": "population"}])
    with pytest.raises(ConfigError, match=r"did you mean toy\.num\?"):
        configure("ou", [{"method": "toy", "toy": {"nun": 3}}])
    # the tables of the docs
    assert "| `toy` | drawn | posterior, tempered | Draws of the prior. | `num` |" in reference_pages.methods_page()
    assert "| `num` | integer | `8` | draws of the prior |" in reference_pages.configuration_page()
    # and the conformance test of methods
    import small_fits

    assert "toy" in {case.values[1] for case in small_fits.cases()}


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore:the draws of toy are not to be trusted")
def test_an_added_method_is_run_by_the_command(tmp_path):
    small = (
        "data.num_times=8 data.num_validation=2 data.num_test=4 mle.num_adam=5 mle.num_lbfgs=2 predict.num_samples=8"
    )
    settings = [word for text in f"{small} predict.num_weights=16".split() for word in ("--set", text)]
    out = tmp_path / "run"
    done("run", "ou", "--method", "toy", "--out", str(out), *settings)
    found = json.loads((out / "metrics.json").read_text())
    assert found["method"] == "toy" and found["posterior"]["num_draws"] == 8
    assert found["verdict"]["level"] == "distrust" and "Draws of the prior." in (out / "report.html").read_text()


@pytest.mark.usefixtures("installed")
def test_an_experiment_of_another_package_is_found():
    assert "relaxation" in DEMONSTRATIONS and "relaxation" in EXPERIMENTS and len(DEMONSTRATIONS) == 5
    assert EXPERIMENTS["relaxation"].name == "relaxation"
    assert configure("relaxation", []).experiment == "relaxation"
    assert "relaxation" in help_of_run()


def test_an_entry_point_that_is_no_method_or_experiment_is_refused(tmp_path, monkeypatch):
    distribution(tmp_path, "langenode.methods", "odd", "oddmethod", "METHOD = 3\n", "METHOD")
    distribution(tmp_path, "langenode.experiments", "strange", "strangeone", "EXPERIMENT = 3\n", "EXPERIMENT")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.methods.cache_clear()
    with pytest.raises(ConfigError, match=r"must be a Trained or Drawn method; odd .* is int"):
        registry.methods()
    with pytest.raises(ConfigError, match=r"must be an Experiment of the same name; strange .* is a int"):
        EXPERIMENTS["strange"]
    registry.methods.cache_clear()


def test_built_in_methods_are_known_and_a_misspelt_one_is_hinted_at():
    assert len(registry.methods()) == 17
    with pytest.raises(ConfigError, match=r"did you mean nuts\?"):
        registry.find("nutz")
    with pytest.raises(KeyError):
        EXPERIMENTS["nothing"]


def test_every_key_has_a_meaning():
    sections = [(name, registry.with_methods(EXPERIMENTS[name].config)) for name in EXPERIMENTS.built_in]
    silent = []
    for name, kind in sections:
        for key, field in kind.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, configuration.Section):
                silent += [f"{name} {key}.{k}" for k, f in inner.model_fields.items() if not f.description]
            elif key != "experiment" and not field.description:
                silent.append(f"{name} {key}")
    assert silent == []


@pytest.mark.parametrize("name", ["methods.md", "configuration.md"])
def test_reference_pages_are_current(name):
    text = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert text == reference_pages.pages()[name], f"docs/reference/{name} is out of date; run: make docs"
