"""Certificates are renewed under a running server, and clients that have its kubeconfig do not notice."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509

from tests.support import virtual
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.resource import NAMESPACES
from tinykube.server import renewal
from tinykube.server.http import HOST, Listener
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.tls import KeptIdentity, Lifetimes, ServerIdentity

PATIENCE = 30.0
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Running:
    """A server whose certificates live for seconds."""

    def __init__(self, directory: Path, lifetimes: Lifetimes) -> None:
        self.ahead = timedelta(0)
        self.kept = KeptIdentity(
            directory / "identity", lifetimes=lifetimes, clock=lambda: datetime.now(UTC) + self.ahead
        )
        self.listener = Listener(Server(Store()), self.kept.current)
        self.kubeconfig = directory / "kubeconfig"
        self.written = 0

    def write(self) -> None:
        self.kubeconfig.write_text(self.listener.kubeconfig())
        self.written += 1

    async def ask(self) -> None:
        """Ask something over a new connection, as a new kubectl does."""
        client = Client(HttpTransport(kubeconfig.load(self.kubeconfig)))
        try:
            await client.list(NAMESPACES)
        finally:
            await client.close()

    async def shown(self) -> x509.Certificate:
        """The certificate that a newcomer sees."""
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(HOST, self.listener.port, ssl=anybody)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return x509.load_der_x509_certificate(found)


@asynccontextmanager
async def running(directory: Path, lifetimes: Lifetimes) -> AsyncIterator[Running]:
    server = Running(directory, lifetimes)
    await server.listener.start()
    server.write()
    renewing = asyncio.create_task(renewal.run(server.kept, server.listener, server.write))
    yield server
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    await server.listener.stop()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked often whether something is due."""
    for name in ("LONGEST", "SHORTEST"):
        monkeypatch.setattr(renewal, name, timedelta(seconds=0.01))


async def test_a_client_works_on_while_certificates_come_and_go(tmp_path: Path) -> None:
    lifetimes = Lifetimes(certificate=timedelta(seconds=2))
    async with running(tmp_path, lifetimes) as server, asyncio.timeout(PATIENCE):
        config = server.kubeconfig.read_text()
        lasting = Client(HttpTransport(kubeconfig.load(server.kubeconfig)))
        first = await server.shown()
        seen: set[x509.Certificate] = set()
        while len(seen) < 3 or datetime.now(UTC) <= first.not_valid_after_utc:
            await server.ask()
            await lasting.list(NAMESPACES)
            seen.add(await server.shown())
            await asyncio.sleep(0.02)
        await lasting.close()
        assert server.kubeconfig.read_text() == config
        assert server.written == 1


@pytest.mark.usefixtures("often")
async def test_a_renewed_authority_is_in_the_kubeconfig_and_the_old_kubeconfig_still_works(tmp_path: Path) -> None:
    lifetimes = Lifetimes(timedelta(seconds=60), timedelta(seconds=60))
    async with running(tmp_path, lifetimes) as server, asyncio.timeout(PATIENCE):
        old = server.kubeconfig.read_text()
        server.ahead = timedelta(seconds=45)
        while server.written == 1:
            await server.ask()
        assert server.kubeconfig.read_text() != old
        await server.ask()
        server.kubeconfig.write_text(old)
        await server.ask()


@pytest.mark.usefixtures("often")
async def test_a_certificate_that_cannot_be_loaded_yet_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, Lifetimes()) as server, asyncio.timeout(PATIENCE):
        first, show = await server.shown(), server.listener.show

        def refuse(_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(server.listener, "show", refuse)
        server.ahead = timedelta(days=300)
        while "No space left on device" not in caplog.text:
            await asyncio.sleep(0.01)
        assert await server.shown() == first
        monkeypatch.setattr(server.listener, "show", show)
        while await server.shown() == first:
            await asyncio.sleep(0.01)


class Shown:
    """A listener that only remembers what it is to show."""

    def __init__(self) -> None:
        self.certificates: list[ServerIdentity] = []

    def show(self, identity: ServerIdentity) -> None:
        self.certificates.append(identity)


@pytest.mark.parametrize("days", [-7_300, -1, 1, 300, 7_300])
def test_a_clock_that_jumps_is_noticed_within_a_minute(days: int) -> None:
    async def story() -> None:
        ahead = timedelta(0)
        kept = KeptIdentity(clock=lambda: NOW + timedelta(seconds=asyncio.get_running_loop().time()) + ahead)
        shown = Shown()
        renewing = asyncio.create_task(renewal.run(kept, cast(Listener, shown), lambda: None))
        await asyncio.sleep(100)
        ahead += timedelta(days=days)
        await asyncio.sleep(60)
        renewing.cancel()
        found = x509.load_pem_x509_certificate([kept.current, *shown.certificates][-1].certificate.encode())
        assert found.not_valid_before_utc <= NOW + ahead < found.not_valid_after_utc
        assert bool(shown.certificates) == (days != 1), "nothing is renewed in vain"

    virtual.run(story())
