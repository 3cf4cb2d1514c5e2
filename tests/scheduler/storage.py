"""The scheduler on an embedded API server that also has storage objects, and somebody who binds claims."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from subak.model.volume import BIND_COMPLETED, CLAIMS, HOSTNAME, SELECTED_NODE, VOLUMES
from tests.scheduler.live import Answering, Disturbance, Live, Way
from tests.support.custom import CUSTOM
from tests.support.volumes import RESOURCES, Json, classes, with_claims
from tinykube.client import Client
from tinykube.resource import NODES, Resource
from tinykube.server import bootstrap, crds
from tinykube.server.kinds import Kind
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response


def kind(resource: Resource) -> Kind:
    """A kind whose fields nobody checks."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields = {"spec": anything, "status": anything, "provisioner": {}, "volumeBindingMode": {}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": {"kind": resource.kind, "plural": resource.plural},
        "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
    }
    return crds.kind({"spec": spec})


class Stored(Live):
    """Two nodes, n1 and n2, and the usual classes."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(custom=(*CUSTOM, *map(kind, RESOURCES.values())))
        self.server = Server(self.store)
        bootstrap.fill(self.server.registry)
        self.client = Client(self.server, "tester")
        self.way = Way(self.server)

    async def add(self, *objects: Json) -> None:
        """Create storage objects; their UIDs are the server's."""
        for each in objects:
            resource = RESOURCES[each["kind"]]
            await self.client.create(resource, each, "default" if resource.namespaced else "")

    async def ask(self, name: str, *claims: str) -> None:
        """Create a pod with these claims."""
        await self.create(name, {}, volumes=with_claims(*claims))

    async def claim(self, name: str) -> Json:
        return await self.client.get(CLAIMS, name, "default")

    async def volume(self, name: str) -> Json:
        return await self.client.get(VOLUMES, name)

    async def selected(self, name: str) -> str | None:
        """The node for which a claim is provisioned."""
        annotations = (await self.claim(name))["metadata"].get("annotations", {})
        return str(annotations[SELECTED_NODE]) if SELECTED_NODE in annotations else None

    async def owner(self, volume: str) -> str | None:
        """The claim that a volume is meant for."""
        reference = (await self.volume(volume))["spec"].get("claimRef")
        return str(reference["name"]) if reference else None

    async def complete(self, claim: str, volume: str) -> None:
        """Bind a claim, as Kubernetes' volume controller does."""
        metadata = {"annotations": {BIND_COMPLETED: "yes"}}
        body = {"metadata": metadata, "spec": {"volumeName": volume}, "status": {"phase": "Bound"}}
        await self.client.patch(CLAIMS, claim, "default", body)

    async def give_up(self, claim: str) -> None:
        """What a provisioner does that cannot make the volume."""
        await self.client.patch(CLAIMS, claim, "default", {"metadata": {"annotations": {SELECTED_NODE: None}}})


@asynccontextmanager
async def storing(*objects: Json) -> AsyncIterator[Stored]:
    """A scheduler that runs, two nodes, and these objects besides the usual classes."""
    live = Stored()
    for name in ("n1", "n2"):
        await live.add_node(name)
        await live.client.patch(NODES, name, "", {"metadata": {"labels": {HOSTNAME: name}}})
    await live.add(*classes(), *objects)
    await live.start()
    try:
        await live.service.ready.wait()
        yield live
    finally:
        await live.kill()
        await live.server.close()


def on_writes(resource: Resource, *answers: Response | Exception | None, carry_out: bool = False) -> Disturbance:
    """What happens to the first patches of a kind of object (None: nothing); later ones pass."""
    left = list(answers)

    async def disturb(request: Request, answer: Answering) -> Response:
        if request.method != "PATCH" or f"/{resource.plural}/" not in request.path or not left:
            return await answer()
        outcome = left.pop(0)
        if outcome is None:
            return await answer()
        if carry_out:
            await answer()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return disturb
