"""Short ways to describe machines."""

from __future__ import annotations

from typing import Any

from subak.dialects.interpreter import Interpreter
from subak.local.hardware import profiles
from subak.node.machine import Machine

INTERPRETER = Interpreter()


def machines(*nodes: dict[str, Any]) -> list[Machine]:
    """The machines of these entries of a description."""
    return profiles.machines({"nodes": list(nodes)}, "hardware.yaml", INTERPRETER)


def machine(profile: str = "", **fields: Any) -> Machine:
    """The only machine of an entry."""
    (found,) = machines({**({"profile": profile} if profile else {}), **fields})
    return found
