"""Policies that Subak does not know: this file and a registration for each are all that it takes.

A pod with the label `beside: web` goes only to zones in which a pod with the label `app: web` runs.  Of the nodes there
it takes the one on which the fewest cards are left partly used; but one with the label `likes: ZONE` goes to that zone
if it can.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.card import CardState
from subak.model.node import Node
from subak.model.placement import Grant, Placement, charges
from subak.model.reason import NodeRefusal
from subak.model.request import Request
from subak.policy import Across, NodeScore, Preference, registry
from subak.policy.decider import Decider
from subak.scheduler.messages import Bind, PodSeen
from subak.snapshot.pool import Bools, Column, Pool, Verdicts
from subak.snapshot.watcher import Change
from tests.support.scheduler import Cluster
from tests.support.scheduler import pod as made

REGISTER = "hami.io/node-nvidia-register"
ZONE = "zone"


class Company(Across):
    """Zones without the company that a pod wants are out."""

    name = "company"
    cures = frozenset({Change.POD_CAME, Change.POD_RELABELLED, Change.NODE_CHANGED})

    def __init__(self) -> None:
        self.zones: dict[str, str] = {}
        self.apps: dict[str, Counter[str]] = {}

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """The app that the pod wants to be with."""
        return pod.labels.get("beside")

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        """One more pod of its app."""
        self.apps.setdefault(node, Counter())[pod.labels.get("app", "")] += 1

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        """One less."""
        self.apps[node][pod.labels.get("app", "")] -= 1

    def node_seen(self, node: Node) -> None:
        """The node's zone."""
        self.zones[node.name] = node.labels.get(ZONE, "")

    def node_gone(self, name: str) -> None:
        """A node that is gone is in no zone."""
        del self.zones[name]

    def count(self, zone: str, app: Hashable) -> int:
        """How many pods of an app run in a zone."""
        return sum(self.apps[name][str(app)] for name in self.apps if self.zones.get(name) == zone)

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        """For one node."""
        zone, app = node.labels.get(ZONE, ""), request.read(self.name)
        return None if self.count(zone, app) else NodeRefusal("NoCompany", f"no {app} in zone {zone}")

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        """For all nodes: the pool keeps their zones in a column."""
        zoned = pool.verdicts(ZONE, lambda node: node.labels.get(ZONE, ""))
        refusals: list[Hashable | None] = [None]
        codes = np.zeros(len(zoned.texts), np.int32)
        for number, zone in enumerate(zoned.texts):
            if not self.count(str(zone), request.read(self.name)):
                refusals.append(NodeRefusal("NoCompany", f"no {request.read(self.name)} in zone {zone}"))
                codes[number] = len(refusals) - 1
        return Verdicts.of(codes[zoned.codes], refusals)


class Tidy(NodeScore):
    """The fewest cards partly used, after the pod."""

    name = "tidy"

    def score(self, node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
        """Minus the number of such cards."""
        taken = charges(grants)
        for card in cards:
            if card.device.id in taken:
                card.take(taken[card.device.id])
        return -sum(0 < card.memory_free < card.device.memory_bytes for card in cards)


class Taste(Preference):
    """The zone that a pod likes."""

    name = "taste"
    weight = 1

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """The zone."""
        return pod.labels.get("likes")

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        """All points for nodes of the zone."""
        zone, points = request.read(self.name), {pool: np.zeros(pool.room, np.int64) for pool in among}
        for pool, column in points.items():
            column[: pool.size] = [100 * (node.labels.get(ZONE) == zone) for node in pool.nodes]
        return points


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be three lines of `policy/registry.py`."""
    monkeypatch.setitem(registry.PREFERENCES, Taste.name, Taste)
    monkeypatch.setitem(registry.ACROSS, Company.name, Company)
    monkeypatch.setitem(registry.SCORES, Tidy.name, Tidy())


def node(name: str, zone: str, cards: int = 2) -> manifest.Node:
    """Cards of 1,000 MiB."""
    register = [
        {"id": f"{name}-{i}", "index": i, "count": 4, "devmem": 1000, "devcore": 100, "type": "NVIDIA", "health": True}
        for i in range(cards)
    ]
    content = {
        "metadata": {"name": name, "labels": {ZONE: zone}, "annotations": {REGISTER: json.dumps(register)}},
        "status": {"allocatable": {"nvidia.com/gpu": 4 * cards}},
    }
    return msgspec.convert(content, manifest.Node)


def pod(name: str, mib: int = 100, **labels: str) -> manifest.Pod:
    """A pod that wants a part of a card."""
    annotations = {"hami.io/node-scheduler-policy": "tidy", "hami.io/gpu-scheduler-policy": "binpack"}
    metadata = {"labels": labels, "annotations": annotations}
    return made(name, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}, metadata=metadata)


@pytest.fixture
def cluster() -> Cluster:
    """Two zones, with two nodes each."""
    started = Cluster()
    for name in ("a1", "a2", "b1", "b2"):
        started.add_node(node(name, name[0]))
    return started


def test_a_pod_goes_where_its_company_is_and_cards_stay_tidy(cluster: Cluster) -> None:
    cluster.create(pod("half", 500))
    cluster.settle()
    assert cluster.placed()["half"] == "a1"
    cluster.create(pod("web", 1000, app="web"))
    cluster.settle()
    assert cluster.placed()["web"] == "a2", "a whole card leaves none partly used, on a1 there is one"
    cluster.create(pod("friend", 500, beside="web"))
    cluster.settle()
    assert cluster.placed()["friend"] == "a1", "the other half of the card is in the zone of web"


def test_a_pod_goes_where_it_likes_and_elsewhere_if_it_must(cluster: Cluster) -> None:
    for number in range(5):
        cluster.create(pod(f"fan-{number}", 1000, likes="b"))
        cluster.settle()
    assert list(cluster.placed().values()) == ["b1", "b1", "b2", "b2", "a1"]


def test_a_pod_without_company_is_told_so_and_woken_when_it_comes(cluster: Cluster) -> None:
    cluster.create(pod("friend", beside="web"))
    cluster.settle()
    assert cluster.reports["default/friend"] == (
        "0 of 4 nodes fit: 2 nodes: no web in zone a (NoCompany); 2 nodes: no web in zone b (NoCompany)"
    )
    cluster.create(pod("other", app="db"))
    cluster.settle()
    cluster.delete("default/other")
    cluster.settle()
    assert not cluster.placed(), "neither another pod nor the room it leaves is of any help"
    cluster.create(pod("web", app="web"))
    cluster.see()
    assert [each.key for each in cluster.cycle() if isinstance(each, Bind)] == ["default/web", "default/friend"]


def test_company_may_come_by_a_new_label(cluster: Cluster) -> None:
    cluster.create(pod("web"))
    cluster.create(pod("friend", beside="web"))
    cluster.settle()
    assert "friend" not in cluster.placed()
    relabel(cluster, "default/web", {"app": "web"})
    cluster.settle()
    assert cluster.placed()["friend"][0] == cluster.placed()["web"][0]


def test_who_came_too_late_for_its_company_waits(cluster: Cluster) -> None:
    """Nothing on the zone's other nodes has changed, and yet they are out; then they are not."""
    cluster.create(pod("web", app="web"))
    cluster.create(pod("one", beside="web"))
    cluster.settle()
    cluster.delete("default/web")
    cluster.create(pod("two", beside="web"))
    cluster.settle()
    assert set(cluster.placed()) == {"one"}
    cluster.create(pod("web", app="web"))
    cluster.settle()
    assert set(cluster.placed()) == {"one", "two", "web"}


def test_pods_that_differ_in_what_is_read_do_not_wait_together(cluster: Cluster) -> None:
    for app in ("web", "db"):
        cluster.create(pod(f"with-{app}", beside=app))
    cluster.create(pod("db", app="db"))
    cluster.settle()
    assert set(cluster.placed()) == {"db", "with-db"}


def test_a_pod_without_cards_may_have_any_score() -> None:
    decider = Decider(Interpreter())
    decider.snapshot.put(decider.interpreter.node(node(name, name[0]))[0] for name in ("b1", "a1", "c1"))
    decider.snapshot.remove("a1")
    assert decider.decide("default", Request(node_policy="tidy")) == Placement("b1")


def relabel(cluster: Cluster, key: str, labels: dict[str, str]) -> None:
    known = cluster.pods[key]
    metadata = msgspec.structs.replace(known.metadata, labels=labels)
    cluster.pods[key] = msgspec.structs.replace(known, metadata=metadata)
    cluster.unseen.append(PodSeen(cluster.pods[key]))


@given(st.data())
def test_one_node_and_columns_say_the_same_and_a_rollback_counts_back(data: st.DataObject) -> None:
    decider = Decider(Interpreter())
    decider.snapshot.put(decider.interpreter.node(node(name, name[0]))[0] for name in ("a1", "b1", "b2", "c1"))
    for number in range(data.draw(st.integers(0, 4))):
        come(decider, f"p{number}", data.draw(st.sampled_from(["web", "db"])), data.draw(st.sampled_from(["a1", "b2"])))
    request = decider.request(pod("friend", beside="web"))
    before = decider.decide("default", request)
    with decider.snapshot.transaction():
        come(decider, "trial", "web", "c1")
        assert decider.decide("default", request) is not None
    assert decider.decide("default", request) == before
    company = decider.snapshot.watched(Company)
    for pool in decider.snapshot.pools:
        for at in pool:
            verdicts = company.verdicts(pool, request)
            assert verdicts.texts[verdicts.codes[at]] == company.refuse(pool.nodes[at], request)
    if isinstance(before, Placement):
        assert company.count(before.node[0], "web")


def come(decider: Decider, name: str, app: str, where: str) -> None:
    """A pod that some other scheduler has put there."""
    decider.snapshot.restore(f"default/{name}", Placement(where), (), None, pod(name, app=app))
