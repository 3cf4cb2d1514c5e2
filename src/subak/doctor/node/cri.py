"""What a container runtime answers to kubelet's first question (CRI, `Version`): its name and its version.

containerd listens also if its CRI plugin is switched off, as Docker's package has it, or does not load.  Then no
kubelet can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from subak.node.nri.wire import Fields, Malformed

VERSION = "/runtime.v1.RuntimeService/Version"
DIAL = (("grpc.default_authority", "localhost"),)
PATIENCE = 5.0


class NoCri(Exception):
    """It does not serve kubelets; the text says why, and what to do."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Answer:
    """What the runtime calls itself, and its version."""

    name: str
    version: str


async def ask(socket: Path) -> Answer:
    """The answer of the runtime that listens there.  Raises NoCri."""
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=DIAL) as channel:
        call = channel.unary_unary(VERSION, request_serializer=bytes, response_deserializer=bytes)
        try:
            return read(await call(b"", timeout=PATIENCE))
        except grpc.aio.AioRpcError as error:
            raise _explained(socket, error) from None
        except Malformed as error:
            raise NoCri(f"{socket} answers what is no answer: {error}", "is it a container runtime?") from None


def read(answer: bytes) -> Answer:
    """A `VersionResponse`: 2 is the runtime's name, 3 its version."""
    fields = Fields(answer)
    return Answer(fields.data(2).decode(errors="replace"), fields.data(3).decode(errors="replace"))


def _explained(socket: Path, error: grpc.aio.AioRpcError) -> NoCri:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        seen = f"the runtime at {socket} does not serve CRI: its CRI plugin is off, or has not loaded"
        return NoCri(seen, 'remove "cri" from disabled_plugins in its configuration, and see its log')
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoCri(f"the runtime at {socket} does not answer within {PATIENCE:.0f} s", "restart it; see its log")
    return NoCri(f"the runtime at {socket} cannot be asked: {error.details()}", "see whether it runs, and its log")
