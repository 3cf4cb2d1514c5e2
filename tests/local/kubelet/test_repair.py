"""Somebody else writes a pod's status: the kubelet puts back what runs, and cards stay booked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet import reporter
from tests.support import virtual
from tests.support.fuzz import histories
from tests.support.kubelet.harness import Harness, harness, in_virtual_time
from tests.support.kubelet.pods import container
from tinykube.client import MERGE_PATCH
from tinykube.resource import PODS
from tinykube.status import ApiError

Json = dict[str, Any]

QUIET = 3.37 * reporter.REPAIR_PAUSE
"""Long enough for all repairs, and no moment at which a container starts again after a crash."""

LIES: list[Json] = [
    {"phase": "Failed", "reason": "Evicted", "message": "so I say"},
    {"phase": "Succeeded"},
    {"phase": "Pending"},
    {"phase": "Running"},
    {"podIP": "10.6.6.6", "podIPs": [{"ip": "10.6.6.6"}]},
    {"podIP": None, "podIPs": None},
    {"hostIP": "10.6.6.6", "hostIPs": [{"ip": "10.6.6.6"}]},
    {"startTime": "2001-01-01T00:00:00Z"},
    {"conditions": None},
    {"conditions": [{"type": "Ready", "status": "False", "reason": "Lie", "message": "a lie"}]},
    {"containerStatuses": None},
    {"containerStatuses": [{"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 7}]},
    {"initContainerStatuses": [{"name": "none", "image": "x", "imageID": "", "ready": True, "restartCount": 7}]},
    {"reason": "Lie", "message": "a lie"},
    {"observedGeneration": 99},
]


async def lie(place: Harness, said: Json, name: str = "web") -> None:
    await place.client.patch_status(PODS, name, "default", said, kind=MERGE_PATCH)


async def try_to_lie(place: Harness, said: Json) -> None:
    """The server itself refuses some lies."""
    with suppress(ApiError):
        await lie(place, said)


async def settled(place: Harness, name: str = "web") -> Json:
    """The pod when nobody has written anything for a while."""
    await asyncio.sleep(QUIET)
    return await place.get(name)


def writes(place: Harness) -> int:
    return place.wire.count("PATCH", "/status")


@pytest.mark.parametrize("said", LIES, ids=lambda said: "-".join(said))
@in_virtual_time
async def test_what_others_write_is_put_back_with_one_write(tmp_path: Path, said: Json) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        await place.phase("Running")
        before, count = await settled(place), writes(place)
        await lie(place, said)
        await asyncio.sleep(0.1)
        after = await place.get()
        assert after["status"] == before["status"]
        await settled(place)
        changed = after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        assert writes(place) == count + changed
        assert place.runtime["web/main"].running
        assert place.devices.held == {"web"}


@pytest.mark.parametrize("said", LIES, ids=lambda said: "-".join(said))
@in_virtual_time
async def test_a_pod_that_ended_stays_so(tmp_path: Path, said: Json) -> None:
    async with harness(tmp_path) as place:
        store = place.store
        await place.create(restartPolicy="Never")
        await place.phase("Running")
        place.runtime["web/main"].exit(0)
        await place.phase("Succeeded")
        before = await settled(place)
        await try_to_lie(place, said)
        assert (await settled(place))["status"] == before["status"]
        assert place.devices.held == set()
    async with harness(tmp_path, store=store) as place:
        await try_to_lie(place, said)
        assert (await settled(place))["status"] == before["status"]
        assert place.runtime.order == []
        assert place.devices.held == set()


@in_virtual_time
async def test_a_client_that_never_stops_costs_one_write_a_pause(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        await place.phase("Running")
        before, count = await settled(place), writes(place)
        for number in range(1000):
            await lie(place, {"message": f"lie {number}"})
            await asyncio.sleep(reporter.REPAIR_PAUSE / 100)
        assert writes(place) - count <= 12
        assert (await settled(place))["status"] == before["status"]


@in_virtual_time
async def test_news_do_not_wait_for_repairs(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(restartPolicy="Never")
        await place.phase("Running")
        await lie(place, {"message": "a lie"})
        await asyncio.sleep(reporter.REPAIR_PAUSE / 10)
        await lie(place, {"message": "another"})
        place.runtime["web/main"].exit(3)
        pod = await place.until(lambda pod: pod["status"]["phase"] == "Failed", patience=reporter.REPAIR_PAUSE / 2)
        assert "message" not in pod["status"]


@in_virtual_time
async def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        await place.phase("Running")
        count = writes(place)
        fed = {"type": "example.com/fed", "status": "True", "reason": "Fed"}
        await place.client.patch_status(PODS, "web", "default", {"conditions": [fed]})
        conditions = (await settled(place))["status"]["conditions"]
        assert [each["reason"] for each in conditions if each["type"] == "example.com/fed"] == ["Fed"]
        assert writes(place) == count


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
@in_virtual_time
async def test_a_time_that_was_written_before_the_pod_was_bound_means_nothing(tmp_path: Path, time: str) -> None:
    async with harness(tmp_path) as place:
        await place.create(nodeName="", activeDeadlineSeconds=50, terminationGracePeriodSeconds=1)
        ended = {**LIES[11]["containerStatuses"][0], "state": {"terminated": {"exitCode": 1, "startedAt": time}}}
        await lie(place, {"startTime": time, "containerStatuses": [ended]})
        await place.client.bind("web", "default", "node-1")
        pod = await place.phase("Running")
        assert pod["status"]["startTime"] == pod["metadata"]["creationTimestamp"]
        await asyncio.sleep(60)
        assert (await place.get())["status"]["reason"] == "DeadlineExceeded"


Step = tuple[str, Any]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("lie"), st.sampled_from(LIES)),
        st.tuples(st.just("exit"), st.sampled_from([0, 1])),
        st.tuples(st.just("pause"), st.sampled_from([0.0, 0.01, 0.3, 2.0, 15.0])),
    ),
    max_size=12,
)


@histories(ci=500)
@given(policy=st.sampled_from(["Always", "OnFailure", "Never"]), steps=steps, slow=st.booleans())
def test_whatever_others_write_the_status_is_what_runs(policy: str, steps: list[Step], slow: bool) -> None:
    async def story() -> None:
        async with harness(Path("/nowhere")) as place:
            place.runtime.takes = 0.5 if slow else 0.0
            await place.create(container(), restartPolicy=policy)
            await asyncio.sleep(0.3)
            for kind, value in steps:
                if kind == "pause":
                    await asyncio.sleep(value)
                elif kind == "exit" and place.runtime.attempts("web/main"):
                    place.runtime["web/main"].exit(value)
                elif kind == "lie":
                    await try_to_lie(place, value)
                runs = any(each.running for each in place.runtime.attempts("web/main"))
                assert place.devices.held or not runs, "the cards of what runs are booked"
            pod = (await settled(place))["status"]
            running = any(each.running for each in place.runtime.attempts("web/main"))
            (main,) = pod["containerStatuses"]
            assert ("running" in main["state"]) is running
            assert main["restartCount"] == len(place.runtime.attempts("web/main")) - 1
            over = pod["phase"] in ("Succeeded", "Failed")
            assert over is not bool(place.devices.held)
            assert pod.get("message", "") == ""

    virtual.run(story())
