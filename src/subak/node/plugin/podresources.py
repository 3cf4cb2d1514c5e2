"""Which container has which devices, by kubelet's own word: its PodResources API.

Kubelet names pods by namespace and name, without their UIDs, and leaves out ordinary init containers.  It answers a
hundred times a second, so whoever asks while an answer is being waited for shares the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from subak.node.plugin.api import podresources_pb2 as api

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DIAL = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
"""How to call a kubelet; the second: a new one is called at once, however long the last one was away."""
LIST = "/v1.PodResourcesLister/List"
TIMEOUT, PAUSE = 5.0, 0.05
LARGEST = 16 * 2**20
"""Bytes of an answer; kubelet sends what it knows of all pods."""


class NoAnswer(Exception):
    """Kubelet does not say who has what; the text says why."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A container by the names that kubelet gives, and the devices that it has of each resource."""

    namespace: str
    pod: str
    container: str
    devices: Mapping[str, frozenset[str]]

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.namespace}/{self.pod}"


class PodResources:
    """Asks the kubelet that listens at `socket`."""

    def __init__(self, socket: Path = SOCKET) -> None:
        self._socket = socket
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[list[Holder]] | None = None

    async def containers(self) -> list[Holder]:
        """All containers, not older than this call.  Raises NoAnswer."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        return await asyncio.shield(self._next)

    async def holder(self, resource: str, device: str) -> Holder:
        """The container that has a device.  Raises NoAnswer if it is none, or not certain which."""
        known = await self.containers()
        found = next((each for each in known if device in each.devices.get(resource, ())), None)
        if found is None:
            raise NoAnswer(f"kubelet names no container that has {resource} {device}; init containers it never names")
        if [str(each) for each in known].count(str(found)) > 1:
            raise NoAnswer(f"kubelet still has an older pod beside {found}, which has {device}")
        return found

    async def _ask(self) -> list[Holder]:
        async with self._turn:
            self._next = None  # whoever comes from now on needs a newer answer
            options = [*DIAL, ("grpc.max_receive_message_length", LARGEST)]
            async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=options) as channel:
                call = channel.unary_unary(
                    LIST,
                    request_serializer=api.ListPodResourcesRequest.SerializeToString,
                    response_deserializer=api.ListPodResourcesResponse.FromString,
                )
                try:
                    async with asyncio.timeout(TIMEOUT):
                        return list(_holders(await _insisted(call)))
                except TimeoutError:
                    raise NoAnswer(f"kubelet did not answer at {self._socket} within {TIMEOUT:.0f} s") from None
                except grpc.RpcError as error:
                    raise NoAnswer(f"kubelet at {self._socket}: {_text(error)}") from None


async def _insisted(
    call: grpc.aio.UnaryUnaryMultiCallable[api.ListPodResourcesRequest, api.ListPodResourcesResponse],
) -> api.ListPodResourcesResponse:
    """The answer, also if others ask so often that kubelet wants us to wait."""
    while True:
        try:
            return await call(api.ListPodResourcesRequest())
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        await asyncio.sleep(PAUSE)


def _holders(answer: api.ListPodResourcesResponse) -> Iterator[Holder]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            devices: dict[str, frozenset[str]] = {}
            for each in container.devices:
                devices[each.resource_name] = devices.get(each.resource_name, frozenset()) | set(each.device_ids)
            yield Holder(pod.namespace, pod.name, container.name, devices)


def _text(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else str(error)
