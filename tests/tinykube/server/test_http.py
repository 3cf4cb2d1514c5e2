"""The server on HTTPS: who may speak, what streams, what a program in a container hears and says."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support.talk import CONFIG_MAPS, PODS, Json, Talk, binding, config_map, pod
from tinykube.endpoint import Endpoint, Fixed, Identity
from tinykube.exec import execute
from tinykube.http import HttpTransport
from tinykube.server import channels
from tinykube.server.http import Listener
from tinykube.server.kubelet import LogOptions, Session
from tinykube.server.server import MOST_BYTES, Server
from tinykube.server.store import Store
from tinykube.server.tls import identity
from tinykube.status import ApiError

DEADLINE = 5.0


class Echo:
    """A program that repeats its input in capitals and ends with the number of bytes that it heard."""

    def __init__(self, tty: bool) -> None:
        self.tty = tty
        self.heard = 0
        self.sizes: list[tuple[int, int]] = []
        self.closed = asyncio.Event()
        self._said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()

    async def write(self, data: bytes) -> None:
        self.heard += len(data)
        await self._said.put((1, data.upper()))
        if not self.tty:
            await self._said.put((2, b"heard"))

    async def end_input(self) -> None:
        await self._said.put(None)

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        while (said := await self._said.get()) is not None:
            yield said

    async def wait(self) -> int:
        return self.heard

    async def close(self) -> None:
        self.closed.set()


class Kubelet:
    """Runs echoes."""

    def __init__(self) -> None:
        self.sessions: list[Echo] = []
        self.commands: list[tuple[str, ...]] = []

    async def logs(self, pod: Json, options: LogOptions) -> AsyncIterator[bytes]:
        async def lines() -> AsyncIterator[bytes]:
            for number in range(3):
                yield f"line {number}\n".encode()

        return lines()

    async def execute(self, pod: Json, container: str, command: Sequence[str], *, stdin: bool, tty: bool) -> Session:
        if command[0] == "missing":
            raise ApiError(500, "InternalError", "no such program")
        self.commands.append(tuple(command))
        self.sessions.append(Echo(tty))
        return self.sessions[-1]

    async def summary(self, node: str) -> Json:
        raise NotImplementedError


class Served:
    """A server that listens, and a client for it."""

    def __init__(self, endpoint: Listener, server: Server, kubelet: Kubelet, session: aiohttp.ClientSession) -> None:
        self.endpoint = endpoint
        self.talk = Talk(server)
        self.kubelet = kubelet
        self.session = session

    async def exec(self, query: str, protocol: str = "v5.channel.k8s.io") -> aiohttp.ClientWebSocketResponse:
        return await self.session.ws_connect(f"{PODS}/p/exec?{query}", protocols=[protocol])


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    kubelet, who = Kubelet(), identity()
    server = Server(Store(), kubelet)
    endpoint = Listener(server, who)
    await endpoint.start()
    trust = ssl.create_default_context(cadata=who.authority)
    async with aiohttp.ClientSession(
        endpoint.address,
        connector=aiohttp.TCPConnector(ssl=trust),
        headers={"Authorization": f"Bearer {who.token}"},
        timeout=aiohttp.ClientTimeout(total=DEADLINE),
    ) as session:
        yield Served(endpoint, server, kubelet, session)
    await endpoint.stop()


@pytest.fixture
async def running(served: Served) -> Served:
    """A pod on a node."""
    await served.talk.create(PODS, pod())
    await served.talk.create(f"{PODS}/p/binding", binding("p"))
    return served


@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic eDp5"])
async def test_only_who_shows_the_token_is_served(served: Served, token: str) -> None:
    async with served.session.get("/api/v1/pods", headers={"Authorization": token}) as response:
        assert response.status == 401
        assert (await response.json())["reason"] == "Unauthorized"


async def test_objects_over_the_wire(served: Served) -> None:
    async with served.session.post(CONFIG_MAPS, json=config_map("a", x="ü")) as response:
        assert response.status == 201
    async with served.session.get(CONFIG_MAPS, params={"fieldSelector": "metadata.name=a"}) as response:
        assert (await response.json())["items"][0]["data"] == {"x": "ü"}
    async with served.session.post(CONFIG_MAPS, json={**config_map("b"), "odd": 1, "odder": 2}) as response:
        assert len(response.headers.getall("Warning")) == 2


async def test_a_body_that_is_too_large_is_not_even_read(served: Served) -> None:
    async with served.session.post(CONFIG_MAPS, data=b" " * (MOST_BYTES + 1)) as response:
        assert response.status == 413
        assert (await response.json())["reason"] == "RequestEntityTooLarge"


async def test_watches_and_logs_stream(running: Served) -> None:
    query = {"watch": "1", "resourceVersion": str(running.talk.server.registry.store.revision)}
    async with running.session.get(CONFIG_MAPS, params=query) as watch:
        await running.talk.create(CONFIG_MAPS, config_map("a"))
        assert json.loads(await watch.content.readline())["type"] == "ADDED"
    async with running.session.get(f"{PODS}/p/log") as log:
        assert (log.content_type, await log.text()) == ("text/plain", "line 0\nline 1\nline 2\n")


async def test_who_goes_away_ends_his_watch(served: Served) -> None:
    waiting = served.talk.server._signal._waiting
    async with served.session.get(CONFIG_MAPS, params={"watch": "1", "resourceVersion": "2"}) as watch:
        assert watch.status == 200
        await _until(lambda: any(waiting.values()))
    await _until(lambda: not any(waiting.values()))


async def test_a_program_hears_says_and_ends(running: Served) -> None:
    socket = await running.exec("command=cat&command=-n&stdin=1&stdout=1&stderr=1")
    assert running.kubelet.commands == [("cat", "-n")]
    assert await socket.receive_bytes() == b"\x01", "the connection stands"
    await socket.send_bytes(b"\x00abc")
    assert await socket.receive_bytes() == b"\x01ABC"
    assert await socket.receive_bytes() == b"\x02heard"
    await socket.send_bytes(b"\xff\x00")
    status = await socket.receive_bytes()
    assert status[0] == 3
    ended = json.loads(status[1:])
    assert (ended["status"], ended["reason"]) == ("Failure", "NonZeroExitCode")
    assert ended["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    await asyncio.wait_for(running.kubelet.sessions[0].closed.wait(), DEADLINE)


async def test_kubectl_hears_nothing_while_it_makes_its_streams(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would drop what comes for a stream that it does not know yet, and end with 0."""
    monkeypatch.setattr(channels, "SETTLING", 3_600)
    kubectl = {"User-Agent": "kubectl/v1.32.4 (linux/amd64) kubernetes/59526cd"}
    socket = await running.session.ws_connect(
        f"{PODS}/p/exec?command=cat&stdin=1&stdout=1", protocols=[channels.V5], headers=kubectl, autoping=False
    )
    await socket.send_bytes(b"\x00abc")
    await socket.ping()
    assert (await socket.receive()).type == aiohttp.WSMsgType.PONG
    await socket.close()


def way(served: Served) -> Endpoint:
    """How a client gets there."""
    user = Fixed(Identity.bearer(served.endpoint._identity.token))
    return Endpoint(served.endpoint.address, user, authority=served.endpoint._identity.authority.encode())


async def test_arguments_may_be_long(running: Served) -> None:
    words = ["cat", "-", *(f"{number:01000}" for number in range(500)), "ü" * 20_000]
    transport = HttpTransport(way(running))
    session = await execute(transport, "p", "default", words)
    assert running.kubelet.commands == [tuple(words)]
    await running.kubelet.sessions[0].end_input()
    assert [each async for each in session.output()] == []
    assert session.exit_code() == 0
    await session.close()
    await transport.close()


async def test_arguments_beyond_a_mebibyte_are_refused_and_nothing_runs(running: Served) -> None:
    transport = HttpTransport(way(running))
    with pytest.raises(ApiError, match="431.* longer than the API server takes") as caught:
        await execute(transport, "p", "default", ["cat", "x" * 1_100_000, "date"])
    assert caught.value.code == 431
    assert running.kubelet.commands == []
    await transport.close()


async def test_a_program_that_succeeds(running: Served) -> None:
    socket = await running.exec("command=true&stdout=1", "v4.channel.k8s.io")
    assert socket.protocol == "v4.channel.k8s.io"
    await socket.receive_bytes()
    await running.kubelet.sessions[0].end_input()
    assert json.loads((await socket.receive_bytes())[1:])["status"] == "Success"


async def test_a_terminal_has_a_size(running: Served) -> None:
    socket = await running.exec("command=sh&stdin=1&stdout=1&tty=1")
    await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
    await _until(lambda: running.kubelet.sessions[0].sizes == [(80, 24)])
    await socket.close()
    await asyncio.wait_for(running.kubelet.sessions[0].closed.wait(), DEADLINE)


@pytest.mark.parametrize("size", ['{"Width":65536}', '{"Height":-1}', '{"Width":1e9}', "[", '"x"'])
async def test_a_size_that_no_terminal_has_is_not_passed_on(running: Served, size: str) -> None:
    socket = await running.exec("command=sh&stdin=1&stdout=1&tty=1")
    await socket.send_bytes(b"\x04" + size.encode())
    await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
    await _until(lambda: running.kubelet.sessions[0].sizes == [(80, 24)])
    await socket.close()


async def test_a_message_without_an_end_ends_the_program(running: Served) -> None:
    socket = await running.exec("command=cat&stdin=1&stdout=1")
    await socket.receive_bytes()
    await socket.send_bytes(b"\x00" * (channels.MOST_BYTES + 1))
    assert (await socket.receive()).data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
    await asyncio.wait_for(running.kubelet.sessions[0].closed.wait(), DEADLINE)
    assert running.kubelet.sessions[0].heard == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("command=missing&stdout=1", "no such program"),
        ("command=ls&stdout=1&container=x", "container x is not valid for pod p"),
        ("command=ls", "you must specify at least 1 of stdin, stdout, stderr"),
    ],
)
async def test_what_cannot_run_is_refused_before_anything_is_upgraded(
    running: Served, query: str, message: str
) -> None:
    headers = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }  # fmt: skip
    async with running.session.get(f"{PODS}/p/exec?{query}", headers=headers) as response:
        assert (await response.json())["message"] == message


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"waiting": {}}, 'Internal error occurred: unable to upgrade connection: container not found ("c")'),
        ({"running": {}}, "unable to upgrade: commands run over WebSockets only, which kubectl speaks since 1.31"),
    ],
)
async def test_who_falls_back_to_spdy_hears_why(running: Served, state: Json, message: str) -> None:
    """kubectl does so whenever a WebSocket is refused, and shows the second answer only."""
    told = {"name": "c", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    await running.talk.patch(f"{PODS}/p/status", "merge", {"status": {"containerStatuses": [told]}})
    headers = {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
    async with running.session.post(f"{PODS}/p/exec?command=ls&stdout=1", headers=headers) as response:
        assert (await response.json())["message"] == message


async def test_a_kubeconfig_leads_here(served: Served) -> None:
    config = yaml.safe_load(served.endpoint.kubeconfig())
    assert config["clusters"][0]["cluster"]["server"] == served.endpoint.address
    assert served.endpoint.address.startswith("https://127.0.0.1:")


def test_an_identity_that_is_kept_stays_the_same(tmp_path: Path) -> None:
    kept = identity(tmp_path / "pki")
    assert identity(tmp_path / "pki") == kept
    assert identity() != kept
    for name in ("token", "tls.key"):
        assert stat.S_IMODE((tmp_path / "pki" / name).stat().st_mode) == 0o600
    (tmp_path / "pki" / "tls.crt").write_text("nonsense")
    assert identity(tmp_path / "pki") != kept


async def _until(condition: Any) -> None:
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)
