"""Gangs and queues in the scheduler's core: decided whole, bound one by one."""

from __future__ import annotations

import msgspec
import pytest

from subak.batch.configuration import Configuration, Option
from subak.model import manifest
from subak.scheduler.messages import Bind, BindFailed, Evict, EvictFailed, GroupsMade, MakeGroup, Nominate, ShowGroup
from subak.scheduler.record import State
from tests.support.gangs import MEMORY, QUEUE, TIMEOUT, GangCluster, member
from tests.support.scheduler import pod

PLUGINS = (
    (Option("priority"), Option("gang", {"enablePreemptable": False}), Option("conformance")),
    (Option("drf"), Option("predicates"), Option("proportion")),
)
PREEMPTING = Configuration(("enqueue", "allocate", "preempt", "backfill"), PLUGINS)


def cluster_with(*cards: int, **facts: object) -> GangCluster:
    """A cluster of nodes with so many cards of 1,000 MiB each."""
    cluster = GangCluster(**facts)  # type: ignore[arg-type]
    cluster.add_nodes(*cards)
    return cluster


def shows(cluster: GangCluster, gang: str) -> ShowGroup:
    """What was shown last of a group."""
    return [each for each in cluster.shown if isinstance(each, ShowGroup) and each.key == f"default/{gang}"][-1]


def condition(cluster: GangCluster, gang: str) -> str:
    """The type of the condition that was shown last of a group."""
    shown = shows(cluster, gang).condition
    return "" if shown is None else shown.type


def fail_bindings(cluster: GangCluster, *names: str) -> None:
    """One cycle in which the bindings of these pods are refused."""
    cluster.see()
    for instruction in cluster.cycle():
        refused = isinstance(instruction, Bind) and instruction.key.removeprefix("default/") in names
        cluster.carry_out(instruction, refuse=refused)


def test_of_pods_of_one_second_the_first_to_come_goes_first() -> None:
    cluster = cluster_with(1)
    for name in ("second-in-name", "first-in-name"):
        metadata = {"uid": f"uid-{len(name)}-{name}", "creationTimestamp": "2026-11-01T10:00:00Z"}
        cluster.create(pod(name, {MEMORY: 700}, schedulerName="volcano", metadata=metadata))
    cluster.settle()
    assert cluster.placed().keys() == {"second-in-name"}


def test_a_gang_starts_whole_or_not_at_all() -> None:
    cluster = cluster_with(2, 1)
    cluster.gang("a", 4)
    cluster.settle()
    assert not cluster.placed()
    assert not cluster.core.snapshot.bookings
    assert cluster.phase("a") == "Inqueue"
    assert "3 of 4 members fit" in cluster.reports["default/a-3"]
    assert condition(cluster, "a") == "Unschedulable"
    cluster.add_nodes(2, 2)
    cluster.settle()
    assert cluster.bound("a") == 4
    assert cluster.phase("a") == "Running"
    assert condition(cluster, "a") == "Scheduled"


def test_a_gang_starts_when_others_have_left() -> None:
    cluster = cluster_with(2)
    cluster.create(pod("plain", {MEMORY: 600}))
    cluster.settle()
    cluster.gang("a", 2)
    cluster.settle()
    assert cluster.bound("a") == 0
    cluster.delete("default/plain")
    cluster.settle()
    assert cluster.bound("a") == 2


def test_pods_before_their_group_wait_for_it_and_are_told_so() -> None:
    cluster = cluster_with(2)
    cluster.create(member("a-0", "a"))
    cluster.create(member("a-1", "a"))
    cluster.settle()
    assert not cluster.placed()
    assert "PodGroup default/a does not exist" in cluster.reports["default/a-0"]
    cluster.group("a", 2)
    cluster.settle()
    assert cluster.bound("a") == 2


def test_a_group_before_its_pods_waits_for_enough_of_them() -> None:
    cluster = cluster_with(2)
    cluster.group("a", 2)
    cluster.create(member("a-0", "a"))
    cluster.settle()
    assert not cluster.placed()
    assert "1 of 2 members is there" in cluster.reports["default/a-0"]
    cluster.create(member("a-1", "a"))
    cluster.settle()
    assert cluster.bound("a") == 2


def test_a_pod_of_volcano_by_itself_is_a_job_of_one_and_nothing_is_written_for_it() -> None:
    cluster = cluster_with(2)
    for number in range(3):
        cluster.create(member(f"solo-{number}", mib=600))
    cluster.settle()
    assert cluster.placed() == {"solo-0": "n0", "solo-1": "n0"}
    assert "largest free slice 400 MiB" in cluster.reports["default/solo-2"]
    assert not cluster.shown


def test_a_queue_that_is_not_there_keeps_its_jobs_off_and_they_are_told_so() -> None:
    cluster = cluster_with(1)
    cluster.create(member("solo", metadata={"annotations": {QUEUE: "q"}}))
    cluster.settle()
    assert "queue q does not exist" in cluster.reports["default/solo"]
    cluster.queue("q")
    cluster.settle()
    assert cluster.placed() == {"solo": "n0"}


def test_a_pod_in_other_words_or_with_a_queue_is_governed_whatever_its_scheduler() -> None:
    cluster = cluster_with(1)
    cluster.queue("q", state="Closed")
    cluster.create(member("solo", scheduler="subak", metadata={"annotations": {QUEUE: "q"}}))
    cluster.settle()
    assert not cluster.placed()
    cluster.queue("q", state="Open")
    cluster.settle()
    assert cluster.placed() == {"solo": "n0"}


def test_koordinators_gangs_bring_their_minimum_themselves() -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    cluster = cluster_with(2)
    cluster.create(member("g-0", scheduler="koord-scheduler", metadata={"annotations": dict(words)}))
    cluster.settle()
    assert not cluster.placed()
    cluster.create(member("g-1", scheduler="koord-scheduler", metadata={"annotations": dict(words)}))
    cluster.settle()
    assert cluster.bound("g") == 2


def test_finished_members_still_count_for_their_gang() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    cluster.settle()
    cluster.finish("default/a-0")
    cluster.settle()
    assert (shows(cluster, "a").succeeded, cluster.phase("a")) == (1, "Running")
    cluster.restart()
    cluster.finish("default/a-1")
    cluster.settle()
    assert (shows(cluster, "a").succeeded, cluster.phase("a")) == (2, "Completed")


def test_the_most_important_gang_comes_first() -> None:
    cluster = cluster_with(2)
    cluster.priority_class("high", 1000)
    cluster.gang("a", 2)
    cluster.gang("b", 2, priority_class="high")
    cluster.settle()
    assert (cluster.bound("a"), cluster.bound("b")) == (0, 2)


@pytest.mark.parametrize(("pod_priority", "winner"), [(2000, "plain"), (1000, "plain"), (500, "a-0")])
def test_a_gang_comes_before_less_important_pods_of_the_line(pod_priority: int, winner: str) -> None:
    cluster = cluster_with(1)
    cluster.priority_class("high", 1000)
    cluster.gang("a", 1, priority_class="high")
    cluster.create(pod("plain", {MEMORY: 1000}, priority=pod_priority, preemptionPolicy="Never"))
    cluster.settle()
    assert cluster.placed() == {winner: "n0"}


# Half-bound gangs


def test_a_refused_binding_puts_the_half_bound_gang_first() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    fail_bindings(cluster, "a-1")
    cluster.priority_class("high", 1000)
    cluster.gang("b", 1, priority_class="high", min_member=1)
    cluster.settle(until=TIMEOUT / 2)
    assert (cluster.bound("a"), cluster.bound("b")) == (1, 1), "during its pause the place is anybody's"
    cluster.delete("default/b-0")
    cluster.gang("c", 1, priority_class="high")
    cluster.settle(until=TIMEOUT / 2)
    assert (cluster.bound("a"), cluster.bound("c")) == (2, 0)


def test_a_half_bound_gang_gives_its_places_back_after_its_timeout() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    fail_bindings(cluster, "a-1")
    cluster.create(pod("plain", {MEMORY: 1000}))
    cluster.settle(until=TIMEOUT - 1)
    assert cluster.evictions == []
    assert cluster.bound("a") == 1
    assert "1 of 2 is bound" in cluster.reports["default/a-1"]
    began = cluster.now
    cluster.settle()
    assert cluster.evictions == ["default/a-0"]
    assert cluster.now - began <= TIMEOUT + 1
    cluster.kubelets()
    cluster.settle()
    assert cluster.placed() == {"plain": "n0"}


def test_the_event_of_a_gangs_timeout_has_numbers() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2, timeout=60.0)
    fail_bindings(cluster, "a-1")
    cluster.create(pod("plain", {MEMORY: 1000}))
    cluster.settle(until=50.0)
    cluster.now = 70.0
    (evict,) = [each for each in cluster.cycle() if isinstance(each, Evict)]
    assert (evict.key, evict.event, evict.reason) == ("default/a-0", "GangTimeout", "GangTimeout")
    assert evict.message == (
        "1 of the 2 members that gang default/a needs were bound, and for 70 s there was no place for the others"
    )
    cluster.now += 1
    assert not [each for each in cluster.cycle() if isinstance(each, Evict)], "nobody is told twice"


def test_members_that_could_not_be_evicted_are_evicted_again() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    fail_bindings(cluster, "a-1")
    cluster.create(pod("plain", {MEMORY: 1000}))
    cluster.settle(until=TIMEOUT - 1)
    cluster.now = TIMEOUT + 5
    (evict,) = [each for each in cluster.cycle() if isinstance(each, Evict)]
    cluster.core.handle(EvictFailed(evict.key, evict.uid))
    cluster.settle(until=cluster.now + 20)
    assert cluster.evictions == ["default/a-0"]


def test_a_new_scheduler_finds_a_half_bound_gang_again() -> None:
    cluster = cluster_with(3)
    cluster.gang("a", 3)
    cluster.see()
    binds = [each for each in cluster.cycle() if isinstance(each, Bind)]
    cluster.carry_out(binds[0])
    cluster.restart()  # the others are lost
    cluster.settle()
    assert cluster.bound("a") == 3
    assert cluster.evictions == []


def test_a_gang_that_was_whole_once_is_never_half_bound() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    cluster.settle()
    cluster.start("default/a-0")
    cluster.delete("default/a-1")
    cluster.settle()
    cluster.create(pod("plain", {MEMORY: 1000}))
    cluster.create(member("a-2", "a"))
    cluster.settle()
    assert cluster.phase("a") == "Unknown"
    cluster.restart()
    cluster.settle()
    cluster.now += 10 * TIMEOUT
    cluster.settle()
    assert cluster.evictions == []


def test_two_half_bound_gangs_do_not_block_each_other_for_ever() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 2)
    fail_bindings(cluster, "a-1")
    cluster.gang("b", 1)
    cluster.settle(until=TIMEOUT / 2)
    assert (cluster.bound("a"), cluster.bound("b")) == (1, 1)
    cluster.group("b", 2)
    cluster.create(member("b-1", "b"))
    for _ in range(6):  # their owners make them anew
        cluster.settle()
        going = [key for key, each in cluster.pods.items() if each.metadata.deletion_timestamp is not None]
        cluster.kubelets()
        for key in going:
            cluster.create(member(key.removeprefix("default/"), key.removeprefix("default/")[0]))
    cluster.settle()
    assert sorted((cluster.bound("a"), cluster.bound("b"))) == [0, 2]


# Places that are kept


def test_a_gang_that_preempts_keeps_its_places_until_the_victims_are_gone() -> None:
    cluster = cluster_with(2, configuration=PREEMPTING)
    cluster.create(member("low-0", priority=1, metadata={"annotations": {}}))
    cluster.create(member("low-1", priority=1))
    cluster.settle()
    for name in ("low-0", "low-1"):
        cluster.start(f"default/{name}")
    cluster.priority_class("high", 1000)
    cluster.gang("a", 2, priority_class="high", pods={"priority": 1000})
    cluster.settle()
    assert sorted(cluster.evictions) == ["default/low-0", "default/low-1"]
    assert {cluster.core.state(f"default/a-{n}") for n in range(2)} == {State.NOMINATED}
    cluster.delete("default/low-0")
    cluster.create(pod("plain", {MEMORY: 1000}))
    cluster.settle()
    assert cluster.bound("a") == 0
    assert "plain" not in cluster.placed(), "what was freed is kept"
    cluster.delete("default/low-1")
    cluster.settle()
    assert cluster.bound("a") == 2
    assert "plain" not in cluster.placed()


def test_kept_places_are_found_again_after_a_restart() -> None:
    cluster = cluster_with(1, configuration=PREEMPTING)
    cluster.create(member("low", priority=1))
    cluster.settle()
    cluster.start("default/low")
    cluster.create(member("high", priority=1000))
    cluster.settle()
    cluster.restart()
    cluster.create(pod("plain", {MEMORY: 1000}, priority=10))
    cluster.settle()
    assert cluster.core.state("default/high") is State.NOMINATED
    cluster.delete("default/low")
    cluster.settle()
    assert cluster.placed() == {"high": "n0"}
    assert cluster.evictions == ["default/low"]


def test_a_victim_that_stays_gives_the_kept_place_up() -> None:
    cluster = cluster_with(1, configuration=PREEMPTING)
    cluster.create(member("low", priority=1))
    cluster.settle()
    cluster.start("default/low")
    cluster.create(member("high", priority=1000))
    cluster.see()
    instructions = cluster.cycle()
    (evict,) = [each for each in instructions if isinstance(each, Evict)]
    cluster.core.handle(EvictFailed(evict.key, evict.uid))
    later = cluster.cycle()
    assert [each.node for each in later if isinstance(each, Nominate)] == [""]
    assert cluster.core.state("default/high") is State.WAITING
    cluster.now += 1.5
    assert [each for each in cluster.cycle() if isinstance(each, Evict)], "it tries again after a pause"


def test_a_more_important_pod_of_the_line_takes_a_kept_place() -> None:
    cluster = cluster_with(1, configuration=PREEMPTING)
    cluster.create(member("low", priority=1))
    cluster.settle()
    cluster.start("default/low")
    cluster.create(member("high", priority=1000))
    cluster.settle()
    cluster.create(pod("top", {MEMORY: 1000}, priority=5000))
    cluster.settle()
    assert cluster.core.state("default/top") is State.NOMINATED
    assert cluster.core.state("default/high") is State.WAITING
    cluster.delete("default/low")
    cluster.settle()
    assert cluster.placed() == {"top": "n0"}


def test_kept_places_are_given_up_with_their_group() -> None:
    cluster = cluster_with(1, configuration=PREEMPTING)
    cluster.create(member("low", priority=1))
    cluster.settle()
    cluster.start("default/low")
    cluster.gang("a", 1, pods={"priority": 1000})
    cluster.settle()
    assert cluster.core.state("default/a-0") is State.NOMINATED
    cluster.ungroup("a")
    cluster.settle()
    assert cluster.core.state("default/a-0") is State.WAITING
    assert "default/a-0" not in cluster.core.snapshot.bookings


# Owners, and Volcano's controllers


def owned(name: str, uid: str = "uid-rs") -> manifest.Pod:
    """A pod of a ReplicaSet."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": True}
    return member(name, metadata={"ownerReferences": [owner]})


def test_pods_of_an_owner_with_a_minimum_are_a_gang() -> None:
    cluster = cluster_with(2, owners={"uid-rs": 2})
    cluster.create(owned("rs-0"))
    cluster.settle()
    assert not cluster.placed()
    assert cluster.groups["default/podgroup-uid-rs"].min_member == 2
    cluster.create(owned("rs-1"))
    cluster.settle()
    assert cluster.bound("rs") == 2
    assert cluster.groups["default/podgroup-uid-rs"].phase == "Running"


def test_pods_of_an_owner_without_a_minimum_are_jobs_of_one() -> None:
    cluster = cluster_with(2)
    cluster.create(owned("rs-0"))
    cluster.settle()
    assert cluster.bound("rs") == 1
    assert not cluster.groups


def test_while_volcanos_controllers_make_groups_pods_wait_for_theirs() -> None:
    cluster = cluster_with(1)
    cluster.unseen.append(GroupsMade(True))
    cluster.create(owned("solo"))
    cluster.settle()
    assert not cluster.placed()
    assert "Volcano's controllers" in cluster.reports["default/solo"]
    cluster.unseen.append(GroupsMade(False))
    cluster.settle()
    assert cluster.placed() == {"solo": "n0"}


def test_a_pod_that_gets_its_group_later_moves_there() -> None:
    cluster = cluster_with(2)
    cluster.unseen.append(GroupsMade(True))
    cluster.create(member("a-0"))
    cluster.settle()
    cluster.group("a", 1)
    named = cluster.pods["default/a-0"]
    metadata = msgspec.structs.replace(named.metadata, annotations={"scheduling.k8s.io/group-name": "a"})
    cluster.create(msgspec.structs.replace(named, metadata=metadata))
    cluster.settle()
    assert cluster.bound("a") == 1


# Nothing to do


def test_a_core_without_changes_decides_nothing() -> None:
    cluster = cluster_with(2)
    cluster.gang("a", 3)
    cluster.gang("b", 2)
    cluster.settle()
    assert cluster.bound("b") == 2
    for _ in range(3):
        cluster.now += 100
        assert cluster.cycle() == []
    assert cluster.core.wakes_at() is None


def test_a_late_failure_of_a_binding_that_was_given_up_changes_nothing() -> None:
    cluster = cluster_with(1)
    cluster.gang("a", 1)
    cluster.settle()
    cluster.core.handle(BindFailed("default/a-0", "uid-a-0", "too late"))
    cluster.settle()
    assert cluster.bound("a") == 1
    assert not cluster.evictions


def test_making_a_group_is_asked_for_once() -> None:
    cluster = cluster_with(4, owners={"uid-rs": 2})
    made: list[MakeGroup] = []
    for number in range(3):
        cluster.create(owned(f"rs-{number}"))
        cluster.see()
        for instruction in (*cluster.cycle(), *cluster.cycle()):
            made += [instruction] if isinstance(instruction, MakeGroup) else []
            cluster.carry_out(instruction)
    cluster.settle()
    assert len(made) == 1
