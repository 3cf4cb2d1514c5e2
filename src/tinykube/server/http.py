"""The API server on HTTPS, on this machine only, for requests with the token.

A watch is written as fast as its reader reads.  A reader that stops holds up nothing else.
"""

from __future__ import annotations

import hmac
import re
import textwrap
from base64 import b64encode
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from tinykube.server import errors, routes
from tinykube.server.answers import refusal
from tinykube.server.channels import PROTOCOLS, converse
from tinykube.server.server import MOST_BYTES, Server
from tinykube.server.tls import ServerIdentity
from tinykube.status import ApiError
from tinykube.transport import Request, Response

HOST = "127.0.0.1"

_PASSED_ON = ("accept", "content-type", "if-none-match", "upgrade", "user-agent")
_WARNING = re.compile(r'299 - "(?:[^"\\]|\\.)*"')


class Listener:
    """An address at which a server can be reached."""

    def __init__(self, server: Server, identity: ServerIdentity) -> None:
        self._server = server
        self._identity = identity
        self._context = identity.context()
        self._expected = f"Bearer {identity.token}".encode()
        self._runner: web.ServerRunner | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """As a URL."""
        return f"https://{HOST}:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen; on any free port if none is given."""
        protocol = web.Server(
            self._handle, request_factory=_request, handler_cancellation=True, access_log=None, keepalive_timeout=3600.0
        )
        self._runner = web.ServerRunner(protocol, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, port, ssl_context=self._context, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def show(self, identity: ServerIdentity) -> None:
        """Show another certificate to all who connect from now on; the token stays."""
        identity.load_into(self._context)
        self._identity = identity

    async def stop(self) -> None:
        """Listen no longer; the watches end."""
        await self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self) -> str:
        """What kubectl needs to find its way here; cluster, user and context have the server's name."""
        name = self._server.name
        authority = b64encode(self._identity.authority.encode()).decode()
        return textwrap.dedent(f"""\
            apiVersion: v1
            kind: Config
            clusters:
            - name: {name}
              cluster:
                server: {self.address}
                certificate-authority-data: {authority}
            users:
            - name: {name}
              user:
                token: {self._identity.token}
            contexts:
            - name: {name}
              context:
                cluster: {name}
                user: {name}
            current-context: {name}
            """)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = request.headers
        if not hmac.compare_digest(headers.get("Authorization", "").encode(), self._expected):
            return _whole(refusal(ApiError(401, "Unauthorized", "Unauthorized")))
        if headers.get("Upgrade", "").lower() == "websocket":
            return await self._upgrade(request)
        try:
            body = await request.read() if request.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            body = bytes(MOST_BYTES + 1)  # the server knows what to say about that
        passed_on = {name: headers[name] for name in _PASSED_ON if name in headers}
        # The first of several values counts.
        query = {name: request.query.getone(name) for name in request.query} if request.query_string else {}
        response = await self._server.send(Request(request.method, request.path, query, passed_on, body))
        if response.stream is None:
            return _whole(response, request.method == "HEAD")
        return await _streamed(request, response)

    async def _upgrade(self, request: web.BaseRequest) -> web.StreamResponse:
        """Only `exec` speaks over WebSockets."""
        try:
            found = self._server.routes.resolve(request.method, request.path.strip("/").split("/"))
            if found is None or found[0] != "exec":
                raise routes.not_found()
            offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
            if not any(each in PROTOCOLS for each in offered):
                message = f"client supports {offered}, server accepts {list(PROTOCOLS)}"
                raise errors.bad_request(f"unable to upgrade: unable to negotiate protocol: {message}")
            target, query = found[1], request.query
            first = {name: query.getone(name) for name in query}
            session = await self._server.execute(target.namespace, target.name, first, query.getall("command", []))
        except ApiError as error:
            return _whole(refusal(error))
        return await converse(request, session)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, protocol._loop, client_max_size=MOST_BYTES)


def _headers(response: Response) -> list[tuple[str, str]]:
    """One header for each warning."""
    found = []
    for name, value in response.headers.items():
        if name == "warning":
            found += [(name, each) for each in _WARNING.findall(value)]
        else:
            found.append((name, value))
    return found


def _whole(response: Response, bare: bool = False) -> web.Response:
    return web.Response(
        status=response.status, headers=CIMultiDict(_headers(response)), body=b"" if bare else response.body
    )


async def _streamed(request: web.BaseRequest, response: Response) -> web.StreamResponse:
    """Write an answer as it comes, until its reader goes."""
    assert response.stream is not None
    answer = web.StreamResponse(status=response.status, headers=dict(response.headers))
    try:
        await answer.prepare(request)
        async for chunk in response.stream:
            await answer.write(chunk)
        await answer.write_eof()
    except ConnectionError:
        pass
    finally:
        close = getattr(response.stream, "aclose", None)
        if close is not None:
            await close()
    return answer
