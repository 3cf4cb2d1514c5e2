"""Gangs and queues on a real API server: Volcano's kinds, nodes with cards, a controller, and an accountant.

    async with stage(cluster, machines) as acting:
        await acting.configure(SEED)
        async with acting.controller():
            await acting.gang("a", 8, memory=4000)
            await acting.books.until(lambda: acting.books.bound("a") == 8)

Nobody runs behind the nodes; `Books` plays kubelet as far as it matters here: pods that are bound run, and those that
are told to leave go after a while.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from subak.local.custom import CRDS
from subak.local.volcano import CONFIG_MAP
from subak.model.group import PLUGIN_GROUPS, QUEUES, VOLCANO_GROUPS
from subak.node.machine import Machine
from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.controller import Running, apply_manifests, controller, free_lease, kubectl
from tests.e2e.fakes import DEFINITIONS, administrator, fake_nodes
from tests.support.machines import machines
from tinykube.client import MERGE_PATCH, Client
from tinykube.codec import RAW
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from tinykube.status import ApiError
from tinykube.yaml import read

Json = dict[str, Any]

SPACE = "default"
MEMORY = "volcano.sh/gpu-memory"
INDEX = "volcano.sh/gpu-index"
GROUP = "scheduling.k8s.io/group-name"
QUEUE = "scheduling.volcano.sh/queue-name"
REGISTER, HELD = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"

CONTENT: Json = read(CONFIG_MAP.read_text()).content
KEY = "volcano-scheduler.conf"
SEED = str(CONTENT["data"][KEY])
"""The configuration as the document prints it."""

DEFINED = {
    VOLCANO_GROUPS: CRDS / "podgroups.yaml",
    QUEUES: CRDS / "queues.yaml",
    PLUGIN_GROUPS: CRDS / "podgroups_plugins.yaml",
}
PATIENCE = 60.0
AT_ONCE = 16


def acting(*actions: str) -> str:
    """The document's configuration with other actions."""
    return SEED.replace("enqueue, allocate, backfill", ", ".join(actions))


def hamis(mib: int) -> Json:
    """So many MiB of a card, in HAMi's words."""
    return {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}


def preempting() -> str:
    """The same with preemption; gang and drf, as Volcano has them, would keep it from pods by themselves."""
    text = acting("enqueue", "allocate", "preempt", "backfill")
    for name in ("gang", "drf"):
        text = text.replace(f"- name: {name}\n", f"- name: {name}\n    enablePreemptable: false\n")
    return text


def hardware(nodes: int, cards: int, mib: int) -> list[Machine]:
    """Machines whose cards Volcano's and HAMi's words describe."""
    card = {"vendor": "nvidia", "model": "A100", "count": cards, "memory": f"{mib}Mi", "shares": 50}
    entry = {
        "name": "batch",
        "count": nodes,
        "cards": card,
        "speaks": ["volcano", "hami"],
        "cpu": 64,
        "memory": "512Gi",
    }
    return machines(entry)


async def define(client: Client, *resources: Resource) -> None:
    """Let the server serve these kinds, and wait until it does."""
    for resource in resources:
        await _made(client, DEFINITIONS, dict(read(DEFINED[resource].read_text()).content))
        async with asyncio.timeout(PATIENCE):
            while not await _served(client, resource):
                await asyncio.sleep(0.05)


async def undefine(client: Client, *resources: Resource) -> None:
    """Let the server forget these kinds, with all objects."""
    for resource in resources:
        await _gone(client, DEFINITIONS, str(resource))
        async with asyncio.timeout(PATIENCE):
            while await _served(client, resource):
                await asyncio.sleep(0.05)


def installed(cluster: Cluster) -> Iterator[None]:
    """The manifests, for the tests of a file; at the end no kinds are left, which others' controllers would fill."""
    apply_manifests(cluster)
    yield
    kubectl(cluster, "delete", "--ignore-not-found", *(f"customresourcedefinition/{each}" for each in DEFINED))


async def _served(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource)
        return True
    except ApiError as error:
        if error.code not in (404, 429, 503):
            raise
        return False


async def _made(client: Client, resource: Resource, body: Json, namespace: str = "") -> None:
    try:
        await client.create(resource, body, namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _gone(client: Client, resource: Resource, name: str, namespace: str = "") -> None:
    try:
        await client.delete(resource, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise


class Books:
    """Sees every change of every pod on a way of its own, and plays kubelet.

    `left` are pods that somebody sent away, `problems` what must never be.  `lives` is for how many seconds a pod goes
    on after it was told to leave.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: Reflector[Json] = Reflector(client, PODS, RAW, self._see, namespace=SPACE)
        self._nodes: Reflector[Json] = Reflector(client, NODES, RAW, lambda change, node: None)
        self._places: dict[str, str] = {}
        self._left: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._tasks = asyncio.TaskGroup()
        self.bindings: Counter[str] = Counter()
        self.problems: list[str] = []
        self.lives = 0.0

    @property
    def pods(self) -> dict[str, Json]:
        """All pods, by name."""
        return {pod["metadata"]["name"]: pod for pod in self._pods.objects.values()}

    @property
    def left(self) -> list[str]:
        """The names of those who were sent away, in order."""
        return list(self._left.values())

    def bound(self, prefix: str) -> int:
        """How many pods have a node, of those whose names begin so."""
        return sum(1 for name, pod in self.pods.items() if name.startswith(prefix) and pod["spec"].get("nodeName"))

    def overcommitted(self) -> list[str]:
        """What is wrong with the cards, by the words of the vendors' annotations alone."""
        taken: Counter[tuple[str, int]] = Counter()
        has: dict[tuple[str, int], int] = {}
        ids: dict[str, tuple[str, int]] = {}
        for node in self._nodes.objects.values():
            name = node["metadata"]["name"]
            cards = json.loads(node["metadata"].get("annotations", {}).get(REGISTER, "[]"))
            for index, card in enumerate(cards):
                has[name, index], ids[card["id"]] = int(card["devmem"]), (name, index)
        for pod in self._pods.objects.values():
            taken.update(dict(_held(pod, ids)))
        return [
            f"card {card}: {mib} of {has.get(card, 0)} MiB are given"
            for card, mib in taken.items()
            if mib > has.get(card, 0)
        ]

    async def until(self, condition: Callable[[], bool], what: str = "", seconds: float = PATIENCE) -> None:
        """Wait until something is true, and see to it that nothing is wrong meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.check()
                    await asyncio.sleep(0.03)
        except TimeoutError:
            state = [f"{name}: {pod['spec'].get('nodeName')} {_said(pod)}" for name, pod in sorted(self.pods.items())]
            raise AssertionError("\n".join([f"not within {seconds:.0f} s: {what}; the pods are", *state])) from None
        self.check()

    async def for_a_while(self, condition: Callable[[], bool], what: str, seconds: float = 3.0) -> None:
        """Look for some seconds whether something stays true: that nothing happens cannot be waited for."""
        async with asyncio.timeout(seconds + PATIENCE):
            until = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < until:
                assert condition(), what
                self.check()
                await asyncio.sleep(0.05)

    def check(self) -> None:
        """Fail if anything is wrong."""
        problems = self.problems + self.overcommitted()
        assert not problems, problems

    async def run(self) -> None:
        """Look on until cancelled."""
        async with self._tasks as group:
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())

    async def complete(self) -> None:
        """Wait until all is known."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()

    async def clear(self) -> None:
        """Remove all pods."""
        self._deleted |= {pod["metadata"]["uid"] for pod in self._pods.objects.values()}
        await self._client.request("DELETE", PODS.path(SPACE), {"gracePeriodSeconds": "0"})
        async with asyncio.timeout(PATIENCE):
            while self._pods.objects:
                await asyncio.sleep(0.02)

    async def remove(self, *names: str) -> None:
        """End pods, as their users do."""
        for name in names:
            self._deleted.add(self.pods[name]["metadata"]["uid"])
            await self._client.delete(PODS, name, SPACE, grace=0)

    def _see(self, change: str, pod: Json) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        uid, name = metadata["uid"], metadata["name"]
        if change == DELETED or "deletionTimestamp" in metadata:
            if uid not in self._deleted:
                self._left.setdefault(uid, name)
            if change != DELETED and uid not in self._deleted:
                self._tasks.create_task(self._leave(uid, name))
            return
        before = self._places.get(uid, "")
        if before and before != node:
            self.problems.append(f"{name} moved from {before} to {node}")
        if node and not before:
            self.bindings[name] += 1
            self._tasks.create_task(self._start(name))
        self._places[uid] = node

    async def _start(self, name: str) -> None:
        try:
            await self._client.patch_status(PODS, name, SPACE, {"phase": "Running"}, kind=MERGE_PATCH)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _leave(self, uid: str, name: str) -> None:
        await asyncio.sleep(self.lives)
        try:
            await self._client.delete(PODS, name, SPACE, grace=0, uid=uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _held(pod: Json, ids: Mapping[str, tuple[str, int]]) -> Iterable[tuple[tuple[str, int], int]]:
    """The MiB of each card that a pod holds, in Volcano's or in HAMi's words."""
    node, annotations = pod["spec"].get("nodeName", ""), pod["metadata"].get("annotations", {})
    if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return
    if INDEX in annotations:
        limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
        yield (node, int(annotations[INDEX])), sum(_number(each.get(MEMORY, "0")) for each in limits)
    elif HELD in annotations:
        pieces = [each.split(",") for each in annotations[HELD].replace(";", ":").split(":") if each]
        for card, _, mib, _ in pieces:
            yield ids[card], int(mib)


def _number(quantity: str) -> int:
    """A server writes 2000 as 2k."""
    return int(quantity.replace("k", "000"))


def _said(pod: Json) -> str:
    """What a pod says of why it waits."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


class Stage:
    """What tests of gangs and queues do."""

    def __init__(self, cluster: Cluster, client: Client, books: Books) -> None:
        self.cluster = cluster
        self.client = client
        self.books = books
        self._queues: set[str] = set()
        self._classes: set[str] = set()

    @asynccontextmanager
    async def controller(self, *options: str, server: str = ADDRESS) -> AsyncIterator[Running]:
        """A controller that leads; `server` is the way to the API server, if it is not the usual one."""
        await free_lease(self.client)
        async with controller(self.cluster, self.client, *options, server=server) as running:
            await running.until_ready("leader")
            yield running

    async def configure(self, text: str) -> None:
        """Write the scheduler configuration, or another one."""
        namespace, name = CONTENT["metadata"]["namespace"], CONTENT["metadata"]["name"]
        await _made(self.client, NAMESPACES, {"metadata": {"name": namespace}})
        body = {"metadata": {"name": name}, "data": {KEY: text}}
        try:
            await self.client.patch(CONFIG_MAPS, name, namespace, body)
        except ApiError as error:
            if error.code != 404:
                raise
            await self.client.create(CONFIG_MAPS, body, namespace)

    async def queue(self, name: str, **spec: Any) -> None:
        """A queue."""
        self._queues.add(name)
        await self.client.create(QUEUES, _object(QUEUES, name, spec))

    async def priority(self, name: str, value: int) -> None:
        """A priority class."""
        self._classes.add(name)
        await _made(self.client, PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    async def group(self, name: str, least: int, **spec: Any) -> None:
        """A PodGroup of Volcano's."""
        await self.client.create(VOLCANO_GROUPS, _object(VOLCANO_GROUPS, name, {"minMember": least, **spec}), SPACE)

    async def gang(self, name: str, members: int, memory: int, least: int | None = None, **spec: Any) -> None:
        """A PodGroup and its pods, each with so many MiB of a card."""
        await self.group(name, members if least is None else least, **spec)
        await self.pods([f"{name}-{number}" for number in range(members)], memory, group=name)

    async def pods(
        self,
        names: Sequence[str],
        memory: int,
        *,
        group: str = "",
        queue: str = "",
        words: Callable[[int], Json] = lambda mib: {MEMORY: str(mib)},
        **spec: Any,
    ) -> None:
        """Pods of scheduler `volcano`, each with so many MiB of a card; `words` are those in which they ask for it."""
        annotations = {key: value for key, value in ((GROUP, group), (QUEUE, queue)) if value}
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                await self.client.create(PODS, pod(name, words(memory), annotations, **spec), SPACE)

        await asyncio.gather(*map(one, names))

    async def status(self, group: str) -> Json:
        """The status of a PodGroup."""
        found: Json = (await self.client.get(VOLCANO_GROUPS, group, SPACE)).get("status", {})
        return found

    async def until_status(self, group: str, condition: Callable[[Json], bool], seconds: float = PATIENCE) -> Json:
        """Wait until something is true of the status of a PodGroup; gives it."""
        status: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while not condition(status := await self.status(group)):
                    await asyncio.sleep(0.1)
                return status
        except TimeoutError:
            raise AssertionError(f"PodGroup {group} after {seconds:.0f} s: {status}") from None

    async def until_queue(self, name: str, **wanted: Any) -> None:
        """Wait until the status of a queue has these values."""
        found: Json = {}
        try:
            async with asyncio.timeout(20):
                while {**found, **wanted} != found:
                    await asyncio.sleep(0.1)
                    listing = await self.client.list(QUEUES, fields=f"metadata.name={name}")
                    status: Json = next((each.get("status", {}) for each in listing.items), {})
                    found = {**dict.fromkeys(wanted, 0), **status}
        except TimeoutError:
            raise AssertionError(f"queue {name}: {found}, not {wanted}") from None

    async def told(self, name: str) -> list[tuple[str, str]]:
        """Reasons and messages of the events about an object."""
        listing = await self.client.list(EVENTS, SPACE, fields=f"involvedObject.name={name}")
        return [(each["reason"], each["message"]) for each in listing.items]

    async def clear(self) -> None:
        """Remove what was made."""
        await self.books.clear()
        for resource in (VOLCANO_GROUPS, PLUGIN_GROUPS):
            if await _served(self.client, resource):
                await self.client.request("DELETE", resource.path(SPACE))
        for name in self._queues:
            await _gone(self.client, QUEUES, name)
        for name in self._classes:
            await _gone(self.client, PRIORITY_CLASSES, name)
        await _gone(self.client, CONFIG_MAPS, CONTENT["metadata"]["name"], CONTENT["metadata"]["namespace"])


def pod(name: str, limits: Json, annotations: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    """A pod with one container."""
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {"schedulerName": "volcano", "containers": [container], **spec},
    }


def errors(running: Running) -> list[str]:
    """What a controller complains about."""
    return [line["event"] for line in running.lines() if line["level"] == "error"]


def _object(resource: Resource, name: str, spec: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def stage(cluster: Cluster, nodes: Sequence[Machine], defined: bool = True) -> AsyncIterator[Stage]:
    """Nodes, Volcano's kinds (unless they are to come later), and an accountant; no controller yet."""
    async with administrator(cluster) as client:
        if defined:
            await define(client, *DEFINED)
        else:
            await undefine(client, *DEFINED)
        async with fake_nodes(client, nodes):
            books = Books(client)
            looking = asyncio.create_task(books.run())
            await books.complete()
            acting = Stage(cluster, client, books)
            try:
                yield acting
                assert not looking.done(), looking
            finally:
                await acting.clear()
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
