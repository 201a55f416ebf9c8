"""Langenode: neural models of evolving processes, with uncertainty by a learned Langevin sampler."""

from langenode._version import __version__

__all__ = ["__version__"]
