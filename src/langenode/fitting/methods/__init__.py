"""The registry of methods: all that is said about a method anywhere is read from its entry here.

A method is one file with one entry, `METHOD` (or `METHODS`, for a family). Another package adds its own by an entry
point of the group `langenode.methods` whose object is a `Trained` or a `Drawn`.

To add one: an options record (`TrainedOptions` or `DrawnOptions`, the meaning of each key below it) and
`Trained(name=..., summary=..., options=..., make=...)` or `Drawn(name=..., summary=..., options=..., draw=...)`. Help
pages, `config.toml`, notes on options without effect, `compare --methods all`, the conformance test and the table in
the docs find it.
"""

import difflib
import functools
from importlib import import_module, metadata
from typing import Any

import pydantic

from langenode.config import Config, ConfigError, shortened
from langenode.fitting.methods.base import Drawn, Ingredients, Method, Trained

# In the order of tables and comparisons.
BUILT_IN = (
    "ensemble_hmc",
    "guided",
    "langevin",
    "nuts",
    "smc",
    "sgld",
    "interacting",
    "svgd",
    "pathfinder",
    "gaussian",
    "laplace",
    "ensemble",
    "map",
    "bottleneck",
    "paper",
)
GROUP = "langenode.methods"


@functools.cache
def methods() -> dict[str, Method]:
    """All methods by name: our own, then those of other packages."""
    found: dict[str, Method] = {}
    for name in BUILT_IN:
        module = import_module(f"langenode.fitting.methods.{name}")
        for method in getattr(module, "METHODS", None) or (module.METHOD,):
            found[method.name] = method
    for entry in metadata.entry_points(group=GROUP):
        method = entry.load()
        if not isinstance(method, Trained | Drawn):
            raise ConfigError(
                f"an entry point of {GROUP} must be a Trained or Drawn method; {entry.name} ({entry.value}) is "
                f"{type(method).__name__}; mend or uninstall that package"
            )
        if method.name in found or method.name in Config.model_fields:
            raise ConfigError(
                f"a method needs a name of its own; {method.name!r} of {entry.value} is taken; mend or uninstall that "
                "package"
            )
        found[method.name] = method
    return found


def find(name: Any) -> Method:
    """The method of a name; a `ConfigError` with the nearest name where there is none."""
    known = methods()
    if not isinstance(name, str) or name not in known:
        shown = shortened(name)
        near = difflib.get_close_matches(shown.strip("'"), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise ConfigError(f"a method must be known; got {shown}; {hint}")
    return known[name]


def find_trained(name: str) -> Trained:
    """The same for a method that is known to be trained."""
    method = find(name)
    assert isinstance(method, Trained)
    return method


def find_drawn(name: str) -> Drawn:
    """The same for a method that is known to draw."""
    method = find(name)
    assert isinstance(method, Drawn)
    return method


def with_methods(kind: type[Config]) -> type[Config]:
    """A kind of configuration with one section per method."""
    return _with_sections(kind, tuple((name, method.options) for name, method in methods().items()))


@functools.cache
def _with_sections(kind: type[Config], sections: tuple[tuple[str, type[Any]], ...]) -> type[Config]:
    fields: dict[str, Any] = {name: (options, options()) for name, options in sections}
    return pydantic.create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **fields)


__all__ = ["Drawn", "Ingredients", "Method", "Trained", "find", "find_drawn", "find_trained", "methods", "with_methods"]
