"""Subak shares the GPUs of many vendors among many tasks.

Users keep the YAML they have. A dialect reads what a pod asks for, one ledger knows what is free on every card,
and a policy decides which cards the pod gets, or says why it gets none.

The rooms, each importing only those to its right: cli, policy, snapshot, dialects, model.
"""

# Hatchling reads it here: to ask the installed package for it would cost every command a twentieth of a second.
__version__ = "0.1.0"

__all__ = ["__version__"]
