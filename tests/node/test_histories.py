"""Whatever happens to an agent, its cards, its pods and its node: what the node says is true when all is quiet."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subak.node.machine import Machine
from tests.node.nodes import NODE, Rig, run
from tests.support.fuzz import examples
from tests.support.machines import machine
from tinykube.quantity import Quantity
from tinykube.resource import NODES

ASKS = {
    "hami": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"},
    "volcano": {"volcano.sh/gpu-memory": "1000"},
}
THEIRS = {"theirs.io/key": "value"}

STEPS = st.one_of(
    st.tuples(st.just("cards"), st.integers(1, 3), st.sets(st.integers(0, 2), max_size=3)),
    st.tuples(st.just("pod"), st.sampled_from(sorted(ASKS))),
    st.tuples(st.just("end of a pod"), st.integers(0, 9)),
    st.tuples(st.just("reset"), st.sampled_from(["nvidia.com/gpu", "volcano.sh/gpu-memory"]), st.sampled_from("0x7")),
    st.tuples(st.just("scribble"), st.sampled_from(["subak.io/agent", "hami.io/node-nvidia-register"])),
    st.tuples(st.just("kill")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("cut")),
)


def described(count: int, broken: set[int]) -> Machine:
    cards = {"count": count, "unhealthy": sorted(each for each in broken if each < count)}
    return machine("koordinator", name=NODE, speaks=["hami", "volcano"], cards=cards)


class History:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.machine = described(2, set())
        self.pods: dict[str, str] = {}
        self.made = 0

    async def take(self, step: tuple[Any, ...]) -> None:
        rig = self.rig
        match step:
            case ("cards", count, broken):
                self.machine = described(count, broken)
                rig.cards.become(self.machine)
            case ("pod", dialect) if any(each.healthy for each in self.machine.devices):
                name, self.made = f"p{self.made}", self.made + 1
                self.pods[name] = dialect
                await rig.run_pod(name, ASKS[dialect], self.machine)
            case ("end of a pod", number) if self.pods:
                name = sorted(self.pods)[number % len(self.pods)]
                del self.pods[name]
                await rig.live.delete(name)
            case ("reset", name, amount) if name in (rig.node["status"].get("capacity") or {}):
                await rig.set_amounts(**{name: None if amount == "x" else amount})
            case ("scribble", key) if key in rig.annotations:
                await rig.annotate(**{key: "scribbled"})
            case ("kill",):
                await rig.kill()
                rig.start()
            case ("leave",):
                await rig.end()
                rig.start()
            case ("cut",):
                rig.live.way.cut()

    def is_true(self) -> bool:
        """Whether the node says what is so."""
        words = self.rig.annotations
        if not self.rig.agent.readiness()["ready"] or "scribbled" in words.values() or "subak.io/agent" not in words:
            return False
        capacity = self.rig.capacity
        asked = Counter[str]()
        for dialect in self.pods.values():
            asked.update({name: int(amount) for name, amount in ASKS[dialect].items() if name != "nvidia.com/gpumem"})
        healthy = sum(each.healthy for each in self.machine.devices)
        figures = {name: Quantity.parse(text).integer() for name, text in capacity.items()}
        enough = all(figures.get(name, 0) >= amount for name, amount in asked.items() if amount)
        least = {"nvidia.com/gpu": 10 * healthy, "volcano.sh/gpu-memory": 23040 * healthy}
        exact = self.pods or {name: figures.get(name, 0) for name in least} == least
        all_there = all(figures.get(name, 0) >= amount for name, amount in least.items())
        return bool(enough and exact and all_there and 0 not in figures.values())


@examples(quick=12, ci=300)
@given(st.lists(STEPS, max_size=8))
def test_what_the_node_says_is_true_when_all_is_quiet(steps: list[tuple[Any, ...]]) -> None:
    async def story(rig: Rig) -> None:
        history = History(rig)
        await rig.live.client.patch(NODES, NODE, "", {"metadata": {"annotations": THEIRS}})
        for step in steps:
            await history.take(step)
        await rig.until(history.is_true, 20)
        await rig.end()
        assert rig.capacity == {}
        assert rig.annotations == THEIRS

    run(story, described(2, set()))
