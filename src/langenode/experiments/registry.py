"""Experiments by name: our own modules, and entry points of other packages. Nothing is imported before it is used."""

from collections.abc import Iterator, Mapping
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from langenode.config import ConfigError

if TYPE_CHECKING:  # help pages list experiments without JAX
    from langenode.experiments.base import Experiment


class Registry(Mapping[str, "Experiment"]):
    """A mapping from names to experiments; names are known without importing any of them."""

    def __init__(self, *built_in: str, group: str):
        self.built_in = built_in
        self.group = group

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from (entry.name for entry in self._entries() if entry.name not in self.built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> "Experiment":
        if name in self.built_in:
            return import_module(f"langenode.experiments.{name}").EXPERIMENT
        for entry in self._entries():
            if entry.name == name:
                return self._load(entry)
        raise KeyError(name)

    def _entries(self) -> metadata.EntryPoints:
        return metadata.entry_points(group=self.group)

    def _load(self, entry: Any) -> "Experiment":  # of the standard library or of its backport
        from langenode.experiments.base import Experiment

        found = entry.load()
        if not isinstance(found, Experiment) or found.name != entry.name:
            what = f"of name {found.name!r}" if isinstance(found, Experiment) else f"a {type(found).__name__}"
            raise ConfigError(
                f"an entry point of {self.group} must be an Experiment of the same name; {entry.name} ({entry.value}) "
                f"is {what}; mend or uninstall that package"
            )
        return found
