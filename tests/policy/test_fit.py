"""Each rule with the reason that its users know, the order of the rules, and what is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.metax_rules import Shared
from subak.model.card import CardState
from subak.model.device import MIB, MigProfile
from subak.model.placement import Charge, MigInstance
from subak.model.reason import Reason
from subak.model.request import BINPACK, SPREAD, CardPolicy, Claim, Pick, Selection
from subak.policy.fit import candidates, fit, refuse, rules_for
from subak.policy.order import in_order
from tests.support.cards import card, claim, indices, numbered

MUTEX = CardPolicy(mutex=True)
NUMA_BIND = CardPolicy(numa_bind=True)
METAX: dict[str, Any] = {"family": "metax", "model": "MXC500"}


def only(*ids: str) -> Selection:
    return Selection(use_ids=frozenset(ids))


def reason_for(card: CardState, claim: Claim) -> Reason | None:
    """Why a node whose only card this is takes nobody; None if it does."""
    answer = fit([card], claim)
    if isinstance(answer, list):
        assert answer == [card]
        return None
    assert sum(answer.values()) == 1
    return next(iter(answer))


SLICES = (MigProfile("1g.10gb", 9_856 * MIB, 14, ((0, 1), (1, 1))),)


@pytest.mark.parametrize(
    ("refusing", "taking", "asked", "reason"),
    [
        (card(healthy=False), card(), claim(), Reason.CARD_NOT_HEALTH),
        (card(cordoned=True), card(), claim(), Reason.CARD_CORDONED),
        (card(family="amd"), card(), claim(), Reason.CARD_TYPE_MISMATCH),
        (
            card(model="NVIDIA-T4"),
            card(model="NVIDIA-A100"),
            claim(selection=Selection(use_types=("h100", "a100"))),
            Reason.CARD_TYPE_MISMATCH,
        ),
        (
            card(model="NVIDIA-A100"),
            card(model="NVIDIA-T4"),
            claim(selection=Selection(nouse_types=("a100",))),
            Reason.CARD_TYPE_MISMATCH,
        ),
        (
            card(model="MR-V100-32"),
            card(model="MR-V100"),
            claim(selection=Selection(models=frozenset({"MR-V100"}))),
            Reason.CARD_TYPE_MISMATCH,
        ),
        (
            card(mode="hami-core"),
            card(mode="mps"),
            claim(selection=Selection(modes="mig,mps")),
            Reason.CARD_TYPE_MISMATCH,
        ),
        (card(1), card(0), claim(selection=only("GPU-0")), Reason.CARD_UUID_MISMATCH),
        (card(1), card(0), claim(selection=Selection(nouse_ids=frozenset({"GPU-1"}))), Reason.CARD_UUID_MISMATCH),
        (card(used=4), card(used=3), claim(), Reason.CARD_TIME_SLICING_EXHAUSTED),
        (card(used=1), card(), claim(policy=MUTEX), Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT),
        (card(used=1), card(), claim(idle=True), Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT),
        (card(used_mib=15_001), card(used_mib=15_000), claim(1_000), Reason.CARD_INSUFFICIENT_MEMORY),
        (card(used_mib=8_001), card(used_mib=8_000), claim(memory_percent=50), Reason.CARD_INSUFFICIENT_MEMORY),
        (card(used_cores=71), card(used_cores=70), claim(cores=30), Reason.CARD_INSUFFICIENT_CORE),
        (card(used=1), card(), claim(cores=100), Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT),
        (card(used_cores=100), card(used_cores=99), claim(), Reason.CARD_COMPUTE_UNITS_EXHAUSTED),
        (card(), card(extras=(("aicpu", 2),)), claim(extras=(("aicpu", 2),)), Reason.CARD_INSUFFICIENT_EXTRA),
        (
            card(mode="mig"),
            card(mode="mig", mig=SLICES),
            claim(9_000, instances=True),
            Reason.CARD_MIG_TOPOLOGY_INFEASIBLE,
        ),
    ],
)
def test_a_card_is_refused_for_the_reason_and_taken_without_it(
    refusing: CardState, taking: CardState, asked: Claim, reason: Reason
) -> None:
    assert reason_for(refusing, asked) is reason
    assert reason_for(taking, asked) is None


def test_all_cores_mean_a_card_alone_only_where_a_card_has_a_hundred() -> None:
    """A card whose cores are oversubscribed twofold carries two such pods."""
    assert reason_for(card(used=1, used_cores=100, cores=200), claim(cores=100)) is None
    assert reason_for(card(used=1, used_cores=0, cores=16), claim(cores=16)) is None


def test_every_extra_must_be_left_after_what_the_tenants_hold() -> None:
    held = {"a": Charge(1, extras={"aicpu": 1}), "b": Charge(1, extras={"aicpu": 2, "dvpp": 5})}
    busy = card(used=2, tenants=held, extras=(("aicpu", 4), ("dvpp", 6)))
    assert reason_for(busy, claim(extras=(("aicpu", 1), ("dvpp", 1)))) is None
    assert reason_for(busy, claim(extras=(("aicpu", 2),))) is Reason.CARD_INSUFFICIENT_EXTRA
    assert reason_for(busy, claim(extras=(("aicpu", 1), ("dvpp", 2)))) is Reason.CARD_INSUFFICIENT_EXTRA


def test_a_card_cut_to_pieces_takes_as_many_as_it_has_places() -> None:
    held = {"a": Charge(1, mig=(MigInstance("1g.10gb", 1, 1),)), "b": Charge(1, mig=(MigInstance("1g.10gb", 0, 1),))}
    full = card(used=2, tenants=held, mode="mig", mig=SLICES)
    assert reason_for(full, claim(100, instances=True)) is Reason.CARD_MIG_TOPOLOGY_INFEASIBLE
    del held["b"]
    assert reason_for(full, claim(100, instances=True)) is None


def test_who_cannot_record_an_instance_gets_no_card_in_mig_mode() -> None:
    """After a restart nobody would know which part of the card the pod has."""
    free = card(mode="mig", mig=SLICES)
    assert reason_for(free, claim(100, instances=True)) is None
    assert reason_for(free, claim(100)) is Reason.CARD_MIG_TOPOLOGY_INFEASIBLE


def test_profiles_do_not_matter_unless_the_card_is_in_mig_mode() -> None:
    assert reason_for(card(mode="hami-core", mig=SLICES), claim(12_000)) is None


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: with the card, with its use, or by what is asked."""

    reason: Reason
    facts: dict[str, Any] = field(default_factory=dict)
    use: dict[str, Any] = field(default_factory=dict)
    wishes: dict[str, Any] = field(default_factory=dict)


COMMON = [
    Fault(Reason.CARD_NOT_HEALTH, {"healthy": False}),
    Fault(Reason.CARD_CORDONED, {"cordoned": True}),
    Fault(Reason.CARD_TYPE_MISMATCH, {"family": "amd"}),
    Fault(Reason.CARD_UUID_MISMATCH, wishes={"selection": only("GPU-other")}),
    Fault(Reason.CARD_TIME_SLICING_EXHAUSTED, {"slots": 1}, {"used": 1}),
    Fault(Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, use={"used": 1}, wishes={"policy": MUTEX}),
    Fault(Reason.CARD_INSUFFICIENT_MEMORY, use={"used_mib": 16_000}, wishes={"memory_bytes": 1}),
    Fault(Reason.CARD_INSUFFICIENT_CORE, use={"used_cores": 100}, wishes={"cores": 100}),
    Fault(Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, use={"used": 1}, wishes={"cores": 100}),
    Fault(Reason.CARD_COMPUTE_UNITS_EXHAUSTED, use={"used_cores": 100}, wishes={"cores": 0}),
    Fault(Reason.CARD_INSUFFICIENT_EXTRA, wishes={"extras": (("aicpu", 1),)}),
    Fault(Reason.CARD_MIG_TOPOLOGY_INFEASIBLE, {"mode": "mig"}),
]

SGPU = [
    Fault(Reason.CARD_UNHEALTHY, {"healthy": False}),
    Fault(Reason.CARD_CORDONED, {"cordoned": True}),
    Fault(Reason.CARD_TYPE_MISMATCH, {"family": "amd"}),
    Fault(Reason.CARD_APP_CLASS_MISMATCH, use={"tenants": {"a": Charge(1, tag=("", "offline"))}}),
    Fault(
        Reason.CARD_QOS_POLICY_MISMATCH,
        use={"used": 1, "tenants": {"b": Charge(1, tag=("fixed-share", ""))}},
        wishes={"cores": 50},
    ),
    Fault(Reason.CARD_UUID_MISMATCH, wishes={"selection": only("GPU-other")}),
    Fault(Reason.CARD_TIME_SLICING_EXHAUSTED, {"slots": 1}, {"used": 1}),
    Fault(Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, use={"used": 1}, wishes={"policy": MUTEX}),
    Fault(Reason.CARD_INSUFFICIENT_MEMORY, use={"used_mib": 16_000}, wishes={"memory_bytes": 1}),
    Fault(Reason.CARD_INSUFFICIENT_CORE, use={"used_cores": 51}, wishes={"cores": 50}),
    Fault(Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, use={"used": 1}, wishes={"cores": 100}),
    Fault(Reason.CARD_COMPUTE_UNITS_EXHAUSTED, use={"used_cores": 100}, wishes={"cores": 0}),
]


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """Both together, None if they contradict each other; tenants live side by side."""
    for name in one.keys() & other.keys() - {"tenants"}:
        if one[name] != other[name]:
            return None
    both = {**one, **other}
    if "tenants" in both:
        both["tenants"] = {**one.get("tenants", {}), **other.get("tenants", {})}
    return both


def pairs(faults: list[Fault]) -> list[tuple[Fault, Fault]]:
    """Each two faults that a card can have at once, in the order of their rules."""
    return [
        (earlier, later)
        for earlier, later in combinations(faults, 2)
        if merged(earlier.use, later.use) is not None and merged(earlier.wishes, later.wishes) is not None
    ]


def with_faults(earlier: Fault, later: Fault, facts: dict[str, Any], wishes: dict[str, Any]) -> Reason | None:
    use, asked = merged(earlier.use, later.use), merged(earlier.wishes, later.wishes)
    assert use is not None
    assert asked is not None
    return reason_for(card(**{**facts, **earlier.facts, **later.facts}, **use), claim(**{**wishes, **asked}))


@pytest.mark.parametrize("fault", COMMON)
def test_one_fault_is_told(fault: Fault) -> None:
    assert with_faults(fault, fault, {}, {}) is fault.reason


@pytest.mark.parametrize(("earlier", "later"), pairs(COMMON))
def test_of_two_faults_the_earlier_rule_is_told(earlier: Fault, later: Fault) -> None:
    assert with_faults(earlier, later, {}, {}) is earlier.reason


SHARED: dict[str, Any] = {"families": frozenset({"metax"}), "rules": Shared("best-effort")}


@pytest.mark.parametrize("fault", SGPU)
def test_one_fault_is_told_of_a_shared_metax_card(fault: Fault) -> None:
    assert with_faults(fault, fault, METAX, SHARED) is fault.reason


@pytest.mark.parametrize(("earlier", "later"), pairs(SGPU))
def test_of_two_faults_of_a_shared_metax_card_the_earlier_rule_is_told(earlier: Fault, later: Fault) -> None:
    assert with_faults(earlier, later, METAX, SHARED) is earlier.reason


def shared(qos: str | None = "best-effort", app_class: str = "", **wishes: Any) -> Claim:
    return claim(families=frozenset({"metax"}), rules=Shared(qos, app_class), **wishes)


def tenant(qos: str = "", app_class: str = "", cores: int = 10) -> dict[str, Charge]:
    return {"default/other": Charge(1, cores=cores, tag=(qos, app_class))}


def test_an_online_pod_minds_neither_cores_nor_qos() -> None:
    busy = card(used=1, used_cores=100, tenants=tenant("fixed-share", "offline"), **METAX)
    assert reason_for(busy, shared(qos=None, app_class="online")) is None
    assert reason_for(busy, shared(app_class="offline", cores=10)) is Reason.CARD_QOS_POLICY_MISMATCH
    assert reason_for(busy, shared(qos="fixed-share", app_class="offline", cores=10)) is Reason.CARD_INSUFFICIENT_CORE


def test_an_online_pod_still_needs_memory_and_a_slot() -> None:
    online = shared(qos=None, app_class="online", memory_bytes=2 * MIB)
    assert reason_for(card(used_mib=15_999, **METAX), online) is Reason.CARD_INSUFFICIENT_MEMORY
    assert reason_for(card(used=4, **METAX), online) is Reason.CARD_TIME_SLICING_EXHAUSTED


def test_offline_pods_keep_away_from_online_ones() -> None:
    online = card(used=1, tenants=tenant(app_class="online"), **METAX)
    assert reason_for(online, shared(app_class="offline", cores=10)) is Reason.CARD_APP_CLASS_MISMATCH
    assert reason_for(online, shared(qos=None, app_class="online")) is None
    assert reason_for(online, shared(cores=10)) is Reason.CARD_APP_CLASS_MISMATCH


def test_an_idle_card_takes_any_qos_whatever_its_register_says() -> None:
    assert reason_for(card(qos="fixed-share", **METAX), shared(qos="burst-share", cores=10)) is None
    joined = card(qos="fixed-share", used=1, tenants=tenant(), **METAX)
    assert reason_for(joined, shared(qos="burst-share", cores=10)) is Reason.CARD_QOS_POLICY_MISMATCH
    assert reason_for(joined, shared(qos="fixed-share", cores=10)) is None


def test_who_wants_all_cores_of_a_shared_card_is_told_that_it_is_in_use_not_its_qos() -> None:
    joined = card(used=1, tenants=tenant("fixed-share"), **METAX)
    assert reason_for(joined, shared(cores=100)) is Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT


def test_a_card_that_does_not_work_has_the_name_that_the_vendors_users_know() -> None:
    broken, metax = card(healthy=False, **METAX), frozenset({"metax"})
    assert reason_for(broken, shared(qos=None, app_class="online")) is Reason.CARD_UNHEALTHY
    assert reason_for(broken, shared()) is Reason.CARD_UNHEALTHY
    assert reason_for(broken, claim(families=metax)) is Reason.CARD_NOT_HEALTH


def test_reasons_are_counted_by_card() -> None:
    node = [card(0, healthy=False), card(1, used=4), card(2, used_mib=16_000), card(3, used_mib=15_500), card(4)]
    assert fit(node, claim(1_000, count=2)) == Counter(
        {
            Reason.CARD_NOT_HEALTH: 1,
            Reason.CARD_TIME_SLICING_EXHAUSTED: 1,
            Reason.CARD_INSUFFICIENT_MEMORY: 2,
            Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: 1,
        }
    )


def test_where_no_card_fits_there_is_no_count_of_those_that_do() -> None:
    full = [card(0, used=4), card(1, used=4)]
    for policy in (CardPolicy(), NUMA_BIND):
        answer = fit(full, claim(count=2, policy=policy))
        assert isinstance(answer, Counter)
        assert dict(answer) == {Reason.CARD_TIME_SLICING_EXHAUSTED: 2}


def test_the_first_cards_in_order_that_fit_are_taken() -> None:
    node = [card(3), card(1, healthy=False), card(0), card(2)]
    assert indices(fit(node, claim(count=2))) == [3, 0]


def test_a_pod_that_stays_together_is_bound_to_its_card() -> None:
    node = [card(0), card(1, used=4), card(2)]
    assert indices(fit(node, claim(), bound=frozenset({"GPU-2"}))) == [2]
    assert fit(node, claim(), bound=frozenset({"GPU-1"})) == Counter(
        {Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE: 2, Reason.CARD_TIME_SLICING_EXHAUSTED: 1}
    )
    assert fit(node[:1], claim(), bound=frozenset()) == Counter({Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE: 1})


def test_candidates_end_when_there_are_enough() -> None:
    node = [card(0, used=4), card(1), card(2), card(3, used=4)]
    passed, refused = candidates(node, claim(), enough=2)
    assert indices(passed) == [1, 2]
    assert refused == Counter({Reason.CARD_TIME_SLICING_EXHAUSTED: 1})


def test_a_pick_looks_at_all_cards_that_fit() -> None:
    """The last two are linked; in order, the first two would be taken."""
    links = {2: {"GPU-3": 100}, 3: {"GPU-2": 100}}
    node = [card(i, links=links.get(i, {})) for i in range(4)]
    assert indices(fit(node, claim(count=2, policy=CardPolicy(pick=Pick.LINKS)))) == [2, 3]


def test_cards_outside_one_scope_are_told_as_numa() -> None:
    node = [card(i, numa=i, pcie=str(i)) for i in range(2)]
    policy = CardPolicy(pick=Pick.TREE, scope="NUMANode")
    assert fit(node, claim(count=2, memory_percent=100, policy=policy)) == Counter({Reason.NUMA_NOT_FIT: 2})


def test_who_wants_every_card_gets_all_that_the_user_admits_or_none() -> None:
    node = [card(0), card(1, model="NVIDIA-T4"), card(2)]
    asked = claim(everywhere=True, selection=Selection(use_types=("a100",)))
    assert indices(fit(node, asked)) == [0, 2]
    node[2] = card(2, used=4)
    assert fit(node, asked) == Counter(
        {
            Reason.CARD_TYPE_MISMATCH: 1,
            Reason.CARD_TIME_SLICING_EXHAUSTED: 1,
            Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: 1,
        }
    )
    assert fit(node[1:2], asked) == Counter({Reason.CARD_TYPE_MISMATCH: 1})


def test_numa_bind_takes_cards_of_one_numa_node() -> None:
    node = [card(0, numa=1), card(1, numa=0), card(2, numa=0)]
    assert indices(fit(node, claim(count=2, policy=NUMA_BIND))) == [1, 2]


def test_numa_bind_counts_the_cards_that_it_let_go() -> None:
    node = [card(0, numa=1), card(1, numa=1), card(2, numa=0), card(3, numa=0)]
    assert fit(node, claim(count=3, policy=NUMA_BIND)) == Counter(
        {Reason.NUMA_NOT_FIT: 2, Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: 2}
    )


def test_numa_bind_without_a_card_to_let_go_counts_none() -> None:
    answer = fit([card(0, numa=1, used=4), card(1, numa=0)], claim(count=2, policy=NUMA_BIND))
    assert isinstance(answer, Counter)
    assert dict(answer) == {
        Reason.CARD_TIME_SLICING_EXHAUSTED: 1,
        Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: 1,
    }


@pytest.mark.parametrize("fault", [{"healthy": False}, {"cordoned": True}, {"model": "NVIDIA-T4"}])
def test_a_card_that_nobody_may_use_does_not_part_a_numa_node(fault: dict[str, Any]) -> None:
    node = [card(0, numa=1), card(1, numa=0, **fault), card(2, numa=1)]
    asked = claim(count=2, policy=NUMA_BIND, selection=Selection(use_types=("a100",)))
    assert indices(fit(node, asked)) == [0, 2]


def test_a_card_that_is_full_does_part_a_numa_node() -> None:
    node = [card(0, numa=1), card(1, numa=0, used=4), card(2, numa=1)]
    assert fit(node, claim(count=2, policy=NUMA_BIND)) == Counter(
        {
            Reason.NUMA_NOT_FIT: 1,
            Reason.CARD_TIME_SLICING_EXHAUSTED: 1,
            Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: 1,
        }
    )


def test_numa_bind_stops_at_enough() -> None:
    assert indices(fit([card(i) for i in range(4)], claim(count=2, policy=NUMA_BIND))) == [0, 1]


cards = st.builds(
    lambda healthy, numa, used, mib: card(healthy=healthy, numa=numa, used=used, used_mib=mib),
    st.sampled_from([True, True, True, False]),
    st.integers(0, 2),
    st.integers(0, 4),
    st.sampled_from([0, 8_000, 16_000]),
)
nodes = st.lists(cards, max_size=8).map(numbered)
claims = st.builds(
    lambda mib, count, word, bind: claim(mib, count=count, policy=CardPolicy((word,), numa_bind=bind)),
    st.sampled_from([1, 8_000, 9_000]),
    st.integers(1, 3),
    st.sampled_from([BINPACK, SPREAD]),
    st.booleans(),
)


@given(nodes, claims)
def test_fit_is_the_first_enough_of_those_that_pass(node: list[CardState], asked: Claim) -> None:
    ordered = in_order(node, asked)
    passing = [each for each in ordered if refuse(each, asked, rules_for(asked)) is None]
    sets = [passing]
    if asked.policy.numa_bind:
        numas = dict.fromkeys(each.device.numa for each in ordered)
        sets = [[each for each in passing if each.device.numa == numa] for numa in numas]
    want = next((each[: asked.count] for each in sets if len(each) >= asked.count), None)
    answer = fit(ordered, asked)
    if want is not None:
        assert indices(answer) == indices(want)
    else:
        assert isinstance(answer, Counter)
        assert sum(answer.values()) == len(node)  # every card is accounted for, once
