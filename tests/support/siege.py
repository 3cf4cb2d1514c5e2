"""An API server in a process of its own, with few descriptors, which a test attacks.

    async with besieged(256) as server: ...

Its standard error is its log.  It has no other bounds than those that it finds itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.support.nobody import CHECKOUT

DEADLINE = 30.0


@dataclass(frozen=True)
class Besieged:
    """Where it listens, and what it takes to be served there."""

    port: int
    token: str
    tls: ssl.SSLContext
    log: Path
    process: asyncio.subprocess.Process

    async def status(self, session: aiohttp.ClientSession) -> int:
        """The code of a good request."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"https://127.0.0.1:{self.port}/api/v1/namespaces"
        async with session.get(url, headers=headers, ssl=self.tls) as answer:
            await answer.read()
            return answer.status

    async def command(self, word: str) -> None:
        """`take`: have as many files open as possible; `give`: close them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n".encode())
        assert await asyncio.wait_for(self.process.stdout.readline(), DEADLINE) == b"done\n"


@asynccontextmanager
async def besieged(limit: int, log: Path) -> AsyncIterator[Besieged]:
    """A server that may have so many files open."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.siege", str(limit),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, cwd=CHECKOUT,
        )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        assert line, log.read_text()
        told = json.loads(line)
        tls = ssl.create_default_context(cadata=told["authority"])
        yield Besieged(told["port"], told["token"], tls, log, process)
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), DEADLINE)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _serve(limit: int) -> None:
    from tinykube.server.http import Listener
    from tinykube.server.server import Server
    from tinykube.server.store import Store
    from tinykube.server.tls import identity

    who = identity()
    endpoint = Listener(Server(Store()), who)
    await endpoint.start()
    print(json.dumps({"port": endpoint.port, "token": who.token, "authority": who.authority}), flush=True)
    taken: list[int] = []
    while word := await asyncio.to_thread(sys.stdin.readline):
        if word == "take\n":
            while len(taken) < limit:
                try:
                    taken.append(os.dup(0))
                except OSError:
                    break
        else:
            while taken:
                os.close(taken.pop())
        print("done", flush=True)
    await endpoint.stop()


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
    asyncio.run(_serve(int(sys.argv[1])))
