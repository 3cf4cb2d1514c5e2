"""The ways of injection as the agent sees them: who holds what, and what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from subak.model import manifest
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.injection import ByKubelet, ByRuntime
from tests.node.test_arbiter import HALF, bound
from tests.support.machines import INTERPRETER, machine
from tests.support.slotted import bound as bound_with_slot
from tests.support.slotted import described, stored, written

A10 = machine("shared", taints=[])


class Pods(dict[str, manifest.Pod]):
    """Follows `Pods` as far as it is asked."""

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self.values()))


class Place:
    """A node without an API server; follows `injection.Node`."""

    def __init__(self, folder: Path) -> None:
        self.interpreter = INTERPRETER
        self.host = Host.on_node(folder)
        self.arbiter = Arbiter(A10, INTERPRETER, self.host)
        self.pods = Pods()
        self.known = asyncio.Event()
        self.others: frozenset[str] = frozenset()
        self.client = self.outbox = self.counters = SimpleNamespace()

    def refresh(self) -> None:
        pass

    def served_by_others(self) -> frozenset[str]:
        return self.others

    def pod(self, uid: str, phase: str) -> manifest.Pod:
        pod = bound(A10, uid, HALF)
        self.pods[uid] = msgspec.structs.replace(pod, status=manifest.PodStatus(phase=phase))
        return self.pods[uid]


@pytest.fixture
def place(tmp_path: Path, libsubak: Path) -> Place:
    return Place(tmp_path)


def by_kubelet(place: Any) -> ByKubelet:
    return ByKubelet(place, Path("/slots"))


def test_a_running_pod_is_booked_and_given_back_when_it_is_over(place: Place) -> None:
    way, pod = by_kubelet(place), place.pod("a", "Running")
    way.follow(pod)
    assert place.arbiter.holds(pod)
    way.follow(place.pod("a", "Succeeded"))
    assert not place.arbiter.holds(pod)
    way.follow(place.pod("a", "Running"))
    del place.pods["a"]
    way.follow(pod)
    assert not place.arbiter.holds(pod)


def test_a_pod_that_has_not_begun_holds_nothing(place: Place) -> None:
    pod = place.pod("a", "Pending")
    by_kubelet(place).follow(pod)
    assert not place.arbiter.holds(pod)


def test_a_new_agent_knows_the_pod_whose_first_container_prepares_the_others(place: Place, tmp_path: Path) -> None:
    pod = place.pod("a", "Pending")
    place.arbiter.admit(pod)
    later = Place(tmp_path)
    later.pods["a"] = pod
    by_kubelet(later).follow(pod)
    assert later.arbiter.holds(pod)


def test_pods_of_a_vendors_own_agent_are_not_booked(place: Place) -> None:
    place.others = frozenset({"hami-nvidia"})
    pod = place.pod("a", "Running")
    by_kubelet(place).follow(pod)
    assert not place.arbiter.holds(pod)


def test_pods_that_kubelet_has_not_admitted_yet_are_owed_an_answer(place: Place) -> None:
    way = by_kubelet(place)
    place.pod("plain", "Pending")
    assert not way.owes(), "kubelet does not ask about a pod without a slot"
    pod = bound_with_slot(stored(written({"resources": {"limits": HALF}})), described(A10))
    place.pods["a"] = pod
    assert way.owes()
    place.pods["a"] = msgspec.structs.replace(pod, status=manifest.PodStatus(start_time="2026-11-16T09:00:00Z"))
    assert not way.owes()


def test_who_asks_for_cards_and_has_no_limits_is_to_be_found(place: Place) -> None:
    way, pod = by_kubelet(place), place.pod("a", "Running")
    assert way._asking(pod) == [0], "the other container asks for nothing"
    place.arbiter.admit(pod)
    assert way._asking(pod) == []
    other = place.pod("b", "Running")
    place.others = frozenset({"hami-nvidia"})
    assert way._asking(other) == []


def test_who_asks_for_what_cannot_be_has_no_limits_either(place: Place) -> None:
    content = written({"resources": {"limits": {"nvidia.com/gpu": "no"}}}, {})
    assert by_kubelet(place)._asking(msgspec.convert(content, manifest.Pod)) == [0, 1]


async def test_a_runtime_that_does_not_ask_is_named_with_its_socket(place: Any, tmp_path: Path) -> None:
    way = ByRuntime(place, tmp_path / "nri.sock")
    assert (way.working, list(way.trouble)) == (False, []), "before cards are known it is not asked to"
    place.known.set()
    (trouble,) = way.trouble
    assert f"no connection at {tmp_path / 'nri.sock'}" in trouble
