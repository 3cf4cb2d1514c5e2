"""Requests on real sockets: who we are, what breaks on the way, and answers without an end."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from subak.model import manifest
from tests.support.virtual import until
from tests.tinykube.certificates import Pair, make
from tests.tinykube.listening import Handler, listening
from tinykube.client import Client
from tinykube.endpoint import ConfigError, Endpoint, Fixed, Identity, TokenFile
from tinykube.http import HttpTransport
from tinykube.reflector import ADDED, Reflector
from tinykube.resource import PODS
from tinykube.transport import Request, Unreachable

ANYTHING = Request("GET", "/api/v1/pods")


async def answer(handler: Handler, request: Request = ANYTHING, endpoint: Endpoint | None = None) -> bytes:
    """What a server with this handler answers."""
    async with listening(handler) as url:
        transport = HttpTransport(endpoint or Endpoint(url), total=5)
        try:
            response = await transport.send(request)
            return response.body
        finally:
            await transport.close()


async def test_a_request_arrives_as_it_was_meant() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(
            [request.method, request.path, dict(request.query), request.headers["content-type"], await request.text()]
        )

    request = Request("PATCH", "/api/v1/pods/a", {"x": "1&2"}, {"content-type": "text/x"}, b"body")
    assert await answer(handler, request) == b'["PATCH", "/api/v1/pods/a", {"x": "1&2"}, "text/x", "body"]'


async def test_a_server_may_live_below_a_path() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    async with listening(handler) as url:
        transport = HttpTransport(Endpoint(f"{url}/k8s/clusters/c1"))
        assert (await transport.send(ANYTHING)).body == b"/k8s/clusters/c1/api/v1/pods"
        await transport.close()


async def test_a_server_that_is_not_there_has_seen_nothing() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    async with listening(handler) as url:
        pass
    transport = HttpTransport(Endpoint(url))
    with pytest.raises(Unreachable, match="127.0.0.1"):
        await transport.send(ANYTHING)
    await transport.close()


async def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        await response.write(b'{"kind":')
        assert request.transport is not None
        request.transport.abort()
        return response

    with pytest.raises(ConnectionError, match="the connection to the API server broke") as caught:
        await answer(handler)
    assert not isinstance(caught.value, Unreachable)


async def test_a_server_that_hangs_up_without_a_word_may_have_seen_it() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(ConnectionError) as caught:
        await answer(handler, Request("POST", "/api/v1/pods", body=b"{}"))
    assert not isinstance(caught.value, Unreachable)


async def test_a_slow_server_is_given_up() -> None:
    forever = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await forever.wait()
        return web.Response()

    async with listening(handler) as url:
        transport = HttpTransport(Endpoint(url), total=0.05)
        with pytest.raises(TimeoutError, match="no answer in time"):
            await transport.send(ANYTHING)
        await transport.close()
        forever.set()


async def test_a_token_file_is_read_again_when_the_server_does_not_believe_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.headers["authorization"] == "Bearer new" else 401)

    async with listening(handler) as url:
        transport = HttpTransport(Endpoint(url, TokenFile(token)))
        assert (await transport.send(ANYTHING)).status == 401
        token.write_text("new\n")
        assert (await transport.send(ANYTHING)).status == 200
        await transport.close()


async def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    transport = HttpTransport(Endpoint("http://127.0.0.1:1", TokenFile(tmp_path / "token")))
    with pytest.raises(ConfigError, match="token: No such file") as caught:
        await transport.send(ANYTHING)
    assert isinstance(caught.value, OSError), "whoever runs for long tries again"


async def test_user_password_and_impersonation_are_sent() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
        return web.json_response(request.headers.getall("impersonate-group"))

    groups = (("impersonate-group", "a"), ("impersonate-group", "b"))
    async with listening(handler) as url:
        transport = HttpTransport(Endpoint(url, Fixed(Identity.basic("me", "secret")), impersonate=groups))
        assert (await transport.send(ANYTHING)).body == b'["a", "b"]'
        await transport.close()


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make("authority")


def server_tls(authority: Pair, folder: Path) -> ssl.SSLContext:
    """A server that wants client certificates of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate_pem.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as lenient as Kubernetes, whatever Python's version
    context.load_cert_chain(*make("server", authority).write(folder, "server"))
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def who(request: web.Request) -> web.Response:
    """Says who the client is by its certificate."""
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert") or {}
    return web.Response(text=str(certificate.get("subject")))


async def test_both_sides_prove_who_they_are(authority: Pair, tmp_path: Path) -> None:
    me = make("me", authority)
    identity = Identity(certificate=me.certificate_pem, key=me.key_pem)
    async with listening(who, server_tls(authority, tmp_path)) as url:
        transport = HttpTransport(Endpoint(url, Fixed(identity), authority=authority.certificate_pem))
        assert (await transport.send(ANYTHING)).body == b"((('commonName', 'me'),),)"
        await transport.close()


async def test_a_server_of_another_authority_is_not_believed(authority: Pair, tmp_path: Path) -> None:
    other = make("other authority")
    async with listening(who, server_tls(authority, tmp_path)) as url:
        transport = HttpTransport(Endpoint(url, authority=other.certificate_pem))
        with pytest.raises(Unreachable, match="its certificate is not trusted"):
            await transport.send(ANYTHING)
        await transport.close()
        transport = HttpTransport(Endpoint(url, verify=False))
        assert (await transport.send(ANYTHING)).status == 200
        await transport.close()


async def test_an_authority_that_is_replaced_in_its_file_is_believed_at_the_next_try(
    authority: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(make("old authority").certificate_pem)
    async with listening(who, server_tls(authority, tmp_path)) as url:
        transport = HttpTransport(Endpoint(url, authority=b"old", authority_file=file))
        with pytest.raises(Unreachable, match="its certificate is not trusted"):
            await transport.send(ANYTHING)
        file.write_bytes(b"-----BEGIN CERTIFICATE-----\nhalf")
        with pytest.raises(ConnectionError, match="cannot be used"):
            await transport.send(ANYTHING)
        file.write_bytes(authority.certificate_pem)
        assert (await transport.send(ANYTHING)).status == 200
        await transport.close()


async def test_a_server_must_bear_the_name_that_is_expected(authority: Pair, tmp_path: Path) -> None:
    async with listening(who, server_tls(authority, tmp_path)) as url:
        endpoint = Endpoint(url, authority=authority.certificate_pem, server_name="kubernetes.example")
        transport = HttpTransport(endpoint)
        with pytest.raises(Unreachable, match="kubernetes.example"):
            await transport.send(ANYTHING)
        await transport.close()


async def test_a_certificate_that_is_none_is_named() -> None:
    transport = HttpTransport(Endpoint("https://127.0.0.1:1", authority=b"-----BEGIN CERTIFICATE-----\nx"))
    with pytest.raises(ConfigError, match="the certificates for https://127.0.0.1:1 cannot be used"):
        await transport.send(ANYTHING)
    await transport.close()


async def test_a_watch_cut_in_the_middle_of_a_line_goes_on_with_that_line() -> None:
    """The same as in virtual time, on a real connection: half a line, then a reset."""
    line = b'{"type": "ADDED", "object": {"metadata": {"name": "a", "namespace": "x", "resourceVersion": "8"}}}\n'
    since: list[str] = []
    hold = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})
        since.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if len(since) == 1:
            await response.write(line[:40])
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write(line)
            await hold.wait()
        return response

    told: list[tuple[str, str]] = []
    async with listening(handler) as url:
        client = Client(HttpTransport(Endpoint(url)))
        reflector = Reflector(client, PODS, manifest.Pod, lambda change, pod: told.append((change, pod.name)))
        task = asyncio.create_task(reflector.run())
        await until(lambda: bool(told), 10)
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        hold.set()
    assert told == [(ADDED, "a")]
    assert since == ["7", "7"]
