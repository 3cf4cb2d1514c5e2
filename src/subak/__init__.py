"""Subak shares the GPUs of many vendors among many tasks.

Users keep the YAML they have. A dialect reads what a pod asks for, one ledger knows what is free on every card,
and a policy decides which cards the pod gets, or says why it gets none.

The rooms, each importing only those to its right: cli, policy, snapshot, dialects, model.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("subak")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
