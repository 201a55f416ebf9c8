"""One file format for everything fitted: a JSON header and named arrays, in a safetensors container.

A file never contains code: the reader provides a tree of the right structure (`like`), and arrays are placed into it by
name. The same format holds point fits, fitted problems and training checkpoints.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode.storage.records import loads

FORMAT = "langenode"
FORMAT_VERSION = 1
DIGEST = "sha256"


class FitFileError(ValueError):
    """What must hold of a fit file, what was found, and what to do."""


def to_bytes(header: dict[str, Any], tree: Any) -> bytes:
    """Return the content of a file with this header and the arrays of this tree."""
    from safetensors.numpy import save

    arrays = _named_arrays(tree)
    header = json.loads(json.dumps({"format_version": FORMAT_VERSION, **header}))
    header[DIGEST] = _digest(header, arrays)
    return save(arrays, metadata={FORMAT: json.dumps(header, sort_keys=True)})


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """A hash of all that a file says; damage to any part of it changes it."""
    told = {key: value for key, value in header.items() if key != DIGEST}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def read_header(path: Path) -> dict[str, Any]:
    """Read the header alone, after checking that Langenode wrote the file and that its format is not newer."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise FitFileError(f"a fit file must exist; found no {path}; check the name") from None
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise FitFileError(f"a fit file must be complete; {path} cannot be read ({error}); create it again") from None
    if FORMAT not in metadata:
        raise FitFileError(f"a fit file must be written by langenode; {path} is not; give a .langenode file")
    try:
        header = loads(metadata[FORMAT])
        version = header["format_version"]
        is_future = isinstance(version, int) and version > FORMAT_VERSION
        is_known = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    except (ValueError, TypeError, KeyError, RecursionError):
        is_known = is_future = False
        header, version = {}, None
    if is_future:
        raise FitFileError(
            f"this version reads fit files up to format {FORMAT_VERSION}; {path} has {version}; upgrade langenode"
        )
    if not is_known:
        raise FitFileError(f"a fit file must have a langenode header; that of {path} is damaged; create it again")
    return header


def read_tree(path: Path, like: Any, *, is_finite: bool = True) -> Any:
    """The arrays of a file in the structure of `like`, whose arrays (or shapes alone) tell shapes and types.

    Shapes and types are compared before anything is put together. With `is_finite` no number may be infinite or NaN.
    """
    header = read_header(path)
    stored = _stored_arrays(path)
    wanted = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(like) if _has_shape(leaf)}
    if {n: a.shape for n, a in stored.items()} != {n: a.shape for n, a in wanted.items()}:
        odd = sorted(n for n in stored.keys() | wanted.keys() if _shape(stored, n) != _shape(wanted, n))[0]
        raise FitFileError(
            f"a fit file must match the model it is read into; {path} has {odd} of shape {_shape(stored, odd)}, "
            f"the model needs {_shape(wanted, odd)}; give the configuration or model it was made with"
        )
    for name, array in stored.items():
        if array.dtype.kind != np.dtype(wanted[name].dtype).kind:
            raise FitFileError(
                f"a fit file must match the model it is read into; {path} has {name} of type {array.dtype}, the model "
                f"needs {wanted[name].dtype}; create it again"
            )
        if is_finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FitFileError(f"the numbers of a fit must be finite; {name} in {path} has others; create it again")
    if header.get(DIGEST, _digest(header, stored)) != _digest(header, stored):
        raise FitFileError(f"a fit file must be as it was written; {path} has changed since; create or copy it again")
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    filled = [jnp.asarray(stored[_name(path)], leaf.dtype) if _has_shape(leaf) else leaf for path, leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, filled)


def _stored_arrays(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except Exception as error:  # types that NumPy lacks, and whatever else a damaged file may give
        raise FitFileError(f"a fit file must be complete; {path} cannot be read ({error}); create it again") from None


def _has_shape(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _shape(arrays: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    return arrays[name].shape if name in arrays else None


def _named_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.array(leaf, order="C") for path, leaf in leaves if eqx.is_array(leaf)}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")
