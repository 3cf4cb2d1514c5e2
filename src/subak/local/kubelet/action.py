"""The actions of probes and hooks: run a program inside, request a page, connect to a port, sleep.

Pods use the machine's network, so a pod's own address is the loopback address.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from subak.local.kubelet import page
from subak.local.kubelet.connection import connect
from subak.local.kubelet.downward import ADDRESS
from subak.local.kubelet.pod import Action, Container, HttpGet, TcpSocket
from subak.local.runtime import spec as runtime

LONGEST_OUTPUT = 10 << 10


@dataclass(frozen=True, slots=True)
class Result:
    """Whether the action succeeded, and its output or error."""

    good: bool
    output: str = ""


async def run(
    action: Action, container: Container, running: runtime.Container, env: Mapping[str, str], timeout: float
) -> Result:
    """Carry out an action within `timeout` seconds.  Never raises."""
    try:
        async with asyncio.timeout(timeout):
            if action.exec:
                return await _execute(list(action.exec.command), running, env)
            if action.http_get:
                return await _get(action.http_get, container)
            if action.tcp_socket:
                return await _connect(action.tcp_socket, container)
            if action.sleep:
                await asyncio.sleep(action.sleep.seconds)
            return Result(True)
    except TimeoutError:
        return Result(False, f"no answer within {timeout:g} s")
    except runtime.StartError as error:
        return Result(False, error.message)
    except (OSError, ValueError) as error:
        return Result(False, _why(error))


async def _execute(command: list[str], running: runtime.Container, env: Mapping[str, str]) -> Result:
    session = await running.execute(command, env, stdin=False, tty=False)
    try:
        output = b""
        async for _, data in session.output():
            output = (output + data)[:LONGEST_OUTPUT]
        code = await session.wait()
    finally:
        await session.close()
    return Result(code == 0, output.decode(errors="replace").strip())


async def _get(get: HttpGet, container: Container) -> Result:
    scheme = get.scheme.lower()
    path = get.path if get.path.startswith("/") else f"/{get.path}"
    url = f"{scheme}://{get.host or ADDRESS}:{_port(get.port, container)}{path}"
    headers = {"User-Agent": "kube-probe/subak", "Accept": "*/*"}
    headers |= {each.name: each.value for each in get.http_headers}
    try:
        status = await page.status(url, headers)
    except (OSError, page.BadAnswer) as error:
        return Result(False, f'Get "{url}": {_why(error)}')
    if 200 <= status < 400:
        return Result(True)
    return Result(False, f"HTTP probe failed with statuscode: {status}")


async def _connect(socket: TcpSocket, container: Container) -> Result:
    host, port = socket.host or ADDRESS, _port(socket.port, container)
    try:
        _, writer = await connect(host, port)
    except OSError as error:
        return Result(False, f"dial tcp {host}:{port}: {_why(error)}")
    writer.close()
    return Result(True)


def _why(error: Exception) -> str:
    """The reason alone: the same problem must give the same text each time, so that events can count it."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else str(error) or type(error).__name__


def _port(port: int | str, container: Container) -> int:
    """The number of a port that is given by number or name."""
    if isinstance(port, int):
        return port
    if port.isdecimal():
        return int(port)
    found = next((each.container_port for each in container.ports if each.name == port), None)
    if found is None:
        raise ValueError(f"couldn't find port: {port!r} in container {container.name}")
    return found
