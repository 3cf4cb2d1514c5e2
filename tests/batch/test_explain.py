"""Why a gang waits, in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.batch.explain import Lack, Outlook, Share, duration, for_member, lacking, outlook, sentence, share
from subak.batch.world import Job, Queue, State, Status, Task, World
from subak.model import manifest
from subak.model.device import MIB
from subak.model.request import Claim, Needs, Request

GIB = 1024 * MIB
NVIDIA = frozenset({"nvidia"})
EIGHT = Outlook(needed=8, there=8, queue="a")


def test_some_fit_others_lack_cards_and_the_queue_has_a_share() -> None:
    tried = replace(
        EIGHT,
        fitting=5,
        lacks=(Lack(3, "a card with 16 GiB free"),),
        share=Share("nvidia/memory", 40 * GIB, 48 * GIB),
    )
    assert sentence(tried) == (
        "5 of 8 members fit; 3 lack a card with 16 GiB free; queue a holds 40 of its deserved 48 GiB of NVIDIA memory"
    )


def test_what_the_queue_holds_is_told_once() -> None:
    lack = Lack(3, "a place: queue a deserves 48 GiB, 40 GiB held")
    tried = replace(EIGHT, fitting=5, lacks=(lack,), share=Share("nvidia/memory", 40 * GIB, 48 * GIB))
    assert sentence(tried) == "5 of 8 members fit; 3 lack a place: queue a deserves 48 GiB, 40 GiB held"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (EIGHT, "8 members wait to be tried"),
        (replace(EIGHT, there=3), "3 of 8 members are there"),
        (replace(EIGHT, there=1), "1 of 8 members is there"),
        (replace(EIGHT, short=(("worker", 2, 6),)), "2 of 6 members of worker are there"),
        (replace(EIGHT, state=""), "there is no queue a"),
        (replace(EIGHT, state="Closed"), "queue a is closed: it takes no new members"),
        (replace(EIGHT, missing="PodGroup default/x is not there"), "PodGroup default/x is not there"),
        (replace(EIGHT, refusal="spec.x: remove it", state=""), "spec.x: remove it"),
        (replace(EIGHT, held_back="queue a may not have more"), "queue a may not have more"),
        (replace(EIGHT, fitting=1, lacks=(Lack(1, "x"),)), "1 of 8 members fits; 1 lacks x"),
        (
            replace(EIGHT, bound=5, seconds_left=180.0, state="Closed", lacks=(Lack(3, "x"),)),
            "5 of 8 are bound; evicted in 3 min unless 3 more get a place; 3 lack x",
        ),
        (
            replace(EIGHT, bound=7, seconds_left=42.0, held_back="the queue is full"),
            "7 of 8 are bound; evicted in 42 s unless 1 more gets a place; the queue is full",
        ),
        (replace(EIGHT, kept=8, leaving=2), "8 of 8 members get their places as soon as 2 pods have left"),
        (replace(EIGHT, kept=8), "8 of 8 members get their places as soon as others have left"),
    ],
)
def test_each_kind_of_waiting_has_its_sentence(found: Outlook, told: str) -> None:
    assert sentence(found) == told
    assert for_member("default/x", found) == f"waits with its gang default/x: {told}"


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ({"memory_bytes": 16 * GIB}, "a card with 16 GiB free"),
        ({"memory_bytes": 512 * MIB, "cores": 30}, "a card with 512 MiB and 30 % of its cores free"),
        ({"memory_percent": 50}, "a card with 50 % of its memory free"),
        ({"idle": True, "memory_percent": 100}, "a card that nobody uses"),
        ({"count": 2, "memory_bytes": GIB}, "2 cards on one node with 1 GiB free each"),
        ({"count": 4, "idle": True}, "4 cards on one node that nobody uses"),
    ],
)
def test_what_members_lack_of_cards(claim: dict[str, int], told: str) -> None:
    request = Request(claims=(Claim("hami", NVIDIA, (0,), **claim),))  # type: ignore[arg-type]
    assert lacking(request) == lacking(request, ["CardInsufficientMemory", "NodeSelectorMismatch"]) == told


def test_what_members_lack_of_nodes() -> None:
    request = Request(needs=Needs(resources=(("cpu", 4_000), ("memory", 8 * GIB), ("pods", 1))))
    assert lacking(request) == "a node with 4 cpu and 8 GiB of memory free"
    assert lacking(Request()) == "a node that takes them"


def test_where_no_card_would_help_what_does_is_quoted() -> None:
    request = Request(claims=(Claim("hami", NVIDIA, (0,)),))
    assert lacking(request, ["NodeSelectorMismatch"], "no label zone=x") == "a place: no label zone=x"
    assert lacking(request, [], "queue a is full") == "a place: queue a is full"


def test_the_share_that_is_told_is_the_scarcest_that_the_gang_asks_for() -> None:
    held = {"cpu": 900.0, "memory": 10.0, "nvidia/memory": 1.0}
    deserved = {"cpu": 1_000.0, "memory": 1_000.0, "nvidia/memory": 10.0}
    assert share(held, deserved, ["cpu", "memory", "pods"]) == Share("cpu", 900.0, 1_000.0)
    assert share(held, deserved, ["cpu", "nvidia/memory"]) == Share("nvidia/memory", 1.0, 10.0)
    assert share(held, deserved, ["example.com/thing"]) is None


def gang(world: World, *statuses: Status, **facts: object) -> Job:
    job = Job("volcano default/x", "default/x", "volcano", **facts)  # type: ignore[arg-type]
    world.put_job(job)
    for i, status in enumerate(statuses):
        task = Task(f"default/p{i}", manifest.Pod(), Request(), {"cpu": 1_000}, role=f"r{i % 2}", status=status)
        world.put_task(job, task)
    return job


def test_a_jobs_outlook() -> None:
    world = World()
    world.put_queue(queue := Queue("default", state=State.CLOSING))
    statuses = (Status.RUNNING, Status.SUCCEEDED, Status.FAILED, Status.PENDING, Status.PIPELINED, Status.RELEASING)
    job = gang(world, *statuses, min_member=5, min_roles={"r0": 1, "r1": 5})
    found = outlook(job, queue, fitting=3, deserved={"cpu": 4_000}, seconds_left=9.0, leaving=1)
    assert found == Outlook(
        needed=5,
        there=4,
        bound=2,
        kept=1,
        leaving=1,
        fitting=3,
        short=(("r1", 2, 5),),
        queue="default",
        state="Closing",
        share=Share("cpu", queue.held["cpu"], 4_000),
        seconds_left=9.0,
    )
    assert outlook(job, None).state == ""


def test_times_to_wait() -> None:
    assert [duration(each) for each in (-3, 0.4, 59.6, 100, 299, 7_200)] == [
        "0 s",
        "0 s",
        "60 s",
        "2 min",
        "5 min",
        "2 h",
    ]


OUTLOOKS = st.builds(
    Outlook,
    needed=st.integers(0, 9),
    there=st.integers(0, 9),
    bound=st.integers(0, 9),
    kept=st.integers(0, 9),
    leaving=st.integers(0, 9),
    fitting=st.none() | st.integers(0, 9),
    lacks=st.sampled_from([(), (Lack(2, "x"),)]),
    held_back=st.sampled_from(["", "the queue is full"]),
    queue=st.just("a"),
    state=st.sampled_from(["", *State]),
    share=st.none() | st.builds(Share, st.just("cpu"), st.floats(0, 1e6), st.floats(0, 1e6)),
    seconds_left=st.none() | st.floats(0, 1e6),
)


@given(OUTLOOKS)
def test_there_is_always_something_to_say(found: Outlook) -> None:
    assert sentence(found)
    assert "\n" not in sentence(found)
