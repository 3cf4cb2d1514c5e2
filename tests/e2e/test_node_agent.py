"""What `subak agent` says of its cards, on a real node with a real kubelet, with the rights of its manifests only."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.e2e import images
from tests.e2e.agent import agent, living, prepared
from tests.e2e.cluster import Cluster
from tests.e2e.controller import MANIFESTS, NAMESPACE, apply_manifests, kubectl
from tests.e2e.fakes import administrator
from tests.e2e.node import RealNode
from tinykube.resource import PODS

VOLCANO = {"profile": "volcano"}
CARDS = {"nvidia.com/gpu": "80", "volcano.sh/gpu-memory": "89424", "volcano.sh/gpu-number": "8"}


def pod(name: str, limits: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": images.STATIC,
        "command": ["sleep", "600"],
        "resources": {"limits": limits},
    }
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "subak", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def cards(node: RealNode, part: str = "capacity") -> dict[str, str]:
    """The amounts of cards in the node's status."""
    said = kubectl(node.cluster, "get", "node", node.name, "-o", f"jsonpath={{.status.{part}}}")
    return {name: amount for name, amount in json.loads(said).items() if "/" in name}


def says(node: RealNode, wanted: dict[str, str]) -> bool:
    """Whether capacity and allocatable both have these amounts of cards."""
    return cards(node) == wanted and cards(node, "allocatable") == wanted


def set_capacity(node: RealNode, amounts: dict[str, str | None]) -> None:
    """Write to the node's status, as somebody else might."""
    patch = json.dumps({"status": {"capacity": amounts}})
    kubectl(node.cluster, "patch", "node", node.name, "--subresource=status", "-p", patch)


def words(node: RealNode) -> dict[str, str]:
    """The node's annotations."""
    found = json.loads(kubectl(node.cluster, "get", "node", node.name, "-o", "json"))
    return dict(found["metadata"].get("annotations", {}))


def is_assigned(node: RealNode) -> bool:
    """Whether the pod says what Volcano's own agent would write on it."""
    return '"volcano.sh/gpu-assigned": "true"' in kubectl(node.cluster, "get", "pod", "holder", "-o", "json")


async def test_a_pod_of_the_daemonset_is_admitted_by_its_namespace(cluster: Cluster) -> None:
    apply_manifests(cluster)
    kubectl(cluster, "apply", "--dry-run=server", "-f", str(MANIFESTS / "agent.yaml"))
    (template,) = (
        each["spec"]["template"]
        for each in yaml.safe_load_all((MANIFESTS / "agent.yaml").read_text())
        if each["kind"] == "DaemonSet"
    )
    body = {"metadata": {"name": "agent", **template["metadata"]}, "spec": template["spec"]}
    async with administrator(cluster) as client:
        admitted = await client.create(PODS, body, NAMESPACE, dry_run=True, validation="Strict")
        assert admitted["spec"]["serviceAccountName"] == "subak-agent"


async def test_the_node_has_the_cards_while_the_agent_runs_and_whatever_resets_them(node: RealNode) -> None:
    async with prepared(node):
        with agent(node, VOLCANO) as running:
            node.until(lambda: says(node, CARDS), "the node has its cards")
            assert words(node)["subak.io/agent"] == "nri"
            node.restart("kubelet")
            node.until(node.ready, "the node is ready again")
            node.until(lambda: says(node, CARDS), "the node has its cards after a restart of kubelet")
            set_capacity(node, {"nvidia.com/gpu": "0", "volcano.sh/gpu-memory": None})
            node.until(lambda: says(node, CARDS), "what somebody changed is put back")
            assert running.stop() == 0
            assert cards(node) == {}, "removed, not zeroed"
            assert not any("subak.io" in key or "hami.io" in key for key in words(node))
            leases = kubectl(node.cluster, "get", "leases", "-n", NAMESPACE, "-l", "subak.io/agent", "-o", "name")
            assert leases == ""
            node.until(lambda: cards(node, "allocatable") == {}, "nothing is allocatable")
            said = [line for line in node.log("agent").read_text().splitlines() if '"level": "error"' in line]
            assert not said


async def test_a_running_pod_survives_kubelets_restart_while_the_agent_is_away(node: RealNode) -> None:
    async with living(node, VOLCANO) as world:
        await world.client.create(PODS, pod("holder", {"volcano.sh/gpu-memory": "1024"}), "default")
        kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/holder", "--timeout=50s")
        before = await world.client.get(PODS, "holder", "default")
        node.until(lambda: is_assigned(node), "the pod is told that it has its card")
        assert world.agent.stop() == 0
        assert cards(node) == {}
        node.restart("kubelet")
        node.until(node.ready, "the node is ready again")
        world.agent.start()
        node.until(lambda: says(node, CARDS), "the node has its cards again")
        after = await world.client.get(PODS, "holder", "default")
        assert after["status"]["phase"] == "Running"
        started = [each["status"]["containerStatuses"][0]["containerID"] for each in (before, after)]
        assert started[0] == started[1], "the container was not started again"


async def test_a_broken_card_leaves_the_amounts_but_for_what_is_held_of_it(node: RealNode) -> None:
    async with living(node, {**VOLCANO, "cards": {"count": 2, "unhealthy": [1]}}) as world:
        node.until(lambda: cards(node).get("volcano.sh/gpu-memory") == "11178", "one card counts")
        await world.client.create(PODS, pod("holder", {"volcano.sh/gpu-memory": "1024"}), "default")
        kubectl(node.cluster, "wait", "--for=condition=Ready", "pod/holder", "--timeout=50s")
        world.agent.describe({**VOLCANO, "cards": {"count": 2, "unhealthy": [0]}})
        node.until(
            lambda: cards(node).get("volcano.sh/gpu-memory") == str(11178 + 1024), "what is held of a broken card"
        )
        node.restart("kubelet")
        node.until(node.ready, "the node is ready again")
        assert (await world.client.get(PODS, "holder", "default"))["status"]["phase"] == "Running"


async def test_an_agent_of_a_vendor_that_lives_keeps_its_cards(node: RealNode) -> None:
    async with prepared(node):
        set_capacity(node, {"nvidia.com/gpu": "4"})
        node.until(lambda: cards(node, "allocatable") == {"nvidia.com/gpu": "4"}, "kubelet counts the other's cards")
        try:
            with agent(node, VOLCANO) as running:
                (sentence,) = running.readiness()["left_to_others"]
                assert "capacity has nvidia.com/gpu: 4, which this agent did not write" in sentence
                assert cards(node) == {"nvidia.com/gpu": "4"}
                assert "subak.io/agent" not in words(node)
        finally:
            set_capacity(node, {"nvidia.com/gpu": None})
