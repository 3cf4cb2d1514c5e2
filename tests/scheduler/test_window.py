"""What a controller shows over HTTP: health, readiness, metrics, and where a pod is in its life."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from subak.cli.window import Jobs, Queues
from subak.scheduler.batch_configuration import KEY, NAME, NAMESPACE
from subak.scheduler.controller import Controller, Settings
from tests.scheduler.live import MEMORY, Live, refuse
from tests.scheduler.replicas import Replica, cluster, renew
from tinykube.resource import CONFIG_MAPS, NAMESPACES
from tinykube.transport import Request, Response
from tinykube.window import CannotListen

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "controller.md"


@asynccontextmanager
async def replica() -> AsyncIterator[tuple[Live, Replica]]:
    live = await cluster()
    one = Replica(live, "one")
    try:
        await until(lambda: bool(one.controller.window.port))
        yield live, one
    finally:
        await one.kill()
        await live.server.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def get(one: Replica, path: str) -> tuple[int, str]:
    address = f"http://127.0.0.1:{one.controller.window.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return answer.status, await answer.text()


async def get_json(one: Replica, path: str) -> tuple[int, Any]:
    address = f"http://127.0.0.1:{one.controller.window.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return answer.status, await answer.json()


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The value of each metric by its labels, in the order of their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels[name] for name in sorted(sample.labels))] = (
                sample.value
            )
    return found


async def test_a_leader_is_ready_and_says_whom_it_serves() -> None:
    async with replica() as (live, one):
        await renew(live.client, "volcano", "vc", 0)
        await until(lambda: one.leads and bool(one.controller.served.foreign))
        assert await get(one, "/healthz") == (200, "ok\n")
        code, said = await get_json(one, "/readyz")
        assert code == 200
        assert (said["ready"], said["role"], said["leader"]) == (True, "leader", "one")
        assert said["served"] == ["subak", "hami-scheduler", "koord-scheduler"]
        assert said["not_served"] == {"volcano": "its own scheduler holds lease kube-system/volcano (vc)"}


async def test_a_standby_is_ready_too_and_names_the_leader() -> None:
    async with replica() as (live, one):
        await until(lambda: one.leads)
        two = Replica(live, "two")
        await until(lambda: two.knows_all)
        code, said = await get_json(two, "/readyz")
        assert (code, said["role"], said["leader"]) == (200, "standby", "one")
        await two.kill()


async def test_who_does_not_know_all_objects_is_not_ready_and_says_what_is_missing() -> None:
    live = await cluster()
    one = Replica(live, "one")

    async def forbid(request: Request, answer: Any) -> Response:
        return refuse(403) if request.path.endswith("/resourcequotas") else await answer()

    one.way.disturb = forbid
    await until(lambda: bool(one.controller.window.port))
    await until(lambda: len([each for each in one.controller.reflectors if not each.synced.is_set()]) == 1)
    code, said = await get_json(one, "/readyz")
    assert (code, said["ready"], said["waiting_for"]) == (503, False, ["resourcequotas"])
    assert (await get(one, "/healthz"))[0] == 200, "a restart would not help"
    await one.kill()
    await live.server.close()


async def test_a_pod_that_waits_is_told_why_with_its_story() -> None:
    async with replica() as (live, one):
        await live.create("a", {MEMORY: "600"}, schedulerName="subak")
        await live.create("b", {MEMORY: "600"}, schedulerName="subak")
        await until(lambda: live.condition("b").get("status") == "False" and "a" in live.placed())
        code, said = await get_json(one, "/pods/default/b")
        assert (code, said["state"], said["node"]) == (200, "waiting", "")
        assert "largest free slice 400 MiB, 600 MiB asked" in said["reason"]
        assert any("queued" in sentence for sentence in said["story"])
        assert "waits" in said["story"][-1]
        code, said = await get_json(one, "/pods/default/a")
        assert (said["state"], said["node"], said["reason"]) == ("held", "n1", "")
        assert (await get(one, "/pods/default/nobody"))[0] == 404


async def test_a_gang_that_waits_is_told_why_with_the_stories_of_its_members() -> None:
    gang = {f"gang.scheduling.koordinator.sh/{word}": text for word, text in (("name", "g"), ("min-available", "3"))}
    async with replica() as (live, one):
        await live.add_node("n2")
        for name in ("a", "b", "c"):
            await live.create(name, {MEMORY: "600"}, annotations=gang, schedulerName="subak")
        await until(lambda: "fit;" in str(live.condition("a").get("message")))
        code, said = await get_json(one, "/gangs/koordinator/default/g")
        assert (code, said["minMember"], said["queue"]) == (200, 3, "default")
        assert said["message"].startswith("2 of 3 members fit; 1 lacks a card with 600 MiB free")
        assert said["members"]["default/a"] == {"status": "Pending", "node": ""}
        assert "waits" in said["stories"]["default/b"][-1]
        assert (await get(one, "/gangs/koordinator/default/other"))[0] == 404


async def test_the_metrics_tell_what_happened() -> None:
    async with replica() as (live, one):
        await live.create("a", {MEMORY: "600"}, schedulerName="subak")
        await live.create("b", {MEMORY: "600"}, schedulerName="subak")
        await until(lambda: live.condition("b").get("status") == "False" and "a" in live.placed())
        code, text = await get(one, "/metrics")
        found = samples(text)
        assert code == 200
        assert found["subak_leader"] == {(): 1}
        assert found["subak_queue_length"] == {(): 1}
        assert found["subak_decisions_total"]["bound",] == 1
        assert found["subak_decisions_total"]["waiting",] == 1
        assert found["subak_refusals_total"] == {("CardInsufficientMemory",): 1}
        assert found["subak_created_to_bound_seconds_count"] == {(): 1}
        assert found["subak_created_to_bound_seconds_sum"][()] < 5
        assert found["subak_api_errors_total"]["404", "get"] >= 1, "there was no lease yet"
        assert found["subak_largest_free_slice_bytes"] == {("", "n1"): 400 << 20}


async def test_queues_are_shown_with_what_they_deserve_and_in_metrics() -> None:
    async with replica() as (live, one):
        for name in ("a", "b"):
            await live.create(name, {MEMORY: "600"}, schedulerName="volcano")
        await until(lambda: live.condition("b").get("status") == "False" and "a" in live.placed())
        code, said = await get_json(one, "/queues")
        queue = next(each for each in said["queues"] if each["name"] == "default")
        assert code == 200
        assert (queue["state"], queue["weight"], queue["pods_running"], queue["pods_waiting"]) == ("Open", 1, 1, 1)
        assert queue["held"]["nvidia/memory"] == 600 << 20
        assert queue["deserved"]["nvidia/memory"] == 1000 << 20
        assert queue["asked"]["nvidia/memory"] == 1200 << 20
        assert any(view.name == "default" for view in msgspec.convert(said, Queues).queues), "as commands read it"
        code, said = await get_json(one, "/queues/default")
        assert code == 200
        assert [job.name for job in msgspec.convert(said, Jobs).jobs] == ["default/b", "default/a"]
        found = samples((await get(one, "/metrics"))[1])
        assert found["subak_batch_queue_held"]["default", "nvidia/memory"] == 600 << 20
        assert found["subak_batch_queue_deserved"]["default", "nvidia/memory"] == 1000 << 20
        assert found["subak_batch_queue_weight"]["default",] == 1
        assert found["subak_batch_queue_share"]["default",] == pytest.approx(0.6)
        assert found["subak_batch_queue_pods"]["default", "waiting"] == 1
        assert found["subak_batch_session_seconds_count"][()] >= 1


async def test_the_page_lists_exactly_the_metrics_that_there_are() -> None:
    async with replica() as (live, one):
        await live.create("a", {MEMORY: "6000"}, schedulerName="subak")
        await until(lambda: live.condition("a").get("status") == "False")
        _, text = await get(one, "/metrics")
        shown = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
        listed = set(re.findall(r"^\| `(subak_\w+)", PAGE.read_text(), re.MULTILINE))
        assert listed == shown


async def test_an_address_in_use_is_named() -> None:
    async with replica() as (live, one):
        again = Settings(host="127.0.0.1", port=one.controller.window.port)
        with pytest.raises(CannotListen, match=f"127.0.0.1:{one.controller.window.port} cannot be listened on"):
            await Controller(live.server, again).run(asyncio.Event())


async def test_a_scheduler_configuration_that_is_not_in_force_is_trouble() -> None:
    async with replica() as (live, one):
        await until(lambda: one.leads)
        _, text = await get(one, "/metrics")
        assert samples(text)["subak_batch_config_refused"] == {(): 0.0}
        await live.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        body = {"metadata": {"name": NAME}, "data": {KEY: "actions: alocate"}}
        await live.client.create(CONFIG_MAPS, body, NAMESPACE)
        await until(lambda: bool(one.controller.trouble))
        status, content = await get_json(one, "/readyz")
        assert status == 200
        (trouble,) = content["trouble"]
        assert trouble.startswith(f"configmap {NAMESPACE}/{NAME}: {KEY}: actions: 'alocate'")
        _, text = await get(one, "/metrics")
        assert samples(text)["subak_batch_config_refused"] == {(): 1.0}
