"""Who may import whom (ARCHITECTURE, "Who may import whom"), what is imported late, and what is never used.

Imports are read from the source, also those inside functions: nothing is executed.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import langenode

ROOT = Path(langenode.__file__).parent
PACKAGE = "langenode"

# A room is a module or a folder directly under the package. Rooms that do not exist yet are ignored.
RANKS = {
    0: ("_types", "_version", "mechanics", "sorting", "config"),
    1: ("data", "priors", "partition", "metrics", "floors", "diagnostics", "posteriors"),
    2: ("models", "likelihood", "targets", "observing", "simulators", "plots"),
    3: ("mle", "problem", "predictive", "calibration", "inference", "whitening", "quadrature", "baselines", "parallel"),
    4: (
        "fitfile",
        "experiments",
        "runfolder",
        "runfiles",
        "bands",
        "verdict",
        "references",
        "standings",
        "comparison",
        "sidebyside",
        "pages",
        "report",
        "comparisonpage",
        "progress",
        "screen",
        "processes",
    ),
    5: (
        "assembly",
        "choosing",
        "sampling",
        "fits",
        "api",
        "newdata",
        "evaluation",
        "watching",
        "pipeline",
        "points",
        "sweep",
        "methods",
    ),
    6: ("cli",),
    7: ("__init__", "__main__"),
}
RANK = {room: rank for rank, rooms in RANKS.items() for room in rooms}

# Sideways, where the table says so: the weights' judges have their names in `metrics`; the problem and its point fit
# stand below what solves it; strings become objects in `assembly`, so the facade and the stages go through it.
SIDEWAYS = {
    "mechanics": {"_types"},
    "sorting": {"_types"},
    "metrics": {"diagnostics"},
    "floors": {"metrics"},
    "targets": {"likelihood"},
    "observing": {"targets"},
    "predictive": {"problem"},
    "calibration": {"problem", "predictive"},
    "inference": {"mle", "problem", "whitening"},
    "whitening": {"mle", "problem"},
    "baselines": {"mle", "problem"},
    "runfiles": {"runfolder", "bands"},
    "references": {"runfolder", "runfiles"},
    "comparison": {"runfolder", "references", "standings"},
    "sidebyside": {"runfolder", "runfiles", "references", "standings", "comparison", "comparisonpage"},
    "pages": {"runfolder"},
    "report": {"runfolder", "comparison", "pages"},
    "comparisonpage": {"runfolder", "pages", "standings"},
    "screen": {"standings"},
    "fits": {"assembly", "sampling"},
    "choosing": {"assembly"},
    "api": {"assembly", "choosing", "sampling", "fits"},
    "newdata": {"api"},
    "evaluation": {"assembly"},
    "pipeline": {"assembly", "watching", "sampling", "fits", "evaluation"},
    "points": {"choosing", "pipeline"},
    "sweep": {"choosing", "points"},
    "methods": {"choosing", "points", "pipeline"},
}

# Of the lower ranks, these rooms know only what is named.
ONLY = {
    "posteriors": {"_types"},
    "likelihood": {"_types", "data"},
    "targets": {"_types", "sorting", "likelihood", "metrics", "data"},
    "simulators": {"_types", "data", "mechanics"},
}

# And these must not know: rank 2 no posteriors and no config, rank 3 no config.
FORBIDDEN = {room: {"posteriors", "config"} for room in RANKS[2]} | {room: {"config"} for room in RANKS[3]}

HEAVY = (
    "xarray",
    "pandas",
    "scipy.stats",
    "pyarrow",
    "jinja2",
    "matplotlib",
    "blackjax",
    "numpyro",
    "arviz",
    "dask",
    "dcor",
    "scoringrules",
)
OPENERS = ("open", "read_text", "write_text", "read_bytes", "write_bytes", "savez", "tofile")
CODE_IN_DATA = ("pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal")


class Import(NamedTuple):
    module: str
    line: int
    is_late: bool  # inside a function
    is_for_types: bool  # under `if TYPE_CHECKING:`


def sources(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def room_of(path: Path, root: Path) -> str:
    return path.relative_to(root).with_suffix("").parts[0]


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    """Every module a file imports, by its full name; `from a import b` gives `a.b`, which may be a name in `a`."""
    folder = path.relative_to(root.parent).parent.parts

    def walk(node: ast.AST, is_late: bool, is_for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, is_late, is_for_types)
        if isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, is_late, is_for_types)
        late = is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        types = is_for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, late, types)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False, False)


def imported_room(module: str, root: Path) -> str | None:
    """Our room that a full name lies in; None for other libraries. The package's own names are `__init__`'s."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    if len(parts) == 1:
        return "__init__"
    exists = (root / parts[1]).is_dir() or (root / f"{parts[1]}.py").is_file()
    return parts[1] if exists else "__init__"


def is_allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if imported in FORBIDDEN.get(importer, set()) or imported not in ONLY.get(importer, {imported}):
        return False
    return RANK.get(imported, 99) < RANK.get(importer, -1) or imported in SIDEWAYS.get(importer, set())


def broken_ranks(root: Path) -> list[str]:
    broken = []
    for path in sources(root):
        importer = room_of(path, root)
        for found in imports_of(path, root):
            imported = imported_room(found.module, root)
            if imported is not None and not is_allowed(importer, imported):
                broken.append(f"{path.relative_to(root)}:{found.line} {importer} must not import {imported}")
    return broken


def early_imports(root: Path) -> list[str]:
    """Heavy libraries imported with a module of ours: fine inside functions, or for types (but matplotlib)."""
    early = []
    for path in sources(root):
        for found in imports_of(path, root):
            for name in HEAVY:
                is_excused = found.is_late or (found.is_for_types and name != "matplotlib")
                if f"{found.module}.".startswith(f"{name}.") and not is_excused:
                    early.append(f"{path.relative_to(root)}:{found.line} {found.module}")
    return early


def code_from_data(root: Path) -> list[str]:
    """Uses of what runs code that came as data."""
    used = []
    for path in sources(root):
        where = path.relative_to(root)
        named = [found for found in imports_of(path, root) if found.module.split(".")[0] in CODE_IN_DATA]
        used += [f"{where}:{found.line} {found.module}" for found in named]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id in ("eval", "exec", "__import__"):
                used.append(f"{where}:{node.lineno} {node.id}")
            if isinstance(node, ast.Attribute) and node.attr in ("eval", "exec", "to_pickle", "read_pickle"):
                used.append(f"{where}:{node.lineno} .{node.attr}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                used.append(f"{where}:{node.value.lineno} allow_pickle")
    return used


def opened_files(root: Path, rooms: set[str]) -> list[str]:
    """Where a room that must not know files opens one."""
    opened = []
    for path in sources(root):
        if room_of(path, root) not in rooms:
            continue
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        names = [(node.lineno, ast.unparse(node.func)) for node in calls]
        opened += [f"{path.relative_to(root)}:{line} {name}" for line, name in names if name.split(".")[-1] in OPENERS]
    return opened


# --- the house itself


def test_every_room_has_a_rank():
    unknown = {room_of(path, ROOT) for path in sources(ROOT)} - set(RANK)
    assert not unknown, f"give these a rank in ARCHITECTURE and here: {sorted(unknown)}"


def test_imports_go_down():
    assert broken_ranks(ROOT) == []


def test_heavy_libraries_are_imported_late():
    assert early_imports(ROOT) == []


def test_nothing_runs_code_that_came_as_data():
    assert code_from_data(ROOT) == []


def test_only_data_and_the_upper_ranks_open_files():
    rooms = {*RANKS[1], *RANKS[3]} - {"data"}
    assert opened_files(ROOT, rooms) == []


def test_there_is_something_to_read():
    rooms = {room_of(path, ROOT) for path in sources(ROOT)}
    assert {"models", "posteriors", "data", "targets", "inference"} <= rooms
    found = {found.module for found in imports_of(ROOT / "problem.py", ROOT)}
    assert {"langenode.targets.Population", "langenode.posteriors.Draw", "equinox"} <= found


def test_importing_the_package_loads_no_heavy_library_and_sets_nothing():
    # scipy.stats is left out: libraries of ours may load it themselves.
    names = [name for name in HEAVY if name != "scipy.stats"]
    code = (
        "import sys, langenode.inference, langenode.mle, langenode.models, langenode.metrics, jax\n"
        f"loaded = [name for name in {names!r} if name in sys.modules]\n"
        "sys.exit(f'{loaded} {jax.config.jax_enable_x64}' if loaded or jax.config.jax_enable_x64 else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"JAX_PLATFORMS": "cpu"})
    assert result.returncode == 0, result.stderr


# --- the readers themselves: each rule must be able to fail


def make_house(tmp_path, files):
    root = tmp_path / PACKAGE
    for name, text in {"__init__.py": "", "_types.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "text", "imported"),
    [
        ("posteriors/langevin.py", "from langenode.models import MLP", "models"),
        ("posteriors/langevin.py", "def f():\n    import langenode.priors", "priors"),
        ("metrics.py", "from langenode.data import Dataset", "data"),
        ("data/files.py", "from langenode import metrics", "metrics"),
        ("data/files.py", "from ..metrics import w1", "metrics"),
        ("diagnostics.py", "from langenode import metrics", "metrics"),
        ("models/ode.py", "from langenode.posteriors import Draw", "posteriors"),
        ("models/ode.py", "from langenode import config", "config"),
        ("likelihood.py", "from langenode.targets import Population", "targets"),
        ("targets.py", "from langenode.priors import GaussianPrior", "priors"),
        ("simulators/ou.py", "from langenode.models import MLP", "models"),
        ("mle.py", "from langenode.inference import train", "inference"),
        ("problem.py", "from langenode.inference import train", "inference"),
        ("inference.py", "from langenode.config import Config", "config"),
        ("inference.py", "from langenode import __version__", "__init__"),
        ("experiments/ou.py", "if TYPE_CHECKING:\n    from langenode.cli import main", "cli"),
        ("api.py", "import langenode", "__init__"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, file, text, imported):
    present = {f"{room}.py": "" for room in RANK if not room.startswith("__")}
    root = make_house(tmp_path, {**{k: v for k, v in present.items() if k[:-3] != file.split("/")[0]}, file: text})
    assert len(broken_ranks(root)) == 1
    assert broken_ranks(root)[0].endswith(f"must not import {imported}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metrics.py", "from langenode.diagnostics import k_hat"),
        ("posteriors/langevin.py", "from langenode.posteriors.base import Draw\nfrom .controls import StepControl"),
        ("targets.py", "from langenode.likelihood import Likelihood\nfrom langenode import metrics, data"),
        ("simulators/ou.py", "from langenode.data import Dataset\nfrom langenode import mechanics"),
        ("inference.py", "from langenode.problem import Problem\nfrom langenode.posteriors import Langevin"),
        ("cli.py", "from langenode import pipeline"),
        ("__init__.py", "from langenode.api import fit"),
    ],
)
def test_a_right_import_is_let_through(tmp_path, file, text):
    present = {f"{room}.py": "" for room in RANK if not room.startswith("__")}
    root = make_house(tmp_path, {**{k: v for k, v in present.items() if k[:-3] != file.split("/")[0]}, file: text})
    assert broken_ranks(root) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pandas as pd",
        "from scipy import stats",
        "from scipy.stats import norm",
        "import scipy.stats",
        "try:\n    import dask.array\nexcept ImportError:\n    pass",
        "class A:\n    import xarray",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from matplotlib.axes import Axes",
    ],
)
def test_an_early_import_is_found(tmp_path, text):
    assert len(early_imports(make_house(tmp_path, {"plots.py": text}))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import pandas, scipy.stats, matplotlib.pyplot as plt",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xarray",
        "from scipy.special import logsumexp",
        "import pandas_like_name",
    ],
)
def test_a_late_import_is_let_through(tmp_path, text):
    assert early_imports(make_house(tmp_path, {"plots.py": text})) == []


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "def f(x):\n    exec(x)",
        "import builtins\nbuiltins.eval('1')",
        "import pickle",
        "def f():\n    from joblib import load",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "frame.to_pickle('x')",
    ],
)
def test_code_that_comes_as_data_is_found(tmp_path, text):
    assert len(code_from_data(make_house(tmp_path, {"fitfile.py": text}))) >= 1


def test_what_only_looks_like_it_is_let_through(tmp_path):
    text = "import jax\njax.eval_shape(f)\nnp.load('x', allow_pickle=False)\nevaluate = 1  # eval, exec, pickle"
    assert code_from_data(make_house(tmp_path, {"fitfile.py": text})) == []


def test_an_opened_file_is_found(tmp_path):
    root = make_house(
        tmp_path, {"metrics.py": "open('x')", "fitfile.py": "open('x')", "mle.py": "Path('x').read_text()"}
    )
    assert len(opened_files(root, {"metrics", "mle"})) == 2
