"""Whatever kube-scheduler asks, in any order, and however often the extender restarts: no card is given twice."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.extender.extender import Extender
from subak.scheduler.messages import NodeSeen, PodSeen
from tests.scheduler.extender.test_extender import NODES, bound, create, extending, filtered
from tests.scheduler.live import MEMORY, Live
from tests.support import virtual
from tests.support.fuzz import examples
from tinykube.resource import NODES as NODE_OBJECTS

PODS = 6
steps = st.lists(
    st.tuples(
        st.sampled_from(["filter", "bind", "bind elsewhere", "delete", "wait", "kill"]),
        st.integers(0, PODS - 1),
        st.sets(st.sampled_from(NODES), min_size=1),
    ),
    max_size=25,
)


async def known(live: Live) -> Core:
    """A new core that has seen all objects."""
    core = Core()
    for node in (await live.client.list(NODE_OBJECTS, type=manifest.Node)).items:
        core.handle(NodeSeen(node))
    for pod in live.pods().values():
        core.handle(PodSeen(msgspec.convert(pod, manifest.Pod)))
    return core


def free(core: Core) -> dict[str, list[int]]:
    """The free memory of all cards."""
    return {node.name: [card.memory_free for card in core.snapshot.cards(node.name)] for node in core.snapshot}


@examples(quick=8, ci=150)
@given(steps)
def test_no_card_is_given_twice_and_nothing_stays_booked_for_nobody(history: list[tuple[str, int, set[str]]]) -> None:
    async def story() -> None:
        async with extending(30.0) as (live, extender):
            pods = [await create(live, f"p{i}", {MEMORY: str(300 + 50 * i)}) for i in range(PODS)]
            await live.until(lambda: len(live.service.feed.pods.objects) == PODS)
            chosen: dict[int, str] = {}
            for what, i, names in history:
                match what:
                    case "filter" if f"p{i}" in live.pods():
                        found = filtered(extender, pods[i], sorted(names)).node_names
                        chosen |= {i: found[0]} if found else {}
                    case "bind" | "bind elsewhere":
                        node = chosen.get(i, "n1") if what == "bind" else min(names)
                        if not await bound(extender, pods[i], node):
                            assert live.placed()[f"p{i}"] == node
                    case "delete" if f"p{i}" in live.pods():
                        await live.delete(f"p{i}")
                    case "wait":
                        await asyncio.sleep(20)
                    case "kill":
                        await live.kill()
                        await live.start()
                        await live.service.ready.wait()
                        extender = Extender(live.service, 30.0)
                core = await known(live)
                assert all(each >= 0 for cards in free(core).values() for each in cards)
            await asyncio.sleep(100)
            assert free(live.service.core) == free(await known(live)), "all bookings have ended"
            assert all(count == 1 for name, count in live.way.bindings.items() if name in live.placed())

    virtual.run(story())
