"""A kubelet as a device plugin knows it: registration, devices that it hands out, and who has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from subak.node.plugin.api import deviceplugin_pb2 as api
from subak.node.plugin.api import podresources_pb2 as resources

Owner = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass
class Kubelet:
    """Serves both of its sockets in `directory`.  It starts as a real one does: all sockets there are removed first."""

    directory: Path
    holding: dict[str, Owner] = field(default_factory=dict)
    registered: list[api.RegisterRequest] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    exhausted: int = 0
    apart: bool = False
    asked: int = 0
    _server: grpc.aio.Server | None = None
    _channel: grpc.aio.Channel | None = None
    _watch: asyncio.Task[None] | None = None

    @property
    def pod_resources(self) -> Path:
        return self.directory / "pod-resources.sock"

    async def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        self.listed.clear()
        self._server = grpc.aio.server()
        register = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=api.Empty.SerializeToString,
        )
        listing = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=resources.ListPodResourcesRequest.FromString,
            response_serializer=resources.ListPodResourcesResponse.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register}),
                grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": listing}),
            )
        )
        self._server.add_insecure_port(f"unix:{self.pod_resources}")
        self._server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        await self.hang_up()
        if self._server is not None:
            await self._server.stop(None)

    async def hang_up(self) -> None:
        """End the connection to the plugin."""
        self.listed.clear()
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError, grpc.RpcError):
                await self._watch
        if self._channel is not None:
            await self._channel.close(None)
        self._watch = self._channel = None

    async def allocate(self, device: str, owner: Owner) -> api.ContainerAllocateResponse:
        """Give a device to a container that it admits."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[device])])
        answer: api.AllocateResponse = await self._call("Allocate", request, api.AllocateResponse)
        self.holding[device] = owner
        return answer.container_responses[0]

    async def pre_start(self, device: str) -> None:
        """Ask whether a container may start.  Raises grpc.RpcError."""
        await self._call(
            "PreStartContainer", api.PreStartContainerRequest(devices_ids=[device]), api.PreStartContainerResponse
        )

    async def _call(self, method: str, request: Any, response: Any) -> Any:
        assert self._channel is not None, "the plugin has registered"
        call = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return await call(request)

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        self.registered.append(request)
        self._channel = grpc.aio.insecure_channel(f"unix:{self.directory / request.endpoint}")
        await self._call("GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions)
        self._watch = asyncio.create_task(self._listen(self._channel))
        return api.Empty()

    async def _listen(self, channel: grpc.aio.Channel) -> None:
        stream = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        with suppress(grpc.RpcError):
            async for answer in stream(api.Empty()):
                self.devices = [each.ID for each in answer.devices if each.health == "Healthy"]
                self.listed.set()

    async def _list(self, request: Any, context: Any) -> resources.ListPodResourcesResponse:
        self.asked += 1
        if self.exhausted:
            self.exhausted -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests")
        return listing(self.holding, self.apart)


def listing(holding: Mapping[str, Owner], apart: bool = False) -> resources.ListPodResourcesResponse:
    """The answer of a kubelet whose containers hold these slots; with `apart`, each of them in a pod of its own."""
    pods: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for device, (namespace, pod, container) in holding.items():
        pods.setdefault((namespace, pod, device if apart else ""), {}).setdefault(container, []).append(device)
    return resources.ListPodResourcesResponse(
        pod_resources=[
            resources.PodResources(
                name=name,
                namespace=namespace,
                containers=[
                    resources.ContainerResources(
                        name=container,
                        devices=[
                            resources.ContainerDevices(resource_name="subak.io/slot", device_ids=[each])
                            for each in devices
                        ],
                    )
                    for container, devices in containers.items()
                ],
            )
            for (namespace, name, _), containers in pods.items()
        ]
    )
