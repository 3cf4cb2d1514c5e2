"""Connections to hosts by name."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from subak.local.kubelet.connection import connect

PATIENCE = 20.0


async def test_the_first_address_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with listening, asyncio.timeout(PATIENCE):
        port = listening.sockets[0].getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", _found("127.0.0.2", "127.0.0.1"))
        _, writer = await connect("two.example", port)
        assert writer.get_extra_info("peername") == ("127.0.0.1", port)
        writer.close()
        monkeypatch.setattr(socket, "getaddrinfo", _found("127.0.0.2"))
        with pytest.raises(ConnectionRefusedError):
            await connect("one.example", port)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 70 + ".invalid"])
async def test_a_name_without_an_address_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> Any:
        raise UnicodeError if len(name) > 63 else socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match=f"^lookup {name}: ") as raised:
        await connect(name, 80)
    assert raised.value.errno is None  # else somebody would take it for a number of the kernel's


async def test_a_name_server_that_is_silent_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = [], threading.Event()

    def silent(host: str, *_: object, **__: object) -> Any:
        asked.append(host)
        answer.wait(PATIENCE)
        return _found("127.0.0.1")(host)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        for _ in range(3):
            results = await asyncio.gather(
                *(asyncio.wait_for(connect("slow.example", 9), 0.01) for _ in range(10)), return_exceptions=True
            )
            assert {type(each) for each in results} == {TimeoutError}
        assert asked == ["slow.example"]
    finally:
        answer.set()


def _found(*addresses: str) -> Any:
    return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]
