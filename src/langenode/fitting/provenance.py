"""Where a result came from: seed, command, versions and machine."""

import platform
import sys
import time
from importlib import metadata
from typing import Any

from langenode import _version
from langenode.config import Config

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy", "scipy")


def provenance_of(config: Config) -> dict[str, Any]:
    """The record, before any stage has been timed."""
    return {
        "seed": config.seed,
        "command": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {"langenode": _version.__version__, **{name: metadata.version(name) for name in PACKAGES}},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "seconds": {},
    }
