"""Who may import whom, what is imported late, and what is never used.

Imports are read from the source, also those inside functions: nothing is executed.
"""

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import langenode

ROOT = Path(langenode.__file__).parent
PACKAGE = "langenode"
PLUMBING = {"__init__", "__main__", "_arrays", "_compiling", "_types", "_version"}
MOST_ENTRIES = 16

# From the ground up. A package imports itself and lines above its own, nothing else.
ORDER = (
    ("_arrays", "_compiling", "_types", "_version"),
    ("data", "models", "plots", "posteriors", "scores"),
    ("samplers", "simulators"),
    ("config", "inference"),
    ("experiments", "storage"),
    ("reports",),
    ("fitting",),
    ("runs",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
# Where files may be opened.
WITH_FILES = {"cli", "config", "data", "fitting", "reports", "runs", "simulators", "storage"}

HEAVY = (
    "xarray",
    "pandas",
    "scipy.stats",
    "sklearn",
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
    return importer == imported or RANK.get(imported, 99) < RANK.get(importer, -1)


def needless_lines(root: Path, order: tuple[tuple[str, ...], ...]) -> list[str]:
    """What the list permits and nobody uses: rooms that do not exist, and lines that could be one with that below."""
    used: set[tuple[str, str]] = set()
    for path in sources(root):
        for found in imports_of(path, root):
            if (imported := imported_room(found.module, root)) is not None:
                used.add((room_of(path, root), imported))
    rooms = {room_of(path, root) for path in sources(root)}
    needless = [room for line in order for room in line if room not in rooms]
    for below, line in itertools.pairwise(order):
        if not any((room, lower) in used for room in line for lower in below):
            needless.append(" ".join(line))
    return needless


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


def test_the_root_is_a_table_of_contents():
    entries = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert entries - PLUMBING == set(RANK) - PLUMBING
    assert len(entries - PLUMBING) <= MOST_ENTRIES
    assert not list(ROOT.rglob("utils.py"))


def test_every_package_says_what_belongs_there_and_what_does_not():
    for path in ROOT.iterdir():
        if (path / "__init__.py").is_file():
            text = ast.get_docstring(ast.parse((path / "__init__.py").read_text(encoding="utf-8"))) or ""
            assert "Belongs here:" in text and "not belong here:" in " ".join(text.split()), path


def test_imports_go_down():
    assert broken_ranks(ROOT) == []


def test_the_order_permits_no_more_than_is_used():
    assert needless_lines(ROOT, ORDER) == []


def test_heavy_libraries_are_imported_late():
    assert early_imports(ROOT) == []


def test_nothing_runs_code_that_came_as_data():
    assert code_from_data(ROOT) == []


def test_files_are_opened_where_they_may_be():
    assert opened_files(ROOT, set(RANK) - PLUMBING - WITH_FILES) == []


def test_there_is_something_to_read():
    found = {found.module for found in imports_of(ROOT / "inference" / "problem.py", ROOT)}
    assert {"langenode.inference.targets.Population", "langenode.posteriors.AbstractPosterior", "equinox"} <= found


def test_importing_the_package_loads_no_heavy_library_and_sets_nothing():
    # scipy.stats is left out: libraries of ours may load it themselves.
    names = [name for name in HEAVY if name != "scipy.stats"]
    code = (
        "import sys, langenode.inference.algorithm1, langenode.inference.point_fit, langenode.scores.metrics, jax\n"
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
        ("posteriors/langevin.py", "def f():\n    import langenode.inference.priors", "inference"),
        ("posteriors/density.py", "from langenode.samplers import nuts", "samplers"),
        ("scores/metrics.py", "from langenode.data import Dataset", "data"),
        ("data/files.py", "from langenode import scores", "scores"),
        ("data/files.py", "from ..scores.metrics import w1", "scores"),
        ("models/ode.py", "from langenode import config", "config"),
        ("inference/algorithm1.py", "from langenode.config import Config", "config"),
        ("inference/algorithm1.py", "from langenode import __version__", "__init__"),
        ("experiments/ou.py", "if TYPE_CHECKING:\n    from langenode.cli import main", "cli"),
        ("fitting/fit.py", "import langenode", "__init__"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, file, text, imported):
    root = make_house(tmp_path, {**every_room(but=file.split("/")[0]), file: text})
    assert len(broken_ranks(root)) == 1
    assert broken_ranks(root)[0].endswith(f"must not import {imported}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("scores/metrics.py", "from langenode.scores.diagnostics import k_hat"),
        ("posteriors/langevin.py", "from langenode.posteriors.base import Draw\nfrom .controls import StepControl"),
        ("simulators/ou.py", "from langenode.data import Dataset\nfrom langenode import models"),
        ("cli.py", "from langenode.runs import stages"),
        ("__init__.py", "from langenode.fitting import fit"),
    ],
)
def test_a_right_import_is_let_through(tmp_path, file, text):
    root = make_house(tmp_path, {**every_room(but=file.split("/")[0]), file: text})
    assert broken_ranks(root) == []


def every_room(but: str) -> dict[str, str]:
    return {f"{room}.py": "" for room in RANK if not room.startswith("__") and room != but}


def test_a_stale_permission_is_found(tmp_path):
    root = make_house(tmp_path, {"data.py": "", "config.py": "from langenode import data", "cli.py": ""})
    assert needless_lines(root, (("data",), ("config",))) == []
    assert needless_lines(root, (("data",), ("config",), ("cli",))) == ["cli"]
    assert needless_lines(root, (("data", "parallel"), ("config",))) == ["parallel"]


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
    assert len(code_from_data(make_house(tmp_path, {"storage.py": text}))) >= 1


def test_what_only_looks_like_it_is_let_through(tmp_path):
    text = "import jax\njax.eval_shape(f)\nnp.load('x', allow_pickle=False)\nevaluate = 1  # eval, exec, pickle"
    assert code_from_data(make_house(tmp_path, {"storage.py": text})) == []


def test_an_opened_file_is_found(tmp_path):
    root = make_house(
        tmp_path, {"scores.py": "open('x')", "storage.py": "open('x')", "inference.py": "Path('x').read_text()"}
    )
    assert len(opened_files(root, {"scores", "inference"})) == 2
