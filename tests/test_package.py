"""The public names, and the cost of importing them."""

import ast
import subprocess
import sys
from pathlib import Path

import langenode


def test_every_public_name_loads_and_the_stub_lists_the_same():
    stub = Path(langenode.__file__).with_suffix(".pyi").read_text()
    listed = {name.asname for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert listed == set(dir(langenode))
    assert all(getattr(langenode, name) is not None for name in dir(langenode))


def test_importing_the_package_loads_no_heavy_library():
    heavy = ["matplotlib", "xarray", "pandas", "scipy.stats", "dcor", "scoringrules", "blackjax", "numpyro", "diffrax"]
    code = "import sys, langenode; langenode.inference.train; langenode.Dataset; langenode.posteriors.langevin; "
    code += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_refused():
    assert not hasattr(langenode, "nonsense")
