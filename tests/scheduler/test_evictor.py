"""Evictions: the pod says why it goes, goes once, and a new pod of its name stays."""

from __future__ import annotations

from subak.scheduler.evictor import Evictor
from subak.scheduler.messages import Evict
from tests.scheduler.live import MEMORY, Answering, Live, living, refuse
from tests.support import virtual
from tinykube.client import Client
from tinykube.transport import Request, Response, Unreachable


def instruction(live: Live, name: str, uid: str = "") -> Evict:
    uid = uid or live.pod(name)["metadata"]["uid"]
    return Evict(f"default/{name}", uid, "Preempted", "PreemptionByScheduler", "a more important pod needs its cards")


def evictor(live: Live) -> Evictor:
    return Evictor(Client(live.way), live.service.recorder)


async def placed(live: Live, name: str) -> None:
    await live.create(name, {MEMORY: "800"})
    await live.until(lambda: name in live.placed())


def going(live: Live, name: str) -> bool:
    return "deletionTimestamp" in live.pod(name)["metadata"]


def test_a_pod_is_marked_before_it_is_deleted() -> None:
    async def story() -> None:
        async with living() as live:
            await placed(live, "a")
            seen: list[str] = []

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "DELETE":
                    seen.extend(each["reason"] for each in live.pod("a")["status"]["conditions"] if "reason" in each)
                return await answer()

            live.way.disturb = disturb
            await evictor(live).evict(instruction(live, "a"))
            assert "PreemptionByScheduler" in seen
            assert going(live, "a")
            assert ("Preempted", "a more important pod needs its cards") in await live.events("a")

    virtual.run(story())


def test_trouble_is_outlasted_and_the_pod_goes() -> None:
    async def story() -> None:
        async with living() as live:
            await placed(live, "a")
            troubles: list[Response | Exception] = [refuse(429), Unreachable("away"), refuse(500), refuse(429)]

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method in ("PATCH", "DELETE") and "/pods/a" in request.path and troubles:
                    trouble = troubles.pop()
                    if isinstance(trouble, Response):
                        return trouble
                    raise trouble
                return await answer()

            live.way.disturb = disturb
            await evictor(live).evict(instruction(live, "a"))
            assert not troubles
            assert going(live, "a")

    virtual.run(story())


def test_a_new_pod_of_the_same_name_stays() -> None:
    async def story() -> None:
        async with living() as live:
            await placed(live, "a")
            await evictor(live).evict(instruction(live, "a", uid="4f6a0f3c-0000-4000-8000-000000000000"))
            assert not going(live, "a")
            assert "DisruptionTarget" not in str(live.pod("a")["status"])

    virtual.run(story())
