"""The vendors' agents: what a pod gets after binding, what they write, and whom they refuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from subak.dialects import Injection
from subak.local.hardware import driver
from subak.local.hardware.agents import Agents
from subak.local.hardware.nodes import Nodes
from subak.model import manifest
from subak.model.device import MIB
from subak.model.reason import NotReady, Refusal
from subak.node import library, nvml
from subak.node.machine import Machine
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.custom import CUSTOM
from tests.support.machines import INTERPRETER, machine
from tests.support.nvml import Driver, Gpu
from tinykube.client import Client
from tinykube.resource import NODES, PODS
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response

Limits = dict[str, Any]
PATIENCE = 20.0

HAMI_HALF: Limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12000, "nvidia.com/gpucores": 50}


class Recording(Server):
    """The embedded server, which remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__(Store(custom=CUSTOM))
        self.patches: list[str] = []

    async def send(self, request: Request) -> Response:
        if request.method == "PATCH":
            self.patches.append(request.path)
        return await super().send(request)


@pytest.fixture
def server() -> Recording:
    return Recording()


@pytest.fixture
async def client(server: Recording) -> AsyncIterator[Client]:
    client = Client(server)
    yield client
    await client.close()


class World:
    """A cluster of one machine, without scheduler and kubelet: pods are placed and bound by the test."""

    def __init__(self, client: Client, machine: Machine, directory: Path) -> None:
        self.client, self.machine, self.directory = client, machine, directory
        self.node, _ = machine.digest(INTERPRETER)
        self.snapshot = Snapshot([self.node])
        self.agents = self.restarted()

    def restarted(self) -> Agents:
        return Agents(self.client, INTERPRETER, [self.machine], self.directory)

    async def create(self, name: str, *limits: Limits, **metadata: Any) -> manifest.Pod:
        """A pod without a node; a container for each of the limits."""
        containers = [
            {"name": f"c{i}", "image": "i", "resources": {"limits": {key: str(value) for key, value in each.items()}}}
            for i, each in enumerate(limits)
        ]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": {}}
        body["spec"] = {"containers": containers}
        return await self.client.create(PODS, body, "default", type=manifest.Pod)

    async def bind(self, pod: manifest.Pod, annotations: dict[str, str]) -> manifest.Pod:
        await self.client.bind(pod.name, "default", self.machine.name, uid=pod.metadata.uid, annotations=annotations)
        return await self.read(pod.name)

    async def bound(self, name: str, *limits: Limits, **metadata: Any) -> manifest.Pod:
        """A pod as the scheduler binds it."""
        pod = await self.create(name, *limits, **metadata)
        request = INTERPRETER.request(pod)
        placement = place(self.snapshot, request)
        assert placement is not None
        self.snapshot.assume(pod.key, placement, request.needs.resources)
        return await self.bind(pod, INTERPRETER.annotations(pod, placement, self.node, 1_700_000_000 * 10**9))

    async def read(self, name: str) -> manifest.Pod:
        return await self.client.get(PODS, name, "default", type=manifest.Pod)

    async def run(self, pod: manifest.Pod) -> None:
        """Say that the pod runs."""
        await self.client.patch_status(PODS, pod.name, "default", {"phase": "Running"})

    async def annotations(self) -> dict[str, str]:
        """Those of the node."""
        node = await self.client.get(NODES, self.machine.name)
        return dict(node["metadata"].get("annotations") or {})


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path / "host"


async def world(client: Client, machine: Machine, host: Path) -> World:
    await Nodes(client, [machine]).start()
    return World(client, machine, host)


async def refused(world: World, pod: manifest.Pod) -> Refusal:
    with pytest.raises(Refusal) as error:
        await world.agents.allocate(pod)
    return error.value


def pod_patches(server: Recording) -> list[str]:
    return [path for path in server.patches if "/pods/" in path and not path.endswith("/status")]


async def test_a_container_gets_the_environment_of_its_dialect(client: Client, host: Path) -> None:
    volcano = await world(client, machine("volcano"), host)
    (injection,) = await volcano.agents.allocate(await volcano.bound("p", {"volcano.sh/gpu-memory": 1024}))
    printed = {"NVIDIA_VISIBLE_DEVICES": "0", "VOLCANO_GPU_ALLOCATED": "1024", "VOLCANO_GPU_MEMORY_TOTAL": "11178"}
    assert injection.env.items() >= printed.items()


async def test_all_that_is_mounted_into_a_container_exists(client: Client, host: Path) -> None:
    here = await world(client, machine("koordinator"), host)
    pod = await here.bound("p", HAMI_HALF)
    (injection,) = await here.agents.allocate(pod)
    assert {each.destination for each in injection.mounts} >= {"/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload"}
    assert all(Path(each.source).exists() for each in injection.mounts)
    folders = list((host / "containers").iterdir())
    await here.agents.release(pod)
    assert len(folders) == 1
    async with asyncio.timeout(60):
        while list((host / "containers").iterdir()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("profile", "limits", "written"),
    [
        ("koordinator", HAMI_HALF, {"hami.io/bind-phase": "success", "hami.io/vgpu-devices-to-allocate": ";"}),
        ("volcano", {"volcano.sh/gpu-memory": 1024}, {"volcano.sh/gpu-assigned": "true"}),
        ("moore-threads", {"mthreads.com/vgpu": 1}, {"hami.io/bind-phase": "success"}),
        (
            "iluvatar-mr-v100",
            {"iluvatar.ai/vgpu": 1, "iluvatar.ai/vcuda-core": 50, "iluvatar.ai/vcuda-memory": 64},
            {"hami.io/bind-phase": "success", "iluvatar.ai/gpu-assigned": "true"},
        ),
        ("metax-sgpu", {"metax-tech.com/sgpu": 1}, {"hami.io/bind-phase": "success"}),
        ("metax-gpu", {"metax-tech.com/gpu": 1}, {"hami.io/bind-phase": "success"}),
    ],
)
async def test_the_vendors_mark_is_written_in_one_patch(
    server: Recording, client: Client, host: Path, profile: str, limits: Limits, written: dict[str, str]
) -> None:
    here = await world(client, machine(profile), host)
    pod = await here.bound("p", limits)
    await here.agents.allocate(pod)
    assert (await here.read("p")).annotations.items() >= written.items()
    assert pod_patches(server) == ["/api/v1/namespaces/default/pods/p"]


async def test_nothing_is_written_where_the_vendor_writes_nothing(
    server: Recording, client: Client, host: Path
) -> None:
    here = await world(client, machine("koordinator"), host)
    pod = await here.bound("p", {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50})
    await here.agents.allocate(pod)
    await here.agents.allocate(await here.bound("plain", {"cpu": "1"}))
    assert pod_patches(server) == []


async def test_a_pod_without_cards_gets_nothing_for_each_of_its_containers(client: Client, host: Path) -> None:
    here = await world(client, machine("koordinator"), host)
    assert await here.agents.allocate(await here.bound("p", {"cpu": "1"}, {})) == [Injection(), Injection()]


async def test_asking_twice_gives_the_same_answer_and_books_once(server: Recording, client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.bound("p", {"nvidia.com/gpu": 1})
    assert await here.agents.allocate(pod) == await here.agents.allocate(await here.read("p"))
    assert len(pod_patches(server)) == 1


@pytest.mark.parametrize(
    ("profile", "limits"),
    [("metax-sgpu", {"metax-tech.com/sgpu": 1}), ("iluvatar-bi-v150", {"iluvatar.ai/BI-V150-vgpu": 1})],
)
async def test_the_node_lock_is_released_when_its_pod_has_its_cards(
    client: Client, host: Path, profile: str, limits: Limits
) -> None:
    here = await world(client, machine(profile), host)
    pod = await here.bound("p", limits)
    lock = {"metadata": {"annotations": {"hami.io/mutex.lock": "2026-11-15T08:00:00Z,default,p"}}}
    await client.patch(NODES, here.machine.name, "", lock)
    await here.agents.allocate(pod)
    assert "hami.io/mutex.lock" not in await here.annotations()


@pytest.mark.parametrize("value", ["2026-11-15T08:00:00Z,default,other", "whatever"])
async def test_the_lock_of_another_pod_stays(client: Client, host: Path, value: str) -> None:
    here = await world(client, machine("metax-sgpu"), host)
    pod = await here.bound("p", {"metax-tech.com/sgpu": 1})
    await client.patch(NODES, "c500-sgpu", "", {"metadata": {"annotations": {"hami.io/mutex.lock": value}}})
    await here.agents.allocate(pod)
    assert (await here.annotations())["hami.io/mutex.lock"] == value


async def test_metax_tells_which_whole_cards_are_free(client: Client, host: Path) -> None:
    here = await world(client, machine("metax-gpu"), host)
    idle = await here.annotations()
    pod = await here.bound("p", {"metax-tech.com/gpu": 4})
    await here.agents.allocate(pod)
    scores = (await here.annotations())["metax-tech.com/gpu.topology.scores"]
    assert scores == '{"1":0,"2":110,"3":330,"4":660}'
    await here.agents.release(pod)
    assert await here.annotations() == idle


# The last arbiter


async def test_a_pod_that_would_overcommit_a_card_is_refused_in_numbers(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    first = await here.bound("first", HAMI_HALF)
    await here.agents.allocate(first)
    second = await here.create("second", HAMI_HALF)
    pod = await here.bind(second, {**first.annotations, "hami.io/bind-phase": "allocating"})
    refusal = await refused(here, pod)
    card = here.node.devices[0].id
    assert refusal.message == (
        f"card {card} of node a10 has 11,028 MiB, 50 cores, 9 slots left (default/first hold the rest); pod "
        "default/second takes 12,000 MiB, 50 cores, 1 slot, which would overcommit the card"
    )
    assert refusal.value == card
    assert (await here.read("second")).annotations["hami.io/bind-phase"] == "failed"


async def test_a_refused_pod_releases_the_node(client: Client, host: Path) -> None:
    here = await world(client, machine("metax-sgpu"), host)
    pod = await here.bind(await here.create("p", {"metax-tech.com/sgpu": 1}), {})
    lock = {"metadata": {"annotations": {"hami.io/mutex.lock": "2026-11-15T08:00:00Z,default,p"}}}
    await client.patch(NODES, "c500-sgpu", "", lock)
    await refused(here, pod)
    assert "hami.io/mutex.lock" not in await here.annotations()


async def test_pods_of_three_systems_share_one_card_until_it_is_full(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    for name, limits in (
        ("hami", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30}),
        ("volcano", {"volcano.sh/gpu-memory": 6144}),
        ("koordinator", {"koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25}),
    ):
        await here.agents.allocate(await here.bound(name, limits))
    late = await here.bind(await here.create("late", {"volcano.sh/gpu-memory": 4096}), {"volcano.sh/gpu-index": "0"})
    refusal = await refused(here, late)
    assert "has 3,127 MiB, 45 cores, 9 slots left" in refusal.message
    assert "default/hami, default/koordinator, default/volcano hold the rest" in refusal.message
    await here.agents.release(await here.read("volcano"))
    await here.agents.allocate(late)


async def test_a_pod_bound_without_a_record_of_its_cards_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.bind(await here.create("p", {}, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}), {})
    refusal = await refused(here, pod)
    assert refusal.field == "spec.containers[1].resources"
    assert refusal.message == (
        "container c1 asks for cards (hami-nvidia), but no annotation of the pod records any: whoever bound it to node "
        "a10 chose no card; let Subak place it"
    )


async def test_a_record_that_leaves_out_a_container_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("koordinator"), host)
    card = here.node.devices[0].id
    pod = await here.create("p", HAMI_HALF, HAMI_HALF)
    pod = await here.bind(pod, {"hami.io/vgpu-devices-allocated": f"{card},NVIDIA,12000,50:;;"})
    assert "container c1 asks for cards" in (await refused(here, pod)).message


async def test_a_card_that_the_node_does_not_have_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.create("p", HAMI_HALF)
    pod = await here.bind(pod, {"hami.io/vgpu-devices-allocated": "GPU-elsewhere,NVIDIA,12000,50:;"})
    assert re.match(r"node a10 has no card GPU-elsewhere; its cards are GPU-", (await refused(here, pod)).message)


async def test_a_record_that_cannot_be_read_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.create("p", HAMI_HALF)
    pod = await here.bind(pod, {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,much,50:;"})
    assert "the record of its cards cannot be read" in (await refused(here, pod)).message


async def test_a_dialect_that_no_plugin_of_the_node_speaks_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", speaks=["hami"], taints=[]), host)
    pod = await here.create("p", {"volcano.sh/gpu-memory": 1024})
    pod = await here.bind(pod, {"volcano.sh/gpu-index": "0"})
    assert (await refused(here, pod)).message == "node a10 has no plugin for volcano-share; it speaks hami-nvidia"


async def test_a_broken_card_is_refused_even_where_the_plugin_does_not_tell(client: Client, host: Path) -> None:
    here = await world(client, machine("moore-threads", cards={"unhealthy": [0]}), host)
    assert here.node.devices[0].healthy  # Moore Threads' totals do not say which card is broken
    wants_it = {"mthreads.ai/use-gpuuuid": "s4000-mthreads-0"}
    pod = await here.bound("p", {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 2}, annotations=wants_it)
    assert "card s4000-mthreads-0 of node s4000 is broken" in (await refused(here, pod)).message


async def test_a_node_of_somebody_else_is_refused(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = manifest.Pod(spec=manifest.PodSpec(node_name="elsewhere", containers=[manifest.Container(name="c")]))
    assert (await refused(here, pod)).message == "node 'elsewhere' is no node of this cluster"


# Restarts


async def test_a_restart_rebuilds_the_ledger_from_the_pods(server: Recording, client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    running, ended = await here.bound("running", HAMI_HALF), await here.create("ended", HAMI_HALF)
    first = await here.agents.allocate(running)
    await here.run(running)
    await here.bind(ended, dict(running.annotations))
    await client.patch_status(PODS, "ended", "default", {"phase": "Succeeded"})
    here.agents = here.restarted()
    await here.agents.restore()
    late = await here.bind(await here.create("late", HAMI_HALF), dict(running.annotations))
    assert "default/running hold the rest" in (await refused(here, late)).message
    server.patches.clear()
    assert await here.agents.allocate(await here.read("running")) == first
    assert pod_patches(server) == []
    await here.agents.release(running)
    await here.agents.allocate(late)


async def test_a_restart_begins_without_the_files_of_containers_that_ended_with_the_last_run(
    client: Client, host: Path
) -> None:
    """Their pods may be gone, and an earlier version made them for the machine's root: no container could use them."""
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.bound("p", HAMI_HALF)
    await here.agents.allocate(pod)
    region = host / "containers" / f"{pod.metadata.uid}_c0" / f"{pod.metadata.uid}_c0.cache"
    region.touch(0o600)
    await here.run(pod)
    again = here.restarted()
    await again.restore()
    assert not region.parent.exists()
    async with asyncio.timeout(PATIENCE):
        while any(list((host / folder).iterdir()) for folder in ("containers", "limits", "state")):
            await asyncio.sleep(0.01)
    (injection,) = await again.allocate(await here.read("p"))
    assert all(Path(mount.source).exists() for mount in injection.mounts)
    assert not region.exists()


async def test_a_restart_tells_anew_which_cards_are_free(client: Client, host: Path) -> None:
    here = await world(client, machine("metax-gpu"), host)
    pod = await here.bound("p", {"metax-tech.com/gpu": 4})
    await here.agents.allocate(pod)
    await here.run(pod)
    told = await here.annotations()
    await Nodes(client, [here.machine]).start()
    agents = here.restarted()
    await agents.restore()
    assert await here.annotations() == told


async def test_a_pod_that_is_gone_needs_no_mark(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    pod = await here.bound("p", HAMI_HALF)
    await client.delete(PODS, "p", "default", grace=0)
    assert len(await here.agents.allocate(pod)) == 1
    await here.agents.release(pod)


async def test_a_pod_that_never_held_anything_can_be_released(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    await here.agents.release(await here.bound("p", {"cpu": "1"}))


# What comes with the node


async def test_iluvatar_nodes_have_the_libraries_that_their_document_copies(client: Client, host: Path) -> None:
    here = await world(client, machine("iluvatar-mr-v100"), host)
    files = {each.path: each for each in here.agents.files("mr-v100")}
    assert {path for path, file in files.items() if not file.directory} == {
        "/usr/local/iluvatar/lib64/libcuda.so",
        "/usr/local/iluvatar/lib64/libcuda.so.1",
        "/usr/local/iluvatar/lib64/libixml.so",
    }
    assert files["/usr/local/corex/lib64"].directory
    assert here.agents.files("elsewhere") == []


async def test_real_cards_are_seen_by_uuid_and_by_their_device_nodes(
    client: Client, host: Path, tmp_path: Path, libsubak: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    driver = Driver([Gpu("GPU-a", "0000:3b:00.0"), Gpu("GPU-b", "0000:d8:00.0", minor=1)])
    found = nvml.find(INTERPRETER, driver, tmp_path).machine
    assert found is not None
    here = await world(client, found, host)
    one = await seen(here, "one", {"nvidia.com/gpu": 1}, {})
    both = await seen(here, "both", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000})
    assert (one[0].env["CUDA_VISIBLE_DEVICES"], one[1]) == (one[0].env["NVIDIA_VISIBLE_DEVICES"], Injection())
    number = {"GPU-a": 0, "GPU-b": 1}
    for injection in (one[0], both[0]):
        card = injection.env["CUDA_VISIBLE_DEVICES"]
        assert injection.devices == [f"/dev/nvidia{number[card]}", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert one[0].devices != both[0].devices
    assert not here.agents.simulated(found.name)
    assert here.agents.notes() == []
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(library, name, tmp_path / "none")
    assert "do not start, as no limit would hold: libsubak.so" in here.agents.notes()[0]
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "dev/nvidia0"))
    with pytest.raises(Refusal, match="no limit would hold: .*nvidia0, where programs take turns"):
        await seen(here, "third", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000})


async def test_a_driver_that_is_not_ready_for_cuda_is_told(
    client: Client, host: Path, tmp_path: Path, libsubak: Path
) -> None:
    """After a boot the node for unified memory may be missing, and nobody in a container can make it."""
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    found = nvml.find(INTERPRETER, Driver([Gpu("GPU-a", "0000:3b:00.0")]), tmp_path).machine
    assert found is not None
    (note,) = (await world(client, found, host)).agents.notes()
    assert note.startswith("real cards: /dev/nvidia-uvm is not there")
    assert "nvidia-modprobe -u -c 0" in note


async def test_a_pod_whose_files_cannot_be_written_holds_nothing_and_may_ask_again(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    whole: Limits = {"nvidia.com/gpu": 1}
    pod = await here.bound("p", whole)
    (host / "containers").write_text("no directory")
    with pytest.raises(NotReady, match=r"no limit would hold: .*/host/containers.*: Not a directory"):
        await here.agents.allocate(pod)
    assert (await here.read("p")).annotations["hami.io/bind-phase"] == "allocating"  # no agent has given it up
    for folder in ("limits", "state"):
        assert not list((host / folder).glob("*"))
    (host / "containers").unlink()
    assert len(await here.agents.allocate(pod)) == 1
    assert (await here.read("p")).annotations["hami.io/bind-phase"] == "success"
    await here.agents.release(pod)
    assert len(await here.agents.allocate(await here.bind(await here.create("q", whole), dict(pod.annotations)))) == 1


async def test_each_limit_in_the_environment_is_that_of_its_card(
    client: Client, host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free card is given first, though NVML lists it last."""
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    mib = {"GPU-large": 80 << 10, "GPU-small": 24 << 10}
    gpus = [Gpu(id, f"0000:3{n}:00.0", minor=n, memory=mib[id] * MIB) for n, id in enumerate(mib)]
    found = nvml.find(INTERPRETER, Driver(gpus), tmp_path).machine
    assert found is not None
    here = await world(client, found, host)
    first = await here.bound(
        "first",
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000},
        annotations={"nvidia.com/use-gpuuuid": "GPU-large"},
    )
    await here.agents.allocate(first)
    (injection,) = await seen(here, "halves", {"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50})
    env = injection.env
    cards = env["SUBAK_CARDS"].split(",")
    assert cards == ["GPU-small", "GPU-large"] == env["CUDA_VISIBLE_DEVICES"].split(",")
    limits = {id: env[f"CUDA_DEVICE_MEMORY_LIMIT_{n}"] for n, id in enumerate(cards)}
    assert limits == {id: f"{size // 2}m" for id, size in mib.items()}


async def seen(world: World, name: str, *limits: Limits) -> Sequence[Injection]:
    return await world.agents.allocate(await world.bound(name, *limits))


async def test_simulated_cards_without_their_driver_are_told_of_once(
    client: Client, host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(driver, name, tmp_path / "none")
    both = [machine("shared"), machine("koordinator")]
    (note,) = Agents(client, INTERPRETER, both, host).notes()
    assert note.startswith(
        "simulated cards: programs in containers do not find them: the simulated driver is neither in"
    )


async def test_simulated_cards_show_no_device_nodes(client: Client, host: Path) -> None:
    here = await world(client, machine("shared", taints=[]), host)
    (injection,) = await seen(here, "p", HAMI_HALF)
    assert injection.devices == []
    assert "CUDA_VISIBLE_DEVICES" not in injection.env
    assert here.agents.simulated("a10")
    assert here.agents.notes() == []
