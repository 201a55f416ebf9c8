"""The user's data behind a run: the file may change after the run was started, which its hash tells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langenode.data import DataError
from langenode.fitting.plan import content_hash
from langenode.fitting.progress import Reporter
from langenode.storage.folder import RunFolder, RunFolderError, read_provenance


def refuse_other(folder: RunFolder, facts: Mapping[str, Any]) -> None:
    """Raise where a run would be resumed with other data than it was started with."""
    source = facts.get("source")
    if source is None:
        return
    known = read_provenance(folder.provenance).get("source")
    if known is None or known["sha256"] != source["sha256"]:
        how = "has changed since" if known is not None else "is not recorded in its provenance.json"
        raise RunFolderError(
            f"a run is of the data it was started with; for that in {folder.path}, {source['path']} {how}; "
            "use --force to fit again, or another --out to keep both"
        )


def refuse_changed(folder: RunFolder, provenance: Mapping[str, Any]) -> None:
    """Raise where a stage would read a user's file again that has changed."""
    source = provenance.get("source")
    if source is not None:
        refuse_other(folder, {"source": {"path": source["path"], "sha256": content_hash(Path(source["path"]))}})


def note_changed(folder: RunFolder, provenance: Mapping[str, Any], reporter: Reporter) -> None:
    """Say that the run's data are no longer those in the user's file; the run keeps its own copy."""
    source = provenance.get("source")
    if source is None or not folder.test.exists() or not Path(source["path"]).exists():
        return
    try:
        is_same = content_hash(Path(source["path"])) == source["sha256"]
    except (DataError, OSError):
        is_same = False
    if not is_same:
        reporter.say(
            f"note: {source['path']} has changed since this run was started, which keeps the data it had; "
            f"to fit again: langenode fit {source['path']} --out {folder.path} --force"
        )
