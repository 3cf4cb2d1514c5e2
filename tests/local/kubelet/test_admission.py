from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.admission import Account, OutOfResource, Rejected, asked
from subak.local.kubelet.context import Context
from subak.local.kubelet.lookup import Lookup
from subak.local.kubelet.supplies import Supplies
from subak.model import manifest
from tests.support.kubelet.harness import Harness, harness, in_virtual_time
from tests.support.kubelet.pods import container, pod_object, seen
from tinykube.events import Recorder
from tinykube.resource import NODES

NODE: dict[str, Any] = {"cpu": "4", "memory": "8Gi", "pods": "3", "nvidia.com/gpu": "2"}


def wants(**requests: str) -> tuple[tuple[str, int], ...]:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    return asked(msgspec.convert(pod_object(container(resources={"requests": names})), manifest.Pod)).resources


@pytest.mark.parametrize(
    ("requests", "reason", "message"),
    [
        ({"cpu": "5"}, "OutOfcpu", "cpu, requested: 5000, used: 1000, capacity: 4000"),
        ({"memory": "9Gi"}, "OutOfmemory", "memory, requested: 9663676416, used: 0, capacity: 8589934592"),
        (
            {"nvidia_com__gpu": "3"},
            "OutOfnvidia.com/gpu",
            "nvidia.com/gpu, requested: 3, used: 0, capacity: 2",
        ),
    ],
)
def test_a_pod_beyond_the_node_is_refused_with_numbers(requests: dict[str, str], reason: str, message: str) -> None:
    account = Account()
    account.take("a", wants(cpu="1"), NODE)
    with pytest.raises(OutOfResource) as caught:
        account.take("b", wants(**requests), NODE)
    assert caught.value.reason == reason
    assert caught.value.message == f"Node didn't have enough resource: {message}"


def test_a_node_takes_so_many_pods_and_no_more() -> None:
    account = Account()
    for uid in "abc":
        account.take(uid, wants(), NODE)
    with pytest.raises(OutOfResource) as caught:
        account.take("d", wants(), NODE)
    assert caught.value.reason == "OutOfpods"
    account.give_back("a")
    account.take("d", wants(), NODE)


def test_a_resource_that_the_node_does_not_know_limits_nothing() -> None:
    Account().take("a", wants(example_com__licence="7"), NODE)


def test_the_same_pod_again_is_booked_once() -> None:
    account = Account()
    for _ in range(5):
        account.take("a", wants(cpu="3"), NODE)
    account.take("b", wants(cpu="1"), NODE)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(0, 4))))
def test_no_node_ever_holds_more_than_it_has(steps: list[tuple[str, bool, int]]) -> None:
    account, held = Account(), dict[str, int]()
    for uid, comes, cpu in steps:
        if not comes:
            account.give_back(uid)
            held.pop(uid, None)
            continue
        fits = sum(held.values()) + cpu <= 4 and len(held) < 3
        try:
            account.take(uid, wants(cpu=str(cpu)), NODE)
        except OutOfResource:
            assert not fits
            assert uid not in held
        else:
            assert fits or uid in held
            held.setdefault(uid, cpu)


def affinity(key: str, *values: str, fields: bool = False) -> dict[str, Any]:
    kind = "matchFields" if fields else "matchExpressions"
    term = {kind: [{"key": key, "operator": "In", "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


OTHER_NODES = [{"nodeSelector": {"zone": "b"}}, affinity("zone", "b", "c"), affinity("metadata.name", "x", fields=True)]
THIS_NODE = [
    {"nodeSelector": {"zone": "a"}},
    affinity("zone", "a", "b"),
    affinity("metadata.name", "node-1", fields=True),
]
EVICTED = {"key": "out", "effect": "NoExecute"}


@asynccontextmanager
async def labelled(directory: Path, *taints: dict[str, str]) -> AsyncIterator[Harness]:
    async with harness(directory) as place:
        change = {"metadata": {"labels": {"zone": "a"}}, "spec": {"taints": list(taints)}}
        await place.client.patch(NODES, "node-1", "", change)
        yield place


async def bound_by_hand(place: Harness, **spec: Any) -> None:
    await place.create(nodeName="", **spec)
    await place.client.bind("web", "default", "node-1")


@pytest.mark.parametrize("spec", OTHER_NODES)
@pytest.mark.parametrize("create", [Harness.create, bound_by_hand])
@in_virtual_time
async def test_a_pod_that_wants_another_node_is_not_taken(tmp_path: Path, create: Any, spec: dict[str, Any]) -> None:
    async with labelled(tmp_path) as place:
        await create(place, **spec)
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "NodeAffinity"
        words = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        assert pod["status"]["message"] == f"Pod was rejected: {words}"
        assert await place.event("NodeAffinity") == f"NodeAffinity: {words}"
        assert place.runtime.order == []
        assert place.devices.held == set()


@pytest.mark.parametrize("spec", THIS_NODE)
@in_virtual_time
async def test_a_pod_that_wants_this_node_is_taken(tmp_path: Path, spec: dict[str, Any]) -> None:
    async with labelled(tmp_path) as place:
        await place.create(**spec)
        await place.phase("Running")


@in_virtual_time
async def test_a_node_does_not_take_whom_it_drives_out(tmp_path: Path) -> None:
    async with labelled(tmp_path, EVICTED, {"key": "full", "effect": "NoSchedule"}) as place:
        await place.create()
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "TaintToleration"
        words = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        assert pod["status"]["message"] == f"Pod was rejected: {words}"
        await place.create(name="daemon", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
        await place.phase("Running", "daemon")


@in_virtual_time
async def test_a_port_of_the_node_is_given_once(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        port = {"containerPort": 80, "hostPort": 8080}
        await place.create(container(ports=[port]), name="first")
        await place.phase("Running", "first")
        await place.create(container(ports=[{**port, "hostIP": "127.0.0.1"}]))
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "NodePorts"
        await place.create(container(ports=[{**port, "protocol": "UDP"}]), name="udp")
        await place.phase("Running", "udp")
        await place.delete("first")
        await place.gone("first")
        await place.create(container(ports=[port]), name="third")
        await place.phase("Running", "third")


@in_virtual_time
async def test_a_late_watch_of_nodes_rejects_nobody(tmp_path: Path) -> None:
    async with labelled(tmp_path) as place:
        late = manifest.Node(metadata=manifest.Metadata(name="node-1"))
        context = Context(
            place.client,
            place.runtime,
            None,
            place.devices,
            tmp_path,
            Recorder(place.client, component="kubelet"),
            Lookup(place.client),
            nodes={"node-1": late},
        )
        supplies = Supplies(context, "node-1")
        await supplies.book(seen(nodeSelector={"zone": "a"}))
        with pytest.raises(Rejected):
            await supplies.book(seen(nodeSelector={"zone": "b"}, metadata={"uid": "other"}))
        assert len(context.account("node-1")) == 1
