"""Where training or drawing stands, in a file: the next call with the same path resumes there, bit for bit."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode.config import to_toml
from langenode.fitting.build import Prepared
from langenode.inference.training import TrainState
from langenode.storage import container
from langenode.storage.folder import write_bytes

# Seconds between two checkpoints.
SECONDS = 20.0


def identity(config: Any, data: Prepared) -> str:
    """Marks a checkpoint as that of one fit: its configuration and its data."""
    digest = hashlib.sha256(to_toml(config).encode())
    for part in (data.train, data.validation):
        if part is not None:
            for array in (part.times, part.inputs, part.outputs, part.mask):
                digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def resume_training(checkpoint: Path, identity: str, like: TrainState) -> TrainState:
    """The stored state of a training in the structure of `like`; an error where it is of another fit."""
    if container.read_header(checkpoint).get("of") != identity:
        raise container.FitFileError(
            f"a checkpoint must be of the same fit; {checkpoint} has another configuration or other data; delete it, "
            "or name another file"
        )
    # The history has no numbers yet beyond the last update.
    state = container.read_tree(checkpoint, like, is_finite=False)
    if not 0 <= int(state.step) <= len(like.history):
        raise container.FitFileError(
            f"a checkpoint must be of an update that was asked for; {checkpoint} is of {int(state.step)}; delete it"
        )
    return state


class DrawCheckpoint:
    """A stored state of a method that draws; its sizes are in the header of the file."""

    def __init__(self, path: Path, identity: str):
        self.path, self.identity, self.last_save = path, identity, time.monotonic()

    def read(self, shape: Callable[[Mapping[str, int]], Any]) -> Any:
        """The stored state, whose shape `shape(sizes)` tells; None where there is no file."""
        if not self.path.exists():
            return None
        header = container.read_header(self.path)
        sizes = header.get("sizes")
        if header.get("of") != self.identity or not isinstance(sizes, dict):
            raise container.FitFileError(
                f"a checkpoint must be of the same fit; {self.path} has another configuration or other data; delete "
                "it, or name another file"
            )
        return container.read_tree(self.path, shape(sizes), is_finite=False)

    def write(self, state: Any, sizes: Mapping[str, int]) -> None:
        """Store the state, if some time has passed since the last was stored."""
        if time.monotonic() - self.last_save > SECONDS:
            arrays = jax.tree.map(jnp.asarray, state)
            write_bytes(self.path, container.to_bytes({"of": self.identity, "sizes": dict(sizes)}, arrays))
            self.last_save = time.monotonic()
