"""Gangs start whole or not at all, on a cluster as `subak up` starts it, with the document's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subak.model.group import VOLCANO_GROUPS
from tests.scenarios.test_shares import apply, client_of, until
from tests.support.live import Live, live
from tinykube.client import Client
from tinykube.resource import PODS

HARDWARE = """
nodes:
- {profile: shared, name: node, count: 2, taints: [], cards: {count: 2, memory: 16000Mi}}
"""
SHARE = 8000
"""MiB of each member: two of them fill a card, eight the cluster."""

SHAPES: tuple[dict[str, Any], ...] = (
    {"volcano.sh/gpu-memory": SHARE},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": SHARE},
    {"koordinator.sh/gpu-memory": f"{SHARE}Mi"},
)


def group(name: str, size: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": size},
    }


def pod(name: str, limits: dict[str, Any], group: str = "", scheduler: str = "volcano") -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": group} if group else {}},
        "spec": {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def gang(name: str, size: int, shapes: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """A group that needs all of its pods."""
    members = [pod(f"{name}-{i}", shapes[i % len(shapes)], name) for i in range(size)]
    return [group(name, size), *members]


BLOCKERS = [pod(f"blocker-{i}", {"volcano.sh/gpu-number": 1}, scheduler="subak") for i in range(2)]


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text(HARDWARE)
    with live("--hardware", hardware, "--runtime", "none") as running:
        yield running


async def bound(client: Client, stem: str) -> dict[str, str]:
    """The nodes of the pods whose names begin so."""
    found = (await client.list(PODS, "default")).items
    nodes = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in found}
    return {name: node for name, node in nodes.items() if node and name.startswith(stem)}


async def count(client: Client, stem: str, wanted: int) -> bool:
    return len(await bound(client, stem)) == wanted


async def status(client: Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(VOLCANO_GROUPS, name, "default")).get("status") or {}
    return found


async def is_said(client: Client, name: str, type_: str, text: str) -> bool:
    """Whether the group has a condition of this type whose message contains the text."""
    conditions = (await status(client, name)).get("conditions") or ()
    return any(each["type"] == type_ and text in each.get("message", "") for each in conditions)


async def is_in(client: Client, name: str, phase: str) -> bool:
    return bool((await status(client, name)).get("phase") == phase)


async def free(client: Client, *stems: str) -> None:
    """Delete all pods whose names begin so."""
    for each in (await client.list(PODS, "default")).items:
        if each["metadata"]["name"].startswith(stems):
            await client.delete(PODS, each["metadata"]["name"], "default")


@pytest.mark.parametrize(
    "shapes",
    [pytest.param(SHAPES[:1], id="volcano", marks=pytest.mark.long), pytest.param(SHAPES, id="a mix of dialects")],
)
async def test_a_gang_that_does_not_fit_holds_no_card_and_starts_whole_when_there_is_room(
    cluster: Live, shapes: tuple[dict[str, Any], ...]
) -> None:
    apply(cluster, *BLOCKERS)
    async with client_of(cluster) as client:
        await until(lambda: count(client, "blocker", 2))
        apply(cluster, *gang("large", 8, shapes))
        await until(lambda: is_said(client, "large", "Unschedulable", "4/8 tasks in gang unschedulable"))
        assert await bound(client, "large") == {}
        assert await is_in(client, "large", "Inqueue")
        apply(cluster, *gang("small", 4, shapes))  # takes all that is left: the large gang holds none of it
        await until(lambda: count(client, "small", 4))
        await until(lambda: is_in(client, "small", "Running"))
        assert await bound(client, "large") == {}
        await free(client, "blocker")  # half of the room that it needs
        await until(lambda: count(client, "blocker", 0))
        apply(cluster, pod("meanwhile", SHAPES[0]))
        await until(lambda: count(client, "meanwhile", 1))
        assert await bound(client, "large") == {}
        await free(client, "small", "meanwhile")
        await until(lambda: count(client, "large", 8))
        await until(lambda: is_in(client, "large", "Running"))
        assert sorted((await bound(client, "large")).values()) == ["node-1"] * 4 + ["node-2"] * 4


@pytest.mark.long
async def test_a_gang_of_another_kind_is_whole_too(cluster: Live) -> None:
    async with client_of(cluster) as client:
        members = [pod(f"member-{i}", SHAPES[1], scheduler="subak") for i in range(8)]
        for each in members:
            each["metadata"]["annotations"] = {
                "gang.scheduling.koordinator.sh/name": "gang",
                "gang.scheduling.koordinator.sh/min-available": "8",
            }
        apply(cluster, *members[:7])
        apply(cluster, pod("other", SHAPES[0]))
        await until(lambda: count(client, "other", 1))
        assert await bound(client, "member") == {}
        await free(client, "other")
        apply(cluster, members[7])
        await until(lambda: count(client, "member", 8))
