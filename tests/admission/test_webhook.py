"""The webhook over real connections: other certificates while it runs, and questions that are no questions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from subak.admission import certificates, webhook
from subak.admission.certificates import Generation
from subak.admission.webhook import Webhook
from tests.admission.test_answers import ANSWERS, HALF, pod, question

HOST = "127.0.0.1"


def generation() -> Generation:
    return certificates.make(frozenset({HOST}), datetime.now(UTC), timedelta(days=1))


@asynccontextmanager
async def listening(first: Generation) -> AsyncIterator[Webhook]:
    running = Webhook(ANSWERS, HOST)
    running.present(first.certificate, first.key)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def trusting(*generations: Generation) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that trusts these authorities, and keeps its connection."""
    context = ssl.create_default_context(cadata="".join(each.authority for each in generations))
    connector = aiohttp.TCPConnector(ssl=context, limit=1)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def ask(session: aiohttp.ClientSession, running: Webhook, path: str = "/validate", body: bytes = b"") -> Any:
    async with session.post(
        f"https://{HOST}:{running.port}{path}", data=body or question(pod(HALF, "subak"))
    ) as answer:
        return answer.status, await answer.read()


async def test_both_questions_are_answered() -> None:
    first = generation()
    async with listening(first) as running, trusting(first) as session:
        for path in ("/validate", "/mutate"):
            status, body = await ask(session, running, path)
            assert status == 200
            assert msgspec.json.decode(body)["response"]["allowed"]
        assert (await ask(session, running, "/else"))[0] == 404


async def test_a_new_certificate_is_seen_by_new_connections_and_old_ones_go_on() -> None:
    first, second = generation(), generation()
    async with listening(first) as running, trusting(first) as old, trusting(second) as new:
        assert (await ask(old, running))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(new, running)
        running.present(second.certificate, second.key)
        assert (await ask(old, running))[0] == 200, "by the connection that it has"
        assert (await ask(new, running))[0] == 200
        async with trusting(first) as later:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await ask(later, running)


async def test_what_is_too_large_is_not_read() -> None:
    first = generation()
    async with listening(first) as running, trusting(first) as session:
        assert (await ask(session, running, body=b" " * (webhook.MOST_BYTES + 1)))[0] == 413


async def test_a_question_that_never_comes_in_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "PATIENCE", 0.05)
    first = generation()

    async def forever() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with (
        listening(first) as running,
        trusting(first) as session,
        session.post(f"https://{HOST}:{running.port}/validate", data=forever()) as answer,
    ):
        assert answer.status == 408


async def test_a_port_that_is_taken_is_told_and_can_be_tried_again() -> None:
    first = generation()
    async with listening(first) as running:
        late = Webhook(ANSWERS, HOST, running.port)
        late.present(first.certificate, first.key)
        with pytest.raises(OSError, match=str(running.port)):
            await late.start()
        await running.stop()
        await late.start()
        await late.stop()
