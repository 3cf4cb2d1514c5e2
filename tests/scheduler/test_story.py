"""The story of a pod: what happened to it, in order, and no more than the last few sentences."""

from __future__ import annotations

from typing import get_args
from unittest.mock import patch

import pytest

from subak.model.placement import Placement
from subak.policy.decider import Decider
from subak.scheduler.messages import Instruction
from subak.scheduler.service import Service
from subak.scheduler.story import MOST, Moment, Sentence, Word, longer, printed
from subak.snapshot.cluster import Overcommitted
from tests.scheduler.live import living
from tests.support import virtual
from tests.support.cards import placed, share
from tests.support.scheduler import Cluster, pod, volcano_node

MEMORY = "volcano.sh/gpu-memory"


@pytest.fixture
def cluster() -> Cluster:
    """One node with one card of 1,000 MiB."""
    made = Cluster(now=3_600.0)
    made.add_node(volcano_node("n1"))
    return made


def words(cluster: Cluster, key: str) -> list[str]:
    return [sentence.word.value for sentence in cluster.core.story(key)]


def test_a_pod_that_finds_a_place(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.settle()
    assert printed(cluster.core.story("default/a")) == (
        "01:00:00 seen; 01:00:00 queued; 01:00:00 decided: node n1, card n1-nvidia-0; 01:00:00 bound: n1"
    )


def test_a_pod_that_waits_says_for_what_and_goes_on_when_it_may(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.settle()
    cluster.create(pod("b", {MEMORY: 600}))
    cluster.settle()
    assert words(cluster, "default/b") == ["seen", "queued", "waits"]
    assert "largest free slice 400 MiB, 600 MiB asked" in str(cluster.core.story("default/b")[-1])
    cluster.delete("default/a")
    cluster.settle()
    assert words(cluster, "default/b") == ["seen", "queued", "waits", "decided", "bound"]
    assert cluster.core.story("default/a") == ()


def test_a_refused_binding_is_in_the_story(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.see()
    (bind,) = cluster.cycle()
    cluster.carry_out(bind, refuse=True)
    assert words(cluster, "default/a") == ["seen", "queued", "decided", "binding refused", "queued"]
    assert "binding refused: refused" in printed(cluster.core.story("default/a"))


def test_what_happened_since_the_last_cycle_has_no_time_yet(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}, metadata={"uid": "u"}))
    cluster.see()
    assert printed(cluster.core.story("default/a")) == "now seen; now queued"
    cluster.cycle()
    assert printed(cluster.core.story("default/a")).startswith("01:00:00 seen; ")


def test_a_gated_pod_is_set_aside_and_says_so_once(cluster: Cluster) -> None:
    gated = pod("a", {MEMORY: 600}, schedulingGates=[{"name": "later"}])
    for _ in range(3):
        cluster.create(gated)
    cluster.settle()
    assert [str(each) for each in cluster.core.story("default/a")] == [
        "01:00:00 seen",
        "01:00:00 set aside: scheduling gates",
    ]


def test_only_the_last_sentences_are_kept() -> None:
    story: tuple[Sentence, ...] = ()
    for number in range(3 * MOST):
        story = longer(story, Sentence(Moment(), Word.WAITS, f"reason {number}"))
    assert [each.detail for each in story] == [f"reason {number}" for number in range(2 * MOST, 3 * MOST)]


def test_a_wrong_decision_is_an_error_that_tells_the_story(cluster: Cluster) -> None:
    cluster.create(pod("a", {MEMORY: 600}))
    cluster.see()

    def wrongly(*_: object) -> Placement:
        return placed("n1", share("n1-nvidia-0", 2_000))

    with patch.object(Decider, "decide", wrongly), pytest.raises(Overcommitted) as caught:
        cluster.cycle()
    assert caught.value.__notes__ == ["01:00:00 seen; 01:00:00 queued; 01:00:00 decided: node n1, card n1-nvidia-0"]


def test_every_instruction_is_carried_out() -> None:
    async def check() -> None:
        async with living() as live:
            service: Service = live.service
            assert service._executors.keys() == set(get_args(Instruction))

    virtual.run(check())
