"""Who has to leave for gangs and for other queues, on a cluster as `subak up` starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subak.local.volcano import CONFIG_MAP
from tests.scenarios.test_shares import apply, client_of, held, pod, queue, until
from tests.support.live import Live, live
from tinykube.client import Client
from tinykube.resource import EVENTS, PODS
from tinykube.yaml import read

pytestmark = pytest.mark.long

GUIDE = CONFIG_MAP.read_text()
PREEMPT = GUIDE.replace("backfill", "backfill, preempt").replace("gang", "gang\n        enablePreemptable: false")
"""As in Volcano's own default, gangs do not protect their members; else a pod by itself never has to leave."""

RECLAIM = GUIDE.replace("backfill", "backfill, reclaim")
CARD, SHARE = 16_000, 8_000
HOLD = "example.com/hold"
"""A finalizer, so that pods that have left can be looked at."""

MiB = 1 << 20


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    hardware = tmp_path / "hardware.yaml"
    cards = f"{{count: 4, memory: {CARD}Mi}}"
    hardware.write_text(f"nodes:\n- {{profile: shared, name: node, count: 1, taints: [], cards: {cards}}}\n")
    with live("--hardware", hardware, "--runtime", "none") as running:
        yield running


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def share(name: str, mib: int, importance: str, group: str = "") -> dict[str, Any]:
    """A pod with a share of a card, of a group or by itself."""
    each = pod("default", 0, {"volcano.sh/gpu-memory": mib})
    metadata: dict[str, Any] = {"name": name, "finalizers": [HOLD]}
    if group:
        metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": group}}
    return {**each, "metadata": metadata, "spec": {**each["spec"], "priorityClassName": importance}}


def group(name: str, least: int, importance: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least, "priorityClassName": importance},
    }


async def all_pods(client: Client) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in (await client.list(PODS, "default")).items}


async def on_nodes(client: Client) -> list[str]:
    return sorted(name for name, each in (await all_pods(client)).items() if each["spec"].get("nodeName"))


async def leaving(client: Client) -> list[str]:
    there = (await all_pods(client)).items()
    return sorted(name for name, each in there if each["metadata"].get("deletionTimestamp"))


async def test_a_gang_makes_the_fewest_and_lowest_pods_leave_card_by_card(cluster: Live) -> None:
    configure(cluster, PREEMPT)
    apply(cluster, priority_class("low", 1), priority_class("middle", 10), priority_class("high", 100))
    cards = [("low", "low"), ("low", "middle"), ("low", "low"), ("middle", "middle")]
    async with client_of(cluster) as client:
        for i, importances in enumerate(cards):  # the first card with room is taken
            names = [f"card-{i}-{n}" for n in range(2)]
            apply(cluster, *(share(name, SHARE, each) for name, each in zip(names, importances, strict=True)))
            await until(lambda names=names: _are(on_nodes(client), names))  # type: ignore[misc]
        members = [f"member-{i}" for i in range(2)]
        apply(cluster, group("gang", 2, "high"), *(share(each, 12_000, "high", "gang") for each in members))
        victims = ["card-0-0", "card-0-1", "card-2-0", "card-2-1"]
        await until(lambda: _are(leaving(client), victims))
        there = await all_pods(client)
        for name in victims:
            marks = {each["type"]: each for each in there[name]["status"]["conditions"]}
            assert marks["DisruptionTarget"]["status"] == "True"
        await until(lambda: _are(on_nodes(client), members))
        assert await leaving(client) == victims, "and nobody else"
        events = [each for each in (await client.list(EVENTS, "default")).items if each["reason"] == "Preempted"]
        assert sorted(each["involvedObject"]["name"] for each in events) == victims


async def test_queues_reach_their_shares_only_if_they_may_take_back(cluster: Live) -> None:
    limits = {"volcano.sh/gpu-memory": SHARE}
    room = 4 * CARD // SHARE
    async with client_of(cluster) as client:
        apply(cluster, queue("small", 1), queue("large", 3), *(pod("small", i, limits) for i in range(room)))
        first = [f"small-{i}" for i in range(room)]
        await until(lambda: _equal(on_nodes(client), first))
        apply(cluster, *(pod("large", i, limits) for i in range(room)))
        await until(lambda: _waits(client, "large-0"))
        assert await on_nodes(client) == first, "without reclaim nobody leaves"

        configure(cluster, RECLAIM)
        await until(lambda: _holds(cluster, {"small": 2 * SHARE, "large": 6 * SHARE}))
        there = await on_nodes(client)
        assert len([name for name in there if name.startswith("small")]) == 2, "only what is above the share leaves"
        events = [each for each in (await client.list(EVENTS, "default")).items if each["reason"] == "Reclaimed"]
        gone = set(first) - set(there)
        assert {each["involvedObject"]["name"] for each in events} == gone


def configure(cluster: Live, text: str) -> None:
    apply(cluster, read(text).content)


async def _are(found: Any, names: list[str]) -> bool:
    return set(names) <= set(await found)


async def _equal(found: Any, names: list[str]) -> bool:
    return bool(sorted(names) == await found)


async def _waits(client: Client, name: str) -> bool:
    conditions = (await all_pods(client))[name].get("status", {}).get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def _holds(cluster: Live, wanted: dict[str, int]) -> bool:
    views = held(cluster)
    return all(views[name]["held"].get("nvidia/memory", 0) == mib * MiB for name, mib in wanted.items())
