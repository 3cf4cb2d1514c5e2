"""A user writes anything to any object at any moment: no card carries too much, no part ends, nobody waits for ever."""

from __future__ import annotations

import logging

from hypothesis import given

from tests.support import hostile
from tests.support.fuzz import examples
from tests.support.hostile import Deed, World
from tests.support.junk import nothing_logged


@examples(5, ci=100)
@given(hostile.deeds)
async def test_whatever_a_user_writes_no_card_is_overcommitted_and_no_pod_is_lost(deeds: list[Deed]) -> None:
    with nothing_logged(logging.ERROR):
        async with World() as world:
            for deed in deeds:
                await world.suffer(deed)
            await world.recover()


@examples(5, ci=100)
@given(hostile.deeds_to_pods)
async def test_whatever_he_writes_to_pods_the_scheduler_promises_nothing_that_a_node_refuses(deeds: list[Deed]) -> None:
    with nothing_logged(logging.ERROR):
        async with World() as world:
            for deed in deeds:
                await world.suffer(deed)
                assert await world.refused() == []
            await world.recover()
