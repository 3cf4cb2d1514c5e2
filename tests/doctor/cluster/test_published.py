"""What nodes publish: capacity and labels."""

from __future__ import annotations

from typing import Any

from subak.doctor import Level
from subak.doctor.cluster import published
from tests.doctor.canned import items
from tests.doctor.cluster.worlds import found, ledger, levels, node
from tests.support.machines import machines

LABEL = "koordinator.sh/gpu-isolation-provider"
NODES = "GET /api/v1/nodes"


def hami() -> dict[str, Any]:
    """A node with our agent and one card, in HAMi's words."""
    described = node("a", "nri", capacity={"nvidia.com/gpu": "10"})
    register = '[{"id":"GPU-a","count":10,"devmem":10000,"devcore":100,"type":"NVIDIA-A","health":true}]'
    described["metadata"]["annotations"]["hami.io/node-nvidia-register"] = register
    return described


async def test_labels_that_the_agent_writes() -> None:
    (machine,) = machines({"name": "a", "profile": "koordinator"})
    said = machine.publish()
    described = node("a", "nri", capacity=dict(said.capacity))
    described["metadata"]["labels"] = dict(said.labels)
    world = ledger([described], devices=[dict(said.device or {})])
    assert levels(await found(published.labels, {NODES: items(described)}, world)) == [Level.OK]
    described["metadata"]["labels"][LABEL] = "something else"  # as the administrator wants it
    assert levels(await found(published.labels, {NODES: items(described)}, world)) == [Level.OK]
    described["metadata"]["labels"].pop(LABEL)
    (finding,) = await found(published.labels, {NODES: items(described)}, world)
    assert (finding.level, finding.seen) == (Level.WARNING, f"a lacks {LABEL}=HAMi-core")
    described["metadata"]["annotations"].pop("subak.io/agent")
    assert await found(published.labels, {NODES: items(described)}, world) == []


async def test_capacity_that_is_not_that_of_the_cards() -> None:
    described = hami()
    assert levels(await found(published.capacity, {NODES: items(described)}, ledger([described]))) == [Level.OK]
    described["status"]["capacity"] = described["status"]["allocatable"] = {"nvidia.com/gpu": "7"}
    (finding,) = await found(published.capacity, {NODES: items(described)}, ledger([described]))
    assert finding.level is Level.WARNING
    assert finding.seen == "a has a capacity of 7 nvidia.com/gpu, and describes cards with 10"
