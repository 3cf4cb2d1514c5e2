"""What kubelet says, compared with what the agent knows: who runs without a slot, and which slots are nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.variables import SLOT
from subak.node.arbiter import Arbiter
from subak.node.counters import Counters
from subak.node.plugin.plugin import Plugin
from subak.node.plugin.podresources import Holder
from subak.node.plugin.reconciliation import differences, unguarded
from tests.support.machines import INTERPRETER, machine
from tinykube.client import Client


def pod(name: str, phase: str = "Running", containers: int = 1, **spec: Any) -> manifest.Pod:
    named = [{"name": f"c{n}"} for n in range(containers)]
    content = {
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {"containers": named, **spec},
        "status": {"phase": phase},
    }
    return msgspec.convert(content, manifest.Pod)


def holder(name: str, container: str = "c0", *slots: str) -> Holder:
    return Holder("default", name, container, {SLOT: frozenset(slots)} if slots else {})


def first(pod: manifest.Pod) -> list[int]:
    return [0]


@pytest.mark.parametrize(
    ("pods", "holders", "found"),
    [
        ([pod("a")], [holder("a")], ["c0"]),
        ([pod("a")], [holder("a", "c0", "slot-1")], []),
        ([pod("a", "Pending")], [holder("a")], []),
        ([pod("a", "Succeeded")], [holder("a")], []),
        ([pod("a")], [], []),
        ([pod("a")], [holder("b")], []),
        ([pod("a", containers=2)], [holder("a", "c0", "slot-1"), holder("a", "c1")], []),
        ([pod("a", initContainers=[{"name": "early"}])], [holder("a")], []),
        ([pod("a", initContainers=[{"name": "side", "restartPolicy": "Always"}])], [holder("a", "side")], ["side"]),
    ],
    ids=[
        "without a slot",
        "with one",
        "not started",
        "over",
        "kubelet knows of nobody",
        "kubelet knows another",
        "only who asks counts",
        "kubelet never names init containers",
        "but sidecars",
    ],
)
def test_who_runs_without_a_slot(pods: list[manifest.Pod], holders: list[Holder], found: list[str]) -> None:
    assert [each.container for each in unguarded(pods, holders, first)] == found


class Pods(dict[str, manifest.Pod]):
    """The pods of a node by UID."""

    def __iter__(self) -> Iterator[manifest.Pod]:  # type: ignore[override]
        return iter(self.values())


class Watched:
    """A plugin that knows these pods, and what it does."""

    def __init__(self, directory: Path, *pods: manifest.Pod) -> None:
        self.pods = Pods({each.metadata.uid: each for each in pods})
        self.evicted: list[tuple[str, str]] = []
        self.counters = Counters()
        arbiter = Arbiter(machine("shared"), INTERPRETER)
        self.plugin = Plugin(arbiter, self.pods, _no_client(), first, _never, self._evict, self.counters, directory)
        self.slots = self.plugin._slots
        self.slots.prepare(4)

    def _evict(self, pod: manifest.Pod, why: str) -> None:
        self.evicted.append((pod.key, why))


def _no_client() -> Client:
    return object.__new__(Client)


def _never(pod: manifest.Pod, container: str, message: str) -> None:
    raise AssertionError("nobody is refused")


def test_a_pod_that_runs_without_limits_is_evicted_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, pod("a"), pod("b"))
    for _ in range(3):
        watched.plugin.compared([holder("a"), holder("b", "c0", "slot-0")])
    ((key, why),) = watched.evicted
    assert key == "default/a"
    assert "container c0 runs without subak.io/slot" in why
    assert watched.counters.differences == 1


def test_the_slot_of_a_pod_that_is_gone_is_closed(tmp_path: Path) -> None:
    watched = Watched(tmp_path, pod("a"))
    watched.slots.open("slot-0", "u-a/c0", {})
    watched.slots.open("slot-1", "u-gone/c0", {})
    watched.plugin.compared([holder("a", "c0", "slot-0")])
    assert watched.slots.owners == {"slot-0": "u-a/c0"}
    assert watched.counters.differences == 0


def test_a_difference_that_lasts_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(tmp_path, pod("a"), pod("b"))
    watched.slots.open("slot-0", "u-a/c0", {})
    said = [holder("a", "c0", "slot-1"), holder("b", "c0", "slot-0")]
    watched.plugin.compared(said)
    assert watched.counters.differences == 0, "it may be over in a moment"
    for _ in range(2):
        watched.plugin.compared(said)
    assert watched.counters.differences == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "subak.io/slot slot-0 is open for container c0 of pod default/a, "
        "and kubelet has given it to container c0 of pod default/b"
    )


NAMES = st.sampled_from("abc")
SLOTS = st.sampled_from([f"slot-{n}" for n in range(4)])


@given(st.dictionaries(SLOTS, NAMES), st.dictionaries(SLOTS, NAMES), st.sets(NAMES))
def test_no_slot_is_closed_that_anybody_may_have(open: dict[str, str], held: dict[str, str], living: set[str]) -> None:
    pods = {f"u-{name}": pod(name) for name in living}
    holders = [holder(name, "c0", slot) for slot, name in held.items()]
    owners = {slot: f"u-{name}/c0" for slot, name in open.items()}
    found = {each.slot: each for each in differences(owners, holders, pods.get)}
    for slot, name in open.items():
        agreed = held.get(slot) == name and name in living
        assert (slot not in found) == agreed
        assert slot not in found or not found[slot].over or (slot not in held and name not in living)
