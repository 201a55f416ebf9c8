"""Langenode: neural models of evolving processes, with uncertainty by a learned Langevin sampler.

The public names, and the packages for those who put a problem together by hand (`langenode.inference`,
`langenode.posteriors`, `langenode.samplers`, ...), are loaded when first used: `import langenode` alone costs nothing.
`__init__.pyi` lists them for type checkers and editors.
"""

import importlib
from typing import Any

from langenode._version import __version__ as __version__

_HOMES = {
    "fitting.facade": ("fit", "load_fit"),
    "fitting.fit": ("Fit",),
    "data": ("DataError", "Dataset", "Scaling", "load_data", "save_data", "with_observed_start"),
    "models": ("MLP", "Adaptive", "Heun", "NeuralODE", "NeuralSDE"),
    "models.effects": ("Effects", "Fixed", "LogNormal", "LogitNormal", "Normal"),
    "models.unit_models": ("UnitModel",),
    "config": ("ConfigError",),
    "inference.errors": ("FitError",),
    "storage.container": ("FitFileError",),
    "storage.folder": ("RunFolderError",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_PACKAGES = ("data", "inference", "models", "posteriors", "samplers", "scores", "simulators")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"langenode.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'langenode' has no attribute {name!r}")
    return getattr(importlib.import_module(f"langenode.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, *_PACKAGES, "__version__"])
