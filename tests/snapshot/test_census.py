"""Counting pods by node, by domain and by what selectors say of them."""

from __future__ import annotations

import gc
from typing import Any

import msgspec

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.selector import Term, selector
from subak.snapshot.carriers import Carriers
from subak.snapshot.census import Census, Query
from subak.snapshot.cluster import Snapshot
from subak.snapshot.topology import Numbers, Topology

ZONE = "zone"


def node(name: str, zone: str = "") -> Node:
    return Node(name, labels={ZONE: zone} if zone else {})


def pod(name: str, namespace: str = "default", **labels: str) -> manifest.Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": labels}}, manifest.Pod)


def term(*namespaces: str, among: Any = None, **labels: str) -> Term:
    lines = selector(manifest.LabelSelector(match_labels=labels))
    return Term(frozenset(namespaces or ("default",)), among, lines)


def come(snapshot: Snapshot, each: manifest.Pod, where: str) -> None:
    snapshot.restore(each.key, Placement(where), (), None, each)


def by_name(snapshot: Snapshot, query: Query) -> dict[str, int]:
    topology = snapshot.watched(Topology)
    return {each.name: int(query.by_node[topology.number(each.name)]) for each in snapshot}


def test_numbers_are_given_again_and_arrays_have_room_for_them() -> None:
    numbers = Numbers()
    given = {name: numbers.give(name) for name in map(str, range(40))}
    assert sorted(given.values()) == list(range(1, 41))
    assert numbers.room > 40
    freed = numbers.take_back("7")
    assert numbers.get("7") == 0
    assert numbers.give("new") == freed
    assert numbers.give("newer") == 41


def test_a_query_counts_pods_that_were_there_and_those_that_come() -> None:
    snapshot = Snapshot([node("n1"), node("n2")])
    come(snapshot, pod("a", app="web"), "n1")
    query = snapshot.watched(Census).query(term(app="web"))
    come(snapshot, pod("b", app="web"), "n2")
    come(snapshot, pod("c", app="web"), "n2")
    come(snapshot, pod("d", app="db"), "n2")
    come(snapshot, pod("e", "other", app="web"), "n2")
    assert by_name(snapshot, query) == {"n1": 1, "n2": 2}
    snapshot.forget("default/b")
    snapshot.relabel("default/a", pod("a", app="db"))
    assert by_name(snapshot, query) == {"n1": 0, "n2": 1}


def test_a_changed_answer_is_noted_and_a_rollback_takes_that_back() -> None:
    snapshot = Snapshot([node("n1")])
    query = snapshot.watched(Census).query(term(app="web"))
    come(snapshot, pod("other", app="db"), "n1")
    assert query not in snapshot.changes
    with snapshot.transaction():
        come(snapshot, pod("web", app="web"), "n1")
        assert query in snapshot.changes
    assert query not in snapshot.changes
    assert by_name(snapshot, query) == {"n1": 0}


def test_the_same_question_is_counted_once_and_forgotten_with_its_last_asker() -> None:
    census = Snapshot([node("n1")]).watched(Census)
    query = census.query(term(app="web"))
    assert census.query(term(app="web")) is query
    assert census.query(term(app="web"), living=True) is not query
    del query
    gc.collect()
    assert not census._queries


def test_namespaces_may_change_their_labels() -> None:
    snapshot = Snapshot([node("n1")])
    among = selector(manifest.LabelSelector(match_labels={"team": "a"}))
    query = snapshot.watched(Census).query(term("none", among=among, app="web"))
    come(snapshot, pod("a", "red", app="web"), "n1")
    assert by_name(snapshot, query) == {"n1": 0}
    snapshot.see_namespace("red", {"team": "a"})
    assert by_name(snapshot, query) == {"n1": 1}
    snapshot.lose_namespace("red")
    assert by_name(snapshot, query) == {"n1": 0}


def test_domains_add_up_and_follow_the_labels_of_nodes() -> None:
    snapshot = Snapshot([node("n1", "a"), node("n2", "a"), node("n3", "b"), node("n4")])
    query, topology = snapshot.watched(Census).query(term(app="web")), snapshot.watched(Topology)
    for name, where in (("p", "n1"), ("q", "n2"), ("r", "n3"), ("s", "n4")):
        come(snapshot, pod(name, app="web"), where)
    domains = topology.domains(ZONE)

    def around() -> list[int]:
        sums = domains.sums(query.by_node)[domains.of]
        return [int(sums[topology.number(f"n{number}")]) for number in (1, 2, 3, 4)]

    assert around() == [2, 2, 1, 0]
    snapshot.put([node("n2", "b")])
    assert around() == [1, 2, 2, 0]
    snapshot.remove("n3")
    assert around() == [1, 1, 0, 0]


def test_a_node_that_is_gone_keeps_its_number_while_its_pods_are_counted() -> None:
    snapshot = Snapshot([node("n1", "a")])
    query, topology = snapshot.watched(Census).query(term(app="web")), snapshot.watched(Topology)
    come(snapshot, pod("p", app="web"), "n1")
    snapshot.remove("n1")
    snapshot.put([node("n2", "a")])
    assert by_name(snapshot, query) == {"n2": 0}
    snapshot.put([node("n1", "a")])
    assert by_name(snapshot, query) == {"n1": 1, "n2": 0}
    number = topology.number("n1")
    snapshot.remove("n1")
    snapshot.forget("default/p")
    snapshot.put([node("n3")])
    assert topology.number("n3") == number


def test_terms_that_mean_a_pod_are_found_while_somebody_carries_them() -> None:
    snapshot = Snapshot([node("n1")])
    carriers = Carriers(snapshot)
    web, anything = (term(app="web"), ZONE, 1), (Term(frozenset(("default",)), None, ()), ZONE, 1)
    for stated in (web, web, anything):
        carriers.count(stated, "n1", 1)
    assert {each.term for each in carriers.meaning(pod("p", app="web"), {})} == {web[0], anything[0]}
    assert {each.term for each in carriers.meaning(pod("p", app="db"), {})} == {anything[0]}
    assert not carriers.meaning(pod("p", "other", app="web"), {})
    assert snapshot.epoch == 2
    for stated in (web, web, anything):
        carriers.count(stated, "n1", -1)
    assert not carriers.meaning(pod("p", app="web"), {})
    assert not len(carriers)
