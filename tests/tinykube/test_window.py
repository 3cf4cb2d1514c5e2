"""The small HTTP server by which a program shows itself."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from tinykube.window import CannotListen, Window


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.match_info['name']}")


async def test_it_answers_at_its_paths_and_nowhere_else() -> None:
    window = Window("127.0.0.1", 0, {"/hello/{name}": hello})
    await window.start()
    try:
        address = f"http://127.0.0.1:{window.port}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/hello/you") as answer:
                assert (answer.status, await answer.text()) == (200, "hello you")
            async with session.get(f"{address}/other") as answer:
                assert answer.status == 404
            async with session.post(f"{address}/hello/you") as answer:
                assert answer.status == 405, "nothing can be changed here"
    finally:
        await window.stop()


async def test_an_address_in_use_is_named() -> None:
    first = Window("127.0.0.1", 0, {"/hello/{name}": hello})
    await first.start()
    try:
        with pytest.raises(CannotListen, match=f"127.0.0.1:{first.port} cannot be listened on"):
            await Window("127.0.0.1", first.port, {"/hello/{name}": hello}).start()
    finally:
        await first.stop()
