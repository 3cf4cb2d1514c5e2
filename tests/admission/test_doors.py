"""Records at the doors of the embedded API server; `tests/e2e/test_records.py` tries them on a real one."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given

from subak.admission.records import guard
from subak.admission.review import review
from tests.support import virtual
from tests.support.doors import (
    HELD,
    INTERPRETER,
    OWNED,
    SCHEDULER,
    TENANT,
    WRITERS,
    Asked,
    World,
    forge_everywhere,
    sequences,
    write_all,
)
from tests.support.fuzz import histories
from tests.support.talk import PODS, Json, Talk
from tinykube.server.server import Server
from tinykube.server.store import Store


async def opened() -> World:
    guards, hooks = [partial(guard, OWNED, WRITERS)], [partial(review, INTERPRETER)]
    return await World(Talk(Server(Store(), hooks=hooks, guards=guards))).open()


@pytest.mark.parametrize("key", [*HELD, "hami.io/bind-phase"])
async def test_a_forged_record_is_refused_at_every_door(key: str) -> None:
    await forge_everywhere(await opened(), key)


async def test_a_forged_label_is_refused_at_every_door() -> None:
    await forge_everywhere(await opened(), "hami.io/vgpu-node", "labels")


@histories()
@given(sequences)
def test_no_write_of_a_user_changes_a_record_and_all_others_are_answered_as_ever(sequence: list[Asked]) -> None:
    async def story() -> None:
        await write_all(await opened(), sequence)

    virtual.run(story())


async def test_a_pod_that_is_sent_back_with_its_records_is_accepted() -> None:
    world = await opened()
    whole = await world.talk.get(f"{PODS}/p")
    whole["metadata"]["labels"] = {"team": "a"}
    assert (await world.talk.send("PUT", f"{PODS}/p", whole, user=TENANT)).code == 200
    labelled = {"name": "p", "annotations": HELD, "labels": {"team": "b"}}
    wanted: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": labelled}
    more: Json = {"patch": "apply", "fieldManager": "me", "force": "true", "user": TENANT}
    assert (await world.talk.send("PATCH", f"{PODS}/p", wanted, **more)).code == 200
    # What was applied and is applied no longer would go: that is a change.
    wanted["metadata"] = {"name": "p"}
    assert (await world.talk.send("PATCH", f"{PODS}/p", wanted, **more)).code == 403
    assert list((await world.records()).values()) == [HELD]


async def test_the_scheduler_puts_a_record_back() -> None:
    world = await opened()
    body = {"metadata": {"annotations": {"volcano.sh/gpu-index": "1", "hami.io/bind-phase": None}}}
    done = await world.talk.patch(f"{PODS}/p", "merge", body, user=SCHEDULER)
    assert done["metadata"]["annotations"]["volcano.sh/gpu-index"] == "1"


async def test_whoever_may_not_write_a_record_may_delete_its_pod() -> None:
    world = await opened()
    answer = await world.talk.send("DELETE", f"{PODS}/p", user=TENANT, gracePeriodSeconds=0)
    assert answer.code == 200
    assert await world.records() == {}
