"""A user of a local cluster who may write everything, and writes anything at any moment.

    async with World() as world:
        for deed in deeds: await world.suffer(deed)
        await world.recover()

A deed is one request, or the end of the cluster's process.  Between two of them the cluster has a few turns of the
loop, or all the time it wants.  What the cards really carry is counted by what the node gave to containers that run,
not by what anybody wrote.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

from hypothesis import strategies as st

from subak.dialects import Injection
from subak.local.cluster import LocalCluster
from subak.local.hardware.agents import Agents
from subak.local.kubelet.worker import UNEXPECTED
from subak.model import manifest
from subak.model.manifest import DEVICES
from subak.model.placement import Share
from tests.support.junk import TEXTS, VALUES
from tests.support.machines import INTERPRETER, machine
from tinykube.client import MERGE_PATCH
from tinykube.resource import CONFIG_MAPS, NODES, PODS, PRIORITY_CLASSES, Resource
from tinykube.status import ApiError

Json = dict[str, Any]
Deed = Callable[["World"], Awaitable[None]]

PATIENCE = 30.0
NAMES = ("a", "b", "c", "d")
HOSTS = ("n", "k")
REGISTER = "hami.io/node-nvidia-register"
KEPT = ("labels", "annotations")
CONFIGURATIONS = ("subak-system/hami-scheduler-device", "volcano-system/volcano-scheduler-configmap")
HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}


@dataclass(frozen=True)
class Given:
    """What a pod's containers got when the node admitted it."""

    node: str
    shares: tuple[Share, ...]


class World:
    """Two nodes with three cards, which three systems share, and the books of what runs on them.

    At the beginning all cards are taken and one pod waits: it would have any card that only seems to be free.
    """

    def __init__(self) -> None:
        self._machines = [
            machine("shared", name="n", taints=[], cards={"count": 2}),
            machine("koordinator", name="k", cards={"count": 1}),
        ]
        self._cards = {(each.name, card.index): card for each in self._machines for card in each.devices}
        self._first: dict[Resource, dict[str, Json]] = {}
        self._stack = ExitStack()
        self._state = Path(self._stack.enter_context(tempfile.TemporaryDirectory())) / "state"

    async def __aenter__(self) -> Self:
        allocate = Agents.allocate

        async def noted(agents: Agents, pod: manifest.Pod) -> Sequence[Injection]:
            injections = await allocate(agents, pod)
            shares = tuple(share for injection in injections for share in injection.held)
            self.given[pod.metadata.uid] = Given(pod.spec.node_name, shares)
            return injections

        self._stack.enter_context(mock.patch.object(Agents, "allocate", noted))
        await self._start()
        await self.client.create(PRIORITY_CLASSES, HIGH)
        for name in NAMES:
            await self.client.create(PODS, pod(name, WHOLE), "default")
        await self.until("the cards are not taken", self._is_full)
        for resource in (NODES, DEVICES, CONFIG_MAPS):
            self._first[resource] = {_key(each): each for each in (await self.client.list(resource)).items}
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.local.__aexit__(*error)
        self._stack.close()

    async def _start(self) -> None:
        self.given: dict[str, Given] = {}
        self.local = LocalCluster(self._machines, runtime="none", state=self._state)
        await self.local.__aenter__()
        self.client = self.local.client

    async def crash(self) -> None:
        """Go on with what a cluster that is killed now leaves behind."""
        left = self._state.with_name(f"{self._state.name}+")
        shutil.copytree(self._state, left)
        await self.local.__aexit__()
        self._state = left
        try:
            await self._start()
        except ApiError as error:
            raise AssertionError("it does not start again") from error

    async def _is_full(self) -> bool:
        return len(self.running()) == len(self._cards)

    # What must hold

    async def suffer(self, deed: Deed) -> None:
        """Let the user do something; it may be refused."""
        with suppress(ApiError):
            await deed(self)
        self.check()

    def check(self) -> None:
        """All parts live, and no card carries more than it has."""
        if self.local.failed.done():
            self.local.failed.result()
        taken: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        for uid in self.running():
            given = self.given[uid]
            for share in given.shares:
                sums = taken[given.node, share.index]
                sums[0] += 1
                sums[1] += share.memory_bytes
                sums[2] += share.cores
        for place, sums in taken.items():
            card = self._cards[place]
            has = [card.slots, card.memory_bytes, card.cores]
            assert all(mine <= there for mine, there in zip(sums, has, strict=True)), (place, sums, has)

    def running(self) -> list[str]:
        """The pods of which containers run, by their UIDs."""
        workers = self.local.kubelet._workers
        return [uid for uid, worker in workers.items() if worker._processes and uid in self.given]

    async def refused(self) -> list[str]:
        """What nodes said to pods that they did not take."""
        return [each["status"]["message"] for each in await self.pods() if each["status"].get("reason") == UNEXPECTED]

    async def pods(self) -> list[Json]:
        return (await self.client.list(PODS)).items

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not await condition():
                    self.check()
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"{what}: {[_brief(each) for each in await self.pods()]}") from None

    # How it ends

    async def recover(self) -> None:
        """When the user has put back what is his, everybody who waits gets a card, and then all cards are free."""
        await self.until("nothing can be put back", self._is_put_back)
        while waiting := {each["metadata"]["uid"] for each in await self.pods() if _waits(each)}:
            for each in await self.pods():
                if not _waits(each):
                    await self._delete(each["metadata"]["name"])

            async def one_is_bound(waiting: set[str] = waiting) -> bool:
                return not waiting <= {each["metadata"]["uid"] for each in await self.pods() if _waits(each)}

            await self.until("a pod waits though there is room", one_is_bound)
        for each in await self.pods():
            await self._delete(each["metadata"]["name"])

        async def none_are_left() -> bool:
            return not await self.pods() and not self.running()

        await self.until("pods are left", none_are_left)
        for name in "xyz":
            await self.client.create(PODS, pod(name, WHOLE), "default")

        async def all_run() -> bool:
            return [each["status"].get("phase") for each in await self.pods()] == ["Running"] * 3

        await self.until("not every card can be taken as a whole", all_run)

    async def _is_put_back(self) -> bool:
        try:
            await self._put_back()
        except ApiError:  # what goes with a deleted node may go just now
            return False
        return True

    async def _put_back(self) -> None:
        for resource, objects in self._first.items():
            there = {_key(each): each for each in (await self.client.list(resource)).items}
            for key, object in objects.items():
                namespace, _, name = key.rpartition("/")
                now = there.get(key)
                if now is not None:
                    free = {"metadata": {"finalizers": None}}
                    now = await self.client.patch(resource, name, namespace, free, kind=MERGE_PATCH)
                if now is None or now["metadata"].get("deletionTimestamp"):
                    now = await self.client.create(resource, _fresh(object), namespace)
                await self.client.patch(resource, name, namespace, _back(now, object), kind=MERGE_PATCH)
                if "status" in object:
                    status = {**dict.fromkeys(now.get("status", ())), **object["status"]}
                    await self.client.patch_status(resource, name, namespace, status, kind=MERGE_PATCH)
        for each in await self.pods():
            changes: tuple[Json, ...] = {"finalizers": None}, {"annotations": None, "labels": None}
            for change in changes:  # it must keep its record
                with suppress(ApiError):
                    name = each["metadata"]["name"]
                    await self.client.patch(PODS, name, "default", {"metadata": change}, kind=MERGE_PATCH)

    async def _delete(self, name: str) -> None:
        with suppress(ApiError):
            await self.client.delete(PODS, name, "default", grace=0)


def _waits(pod: Json) -> bool:
    return not pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending"


def _brief(pod: Json) -> Json:
    metadata = {key: pod["metadata"].get(key) for key in ("name", "annotations", "labels", "deletionTimestamp")}
    return {**metadata, "node": pod["spec"].get("nodeName"), "status": pod.get("status")}


def _key(object: Json) -> str:
    metadata = object["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def _fresh(object: Json) -> Json:
    metadata = {key: object["metadata"][key] for key in ("name", "namespace", *KEPT) if key in object["metadata"]}
    return {**object, "metadata": metadata}


def _back(now: Json, then: Json) -> Json:
    """The merge patch that makes an object what it was."""

    def restored(has: Json | None, had: Json | None) -> Json:
        return {**dict.fromkeys(has or ()), **(had or {})}

    metadata: Json = {part: restored(now["metadata"].get(part), then["metadata"].get(part)) for part in KEPT}
    parts: Json = {part: restored(now.get(part), then.get(part)) for part in ("spec", "data") if part in (now | then)}
    return {**parts, "metadata": {**metadata, "finalizers": None, "ownerReferences": None}}


# What the user does

WHOLE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 23_000}
"""Nearly all memory of a card, in numbers: whatever is said of the card, it is the same amount."""
REQUESTS: list[Json] = [
    WHOLE,
    {"nvidia.com/gpu": 1},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9_000},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 15_000, "nvidia.com/gpucores": 60},
    {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 12_000},
    {"volcano.sh/gpu-memory": 12_000},
    {"volcano.sh/gpu-number": 1},
    {"koordinator.sh/gpu": 50},
    {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 60},
]


def pod(name: str, limits: Json, **more: Any) -> Json:
    main = {"name": "main", "image": "busybox", "command": ["sleep"], "resources": {"limits": limits}}
    spec = {"containers": [main], "terminationGracePeriodSeconds": 1, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def create(name: str, limits: Json, finalized: bool, node: str, priority: str) -> Deed:
    async def deed(world: World) -> None:
        said = {"nodeName": node, "priorityClassName": priority}
        body = pod(name, limits, **{key: value for key, value in said.items() if value})
        if finalized:
            body["metadata"]["finalizers"] = ["a.b/c"]
        await world.client.create(PODS, body, "default")

    return deed


def delete(name: str, grace: int | None) -> Deed:
    async def deed(world: World) -> None:
        await world.client.delete(PODS, name, "default", grace=grace)

    return deed


def patch(resource: Resource, name: str, part: str, key: str, value: Any, status: bool) -> Deed:
    async def deed(world: World) -> None:
        namespace, _, last = name.rpartition("/")
        body = {"metadata": {part: {key: value}}}
        subresource = "status" if status else ""
        await world.client.patch(resource, last, namespace, body, kind=MERGE_PATCH, subresource=subresource)

    return deed


def write(resource: Resource, name: str, body: Any, subresource: str = "") -> Deed:
    async def deed(world: World) -> None:
        namespace, _, last = name.rpartition("/")
        await world.client.patch(resource, last, namespace, body, kind=MERGE_PATCH, subresource=subresource)

    return deed


def remove(resource: Resource, name: str) -> Deed:
    async def deed(world: World) -> None:
        namespace, _, last = name.rpartition("/")
        await world.client.delete(resource, last, namespace)

    return deed


def borrow(name: str, other: str) -> Deed:
    """Give a pod all annotations and labels of another one."""

    async def deed(world: World) -> None:
        source = (await world.client.get(PODS, other, "default"))["metadata"]
        body = {"metadata": {part: source.get(part, {}) for part in KEPT}}
        await world.client.patch(PODS, name, "default", body, kind=MERGE_PATCH)

    return deed


def bind(name: str, node: str) -> Deed:
    async def deed(world: World) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await world.client.create(PODS, body, "default", name=name, subresource="binding")

    return deed


def register(node: str, change: Callable[[list[Json]], Any]) -> Deed:
    """Write something else to where a node says which cards it has."""

    async def deed(world: World) -> None:
        now = (await world.client.get(NODES, node))["metadata"].get("annotations", {}).get(REGISTER, "[]")
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
            body = {"metadata": {"annotations": {REGISTER: json.dumps(change(json.loads(now)))}}}
            await world.client.patch(NODES, node, "", body, kind=MERGE_PATCH)

    return deed


def renew(node: str) -> Deed:
    """Delete a node and make it again."""

    async def deed(world: World) -> None:
        now = await world.client.get(NODES, node)
        await world.client.delete(NODES, node)
        await world.client.create(NODES, _fresh(now))

    return deed


async def crash(world: World) -> None:
    await world.crash()


def pause(turns: int) -> Deed:
    async def deed(world: World) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    return deed


def rest(seconds: float) -> Deed:
    async def deed(world: World) -> None:
        await asyncio.sleep(seconds)

    return deed


names, hosts = st.sampled_from(NAMES), st.sampled_from(HOSTS)
records = st.sampled_from(sorted(key for key in INTERPRETER.owned if not key.endswith("*")))
keyed = records | st.just("hami.io/vgpu-devices-allocated") | st.sampled_from([
    REGISTER, "hami.io/node-handshake", "subak.io/written", "volcano.sh/gpu-unhealthy-ids", "hami.io/gpu-cordon",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gputype", "nvidia.com/vgpu-mode", "hami.io/gpu-scheduler-policy", "subak.io/env.0", "gpu",
    "scheduling.koordinator.sh/device-allocate-hint", "volcano.sh/node-vgpu-register", "hami.io/node-nvidia-score",
    "node.koordinator.sh/gpu-model", "kubernetes.io/hostname",
])  # fmt: skip
values = (
    st.none() | TEXTS | st.sampled_from(['[{"id":"x"}]', "[]", "{}", "n", "k", "0", "mig", "binpack", '{"gpu":[]}'])
)
registers = st.sampled_from([
    lambda cards: [{**each, "devmem": 10 * each["devmem"]} for each in cards],
    lambda cards: [*cards, {**cards[0], "id": "another"}],
    lambda cards: [{**each, "devmem": 1} for each in cards],
    lambda cards: [{**each, "id": each["id"] + "x"} for each in cards],
    lambda cards: [{**each, "id": "same"} for each in cards],
    lambda cards: [{**each, "count": 10**12, "devcore": -5} for each in cards],
    lambda cards: [{**each, "health": False} for each in cards],
    lambda cards: [{**each, "mode": "mig"} for each in cards],
    lambda cards: cards[::-1],
    lambda cards: cards[1:],
    lambda cards: cards + cards,
    lambda cards: [{**each, "index": 7} for each in cards],
])  # fmt: skip
priorities = st.sampled_from(["", "", "high"])
statuses = st.sampled_from([
    {"phase": "Failed"}, {"phase": "Running"}, {"phase": None}, {"conditions": None}, {"containerStatuses": []},
    {"nominatedNodeName": "n"}, {"startTime": "1970-01-01T00:00:00Z"}, {"phase": "Succeeded", "conditions": None},
    {"conditions": [{"type": "PodScheduled", "status": "False"}]}, {"hostIP": "6.6.6.6", "podIPs": None},
]).map(lambda it: {"status": it})  # fmt: skip
pod_writes = st.sampled_from([
    {"metadata": {"finalizers": None}}, {"metadata": {"finalizers": ["a.b/c"]}}, {"spec": {"activeDeadlineSeconds": 1}},
])  # fmt: skip
node_writes = st.sampled_from([
    {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, {"spec": {"taints": None}},
    {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
    {"metadata": {"annotations": None}}, {"metadata": {"labels": None}}, {"metadata": {"finalizers": ["a.b/c"]}},
])  # fmt: skip
node_statuses = st.sampled_from([
    {"status": {"allocatable": None, "capacity": None}}, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}},
    {"status": {"allocatable": {"cpu": "0"}}}, {"status": {"conditions": None}},
    {"status": {"allocatable": {"koordinator.sh/gpu": "99999999999999", "volcano.sh/gpu-memory": "1"}}},
])  # fmt: skip
pods = names.map("default/{}".format)
to_pods = (
    st.builds(create, names, st.sampled_from(REQUESTS), st.just(False), st.just(""), priorities),
    st.builds(create, names, st.sampled_from(REQUESTS), st.booleans(), st.just(""), priorities),
    st.builds(delete, names, st.sampled_from([None, 0, 0, 1])),
    st.builds(patch, st.just(PODS), pods, st.sampled_from(KEPT), keyed, values, st.booleans()),
    st.builds(borrow, names, names),
    st.builds(write, st.just(PODS), pods, statuses, st.just("status")),
    st.builds(write, st.just(PODS), pods, pod_writes),
    st.builds(pause, st.integers(1, 30)),
    st.builds(rest, st.sampled_from([0.001, 0.02])),
)
to_all = (
    st.just(crash),
    st.builds(create, names, st.sampled_from(REQUESTS), st.booleans(), hosts, priorities),
    st.builds(bind, names, hosts),
    st.builds(patch, st.just(NODES), hosts, st.sampled_from(KEPT), keyed, values, st.just(False)),
    st.builds(register, hosts, registers),
    st.builds(write, st.just(NODES), hosts, node_writes),
    st.builds(write, st.just(NODES), hosts, node_statuses, st.just("status")),
    st.builds(renew, hosts),
    st.builds(remove, st.sampled_from([NODES, DEVICES]), hosts),
    st.builds(write, st.just(DEVICES), hosts, st.builds(lambda it: {"spec": {"devices": it}}, VALUES | st.just([]))),
    st.builds(remove, st.just(CONFIG_MAPS), st.sampled_from(CONFIGURATIONS)),
)
deeds_to_pods = st.lists(st.one_of(*to_pods), min_size=5, max_size=25)
deeds = st.lists(st.one_of(*to_pods, *to_all), min_size=5, max_size=25)
