"""A user's file that runs are made of: read once, planned for each run, and what a run records of it."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langenode.fitting.choose_target import recorded_choice
from langenode.fitting.plan import FilePlan, plan_file, read_unchanged
from langenode.storage.folder import RunFolder, read_provenance


class OwnFile:
    """A user's file that several runs are made of; it is read once for each choice of columns."""

    def __init__(self, path: Path):
        self.path = path
        self._read = functools.cache(read_unchanged)

    @property
    def name(self) -> str:
        """The name of the file or folder, without its suffix."""
        return self.path.resolve().stem

    def plan(self, layers: Sequence[Mapping[str, Any]]) -> FilePlan:
        """What a fit with these choices would do."""
        return plan_file(self.path, layers, read=self._read)


def recorded_target(folder: Path, plan: FilePlan) -> str | None:
    """Why a run that was begun with the same file has its target; None where there is none."""
    path = RunFolder(folder).provenance
    facts = read_provenance(path) if path.exists() else {}
    is_same = (facts.get("source") or {}).get("sha256") == plan.source["sha256"]
    return recorded_choice(facts.get("choices") or []) if is_same else None


def facts_of(plan: FilePlan) -> dict[str, Any]:
    """What the provenance of a run says of the user's file and of what was made of it."""
    return {
        "source": plan.source,
        "columns": plan.reading.columns._asdict(),
        "choices": [choice._asdict() for choice in plan.choices],
        "doubts": [doubt._asdict() for doubt in plan.doubts],
        "warnings": list(plan.warnings),
    }
