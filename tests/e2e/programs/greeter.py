"""A device plugin whose device gives a container two variables: run on a real node, it shows whose value counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from subak.node.plugin.api import deviceplugin_pb2 as api

RESOURCE = "example.com/greeting"
VARIABLES = {"OF_BOTH": "the plugin", "OF_THE_PLUGIN": "the plugin"}
DIRECTORY = Path("/var/lib/kubelet/device-plugins")
SOCKET = "greeter.sock"


async def options(request: api.Empty, context: Any) -> api.DevicePluginOptions:
    return api.DevicePluginOptions()


async def list_and_watch(request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
    yield api.ListAndWatchResponse(devices=[api.Device(ID="only", health="Healthy")])
    await asyncio.Event().wait()


async def allocate(request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
    return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs=VARIABLES)])


async def main() -> None:
    """Register, and serve until killed."""
    server = grpc.aio.server()
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": unary(options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString),
        "ListAndWatch": stream(list_and_watch, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString),
        "Allocate": unary(allocate, api.AllocateRequest.FromString, api.AllocateResponse.SerializeToString),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
    server.add_insecure_port(f"unix:{DIRECTORY / SOCKET}")
    await server.start()
    authority = [("grpc.default_authority", "localhost")]
    async with grpc.aio.insecure_channel(f"unix:{DIRECTORY / 'kubelet.sock'}", options=authority) as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        await register(api.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE))
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
