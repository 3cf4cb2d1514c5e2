"""Why a pod waits: groups of nodes, numbers, words for every reason; and explain agrees with place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.metax_rules import Shared
from subak.model import manifest
from subak.model.device import Partition, PartitionTable
from subak.model.manifest import Taint
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Reason
from subak.model.request import CardPolicy, Claim, Needs, Partitioning, Pick, Request, Selection
from subak.policy.explain import NO_NODES, Explanation, Group, _ask, _figures, explain, explanation
from subak.policy.place import place
from subak.policy.registry import filters
from subak.policy.tally import Heap, Key, Tally
from subak.snapshot.cluster import Snapshot
from tests.policy.test_place import admitted
from tests.support.cards import cards_of, claim, device, grant, node, placed, share
from tests.support.fuzz import examples
from tests.support.world import KINDS, make, pods


def why(nodes: list[Node], *claims: Claim, needs: Needs | None = None, **held: Any) -> Explanation:
    """What nodes say to claims, after each node named in `held` gave away this placement."""
    snapshot = Snapshot(nodes)
    for name, shares in held.items():
        snapshot.restore(f"default/on-{name}", placed(name, *shares))
    return explain(snapshot, Request(claims, needs or Needs()))


def one_by_one(snapshot: Snapshot, request: Request) -> Explanation:
    """The same without columns: every node is asked by itself."""
    tally = Tally(named=True)
    for pool in snapshot.pools:
        for at in pool:
            verdict = _ask(pool, at, request, filters(snapshot, request))
            if verdict is None:
                tally.fit(pool, at)
            else:
                tally.add_one(pool, at, verdict)
    return explanation(tally)


def one(name: str = "a", count: int = 1, **facts: Any) -> Node:
    return node(name, *cards_of(name, count, **facts))


def test_a_cluster_without_nodes_says_so() -> None:
    answer = why([], claim())
    assert str(answer) == NO_NODES == "there are no nodes"
    assert (answer.fitting, answer.groups, answer.reasons) == ((), (), {})


def test_nodes_that_fit_are_named_in_order() -> None:
    answer = why([one("b"), one("a")], claim(1))
    assert str(answer) == "2 of 2 nodes fit"
    assert answer.fitting == ("a", "b")


def test_nodes_are_grouped_by_reason_with_the_best_figure() -> None:
    nodes = [one("a", mib=300), one("b", mib=512), one("c"), replace(one("d"), offers=frozenset())]
    answer = why(nodes, claim(1_024))
    assert str(answer) == (
        "1 of 4 nodes fit: "
        "2 nodes: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory); "
        "1 node: hami-nvidia not offered (NodeUnregistered)"
    )
    assert [group.nodes for group in answer.groups] == [("a", "b"), ("d",)]
    assert answer.reasons == {Reason.CARD_INSUFFICIENT_MEMORY: 2, Reason.NODE_UNREGISTERED: 1}


def test_the_largest_group_comes_first_then_the_reason_by_name() -> None:
    nodes = [replace(one(name), ready=False) for name in "ab"]
    nodes += [one("c", mib=10), replace(one("d"), unschedulable=True)]
    answer = why(nodes, claim(100))
    assert [(str(group.reason), group.nodes) for group in answer.groups] == [
        ("NodeNotReady", ("a", "b")),
        ("CardInsufficientMemory", ("c",)),
        ("NodeUnschedulable", ("d",)),
    ]


def test_thousands_are_separated() -> None:
    nodes = [one(f"n{i:04d}", mib=1_024) for i in range(1_200)]
    assert str(why(nodes, claim(81_920))) == (
        "0 of 1,200 nodes fit: 1,200 nodes: largest free slice 1,024 MiB, 81,920 MiB asked (CardInsufficientMemory)"
    )


@pytest.mark.parametrize(
    ("home", "held", "asked", "says"),
    [
        (
            one(),
            [share("a-0", 15_500)],
            claim(501),
            "largest free slice 500 MiB, 501 MiB asked (CardInsufficientMemory)",
        ),
        (one(), [share("a-0", 17_000)], claim(1), "largest free slice 0 MiB, 1 MiB asked (CardInsufficientMemory)"),
        (
            one(mib=10_000),
            [share("a-0", 6_000)],
            claim(memory_percent=50),
            "largest free slice 4,000 MiB, 5,000 MiB asked (CardInsufficientMemory)",
        ),
        (one(), [share("a-0", 1, 60)], claim(1, cores=50), "most free cores 40, 50 asked (CardInsufficientCore)"),
        (one(), [share("a-0", 1, 130)], claim(1, cores=50), "most free cores 0, 50 asked (CardInsufficientCore)"),
        (one(count=2), [], claim(count=3), "at most 2 cards, 3 asked (NodeInsufficientDevice)"),
        (one(), [], claim(count=2), "at most 1 card, 2 asked (NodeInsufficientDevice)"),
        (
            one(count=2),
            [share("a-0", 16_000)],
            claim(1, count=2),
            "at most 1 card fits, 2 asked (AllocatedCardsInsufficientRequest)",
        ),
        (
            one(count=3),
            [share("a-0", 16_000)],
            claim(1, count=3),
            "at most 2 cards fit, 3 asked (AllocatedCardsInsufficientRequest)",
        ),
        (
            one(count=2),
            [share("a-0"), share("a-1")],
            claim(policy=CardPolicy(mutex=True)),
            "card in use, asked for alone on 2 of 2 cards (ExclusiveDeviceAllocateConflict)",
        ),
        (
            one(count=2, healthy=False),
            [],
            claim(),
            "card not healthy on 2 of 2 cards (CardNotHealth)",
        ),
    ],
)
def test_a_refusal_has_numbers(home: Node, held: list[Any], asked: Claim, says: str) -> None:
    assert str(why([home], asked, a=held)) == f"0 of 1 nodes fit: 1 node: {says}"


def test_the_figure_is_that_of_a_card_that_lacks_it() -> None:
    """Card 0 has the most memory free but no slot, card 1 is broken, card 2 is closed to the user: it is card 3."""
    home = node(
        "a",
        device(0, id="a-0", slots=1),
        device(1, id="a-1", healthy=False),
        device(2, id="a-2"),
        device(3, id="a-3"),
    )
    asked = claim(1_024, selection=Selection(nouse_ids=frozenset({"a-2"})))
    answer = why([home], asked, a=[share("a-0"), share("a-3", 15_500)])
    assert answer.groups[0].detail == "largest free slice 500 MiB, 1,024 MiB asked"


def test_the_figure_is_the_best_of_the_cards_that_lack_it() -> None:
    three = [share("a-0", 15_000, 80), share("a-1", 15_900, 50), share("a-2", 15_950, 90)]
    (memory,) = why([one(count=3)], claim(1_001), a=three).groups
    assert memory.detail == "largest free slice 1,000 MiB, 1,001 MiB asked"
    (cores,) = why([one(count=3)], claim(1, cores=51), a=three).groups
    assert cores.detail == "most free cores 50, 51 asked"


def test_a_node_that_has_just_enough_fits() -> None:
    home = replace(one(), allocatable={"cpu": 1_000})
    assert why([home], claim(16_000, cores=100), needs=Needs(resources=(("cpu", 1_000),))).fitting == ("a",)


def test_who_wants_all_cards_of_a_kind_is_told_how_many_they_are() -> None:
    home = node("a", device(0, id="a-0", healthy=False), device(1, id="a-1"), device(2, id="a-2"))
    (group,) = why([home], claim(everywhere=True)).groups
    assert group.detail == "at most 2 cards fit, 3 asked"


def test_the_furthest_reason_names_the_group_and_all_are_counted() -> None:
    home = node("a", device(0, healthy=False), device(1, slots=0), device(2, mib=10))
    answer = why([home, one("b", mib=10)], claim(100))
    assert [group.reason for group in answer.groups] == [Reason.CARD_INSUFFICIENT_MEMORY]
    assert answer.reasons == {
        Reason.CARD_INSUFFICIENT_MEMORY: 2,
        Reason.CARD_NOT_HEALTH: 1,
        Reason.CARD_TIME_SLICING_EXHAUSTED: 1,
    }


def test_nodes_that_lack_different_amounts_of_a_percentage_are_told_apart() -> None:
    answer = why(
        [one("a", mib=8_000), one("b", mib=16_000)],
        claim(memory_percent=100),
        a=[share("a-0", 1)],
        b=[share("b-0", 1)],
    )
    assert [group.detail for group in answer.groups] == [
        "largest free slice 7,999 MiB, 8,000 MiB asked",
        "largest free slice 15,999 MiB, 16,000 MiB asked",
    ]


@pytest.mark.parametrize(
    ("name", "allocatable", "amount", "says"),
    [
        ("cpu", 1_500, 2_000, "at most 1500m cpu free, 2 asked"),
        ("memory", 3 << 29, 2 << 30, "at most 1536Mi memory free, 2Gi asked"),
        ("memory", 1_500, 1_501, "at most 1,500 memory free, 1,501 asked"),
        ("pods", 0, 1, "at most 0 pods free, 1 asked"),
        ("hugepages-2Mi", 1_024, 2_048, "at most 1,024 hugepages-2Mi free, 2,048 asked"),
        ("example.com/fpga", 1_000, 2_000, "at most 1,000 example.com/fpga free, 2,000 asked"),
    ],
)
def test_plain_resources_are_told_as_kubernetes_writes_them(
    name: str, allocatable: int, amount: int, says: str
) -> None:
    home = replace(one(), allocatable={name: allocatable})
    answer = why([home], claim(), needs=Needs(resources=((name, amount),)))
    assert str(answer) == f"0 of 1 nodes fit: 1 node: {says} (NodeInsufficientResource)"


def test_the_best_of_several_nodes_is_told_for_each_resource() -> None:
    nodes = [replace(one(name), allocatable={"cpu": cpu}) for name, cpu in (("a", 500), ("b", 1_000))]
    nodes.append(replace(one("c"), allocatable={"pods": 0}))
    answer = why(nodes, claim(), needs=Needs(resources=(("cpu", 2_000), ("pods", 1))))
    assert [(group.detail, group.nodes) for group in answer.groups] == [
        ("at most 1 cpu free, 2 asked", ("a", "b")),
        ("at most 0 pods free, 1 asked", ("c",)),
    ]


def test_what_the_node_itself_says_comes_before_its_cards() -> None:
    tainted = replace(one(mib=1), taints=(Taint(key="gpu", effect="NoSchedule"),))
    answer = why([tainted], claim(100), needs=Needs(resources=(("cpu", 10**9),)))
    assert answer.reasons == {Reason.NODE_TAINT_NOT_TOLERATED: 1}


def test_cards_on_several_numa_nodes_are_told() -> None:
    home = node("a", *(device(i, id=f"a-{i}", numa=i // 2) for i in range(3)))
    bound = why([home], claim(count=3, policy=CardPolicy(numa_bind=True)))
    assert bound.groups[0].detail == "cards on several NUMA nodes, 3 asked on one"
    assert set(bound.reasons) == {Reason.NUMA_NOT_FIT, Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST}


@pytest.mark.parametrize(
    ("roots", "scope", "says"),
    [
        (("0", "1"), "PCIe", "cards on several PCIe roots, 2 asked on one"),
        (("0", "1"), "NUMANode", "cards on several NUMA nodes, 2 asked on one"),
        (("", ""), "PCIe", "PCIe roots of the cards not known"),
        (("0", ""), "PCIe", "PCIe roots of the cards not known"),
    ],
)
def test_cards_outside_one_scope_are_told(roots: tuple[str, str], scope: str, says: str) -> None:
    home = node("a", *(device(i, id=f"a-{i}", numa=i, pcie=root) for i, root in enumerate(roots)))
    policy = CardPolicy(pick=Pick.TREE, scope=scope)
    answer = why([home], claim(count=2, memory_percent=100, policy=policy))
    assert str(answer.groups[0]) == f"1 node: {says} (NumaNotFit)"


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (1, "no such partition in the node's table, 1 card asked (CardPartitionMissing)"),
        (2, "no partition wholly free, 2 cards asked (CardPartitionNotFree)"),
    ],
)
def test_partitions_of_the_nodes_table_are_told(count: int, says: str) -> None:
    table = PartitionTable((Partition((0, 1)),))
    home = node("a", *(device(i, id=f"a-{i}", minor=i, partitions=table) for i in range(2)))
    policy = CardPolicy(partition=Partitioning(required=True))
    answer = why([home], claim(count=count, policy=policy), a=[share("a-0", 1)])
    assert str(answer.groups[0]) == f"1 node: {says}"


def test_containers_that_fit_only_one_by_one_are_told_so() -> None:
    """9,000 MiB each fit on a card of 16,000 MiB; a figure of either alone would contradict itself."""
    answer = why([one()], claim(9_000), claim(9_000, container=1))
    assert str(answer.groups[0]) == (
        "1 node: each of 2 requests fits alone, all together do not (CardInsufficientMemory)"
    )
    assert answer.reasons == {Reason.CARD_INSUFFICIENT_MEMORY: 1}


def test_of_several_containers_the_one_that_does_not_fit_is_told() -> None:
    """Together the first two fail by cores, but the third would not even fit alone."""
    claims = [claim(1, cores=60), claim(1, cores=60, container=1), claim(20_000, cores=10, container=2)]
    answer = why([one()], *claims)
    assert answer.groups[0].detail == "largest free slice 16,000 MiB, 20,000 MiB asked"


def test_too_few_cards_are_told_for_the_container_that_wants_them() -> None:
    answer = why([one(count=2)], claim(20_000), claim(1, container=1, count=3))
    assert answer.groups[0].detail == "at most 2 cards, 3 asked"


def test_a_pod_without_cards_is_explained_too() -> None:
    nodes = [one("a"), replace(one("b"), ready=False)]
    assert why(nodes).fitting == ("a",)


SGPU: dict[str, Any] = {"family": "metax", "model": "MXC500"}
METAX = frozenset({"metax"})
BEST = Shared("best-effort")


@pytest.mark.parametrize("reason", [each for each in Reason if each.startswith(("Card", "Exclusive"))])
def test_every_reason_of_a_card_has_words(reason: Reason) -> None:
    words = _figures(Heap(Key(reason, "", 2), count=1, figure=1))
    assert str(reason) not in words
    assert any(figure in words for figure in ("1 of 2 cards", "2 asked", "MiB"))


@pytest.mark.parametrize(
    ("facts", "tag", "asked", "says"),
    [
        (
            {},
            ("", "online"),
            claim(families=METAX, rules=BEST),
            "other application class on 1 of 1 cards",
        ),
        (
            {},
            ("fixed-share", ""),
            claim(families=METAX, rules=BEST),
            "other QoS policy on 1 of 1 cards",
        ),
        ({"healthy": False}, ("", ""), claim(families=METAX, rules=Shared("x")), "card not healthy on 1 of 1 cards"),
        ({"cordoned": True}, ("", ""), claim(families=METAX), "card cordoned on 1 of 1 cards"),
        ({"slots": 1}, ("", ""), claim(families=METAX), "no slot left on 1 of 1 cards"),
        ({}, ("", ""), claim(families=METAX, extras=(("aicpu", 1),)), "vendor resource exhausted on 1 of 1 cards"),
        ({"cores": 10}, ("", ""), claim(families=METAX), "no cores left on 1 of 1 cards"),
        ({"mode": "mig"}, ("", ""), claim(families=METAX), "no MIG instance free on 1 of 1 cards"),
        (
            {},
            ("", ""),
            claim(families=METAX, selection=Selection(use_types=("h100",))),
            "type, mode or labels not admitted on 1 of 1 cards",
        ),
        (
            {},
            ("", ""),
            claim(families=METAX, selection=Selection(use_ids=frozenset({"x"}))),
            "UUID not admitted on 1 of 1 cards",
        ),
    ],
)
def test_refusals_of_cards_in_words(facts: dict[str, Any], tag: tuple[str, str], asked: Claim, says: str) -> None:
    snapshot = Snapshot([node("a", device(0, id="a-0", **SGPU, **facts))])
    snapshot.restore("default/p", Placement("a", (grant(share("a-0", 1, 10), tag=tag),)))
    assert explain(snapshot, Request((asked,))).groups[0].detail == says


def test_groups_read_as_sentences() -> None:
    assert str(Group(Reason.NODE_NOT_READY, ("a",), "not ready")) == "1 node: not ready (NodeNotReady)"
    assert str(Group(Reason.NODE_NOT_READY, ("a", "b"), "not ready")) == "2 nodes: not ready (NodeNotReady)"


@examples(quick=20, ci=150)
@given(
    kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4),
    stream=st.lists(pods(), max_size=10),
    data=st.data(),
)
def test_explain_finds_a_node_if_and_only_if_place_does(
    kinds: list[int], stream: list[manifest.Pod], data: st.DataObject
) -> None:
    nodes = {f"node-{i}": make(kind, f"node-{i}") for i, kind in enumerate(kinds)}
    snapshot = Snapshot(nodes.values())
    for number, pod in enumerate(stream):
        name = data.draw(st.sampled_from(sorted(nodes)))
        if data.draw(st.integers(0, 3)) == 0:  # others take more than there is, and cards break
            snapshot.restore(f"other/{number}", placed(name), (("cpu", 40_000),))
            devices = nodes[name].devices
            broken = msgspec.structs.replace(devices[0], healthy=not devices[0].healthy)
            nodes[name] = replace(nodes[name], devices=(broken, *devices[1:]))
            snapshot.put([nodes[name]])
        ready = admitted(pod, f"pod-{number}")
        if ready is None:
            continue
        complete, request = ready
        answer, found = explain(snapshot, request), place(snapshot, request)
        assert answer == one_by_one(snapshot, request)
        assert len(answer.fitting) + sum(len(group.nodes) for group in answer.groups) == answer.nodes == len(nodes)
        assert bool(answer.fitting) is (found is not None)
        if found is not None:
            assert found.node in answer.fitting
            snapshot.assume(complete.key, found, request.needs.resources)
