"""Kubelet's device-plugin API, v1beta1, for `subak.io/slot`.

What kubelet asks is put to the gate.  `Allocate` never fails: kubelet would fail the pod for good
(UnexpectedAdmissionError), while a container that cannot start is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from subak.node.machine import Machine
from subak.node.plugin.api import deviceplugin_pb2 as api
from subak.node.plugin.gate import Closed, Gate
from subak.node.plugin.slots import Slots, count

VERSION, HEALTHY = "v1beta1", "Healthy"
LOOK = 1.0
OPTIONS = api.DevicePluginOptions(pre_start_required=True)


class Service:
    """The device plugin.  `machine` gives the node as it is now: each container with a slot gets its driver."""

    def __init__(self, slots: Slots, gate: Gate, machine: Callable[[], Machine]) -> None:
        self._slots = slots
        self._gate = gate
        self._machine = machine
        self._listeners: set[object] = set()
        self.change = asyncio.Event()
        """Set whenever kubelet begins or ends to listen."""

    @property
    def listening(self) -> bool:
        """Whether kubelet listens to the server that was made last."""
        return bool(self._listeners)

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Its methods, for a new gRPC server."""
        self._listeners = set()
        methods = {
            "GetDevicePluginOptions": _unary(self.options, api.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.list_and_watch,
                request_deserializer=api.Empty.FromString,
                response_serializer=api.ListAndWatchResponse.SerializeToString,
            ),
            "Allocate": _unary(self.allocate, api.AllocateRequest),
            "PreStartContainer": _unary(self.pre_start, api.PreStartContainerRequest),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)

    async def options(self, request: api.Empty, context: grpc.aio.ServicerContext[Any, Any]) -> api.DevicePluginOptions:
        """Kubelet is to ask before each start of a container."""
        return OPTIONS

    async def list_and_watch(
        self, request: api.Empty, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """All slots, and again when there are more: a slot is no card, and never breaks."""
        listeners, kubelet = self._listeners, object()
        listeners.add(kubelet)
        self.change.set()
        try:
            while True:
                names = self._slots.names
                yield api.ListAndWatchResponse(devices=[api.Device(ID=name, health=HEALTHY) for name in names])
                while len(self._slots.names) == len(names):
                    await asyncio.sleep(LOOK)
                    self._slots.prepare(count(self._machine().devices))
        finally:
            listeners.discard(kubelet)
            self.change.set()

    async def allocate(
        self, request: api.AllocateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api.AllocateResponse:
        """Somebody gets these slots.  What comes with them is the same for everybody."""
        return api.AllocateResponse(
            container_responses=[self._allocated(each.devices_ids) for each in request.container_requests]
        )

    async def pre_start(
        self, request: api.PreStartContainerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api.PreStartContainerResponse:
        """A container with these slots is about to be created; an error keeps it from that."""
        try:
            await self._gate.starting(_first(request.devices_ids))
        except Closed as closed:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(closed))
        return api.PreStartContainerResponse()

    def _allocated(self, names: Sequence[str]) -> api.ContainerAllocateResponse:
        for name in names:
            self._gate.allocated(name)
        machine = self._machine()
        mounts = [*self._slots.mounts(_first(names)), *machine.driver]
        return api.ContainerAllocateResponse(
            envs=dict(machine.driver_env),
            mounts=[
                api.Mount(container_path=each.destination, host_path=each.source, read_only=each.read_only)
                for each in mounts
            ],
        )


def _first(names: Sequence[str]) -> str:
    """The slot whose folder counts; nobody needs more than one, and kubelet names them in any order."""
    return min(names)


def _unary(method: Callable[..., Any], request: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
