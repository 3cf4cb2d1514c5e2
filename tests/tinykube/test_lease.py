"""At most one candidate leads by its own view, whatever is lost or late on the way; and somebody leads again soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support import virtual
from tests.support.fuzz import examples
from tinykube.client import Client
from tinykube.lease import Elector, Terms
from tinykube.resource import LEASES
from tinykube.server import bootstrap
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response, Transport

Fault = tuple[str, float]
TERMS = Terms()


class Way:
    """To the server.  Each request meets the next fault: its kind, and by how many seconds it is late."""

    def __init__(self, server: Transport, faults: list[Fault] | None = None) -> None:
        self._server = server
        self.faults = faults or []
        self.cut = False

    async def send(self, request: Request) -> Response:
        if self.cut:
            raise ConnectionError("cut")
        kind, seconds = self.faults.pop(0) if self.faults else ("", 0.0)
        if kind == "request lost":
            raise ConnectionError("lost")
        if kind == "late":
            await asyncio.sleep(seconds)
        if kind == "arrives after the client has gone":
            asyncio.get_running_loop().create_task(self._later(request, seconds))
            await asyncio.sleep(seconds / 2)
            raise ConnectionError("lost")
        response = await self._server.send(request)
        if kind == "answer lost":
            raise ConnectionError("lost")
        if kind == "answer late":
            await asyncio.sleep(seconds)
        return response

    async def _later(self, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._server.send(request)

    async def close(self) -> None:
        pass


class Candidate:
    """An elector that runs, and its way to the server."""

    def __init__(self, server: Server, name: str, faults: list[Fault] | None = None, skew: float = 0.0) -> None:
        self.way = Way(server, faults)
        loop = asyncio.get_running_loop()
        client = Client(self.way)
        self.elector = Elector(client, "default", "lead", name, TERMS, lambda: 1e9 + loop.time() + skew)
        self.lost = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.elector.acquire()
        await self.elector.keep()
        self.lost = True

    @property
    def leads(self) -> bool:
        return self.elector.left() > 0

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, Client]]:
    server = Server(Store())
    bootstrap.fill(server.registry)
    try:
        yield server, Client(server)
    finally:
        await server.close()


def run(story: Callable[[Server, Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with served() as (server, client):
            await story(server, client)

    virtual.run(main())


async def spec(client: Client) -> dict[str, Any]:
    return dict((await client.get(LEASES, "lead", "default"))["spec"])


def test_the_first_leads_and_the_second_takes_over_when_it_dies() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        two = Candidate(server, "two")
        await asyncio.sleep(60)
        assert one.leads
        assert not two.leads
        assert two.elector.holder == "one"
        first = await spec(client)
        assert (first["holderIdentity"], first["leaseDurationSeconds"], first["leaseTransitions"]) == ("one", 15, 0)
        await one.stop()
        died = asyncio.get_running_loop().time()
        await virtual.until(lambda: two.leads, 30)
        assert TERMS.duration - TERMS.retry <= asyncio.get_running_loop().time() - died
        second = await spec(client)
        assert (second["holderIdentity"], second["leaseTransitions"]) == ("two", 1)
        assert second["acquireTime"] > first["acquireTime"]
        await two.stop()

    run(story)


def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        two = Candidate(server, "two")
        await asyncio.sleep(10)
        await one.stop()
        await one.elector.release()
        assert not one.leads
        released = await spec(client)
        assert (released["holderIdentity"], released["leaseDurationSeconds"]) == ("", 1)
        await virtual.until(lambda: two.leads, 3 * TERMS.retry)
        await two.stop()

    run(story)


def test_a_lease_that_changes_meanwhile_is_given_back_all_the_same() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        await one.stop()
        one.way.faults = [("", 0.0), ("late", 1.0)]  # it looks, and its write is late
        giving_back = asyncio.create_task(one.elector.release())
        await asyncio.sleep(0.5)
        await client.patch(LEASES, "lead", "default", {"metadata": {"labels": {"a": "b"}}})
        await giving_back
        assert (await spec(client))["holderIdentity"] == ""

    run(story)


def test_what_another_holds_is_not_given_back() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        await client.patch(LEASES, "lead", "default", {"spec": {"holderIdentity": "two"}})
        await one.elector.release()
        assert (await spec(client))["holderIdentity"] == "two"
        await one.stop()

    run(story)


def test_a_leader_who_cannot_renew_stops_before_another_begins() -> None:
    async def story(server: Server, client: Client) -> None:
        one, two = Candidate(server, "one"), Candidate(server, "two", [("request lost", 0.0)])
        await virtual.until(lambda: one.leads)
        await asyncio.sleep(20)
        one.way.cut = True
        await virtual.until(lambda: not one.leads, TERMS.renew_deadline + TERMS.retry)
        assert not two.leads
        await virtual.until(lambda: one.lost, 1)
        await virtual.until(lambda: two.leads, TERMS.duration)
        await two.stop()

    run(story)


def test_a_leader_whose_lease_was_taken_gives_up_at_the_next_renewal() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        await client.patch(LEASES, "lead", "default", {"spec": {"holderIdentity": "two"}})
        await virtual.until(lambda: one.lost, TERMS.retry + 0.1)
        assert not one.leads

    run(story)


def test_a_lost_answer_to_a_renewal_does_not_cost_the_lease() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        for _ in range(20):
            one.way.faults = [("answer lost", 0.0)]
            await asyncio.sleep(3 * TERMS.retry)
            assert one.leads
        assert (await spec(client))["leaseTransitions"] == 0
        await one.stop()

    run(story)


def test_clocks_of_other_machines_do_not_matter() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one", skew=-1e6)
        await virtual.until(lambda: one.leads)
        two = Candidate(server, "two", skew=1e6)
        await asyncio.sleep(60)
        assert one.leads
        assert not two.leads
        await one.stop()
        await two.stop()

    run(story)


def test_a_lease_that_somebody_deletes_is_made_again() -> None:
    async def story(server: Server, client: Client) -> None:
        one = Candidate(server, "one")
        await virtual.until(lambda: one.leads)
        await client.delete(LEASES, "lead", "default")
        await asyncio.sleep(TERMS.renew_deadline)
        assert one.leads
        assert (await spec(client))["holderIdentity"] == "one"
        await one.stop()

    run(story)


KINDS = ("", "request lost", "answer lost", "late", "answer late", "arrives after the client has gone")
faults = st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0.0, 30.0)), max_size=25)


@examples(quick=8, ci=200)
@given(st.lists(faults, min_size=2, max_size=3), st.lists(st.tuples(st.floats(0.5, 20.0), st.integers(0, 2))))
def test_never_two_leaders_and_never_none_for_long(ways: list[list[Fault]], ends: list[tuple[float, int]]) -> None:
    async def story(server: Server, client: Client) -> None:
        candidates = [Candidate(server, str(number), each) for number, each in enumerate(ways)]
        everybody = list(candidates)

        async def look_on() -> None:
            while True:
                leading = [each.elector.identity for each in everybody if each.leads]
                assert len(leading) < 2, f"{leading} lead at {asyncio.get_running_loop().time():.2f} s"
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(look_on())
        for seconds, number in ends:
            await asyncio.sleep(seconds)
            at = number % len(candidates)
            await candidates[at].stop()
            if number == 1:
                await candidates[at].elector.release()
            candidates[at] = Candidate(server, f"{number}-{len(everybody)}")
            everybody.append(candidates[at])
        for each in candidates:
            each.way.faults.clear()
        # All may have given up, as those do who lose: in a cluster they are started again.
        candidates.append(Candidate(server, "last"))
        everybody.append(candidates[-1])
        # A late request may still renew the lease of somebody who is gone, and then it must expire.
        await virtual.until(lambda: any(each.leads for each in everybody), 30 + 2 * TERMS.duration + 5 * TERMS.retry)
        assert not watching.done(), watching.result()
        watching.cancel()
        for each in candidates:
            await each.stop()

    run(story)
