"""Cards that a vendor's own agent serves on this node: they are left to it.

Two agents that hand out the same cards would each miss what the other one gave.  So where HAMi's, Volcano's,
Koordinator's or NVIDIA's own agent lives, the cards that it describes are not ours, in whatever dialect.  It lives if
the node says something of its dialect that we did not write:

    an amount above 0 in capacity   kubelet removes it, or sets it to 0, some minutes after a device plugin has ended
    a Device object with devices    of Koordinator's agent, which tells nothing of its end

An annotation proves nothing: it outlives the agent that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from subak.dialects import Dialect, Source, mark
from subak.dialects.amounts import published
from subak.model import manifest
from subak.node.advertisement import Written
from subak.node.machine import Machine


def serving(machine: Machine, node: manifest.Node, device: manifest.Device | None, ours: Written) -> dict[Dialect, str]:
    """The dialects of the machine that somebody else serves on this node, and by what that is seen."""
    found: dict[Dialect, str] = {}
    for dialect in machine.speaks:
        evidence = _amount(dialect, node, ours) or _device(dialect, device)
        if evidence:
            found[dialect] = evidence
    return found


def without(machine: Machine, taken: Mapping[Dialect, str]) -> Machine:
    """The machine without the cards that these agents describe."""
    agents = [dialect.agent for dialect in taken]
    devices = tuple(
        each
        for each in machine.devices
        if not any(agent.describes(each.family, each.model, each.mode) for agent in agents)
    )
    return machine if len(devices) == len(machine.devices) else replace(machine, devices=devices)


def sentence(dialect: Dialect, evidence: str, node: str) -> str:
    """What an administrator is told."""
    return (
        f"node {node}: {evidence}, which this agent did not write: {dialect.agent.system}'s own agent serves the cards "
        "there, and they are left to it; remove that agent from the node to have them served by this one"
    )


def _amount(dialect: Dialect, node: manifest.Node, ours: Written) -> str:
    capacity = node.status.capacity or {}
    for name in sorted(dialect.resources - ours.amounts):
        if amount := published(capacity, name):
            return f"capacity has {name}: {amount}"
    return ""


def _device(dialect: Dialect, device: manifest.Device | None) -> str:
    if dialect.agent.source is not Source.DEVICE_OBJECT or device is None or mark.MARK in device.annotations:
        return ""
    return f"there is a Device object with {len(device.spec.devices)} devices" if device.spec.devices else ""
