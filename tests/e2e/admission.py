"""Admission on a real API server: replicas in this process, with the rights of deploy/manifests, behind one address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from subak.admission import objects, policy
from subak.admission.service import NAMESPACE, Admission, Options
from subak.dialects.interpreter import Interpreter
from tests.e2e import namespace
from tests.e2e.cluster import Cluster
from tests.support.doors import WRITERS
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.resource import NAMESPACES, SECRETS, SERVICES, Resource
from tinykube.status import ApiError

MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "admission.yaml"
RIGHTS = "rbac.authorization.k8s.io"
KINDS = {
    "Service": SERVICES,
    "Role": Resource(RIGHTS, "v1", "roles"),
    "RoleBinding": Resource(RIGHTS, "v1", "rolebindings"),
    "ClusterRole": Resource(RIGHTS, "v1", "clusterroles", namespaced=False),
    "ClusterRoleBinding": Resource(RIGHTS, "v1", "clusterrolebindings", namespaced=False),
}
OBJECTS = [
    (objects.MUTATING, objects.NAME),
    (objects.VALIDATING, objects.NAME),
    (policy.POLICIES, policy.NAME),
    (policy.POLICY_BINDINGS, policy.NAME),
]
ACCOUNT = (("impersonate-user", f"system:serviceaccount:{NAMESPACE}:subak-controller"),)
SERVED = ("subak", "hami-scheduler", "volcano", "koord-scheduler")
OPTIONS = Options(SERVED, writers=WRITERS, host=namespace.ADDRESS, port=0, settling=timedelta(seconds=1))
PATIENCE = 30.0
POLICY = "ValidatingAdmissionPolicy 'subak-records' with binding 'subak-records' denied request: "
"""How a refusal of the policy begins."""


class Address:
    """Stands for a Service: each connection goes to the next replica that listens."""

    def __init__(self) -> None:
        self.replicas: list[Admission] = []
        self._next = 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"https://{namespace.ADDRESS}:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connect, namespace.ADDRESS, 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections, so that new ones are made."""
        for writer in self._open:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self.replicas:
            self._next += 1
            replica = self.replicas[self._next % len(self.replicas)]
            with suppress(OSError):
                there, back = await asyncio.open_connection(namespace.ADDRESS, replica.webhook.port)
                self._open |= {writer, back}
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
                self._open -= {writer, back}
                return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


class Clock:
    """The time, moved."""

    def __init__(self, moved: timedelta) -> None:
        self.moved = moved

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.moved


class World:
    """Replicas of admission on a real cluster; `client` is the administrator's."""

    def __init__(self, client: Client, address: Address, clock: Clock) -> None:
        self.client = client
        self.address = address
        self.clock = clock

    async def ready(self) -> None:
        """Wait until the API server asks us, and holds to the policy."""
        asking = plain_pod({"nvidia.com/gpu": "1"})
        asking["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        await eventually(lambda: refused(self.client, asking, "is privileged"))
        await eventually(self.completes)
        forging = plain_pod({}, annotations={"volcano.sh/gpu-index": "0"})
        await eventually(lambda: refused(self.client, forging, POLICY))

    async def completes(self) -> bool:
        """Whether the API server asks the mutating webhook too."""
        return await attempt(self.client, plain_pod({"nvidia.com/gpu": "1"})) is None


@asynccontextmanager
async def admission(
    cluster: Cluster, replicas: int = 1, options: Options = OPTIONS, moved: timedelta = timedelta()
) -> AsyncIterator[World]:
    """So many replicas of which the first leads; everything that they made is removed at the end.

    Their clock is `moved` against ours.
    """
    endpoint = load(cluster.kubeconfig)
    transport, as_account = HttpTransport(endpoint), HttpTransport(replace(endpoint, impersonate=ACCOUNT))
    client, account = Client(transport), Client(as_account)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        stack.push_async_callback(as_account.close)
        await _install(client)
        stack.push_async_callback(remove, client)
        address = Address()
        await address.start()
        stack.push_async_callback(address.stop)
        clock = Clock(moved)
        for _ in range(replicas):
            each = Admission(account, Interpreter(), replace(options, url=address.url), clock)
            stack.push_async_callback(_cancel, asyncio.create_task(each.run()))
            address.replicas.append(each)
        address.replicas[0].lead()
        yield World(client, address, clock)


async def attempt(client: Client, pod: dict[str, Any], namespace: str = "default") -> ApiError | None:
    """The refusal of a pod, which is not stored in any case."""
    try:
        await client.create(Resource("", "v1", "pods"), pod, namespace, dry_run=True)
    except ApiError as error:
        return error
    return None


async def refused(client: Client, pod: dict[str, Any], words: str) -> bool:
    """Whether a pod is refused in these words."""
    answer = await attempt(client, pod)
    return answer is not None and words in answer.message


def plain_pod(limits: dict[str, str], **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"generateName": "p-", **metadata}, "spec": {"containers": [container]}}


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.05)


async def _install(client: Client) -> None:
    await _create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for each in yaml.safe_load_all(MANIFEST.read_text()):
        await _create(client, KINDS[each["kind"]], each)


async def _create(client: Client, resource: Resource, object: dict[str, Any]) -> None:
    try:
        await client.create(resource, object, object["metadata"].get("namespace", ""))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def remove(client: Client) -> None:
    """Take away the objects and the certificates, and wait until the API server asks nobody."""
    for resource, name, where in (*((*each, "") for each in OBJECTS), (SECRETS, OPTIONS.secret, NAMESPACE)):
        with suppress(ApiError):
            await client.delete(resource, name, where)
    asking = plain_pod({"nvidia.com/gpu": "1"}, annotations={"volcano.sh/gpu-index": "0"})

    async def free() -> bool:
        return await attempt(client, asking) is None

    await eventually(free)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
