"""The device plugin beside a kubelet: whose a slot is, what its container gets, and what is kept from starting."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import msgspec
import pytest

from subak.model import manifest
from subak.model.mount import Mount
from subak.model.reason import Refusal
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.plugin.gate import Gate
from subak.node.plugin.podresources import PodResources
from subak.node.plugin.registration import Registration
from subak.node.plugin.service import Service
from subak.node.plugin.slots import Slots
from tests.node.plugin.kubelet import Kubelet
from tests.support.machines import INTERPRETER, machine
from tests.support.slotted import bound, described, stored, written

HALF = {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "12000"}}}
ENV = {"DRIVER": "simulated"}
DRIVER = Mount("/usr/lib/libcuda.so.1", "/opt/libcuda.so.1", read_only=True)


@dataclass
class Rig:
    """A plugin and its kubelet, in one folder."""

    directory: Path
    machine: Machine
    kubelet: Kubelet
    api: dict[tuple[str, str], manifest.Pod] = field(default_factory=dict)
    watched: dict[str, manifest.Pod] = field(default_factory=dict)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arbiter = Arbiter(self.machine, INTERPRETER, Host(self.directory / "host", simulated=True))
        self.slots = Slots(self.directory / "slots")
        self.slots.prepare(8)

    def get(self, uid: str) -> manifest.Pod | None:
        return self.watched.get(uid)

    def __iter__(self) -> Iterator[manifest.Pod]:
        return iter(self.watched.values())

    async def find(self, namespace: str, name: str) -> manifest.Pod | None:
        return self.api.get((namespace, name))

    def refused(self, pod: manifest.Pod, container: str, refusal: Refusal) -> None:
        self.refusals.append((pod.key, refusal.message))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Registration]:
        """The plugin, once kubelet knows of it."""
        resources = PodResources(self.kubelet.pod_resources)
        gate = Gate(self.slots, self.arbiter, resources, self, self.find, self.refused)
        registration = Registration(Service(self.slots, gate, lambda: self.machine), self.kubelet.directory)
        task = asyncio.create_task(registration.run())
        try:
            await asyncio.wait_for(self.kubelet.listed.wait(), 20)
            yield registration
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def pod(self, name: str, uid: str = "") -> manifest.Pod:
        """A pod of half a card that is bound here, and that the API server has."""
        uid = uid or f"u-{name}"
        pod = bound(stored(written(HALF, name=name, uid=uid)), described(self.machine))
        self.api["default", name] = self.watched[uid] = pod
        return pod

    def sources(self, slot: str) -> dict[str, Path]:
        """Where a slot's mounts lead to."""
        return {each.destination: Path(os.path.realpath(each.source)) for each in self.slots.mounts(slot)}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    # The path of a socket may have 107 letters, and that of a test's folder may have more.
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        async with served(Kubelet(Path(folder)), tmp_path) as made:
            yield made


@asynccontextmanager
async def served(kubelet: Kubelet, tmp_path: Path) -> AsyncIterator[Rig]:
    await kubelet.start()
    yield Rig(tmp_path, replace(machine("shared", taints=[]), driver=(DRIVER,), driver_env=ENV), kubelet)
    await kubelet.stop()


def closed(rig: Rig, slot: str) -> bool:
    """Whether no runtime can mount the slot's folder."""
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        os.stat(rig.slots.mounts(slot)[0].source)
    return slot not in rig.slots.owners


async def test_kubelet_counts_slots_that_name_no_card(rig: Rig) -> None:
    async with rig.running() as registration:
        assert rig.kubelet.devices == [f"slot-{n}" for n in range(8)]
        (request,) = rig.kubelet.registered
        assert (request.version, request.resource_name) == ("v1beta1", "subak.io/slot")
        assert request.options.pre_start_required
        while registration.problem:  # it hears of it a moment after kubelet
            await asyncio.sleep(0.01)


async def test_a_container_gets_its_own_limits_and_every_slot_the_same_mounts(rig: Rig) -> None:
    pod = rig.pod("a")
    async with rig.running():
        given = await rig.kubelet.allocate("slot-3", ("default", "a", "c0"))
        assert dict(given.envs) == ENV
        assert [each.container_path for each in given.mounts] == [
            "/usr/local/vgpu",
            "/usr/local/vgpu/libvgpu.so",
            "/tmp/vgpulock",
            "/etc/ld.so.preload",
            "/etc/subak/limits",
            "/etc/subak/state",
            "/usr/lib/libcuda.so.1",
        ]
        assert [each.read_only for each in given.mounts] == [False, True, False, True, True, True, True]
        assert closed(rig, "slot-3")
        await rig.kubelet.pre_start("slot-3")
    mine = rig.arbiter.admit(pod)[0]
    places = {each.destination: Path(each.source) for each in mine.mounts if each != DRIVER}
    assert rig.sources("slot-3") == places
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=12582912000\n" in places["/etc/subak/limits"].read_text()
    assert rig.slots.owners["slot-3"] == "u-a/c0"
    assert all(closed(rig, name) for name in rig.slots.names if name != "slot-3")


async def test_equal_pods_at_once_each_get_their_own(rig: Rig) -> None:
    thirds = {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000"}}}
    node = described(rig.machine)
    for n in range(8):
        pod = bound(stored(written(thirds, name=f"p{n}", uid=f"u{n}")), node)
        rig.api["default", f"p{n}"] = pod
    async with rig.running():
        for n in range(8):
            await rig.kubelet.allocate(f"slot-{7 - n}", ("default", f"p{n}", "c0"))
        rig.kubelet.exhausted = 2
        await asyncio.gather(*(rig.kubelet.pre_start(f"slot-{n}") for n in range(8)))
    assert [rig.slots.owners[f"slot-{7 - n}"] for n in range(8)] == [f"u{n}/c0" for n in range(8)]
    assert rig.kubelet.asked < 8 + 2, "those who ask at the same time share an answer"


async def test_what_would_overcommit_a_card_does_not_start(rig: Rig) -> None:
    async with rig.running():
        for name in ("a", "b"):  # both bound by somebody who knows of no other pod
            rig.pod(name)
            await rig.kubelet.allocate(f"slot-{name == 'b':d}", ("default", name, "c0"))
        await rig.kubelet.pre_start("slot-0")
        with pytest.raises(grpc.RpcError, match="which would overcommit the card"):
            await rig.kubelet.pre_start("slot-1")
        assert closed(rig, "slot-1")
        ((key, message),) = rig.refusals
        assert key == "default/b"
        assert "has 11,028 MiB" in message
        assert rig.slots.owners["slot-0"] == "u-a/c0", "who runs is left alone"


async def test_a_container_that_kubelet_does_not_name_does_not_start(rig: Rig) -> None:
    rig.pod("a")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        rig.kubelet.holding.clear()
        with pytest.raises(grpc.RpcError, match="kubelet names no container that has subak.io/slot slot-0"):
            await rig.kubelet.pre_start("slot-0")
        assert closed(rig, "slot-0")


async def test_a_pod_whose_variables_say_something_else_does_not_start(rig: Rig) -> None:
    pod = rig.pod("a")
    for key, wrong, said in (
        ("subak.io/env.0.NVIDIA_VISIBLE_DEVICES", {"subak.io/env.0.NVIDIA_VISIBLE_DEVICES": "all"}, "'all'"),
        ("subak.io/env.0.CUDA_DEVICE_MEMORY_LIMIT_0", {}, "nothing"),
    ):
        annotations = {name: text for name, text in pod.annotations.items() if name != key} | wrong
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        rig.api["default", "a"] = msgspec.structs.replace(pod, metadata=metadata)
        async with rig.running():
            await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
            with pytest.raises(grpc.RpcError, match=f"annotation {key} says {said}"):
                await rig.kubelet.pre_start("slot-0")
            assert closed(rig, "slot-0")
        rig.kubelet.listed.clear()


async def test_a_pod_of_another_node_does_not_start(rig: Rig) -> None:
    pod = rig.pod("a")
    elsewhere = msgspec.structs.replace(pod.spec, node_name="elsewhere")
    rig.api["default", "a"] = msgspec.structs.replace(pod, spec=elsewhere)
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        with pytest.raises(grpc.RpcError, match="bound to node elsewhere"):
            await rig.kubelet.pre_start("slot-0")


async def test_a_container_starts_again_without_the_api_server_and_with_clean_books(rig: Rig) -> None:
    pod = rig.pod("a")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        await rig.kubelet.pre_start("slot-0")
        account = rig.sources("slot-0")["/usr/local/vgpu"]
        region = account / f"{pod.metadata.uid}_c0.cache"
        region.write_bytes(b"of the last run")
        rig.api.clear()
        await rig.kubelet.pre_start("slot-0")
        assert not region.exists()
        assert rig.sources("slot-0")["/usr/local/vgpu"] == account


async def test_a_new_pod_of_the_same_name_gets_what_is_its_own(rig: Rig) -> None:
    old = rig.pod("a", "u-old")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        await rig.kubelet.pre_start("slot-0")
        rig.arbiter.release(old)
        rig.pod("a", "u-new")  # the watch still knows the old one too
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        assert closed(rig, "slot-0")
        await rig.kubelet.pre_start("slot-0")
        assert rig.slots.owners["slot-0"] == "u-new/c0"


async def test_a_slot_that_changes_hands_while_its_pod_is_read_stays_closed(rig: Rig) -> None:
    """The first pod was deleted in the middle of its start, and kubelet gave its slot to another one."""
    rig.pod("a")
    find = rig.find

    async def slowly(namespace: str, name: str) -> manifest.Pod | None:
        await rig.kubelet.allocate("slot-0", ("default", "b", "c0"))
        return await find(namespace, name)

    rig.find = slowly  # type: ignore[method-assign]
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        with pytest.raises(grpc.RpcError, match="to another container meanwhile"):
            await rig.kubelet.pre_start("slot-0")
        assert closed(rig, "slot-0")


async def test_two_pods_of_one_name_are_not_guessed_at(rig: Rig) -> None:
    rig.pod("a")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        twice = ("default", "a", "c0")
        rig.kubelet.holding |= {"slot-0": twice, "slot-1": twice}
        rig.kubelet.apart = True
        with pytest.raises(grpc.RpcError, match="kubelet still has an older pod"):
            await rig.kubelet.pre_start("slot-0")


async def test_the_plugin_registers_again_with_every_kubelet_that_starts(rig: Rig) -> None:
    rig.pod("a")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        await rig.kubelet.pre_start("slot-0")
        for restarts in (1, 2):
            await rig.kubelet.stop()
            await rig.kubelet.start()
            await asyncio.wait_for(rig.kubelet.listed.wait(), 20)
            assert len(rig.kubelet.registered) == 1 + restarts
        await rig.kubelet.pre_start("slot-0")
        assert rig.slots.owners["slot-0"] == "u-a/c0"


async def test_the_plugin_registers_again_where_kubelet_hangs_up(rig: Rig) -> None:
    async with rig.running():
        await rig.kubelet.hang_up()
        await asyncio.wait_for(rig.kubelet.listed.wait(), 20)


async def test_a_new_agent_finds_its_slots_as_they_were(rig: Rig) -> None:
    pod = rig.pod("a")
    async with rig.running():
        await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        await rig.kubelet.pre_start("slot-0")
    before = rig.sources("slot-0")
    rig.__post_init__()
    rig.arbiter.restore(pod)
    rig.kubelet.listed.clear()
    async with rig.running():
        assert rig.sources("slot-0") == before
        await rig.kubelet.pre_start("slot-0")
        assert rig.sources("slot-0") == before


async def test_allocate_answers_even_where_nothing_can_be_written(rig: Rig) -> None:
    async with rig.running():
        rig.slots.close = _fails  # type: ignore[method-assign]
        given = await rig.kubelet.allocate("slot-0", ("default", "a", "c0"))
        assert given.mounts


def _fails(name: str) -> None:
    raise OSError(28, "No space left on device")
