"""What a node is to say of its cards, and which writes make it say that: without any API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.local.hardware import profiles
from subak.model import manifest
from subak.model.manifest import Metadata, NodeStatus
from subak.model.placement import Charge
from subak.node.advertisement import NOTHING, Advertisement, Changes, Written, changes, make, written
from subak.node.machine import Machine
from tests.support.machines import INTERPRETER, machine
from tinykube.quantity import Quantity

ANSWER = "Reported 2026-11-16 08:00:00"
OTHERS = st.dictionaries(st.sampled_from(["theirs.io/a", "theirs.io/b"]), st.sampled_from(["1", "2"]))


def node(
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    amounts: Mapping[str, str] | None = None,
) -> manifest.Node:
    both: manifest.Amounts = dict(amounts or {})
    return manifest.Node(
        metadata=Metadata(name="n", annotations=dict(annotations or {}), labels=dict(labels or {})),
        status=NodeStatus(capacity=both, allocatable=dict(both)),
    )


def patched(before: manifest.Node, news: Changes) -> manifest.Node:
    """The node after the writes."""

    def merged(has: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
        return {key: text for key, text in {**has, **patch}.items() if text is not None}

    return manifest.Node(
        metadata=Metadata(
            name="n",
            annotations=merged(before.annotations, news.annotations),
            labels=merged(before.labels, news.labels),
        ),
        status=NodeStatus(
            capacity=merged(before.status.capacity or {}, news.amounts),
            allocatable=merged(before.status.allocatable or {}, news.amounts),
        ),
    )


def settled(before: manifest.Node, wanted: Advertisement, ours: Written) -> tuple[manifest.Node, Written]:
    """The node when nothing is left to write, which must be soon."""
    for _ in range(4):
        news = changes(before, wanted, ours, ANSWER)
        if not news:
            return before, news.ours
        before, ours = patched(before, news), news.ours
    raise AssertionError(f"it never ends: {news}")


def said(machine: Machine, held: Mapping[str, Charge] | None = None) -> Advertisement:
    return make(machine, held or {}, {}, "nri", {})


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine of any profile, with any health."""
    found = draw(st.sampled_from(profiles.default(INTERPRETER)))
    devices = [msgspec.structs.replace(each, healthy=draw(st.booleans())) for each in found.devices]
    return replace(found, name="n", devices=tuple(devices))


@given(st.lists(machines(), min_size=1, max_size=4), OTHERS, OTHERS, OTHERS, st.booleans())
def test_after_any_history_nothing_of_ours_is_left_and_all_of_others_is(
    history: list[Machine], annotations: dict[str, str], labels: dict[str, str], amounts: dict[str, str], kill: bool
) -> None:
    before = node(annotations, labels, amounts)
    now, ours = before, Written()
    for each in history:
        now, ours = settled(now, said(each), ours)
        assert now.annotations["subak.io/agent"] == "nri"
        if kill:
            ours = written(now)  # all that a new agent knows
    now, ours = settled(now, NOTHING, ours)
    assert now == before
    assert ours == Written()


@given(machines(), st.data())
def test_a_list_of_ours_is_never_shorter_than_what_is_ours(found: Machine, data: st.DataObject) -> None:
    """Killed between any two writes, a new agent knows what the old one wrote."""
    now, ours = node(), Written()
    for wanted in (said(found), said(data.draw(machines())), NOTHING):
        news = changes(now, wanted, ours, ANSWER)
        metadata = replace(news, amounts={})
        status = replace(news, annotations={}, labels={})
        for step in (metadata, status):
            now = patched(now, step)
            assert set(now.status.capacity or ()) <= written(now).amounts
        ours = news.ours


@given(machines(), st.data())
def test_amounts_count_healthy_cards_and_what_is_held_of_broken_ones(found: Machine, data: st.DataObject) -> None:
    held = {
        each.id: Charge(
            shares=1,
            slots=1,
            memory_bytes=data.draw(st.integers(0, each.memory_bytes)),
            cores=data.draw(st.integers(0, each.cores)),
        )
        for each in found.devices
        if data.draw(st.booleans())
    }
    healthy = replace(found, devices=tuple(each for each in found.devices if each.healthy))
    whole = replace(found, devices=tuple(msgspec.structs.replace(each, healthy=True) for each in found.devices))
    least, most, now = said(healthy).amounts, said(whole).amounts, said(found, held).amounts
    for name, text in now.items():
        assert _number(least.get(name, "0")) <= _number(text) <= _number(most[name])
        assert _number(text) > 0
    if held.keys() <= {each.id for each in healthy.devices}:
        assert now == least


def test_held_memory_of_a_broken_card_counts_and_no_more() -> None:
    two = machine("volcano", cards={"count": 2, "unhealthy": [0]}, speaks=["volcano", "hami"])
    mine = {two.devices[0].id: Charge(shares=1, slots=1, memory_bytes=1024 << 20)}
    assert said(two).amounts["volcano.sh/gpu-memory"] == "11178"
    assert said(two, mine).amounts == {
        "nvidia.com/gpu": "11",
        "volcano.sh/gpu-memory": str(11178 + 1024),
        "volcano.sh/gpu-number": "2",
    }


def test_kubelet_finds_what_pods_ask_for() -> None:
    one = machine("volcano", cards={"count": 1}, speaks=["volcano"])
    asked = {"volcano.sh/gpu-memory": 20_000, "nvidia.com/gpumem": 5}
    assert make(one, {}, asked, "nri", {}).amounts == {"volcano.sh/gpu-memory": "20000", "volcano.sh/gpu-number": "1"}


def test_amounts_that_mean_the_same_are_not_written_again() -> None:
    wanted = Advertisement(amounts={"volcano.sh/gpu-memory": "3000"})
    assert not changes(node(amounts={"volcano.sh/gpu-memory": "3k"}), wanted, Written(), ANSWER).amounts


def test_allocatable_alone_is_put_right_too() -> None:
    wanted = Advertisement(amounts={"a.io/b": "3"})
    odd = manifest.Node(status=NodeStatus(capacity={"a.io/b": "3"}, allocatable={"a.io/b": "0"}))
    assert changes(odd, wanted, Written(), ANSWER).amounts == {"a.io/b": "3"}


def test_a_list_that_somebody_scribbled_over_means_nothing() -> None:
    for text in ("", "[]", '{"amounts": 3}', "[" * 10_000):
        assert written(node({"subak.io/advertised": text})) == Written()


def test_the_list_can_be_read_by_people() -> None:
    now, _ = settled(node(), Advertisement(labels={"b.io/x": "1", "a.io/x": "1"}), Written())
    assert json.loads(now.annotations["subak.io/advertised"])["labels"] == ["a.io/x", "b.io/x"]


def _number(text: str) -> int:
    return Quantity.parse(text).integer()
