"""The node's last word: records that somebody wrote by hand, with neither webhook nor policy nor scheduler around."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e import images
from tests.e2e.agent import Agent, agent, environment, prepared
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tests.e2e.evidence import CARDS, RECORD
from tests.e2e.node import RealNode

MEMORY = 11178
"""MiB of each card of the profile `volcano`."""
ASKED = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "6000", "nvidia.com/gpucores": "10"}


def cards(agent: Agent) -> list[str]:
    """The cards that the agent advertises, by UUID."""
    path = "jsonpath={.metadata.annotations.hami\\.io/node-nvidia-register}"
    said = json.loads(kubectl(agent.node.cluster, "get", "node", agent.node.name, "-o", path))
    return [each["id"] for each in said]


def record(card: str, mib: int = 6000) -> dict[str, str]:
    return {RECORD: f"{card},NVIDIA,{mib},10:;"}


def create(node: RealNode, name: str, annotations: dict[str, str], limits: dict[str, str] = ASKED) -> None:
    """Create a pod that is bound to the node already, as no scheduler would do it."""
    container = {"name": "main", "image": images.PLAIN, "command": ["sleep", "10000"], "resources": {"limits": limits}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node.name, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    path = node.directory / f"{name}.json"
    path.write_text(json.dumps(pod))
    kubectl(node.cluster, "create", "-f", str(path))


def state(cluster: Cluster, name: str) -> dict[str, Any]:
    """The state of the pod's only container."""
    pod = json.loads(kubectl(cluster, "get", "pod", name, "-o", "json"))
    (status,) = pod["status"].get("containerStatuses", [{}])
    return dict(status)


def until_refused(node: RealNode, name: str, words: str) -> None:
    """Wait until the pod says why its container is refused, and an event does."""

    def is_said() -> bool:
        waiting = state(node.cluster, name).get("state", {}).get("waiting", {})
        return words in waiting.get("message", "")

    def is_reported() -> bool:
        chosen = f"--field-selector=involvedObject.name={name},type=Warning,reportingComponent=subak-agent"
        return words in kubectl(node.cluster, "get", "events", chosen, "-o", "jsonpath={.items[*].message}")

    node.until(is_said, f"the container of {name} waits because of {words!r}")
    node.until(is_reported, f"an event of {name} says {words!r}")
    assert not state(node.cluster, name).get("containerID")


async def test_a_record_that_would_overcommit_a_card_is_refused_and_running_tenants_stay(node: RealNode) -> None:
    async with prepared(node):
        with agent(node, {"profile": "volcano"}) as running:
            first, second, *_ = cards(running)
            create(node, "tenant", record(first))
            kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/tenant", "--timeout=50s")
            before = state(node.cluster, "tenant")
            assert environment(node.cluster, "tenant")[CARDS] == first
            create(node, "greedy", record(first))
            until_refused(node, "greedy", "would overcommit the card")
            create(node, "neighbour", record(second))
            kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/neighbour", "--timeout=50s")
            assert state(node.cluster, "tenant") == before
            kubectl(node.cluster, "delete", "pod", "tenant")
            kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/greedy", "--timeout=55s")
            assert environment(node.cluster, "greedy")[CARDS] == first


@pytest.mark.parametrize(
    ("name", "annotations", "words"),
    [
        ("missing", {}, "no annotation of the pod records any"),
        ("unknown", record("GPU-00000000-0000-0000-0000-000000000000"), "has no card GPU-00000000"),
        ("unreadable", {RECORD: "GPU-1,NVIDIA,much,10:;"}, "cannot be read"),
    ],
)
async def test_a_record_that_means_nothing_here_is_refused(
    name: str, annotations: dict[str, str], words: str, node: RealNode
) -> None:
    async with prepared(node):
        with agent(node, {"profile": "volcano"}):
            create(node, name, annotations)
            until_refused(node, name, words)


async def test_a_record_of_more_than_was_asked_for_gives_no_more(node: RealNode) -> None:
    async with prepared(node):
        with agent(node, {"profile": "volcano"}) as running:
            create(node, "forged", record(cards(running)[0], mib=MEMORY))
            kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/forged", "--timeout=50s")
            assert environment(node.cluster, "forged")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "6000m"
