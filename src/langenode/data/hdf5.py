"""NetCDF-4 files, which are HDF5: read in a process of its own, since a damaged one can keep the C library for ever.

Run as a script, this file is that process: it reads one NetCDF-4 file and writes the arrays into an npz file, which the
parent reads without pickle. The process has limits on its time and memory, and a crash there ends nothing here.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# A file that is whole takes two seconds of computing, most of them imports, and some per gigabyte.
SECONDS, SECONDS_PER_BYTE = 5, 1e-7
# Wall-clock time on a machine with other things to do.
PATIENCE = 10.0
MOST_MEMORY = 4_000_000_000
META = "meta.json"


class Variable(NamedTuple):
    """An array with the names of its axes."""

    dims: tuple[Any, ...]
    values: np.ndarray


def read_in_a_process(content: bytes) -> tuple[dict[str, Variable], dict[str, Any]]:
    """Return the variables of a NetCDF-4 file and the texts and numbers among its attributes."""
    from langenode.data.checks import DataError
    from langenode.data.limits import MOST_CELLS

    seconds = int(SECONDS + SECONDS_PER_BYTE * len(content))
    with tempfile.TemporaryDirectory(prefix="langenode-") as folder:
        source, result = Path(folder, "source.nc"), Path(folder, "result.npz")
        source.write_bytes(content)
        # -P: modules of ours beside this file must not be taken for others of the same name.
        words = [sys.executable, "-P", __file__, str(source), str(result), str(seconds), str(MOST_CELLS)]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE * seconds)
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode < 0:
            how = "took too long" if done is None or -done.returncode in (9, 24) else "crashed"
            raise DataError(
                f"a NetCDF-4 file must be read within {seconds} s of computing; reading it {how}; write or copy it "
                "again, or convert it to NetCDF-3 or CSV"
            )
        if done.returncode:
            why = done.stderr.decode("utf-8", errors="replace").strip().splitlines() or ["nothing was said"]
            raise DataError(f"a NetCDF-4 file must be whole; reading it failed: {why[-1][:300]}; write it again")
        return _read_result(result)


def _read_result(path: Path) -> tuple[dict[str, Variable], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file[META]))
        found = {name: Variable(tuple(dims), file[f"v{i}"]) for i, (name, dims) in enumerate(meta["dims"])}
    return found, meta["attributes"]


# The process of its own


def _limit(seconds: int) -> None:
    with contextlib.suppress(ImportError):  # not a POSIX system: the parent's patience is all
        import resource

        for what, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, MOST_MEMORY)):
            limits = resource.getrlimit(what)
            hard = most if limits[1] == resource.RLIM_INFINITY else min(most, limits[1])
            resource.setrlimit(what, (hard, hard))


def _convert(source: Path, result: Path, most_cells: int) -> None:
    import xarray as xr

    arrays, dims = {}, []
    with xr.open_dataset(source, engine="h5netcdf", decode_times=False) as dataset:
        num_cells = sum(int(variable.size) for variable in dataset.variables.values())
        if num_cells > most_cells:
            raise ValueError(f"its arrays have {num_cells} numbers, more than {most_cells}")
        for index, (name, variable) in enumerate(dataset.variables.items()):
            values = variable.to_numpy()
            arrays[f"v{index}"] = values.astype(str) if values.dtype.kind == "O" else values
            dims.append([str(name), [str(axis) for axis in variable.dims]])
        plain = {str(k): v for k, v in dataset.attrs.items() if isinstance(v, str | int | float)}
    meta = np.array(json.dumps({"dims": dims, "attributes": plain}))
    with result.open("wb") as file:
        np.savez(file, allow_pickle=False, **(arrays | {META: meta}))


if __name__ == "__main__":
    try:
        _limit(int(sys.argv[3]))
        _convert(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4]))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
