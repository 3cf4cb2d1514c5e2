"""Other schedulers are known by their Leases, which live while they change, whatever clock they were written by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from subak.scheduler.messages import Event, GroupsMade
from subak.scheduler.rivals import Rivals
from subak.scheduler.service import Service
from tests.scheduler.live import Live
from tests.scheduler.replicas import Replica, cluster, renew, until_one_leads
from tests.support import virtual
from tinykube.resource import LEASES

Story = Callable[[Live, dict[str, str]], Coroutine[Any, Any, None]]


def run(story: Story) -> None:
    async def main() -> None:
        live = await cluster()
        taken: dict[str, str] = {}

        def on_change(names: Mapping[str, str]) -> None:
            taken.clear()
            taken.update(names)

        rivals = Rivals(live.client, {"volcano": "vc", "hami-scheduler": "hami-scheduler"}, on_change)
        running = asyncio.create_task(rivals.run())
        await rivals.complete()
        await story(live, taken)
        running.cancel()
        await asyncio.wait({running})
        await live.server.close()

    virtual.run(main())


def test_a_lease_lives_as_long_as_it_changes() -> None:
    async def story(live: Live, taken: dict[str, str]) -> None:
        assert taken == {}
        for count in range(5):
            await renew(live.client, "vc", "them", count)  # its times are those of another clock
            await asyncio.sleep(14)
            assert taken == {"volcano": "its own scheduler holds lease kube-system/vc (them)"}
        await asyncio.sleep(2)
        assert taken == {}

    run(story)


def test_a_lease_that_is_written_again_without_a_renewal_does_not_live_longer() -> None:
    async def story(live: Live, taken: dict[str, str]) -> None:
        await renew(live.client, "vc", "them", 0)
        for number in range(4):
            await asyncio.sleep(5)
            await live.client.patch(LEASES, "vc", "kube-system", {"metadata": {"labels": {"n": str(number)}}})
        assert taken == {}

    run(story)


def test_a_lease_that_is_given_back_or_deleted_is_dead_at_once() -> None:
    async def story(live: Live, taken: dict[str, str]) -> None:
        for _ in range(2):
            await renew(live.client, "vc", "them", 0)
            await virtual.until(lambda: set(taken) == {"volcano"})
            await renew(live.client, "vc", "", 1)
            await virtual.until(lambda: not taken, 1)
        await renew(live.client, "hami-scheduler", "them", 0)
        await virtual.until(lambda: set(taken) == {"hami-scheduler"})
        await live.client.delete(LEASES, "hami-scheduler", "kube-system")
        await virtual.until(lambda: not taken, 1)

    run(story)


def test_leases_of_other_names_do_not_matter() -> None:
    async def story(live: Live, taken: dict[str, str]) -> None:
        await renew(live.client, "volcano", "them", 0)  # here the lease of that name is called vc
        await asyncio.sleep(5)
        assert taken == {}

    run(story)


def test_volcanos_controllers_are_known_by_their_lease_before_anything_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Event] = []
    monkeypatch.setattr(Service, "tell", lambda service, event: told.append(event))

    async def main() -> None:
        live = await cluster()
        await renew(live.client, "vc-controller-manager", "them", 0)
        replica = Replica(live, "one")
        await until_one_leads([replica])
        assert told == [GroupsMade(True)]
        await asyncio.sleep(16)
        assert told == [GroupsMade(True), GroupsMade(False)]
        await replica.kill()
        await live.server.close()

    virtual.run(main())
