"""Plans by which pods make room: as cheap as a slow and obvious search finds, never dearer than kube-scheduler's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.budget import Budget
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Refusal
from subak.model.request import Request
from subak.policy import Across, registry
from subak.policy.decider import Decider
from subak.policy.place import place
from subak.policy.preempt import Plan, Preemption, Preemptor, pinned, place_on, waits_for
from subak.policy.victims import price, started
from subak.snapshot.watcher import Change
from tests.policy.test_place import ledger
from tests.support import victims as reference
from tests.support.fuzz import examples
from tests.support.preemption import World
from tests.support.world import INTERPRETER, ON_NVIDIA, make, node, pods, register

THOROUGH = examples(quick=15, ci=800)
MOST = 8
"""So many pods on a node have 255 sets."""

BUDGETS = [
    msgspec.convert(
        {
            "metadata": {"name": f"b{allowed}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed},
        },
        Budget,
    )
    for app, allowed in (("web", 0), ("db", 1))
]

Wish = tuple[manifest.Pod, int, int, str]

HOUSES: tuple[tuple[list[int], tuple[str, ...]], ...] = (
    ([0], ON_NVIDIA),
    ([1, 2], ("hami", "volcano-memory", "volcano-number")),
    ([3], ("koordinator",)),
    ([4, 5], ("iluvatar", "iluvatar-chip")),
    ([6], ("mthreads",)),
    ([7, 8], ("sgpu", "metax-gpu")),
    ([9, 10], ("hami",)),
    ([14], ("ascend",)),
    ([15], ("sgpu", "koordinator-metax")),
    ([16], ("hami", "volcano-vgpu")),
)
"""Nodes, and dialects in which pods can ask for all of their cards."""


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[int], list[Wish], manifest.Pod]:
    """Nodes, the pods that come there in turn, and one more, which may find no room."""
    kinds, dialects = draw(st.sampled_from(HOUSES))
    traits = (st.integers(-2, 3), st.integers(0, 3), st.sampled_from(["", "web", "db"]))
    stream = draw(st.lists(st.tuples(pods(dialects), *traits), min_size=8, max_size=30))
    return kinds, stream, draw(pods(dialects))


def named(pod: manifest.Pod, name: str, priority: int = 0, start: int = 0, app: str = "") -> manifest.Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=name, labels={"app": app} if app else None)
    status = manifest.PodStatus(start_time=f"2026-01-01T00:00:0{start}Z" if start else "")
    spec = msgspec.structs.replace(pod.spec, priority=priority)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def asking(limits: dict[str, Any], **more: Any) -> manifest.Pod:
    content = {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}, **more}
    return msgspec.convert(content, manifest.Pod)


def settled(kinds: list[int], stream: list[Wish], budgets: list[Budget]) -> World:
    world = World(Decider(INTERPRETER, [make(kind, f"node-{i}") for i, kind in enumerate(kinds)]))
    for budget in budgets:
        world.preemption.budgets.put(budget)
    for i, (pod, priority, start, app) in enumerate(stream):
        world.add(named(pod, f"p{i}", priority, start, app))
    return world


@THOROUGH
@given(story=stories(), priority=st.integers(2, 4), budgets=st.sampled_from([[], BUDGETS]))
def test_a_plan_is_as_cheap_as_can_be(
    story: tuple[list[int], list[Wish], manifest.Pod], priority: int, budgets: list[Budget]
) -> None:
    kinds, stream, wish = story
    check(settled(kinds, stream, budgets), wish, priority, budgets)


def check(world: World, wish: manifest.Pod, priority: int, budgets: list[Budget]) -> None:
    snapshot, lower = world.decider.snapshot, world.lower(priority)
    try:
        request = world.decider.request(INTERPRETER.admit(named(wish, "wish", priority)))
    except Refusal:
        assume(False)
    assume(place(snapshot, request) is None and max(map(len, lower.values())) <= MOST)
    before, version = ledger(snapshot), snapshot.version
    plan = world.preemption.plan(Preemptor("default", request, priority))
    assert (ledger(snapshot), snapshot.version) == (before, version), "to plan changes nothing"
    seconds = {key: started(pod) for key, pod in world.there.items()}
    best = reference.cheapest(snapshot, request, lower, budgets, seconds)
    if plan is None:
        assert best is None
        return
    assert best is not None
    found = price(plan.victims)
    assert found == reference.cost([each.pod for each in plan.victims], budgets, seconds)
    if len(request.claims) == 1 and request.claims[0].count == 1:
        assert found == best
    greedy = reference.as_kube_scheduler(snapshot, request, lower, budgets, seconds)
    assert greedy is not None
    assert best <= found <= greedy
    for each in plan.victims:
        assert each.pod.priority < priority
        assert snapshot.bookings[each.key].placement.node == plan.placement.node
        snapshot.forget(each.key)
    snapshot.assume("default/wish", plan.placement, request.needs.resources)
    world.there["default/wish"] = named(wish, "wish", priority)
    fresh = Preemption(world.decider, world)
    for budget in budgets:
        fresh.budgets.put(budget)
    if place(snapshot, request) is None:
        again, anew = (each.plan(Preemptor("default", request, priority)) for each in (world.preemption, fresh))
        assert again == anew, "what is remembered is true"


@pytest.fixture
def world() -> World:
    """One node with two cards of 16,000 MiB."""
    return World(
        Decider(
            INTERPRETER,
            [node("n1", {"nvidia.com/gpu": 8}, {"hami.io/node-nvidia-register": register("n1", [16_000, 16_000])})],
        )
    )


def share(mib: int, cards: int = 1) -> manifest.Pod:
    return asking({"nvidia.com/gpu": cards, "nvidia.com/gpumem": mib})


def on_card(mib: int, card: int) -> manifest.Pod:
    pod = share(mib)
    metadata = msgspec.structs.replace(pod.metadata, annotations={"nvidia.com/use-gpuuuid": f"GPU-n1-{card}"})
    return msgspec.structs.replace(pod, metadata=metadata)


def planned(world: World, pod: manifest.Pod, priority: int) -> Plan | None:
    return world.plan(named(pod, "wish", priority))


def victims(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [each.pod.name for each in plan.victims]


def test_a_single_victim_on_one_card_is_found_where_taking_back_would_leave_two(world: World) -> None:
    world.add(named(on_card(8_000, 0), "half", 1))
    world.add(named(on_card(8_000, 0), "other-half", 1))
    world.add(named(on_card(15_000, 1), "most", 1, start=1))
    assert victims(planned(world, share(14_000), 5)) == ["most"]


def test_the_card_with_less_important_pods_is_chosen(world: World) -> None:
    world.add(named(on_card(15_000, 0), "important", 4))
    world.add(named(on_card(8_000, 1), "one", 1))
    world.add(named(on_card(8_000, 1), "two", 1))
    assert sorted(victims(planned(world, share(14_000), 5))) == ["one", "two"]


def test_of_equals_the_one_that_started_last_leaves(world: World) -> None:
    world.add(named(on_card(15_000, 0), "new", 1, start=3))
    world.add(named(on_card(15_000, 1), "old", 1, start=2))
    assert victims(planned(world, share(14_000), 5)) == ["new"]


def test_pods_leave_for_what_the_node_itself_lacks() -> None:
    world = World(Decider(INTERPRETER, [node("plain", {"cpu": "8"}, {})]))
    for name, cpu, priority in (("small", 2, 0), ("large", 3, 0), ("important", 3, 9)):
        world.add(named(asking({"cpu": cpu}), name, priority))
    assert victims(planned(world, asking({"cpu": 3}), 5)) == ["large"]


def test_two_cards_take_the_cheapest_victims_of_both(world: World) -> None:
    world.add(named(on_card(8_000, 0), "a", 1))
    world.add(named(on_card(8_000, 0), "b", 2))
    world.add(named(on_card(8_000, 1), "c", 1))
    world.add(named(on_card(8_000, 1), "d", 2))
    assert sorted(victims(planned(world, share(7_000, cards=2), 5))) == ["a", "c"]


@pytest.mark.parametrize("many", [10, 40])
@pytest.mark.parametrize("wanted", [1, 2, 10])
def test_many_small_tenants_leave_if_need_be(many: int, wanted: int) -> None:
    world = World(Decider(INTERPRETER, [node("n1", {"volcano.sh/gpu-memory": 16_000, "volcano.sh/gpu-number": 1}, {})]))
    for i in range(many):
        world.add(named(asking({"volcano.sh/gpu-memory": 16_000 // many}), f"p{i}", i % 3))
    leaving = planned(world, asking({"volcano.sh/gpu-memory": 1_600 * wanted}), 5)
    assert leaving is not None
    assert len(leaving.victims) == wanted * many // 10
    assert max(each.pod.priority for each in leaving.victims) == (wanted > 3) + (wanted > 6)


def test_pods_that_leave_anyway_cost_nothing(world: World) -> None:
    world.add(named(on_card(15_000, 0), "a", 1))
    world.add(named(on_card(15_000, 1), "b", 3))
    world.going["n1"] = {"default/b"}
    plan = planned(world, share(14_000), 5)
    assert victims(plan) == []
    assert plan is not None
    assert plan.placement.grants[0].shares[0].id == "GPU-n1-1"


def test_the_lowest_priority_never_searches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add(named(on_card(15_000, 0), "a", 1))
    world.add(named(on_card(15_000, 1), "b", 1))
    monkeypatch.setattr(Preemption, "on", lambda *_: pytest.fail("searched"))
    monkeypatch.setattr(Preemption, "_without_victims", lambda *_: pytest.fail("searched"))
    assert planned(world, share(14_000), 1) is None


def test_a_pinned_request_gets_its_cards_or_none(world: World) -> None:
    request = world.decider.request(INTERPRETER.admit(named(share(10_000), "wish")))
    placement = place_on(world.decider.snapshot, "n1", request)
    assert placement is not None
    same = pinned(request, placement)
    assert place_on(world.decider.snapshot, "n1", same) == placement
    world.decider.snapshot.assume("default/thief", placement)
    assert place_on(world.decider.snapshot, "n1", same) is None
    assert place_on(world.decider.snapshot, "n1", request) is not None
    assert place_on(world.decider.snapshot, "nowhere", request) is None


def test_plans_of_several_pods_add_up_within_a_transaction(world: World) -> None:
    world.add(named(on_card(15_000, 0), "a", 1))
    world.add(named(on_card(15_000, 1), "b", 1))
    snapshot = world.decider.snapshot
    request = world.decider.request(INTERPRETER.admit(named(share(14_000), "wish", 5)))
    left: list[str] = []
    with snapshot.transaction():
        for i in range(2):
            plan = world.preemption.plan(Preemptor("default", request, 5))
            assert plan is not None
            for each in plan.victims:
                snapshot.forget(each.key)
                left.append(each.pod.name)
            snapshot.assume(f"default/gang-{i}", plan.placement, request.needs.resources)
            world.there[f"default/gang-{i}"] = named(share(14_000), f"gang-{i}", 5)
        assert world.preemption.plan(Preemptor("default", request, 5)) is None
    assert sorted(left) == ["a", "b"]
    assert set(snapshot.bookings) == {"default/a", "default/b"}


def test_the_wording_for_a_pod_that_waits() -> None:
    assert waits_for("n", ["d/a", "d/b"]) == "waits on node n for 2 pods to leave: d/a, d/b"
    assert waits_for("n", ["d/a"]) == "waits on node n for 1 pod to leave: d/a"
    assert waits_for("n", []) == "waits on node n for room to be freed"


class Aloof(Across):
    """A pod with the label `avoids` does not go where pods of that app are."""

    name = "aloof"
    cures = frozenset({Change.POD_LEFT})

    def __init__(self) -> None:
        self.apps: Counter[tuple[str, str]] = Counter()

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        return pod.labels.get("avoids")

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self.apps[node, pod.labels.get("app", "")] += 1

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self.apps[node, pod.labels.get("app", "")] -= 1

    def node_seen(self, node: Node) -> None:
        pass

    def node_gone(self, name: str) -> None:
        pass

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        avoided = str(request.read(self.name))
        return NodeRefusal("NotAlone", f"{avoided} is there") if self.apps[node.name, avoided] else None


def test_pods_that_a_filter_minds_leave_though_they_hold_no_card(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ACROSS, Aloof.name, Aloof)
    world.add(named(asking({"cpu": 1}), "web", 1, app="web"))
    world.add(named(asking({"cpu": 1}), "other", 0, app="db"))
    world.add(named(share(1_000), "holder", 0))
    wish = named(share(14_000), "wish", 5)
    wish = msgspec.structs.replace(wish, metadata=msgspec.structs.replace(wish.metadata, labels={"avoids": "web"}))
    assert victims(world.plan(wish)) == ["web"]
    world.add(named(asking({"cpu": 1}), "important", 9, app="web"))
    assert world.plan(wish) is None
