"""Rules about other pods, in the scheduler's core: who waits, what it is told, and what wakes it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.policy.decider import Decider
from subak.scheduler.messages import Bind, Instruction, NamespaceSeen, NodeGone, PodSeen
from tests.e2e import worlds
from tests.policy.neighbours import Neighbours
from tests.scheduler.live import living
from tests.support import virtual
from tests.support.fuzz import histories
from tests.support.scheduler import Cluster
from tests.support.scheduler import pod as made
from tinykube.resource import NAMESPACES, NODES, PODS

ZONE, HOST = worlds.ZONE, worlds.HOSTNAME
CONTAINER = {"name": "c", "image": "x"}
Json = dict[str, Any]


def node(name: str, zone: str = "a", taints: Json | None = None, **labels: str) -> manifest.Node:
    content = {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **labels}},
        "spec": {"taints": [taints] if taints else []},
        "status": {"allocatable": {"cpu": "4", "pods": "20"}},
    }
    return msgspec.convert(content, manifest.Node)


def pod(name: str, app: str = "web", namespace: str = "default", **spec: Any) -> manifest.Pod:
    return made(name, {"cpu": "1"}, metadata={"labels": {"app": app}, "namespace": namespace}, **spec)


def term(app: str, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def away(*terms: Json) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def near(*terms: Json) -> Json:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key: str = ZONE, app: str = "web", **more: Any) -> Json:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {**constraint, "labelSelector": {"matchLabels": {"app": app}}, **more}


def cluster(*nodes: manifest.Node) -> Cluster:
    started = Cluster()
    for each in nodes:
        started.add_node(each)
    return started


class TestAffinity:
    def test_replicas_go_to_different_nodes_and_the_third_waits_until_one_leaves(self) -> None:
        two = cluster(node("n1"), node("n2"))
        for number in range(3):
            two.create(pod(f"web-{number}", affinity=away(term("web"))))
            two.settle()
        assert two.placed() == {"web-0": "n1", "web-1": "n2"}
        assert two.reports["default/web-2"] == (
            "0 of 2 nodes fit: 2 nodes: didn't match pod anti-affinity rules: pods with app=web in the same"
            " kubernetes.io/hostname (PodAntiAffinityMismatch)"
        )
        two.delete("default/web-1")
        two.settle()
        assert two.placed()["web-2"] == "n2"

    def test_a_pod_that_states_nothing_is_kept_off_by_others(self) -> None:
        one = cluster(node("n1"))
        one.create(pod("plain"))
        one.create(pod("db", "db", affinity=away(term("web", ZONE))))
        one.settle()
        assert one.placed() == {"plain": "n1"}
        one.delete("default/plain")
        one.settle()
        one.create(pod("late"))
        one.settle()
        assert one.placed() == {"db": "n1"}
        assert one.reports["default/late"] == (
            "0 of 1 nodes fit: 1 node: didn't satisfy existing pods' anti-affinity rules: pods in the same"
            f" {ZONE} keep away from app=web (ExistingPodsAntiAffinity)"
        )
        one.delete("default/db")
        one.settle()
        assert one.placed() == {"late": "n1"}

    def test_a_pod_that_was_read_before_others_stated_anything_is_kept_off_too(self) -> None:
        """Both are in the line at once, and the more important one goes first."""
        one = cluster(node("n1"))
        one.create(pod("plain"))
        one.create(pod("db", "db", priority=10, affinity=away(term("web"))))
        one.settle()
        assert one.placed() == {"db": "n1"}

    def test_a_waiting_pod_is_kept_off_by_what_came_while_it_waited(self) -> None:
        two = cluster(node("n1"))
        for number in range(4):
            two.create(pod(f"full-{number}", "other"))
        two.settle()
        two.create(pod("plain"))
        two.settle()
        two.add_node(node("n2", "b"))
        two.create(pod("db", "db", priority=10, affinity=away(term("web", ZONE))))
        two.settle()
        assert two.placed()["db"] == "n2"
        assert "plain" not in two.placed()
        two.delete("default/db")
        two.settle()
        assert two.placed()["plain"] == "n2"

    def test_it_is_woken_also_if_the_others_left_and_came_back_in_a_trial(self) -> None:
        two = cluster(node("n1"))
        for number in range(3):
            two.create(pod(f"full-{number}", "other"))
        two.create(pod("db", "db", affinity=away(term("web", ZONE))))
        two.settle()
        two.add_node(node("n2"))
        two.create(pod("plain", containers=[{"name": "c", "resources": {"limits": {"cpu": "2"}}}]))
        two.settle()
        assert "plain" not in two.placed()
        with two.core.snapshot.transaction():
            two.core.snapshot.forget("default/db")
        two.delete("default/db")
        two.settle()
        assert two.placed()["plain"] == "n2", "where nothing was freed"

    def test_the_first_of_a_group_needs_no_company_and_the_others_follow_it(self) -> None:
        two = cluster(node("n1", "a"), node("n2", "b"))
        for number in range(5):
            two.create(pod(f"web-{number}", affinity=near(term("web", ZONE))))
            two.settle()
        assert two.placed() == {f"web-{number}": "n1" for number in range(4)}, "n1 is full then, and n2 in another zone"
        two.add_node(node("n3", "a"))
        two.settle()
        assert two.placed()["web-4"] == "n3"

    def test_company_wakes_those_that_wait_for_it(self) -> None:
        two = cluster(node("n1", "a"), node("n2", "b"))
        two.create(pod("friend", "friend", affinity=near(term("web", ZONE))))
        two.settle()
        assert "no pod with app=web" in two.reports["default/friend"]
        two.create(pod("web"))
        two.see()
        assert [each.key for each in two.cycle() if isinstance(each, Bind)] == ["default/web", "default/friend"]

    def test_namespaces_are_chosen_by_their_labels(self) -> None:
        one = cluster(node("n1"))
        one.unseen.append(NamespaceSeen(namespace("red", team="a")))
        one.unseen.append(NamespaceSeen(namespace("blue")))
        selector = {"matchLabels": {"team": "a"}}
        one.create(pod("db", "db", affinity=away(term("web", namespaceSelector=selector))))
        one.settle()
        one.create(pod("near", namespace="red"))
        one.create(pod("far", namespace="blue"))
        one.settle()
        assert set(one.placed()) == {"db", "far"}
        one.unseen.append(NamespaceSeen(namespace("red")))
        one.settle()
        assert set(one.placed()) == {"db", "far", "near"}


class TestSpread:
    def test_pods_spread_over_zones_and_the_last_waits_until_a_zone_has_room(self) -> None:
        three = cluster(node("a1", "a"), node("a2", "a"), node("b1", "b", {"key": "k", "effect": "NoSchedule"}))
        three.create(pod("web-0", topologySpreadConstraints=[spread()]))
        three.create(pod("web-1", topologySpreadConstraints=[spread()]))
        three.settle()
        assert three.placed() == {"web-0": "a1"}
        assert three.reports["default/web-1"] == (
            "0 of 3 nodes fit: 2 nodes: didn't match pod topology spread constraints: topology.kubernetes.io/zone would"
            " have skew 2, at most 1 allowed (TopologySpreadMismatch); 1 node: taint k:NoSchedule not tolerated"
            " (NodeTaintNotTolerated)"
        )
        three.add_node(node("b1", "b"))
        three.settle()
        assert three.placed() == {"web-0": "a1", "web-1": "b1"}

    def test_a_pod_that_is_being_deleted_no_longer_counts(self) -> None:
        two = cluster(node("a1", "a"), node("b1", "b", {"key": "k", "effect": "NoSchedule"}))
        two.create(pod("web-0", topologySpreadConstraints=[spread()]))
        two.settle()
        two.create(pod("web-1", topologySpreadConstraints=[spread()]))
        two.settle()
        assert set(two.placed()) == {"web-0"}
        ending = two.pods["default/web-0"]
        metadata = msgspec.structs.replace(ending.metadata, deletion_timestamp="2026-11-16T00:00:00Z")
        two.pods["default/web-0"] = msgspec.structs.replace(ending, metadata=metadata)
        two.unseen.append(PodSeen(two.pods["default/web-0"]))
        two.settle()
        assert two.placed()["web-1"] == "a1"

    def test_too_few_domains_count_as_if_one_were_empty(self) -> None:
        two = cluster(node("a1", "a"), node("b1", "b"))
        for number in range(3):
            two.create(pod(f"web-{number}", topologySpreadConstraints=[spread(minDomains=3)]))
        two.settle()
        assert sorted(two.placed().values()) == ["a1", "b1"]


def test_a_host_port_is_given_once_and_again_when_its_pod_leaves() -> None:
    one = cluster(node("n1"))
    ports = [{"name": "c", "ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}]}]
    for name in ("first", "second"):
        one.create(msgspec.convert({"metadata": {"name": name}, "spec": {"containers": ports}}, manifest.Pod))
        one.settle()
    assert one.placed() == {"first": "n1"}
    assert one.reports["default/second"] == (
        "0 of 1 nodes fit: 1 node: host port 80/TCP of 10.0.0.1 taken (HostPortTaken)"
    )
    one.delete("default/first")
    one.settle()
    assert one.placed() == {"second": "n1"}


class TestPreferences:
    def test_taints_that_are_only_disliked_are_avoided_while_there_is_another_node(self) -> None:
        two = cluster(node("n1", taints={"key": "old", "effect": "PreferNoSchedule"}), node("n2"))
        for number in range(5):
            two.create(pod(f"web-{number}"))
            two.settle()
        assert list(two.placed().values()) == ["n2"] * 4 + ["n1"]

    def test_preferred_labels_company_and_spread_decide_before_the_name(self) -> None:
        three = cluster(node("n1", "a"), node("n2", "b", disk="ssd"), node("n3", "c"))
        line = {"key": "disk", "operator": "In", "values": ["ssd"]}
        liked = [{"weight": 1, "preference": {"matchExpressions": [line]}}]
        nodes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}}
        three.create(pod("db", "db", affinity=nodes))
        three.settle()
        assert three.placed() == {"db": "n2"}
        wish = [{"weight": 1, "podAffinityTerm": term("db", ZONE)}]
        three.create(
            pod("shy", "shy", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}})
        )
        three.settle()
        assert three.placed()["shy"] == "n2"
        constraint = spread(app="even", whenUnsatisfiable="ScheduleAnyway")
        for number in range(3):
            three.create(pod(f"even-{number}", "even", topologySpreadConstraints=[constraint]))
            three.settle()
        assert sorted(three.placed()[f"even-{number}"] for number in range(3)) == ["n1", "n2", "n3"]

    def test_the_wishes_of_running_pods_count_for_pods_that_state_none(self) -> None:
        two = cluster(node("n1", "a"), node("n2", "b"))
        wish = [{"weight": 1, "podAffinityTerm": term("web", ZONE)}]
        soft = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
        two.create(pod("db", "db", affinity=soft))
        two.settle()
        assert two.placed() == {"db": "n1"}
        two.create(pod("plain"))
        two.create(pod("other", "other"))
        two.settle()
        assert two.placed() == {"db": "n1", "plain": "n2", "other": "n1"}


def test_the_service_follows_the_labels_of_namespaces() -> None:
    async def story() -> None:
        async with living() as live:
            await live.client.create(NAMESPACES, {"metadata": {"name": "red", "labels": {"team": "a"}}})
            apart = away(term("web", namespaceSelector={"matchLabels": {"team": "a"}}))
            await live.client.patch(NODES, "n1", "", {"metadata": {"labels": {HOST: "n1"}}})
            await live.create("db", {"cpu": "1"}, affinity=apart)
            await live.until(lambda: "db" in live.placed())
            body = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
            await live.client.create(PODS, body, "red")
            await live.until(lambda: "keep away from app=web" in str(live.pods()["web"]["status"].get("conditions")))
            await live.client.patch(NAMESPACES, "red", "", {"metadata": {"labels": {"team": None}}})
            await live.until(lambda: "web" in live.placed())

    virtual.run(story())


def namespace(name: str, **labels: str) -> manifest.Namespace:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, manifest.Namespace)


@dataclass
class Town(Cluster):
    """A cluster in which things happen by chance, and each binding is checked against a slow recount."""

    chance: random.Random = field(default_factory=random.Random)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    interpreter: Interpreter = field(default_factory=Interpreter)

    def slow(self) -> Neighbours:
        nodes = {name: self.interpreter.node(each)[0] for name, each in self.nodes.items()}
        pods = {key: (each, each.spec.node_name) for key, each in self.pods.items() if each.spec.node_name}
        return Neighbours(nodes, pods, dict(self.namespaces))

    def carry_out(self, instruction: Instruction, refuse: bool = False) -> None:
        if isinstance(instruction, Bind) and instruction.key in self.pods:
            slow, pod = self.slow(), self.pods[instruction.key]
            needs = self.interpreter.request(pod).needs
            assert slow.takes(pod, needs, slow.nodes[instruction.node]), instruction
        super().carry_out(instruction, refuse)

    def happen(self, number: int) -> None:
        """Something, most often a new pod."""
        bound = sorted(key for key, pod in self.pods.items() if pod.spec.node_name)
        match self.chance.randrange(12):
            case 0 | 1 if self.pods:
                self.delete(self.chance.choice(sorted(self.pods)))
            case 2:
                self.add_node(msgspec.convert(worlds.node(self.chance, self.chance.randrange(5)), manifest.Node))
            case 3 if len(self.nodes) > 2:
                gone = self.chance.choice(sorted(self.nodes))
                if not any(each.spec.node_name == gone for each in self.pods.values()):
                    del self.nodes[gone]
                    self.unseen.append(NodeGone(gone))
            case 4 if bound:
                self.relabel(self.chance.choice(bound))
            case 5:
                self.see_namespace(self.chance.choice(list(worlds.NAMESPACES)))
            case 6 if bound:
                self.settle()
                with self.core.snapshot.transaction():
                    self.core.snapshot.forget(self.chance.choice(bound))
            case _:
                fresh = worlds.pod(self.chance, f"p{number}")
                fresh["metadata"]["uid"] = f"uid-{number}"
                fresh["spec"].pop("schedulingGates", None)
                self.create(msgspec.convert(fresh, manifest.Pod))

    def relabel(self, key: str) -> None:
        """A running pod gets another label, or is being deleted from now on."""
        pod = self.pods[key]
        change: Json = {"labels": {"app": self.chance.choice(["web", "db"])}}
        if self.chance.random() < 0.5:
            change = {"deletion_timestamp": "2026-11-16T00:00:00Z"}
        self.pods[key] = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **change))
        self.unseen.append(PodSeen(self.pods[key]))

    def see_namespace(self, name: str) -> None:
        self.namespaces[name] = self.chance.choice(list(worlds.NAMESPACES.values()))
        self.unseen.append(NamespaceSeen(namespace(name, **self.namespaces[name])))

    def check_waiting(self) -> None:
        """Nobody waits who could go somewhere."""
        decider = Decider(self.interpreter)
        for name, labels in self.namespaces.items():
            decider.snapshot.see_namespace(name, labels)
        decider.snapshot.put(self.interpreter.node(each)[0] for each in self.nodes.values())
        for pod in self.pods.values():
            node = decider.snapshot.node(pod.spec.node_name)
            if node is not None:
                decider.hold(pod, node)
        for pod in self.pods.values():
            if not pod.spec.node_name:
                assert not decider.explain(pod).fitting, pod


@histories(quick=20, ci=600)
@given(st.integers(0, 2**32))
def test_pods_go_where_rules_let_them_and_nobody_waits_who_could_go(seed: int) -> None:
    town = Town(chance=random.Random(seed))
    for name in worlds.NAMESPACES:
        town.see_namespace(name)
    for number in range(town.chance.randint(2, 5)):
        town.add_node(msgspec.convert(worlds.node(town.chance, number), manifest.Node))
    for number in range(town.chance.randint(5, 40)):
        town.happen(number)
        if town.chance.random() < 0.6:
            town.settle()
    town.settle()
    town.check_waiting()
