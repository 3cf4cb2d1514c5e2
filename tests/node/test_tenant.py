"""Who counts in which region, by which rules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from subak.dialects import isolation
from subak.model import manifest
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.tenant import Tenant
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER, machine
from tests.support.regions import MIB, add, region

QUARTER = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "5000", "nvidia.com/gpucores": "25"}
SHARED = {"koordinator.sh/gpu-core": "25", "koordinator.sh/gpu-memory-ratio": "25"}
ISOLATED = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}


def bound(on: Machine, containers: list[dict[str, Any]], labels: dict[str, str] | None = None) -> manifest.Pod:
    """A pod of these containers as a scheduler binds it to the machine."""
    node, _ = on.digest(INTERPRETER)
    content = {"metadata": {"name": "p", "uid": "u", "labels": labels or {}}, "spec": {"containers": containers}}
    pod = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    placement = place(Snapshot([node]), INTERPRETER.request(pod))
    assert placement is not None
    annotations = {**pod.annotations, **INTERPRETER.annotations(pod, placement, node, 0)}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=on.name),
    )


def container(name: str, limits: dict[str, str], **env: str) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"limits": limits},
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }


def admitted(
    folder: Path, profile: str, containers: list[dict[str, Any]], labels: dict[str, str] | None = None
) -> tuple[Arbiter, manifest.Pod]:
    """A pod of these containers on a node, which keeps its files in the folder."""
    on = machine(profile, taints=[])
    arbiter, pod = Arbiter(on, INTERPRETER, Host(folder, simulated=True)), bound(on, containers, labels)
    arbiter.admit(pod)
    return arbiter, pod


def test_each_container_of_a_hami_pod_is_a_tenant_of_its_own(tmp_path: Path) -> None:
    both = [container("one", QUARTER), container("none", {}), container("two", QUARTER)]
    arbiter, pod = admitted(tmp_path, "shared", both)
    one, two = arbiter.tenants(pod)
    assert [(each.containers, each.name) for each in (one, two)] == [({0: "one"}, ("u", 0)), ({2: "two"}, ("u", 2))]
    assert one.region == tmp_path / "containers/u_one/u_one.cache"
    assert one.states == (tmp_path / "state/u_one",)
    assert one.states[0].stat().st_size == 4096
    assert [held.share.memory_bytes for held in two.cards] == [5000 * MIB]
    assert (one.policy, one.priority) == (isolation.DEFAULT, isolation.USUAL)


def test_a_pods_rules_are_its_own_and_its_dialects(tmp_path: Path) -> None:
    high = {**QUARTER, "nvidia.com/priority": "0"}
    both = [container("high", high), container("forced", QUARTER, GPU_CORE_UTILIZATION_POLICY="force")]
    arbiter, pod = admitted(tmp_path, "shared", both)
    first, second = arbiter.tenants(pod)
    assert (first.priority, second.policy) == (isolation.HIGH, isolation.FORCE)


def test_no_tenant_disables_its_own_limit_or_raises_itself_with_nonsense(tmp_path: Path) -> None:
    bold = container("c", QUARTER, GPU_CORE_UTILIZATION_POLICY="disable", CUDA_TASK_PRIORITY="-5")
    arbiter, pod = admitted(tmp_path, "shared", [bold])
    (tenant,) = arbiter.tenants(pod)
    assert (tenant.policy, tenant.priority) == (isolation.DEFAULT, isolation.USUAL)


def koordinator_pod(folder: Path) -> tuple[Arbiter, manifest.Pod]:
    both = [container("one", SHARED), container("none", {}), container("two", SHARED)]
    return admitted(folder, "koordinator", both, labels=ISOLATED)


def test_containers_of_a_koordinator_pod_count_together(tmp_path: Path) -> None:
    """The limit is the pod's: each of them alone could use all of it, both together no more."""
    arbiter, pod = koordinator_pod(tmp_path)
    (tenant,) = arbiter.tenants(pod)
    assert tenant.containers == {0: "one", 2: "two"}
    assert tenant.region == tmp_path / "containers/u_one/u_one.cache"
    assert tenant.states == (tmp_path / "state/u_one", tmp_path / "state/u_two")
    one, _, two = arbiter.admit(pod)
    assert one.env[isolation.REGION] == two.env[isolation.REGION] == "/usr/local/vgpu/u_one.cache"
    places = [{each.source for each in got.mounts if each.destination == "/usr/local/vgpu"} for got in (one, two)]
    assert places == [{str(tmp_path / "containers/u_one")}] * 2
    numbers = [[line for each in got.mounts for line in each.content.splitlines()] for got in (one, two)]
    assert "SUBAK_CONTAINER=0" in numbers[0]
    assert "SUBAK_CONTAINER=2" in numbers[1]


def counting(tenant: Tenant) -> Path:
    """The tenant's region, with one process in each of its containers."""
    assert tenant.region is not None
    content = region(cards=1)
    uuid = tenant.cards[0].device.id.encode()
    content[64 : 64 + len(uuid) + 1] = uuid + b"\0"
    for slot, position in enumerate(tenant.containers):
        add(content, slot, 17, (slot + 1) * 100 * MIB, container=position, beat=time.monotonic_ns())
    tenant.region.write_bytes(content)
    return tenant.region


def test_a_restart_of_one_container_keeps_the_others_books(tmp_path: Path) -> None:
    arbiter, pod = koordinator_pod(tmp_path)
    counting(arbiter.tenants(pod)[0])
    used = {name: [use.memory_bytes for _, use in uses] for name, uses in arbiter.use(pod).items()}
    assert used == {"one": [100 * MIB], "two": [200 * MIB]}
    arbiter.starting(pod, 2)
    used = {name: [use.memory_bytes for _, use in uses] for name, uses in arbiter.use(pod).items()}
    assert used == {"one": [100 * MIB], "two": [0]}


def test_a_container_that_counts_alone_begins_with_clean_books(tmp_path: Path) -> None:
    arbiter, pod = admitted(tmp_path, "shared", [container("one", QUARTER), container("two", QUARTER)])
    one, two = (counting(each) for each in arbiter.tenants(pod))
    arbiter.starting(pod, 1)
    assert one.exists()
    assert not two.exists()


def test_who_has_a_card_without_our_library_has_no_region(tmp_path: Path) -> None:
    off = [container("off", QUARTER, CUDA_DISABLE_CONTROL="true"), container("on", QUARTER)]
    arbiter, pod = admitted(tmp_path, "shared", off)
    without, counted = arbiter.tenants(pod)
    assert without.region is None
    assert without.containers == {0: "off"}
    assert counted.region is not None


def test_whoever_holds_nothing_is_no_tenant(tmp_path: Path) -> None:
    arbiter, pod = admitted(tmp_path, "shared", [container("c", QUARTER)])
    assert arbiter.release(pod)
    assert arbiter.tenants(pod) == []
    assert not list(tmp_path.glob("state/*"))
    assert Arbiter(arbiter.machine, INTERPRETER).tenants(pod) == []
