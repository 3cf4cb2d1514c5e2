"""A whole pod on one node: every container gets its cards, in whatever way they all fit, or the node is refused."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.metax_rules import Shared
from subak.model.card import CardState
from subak.model.device import MIB, MigProfile
from subak.model.manifest import Role
from subak.model.placement import Charge, Grant, MigInstance, charges
from subak.model.reason import Reason
from subak.model.request import (
    BINPACK,
    LOWEST_INDEX,
    CardPolicy,
    Claim,
    Pick,
    Request,
)
from subak.policy.on_node import MOST_TRIALS, bound_to, on_node
from tests.support.cards import DIALECT, card, claim, grant, node, numbered, share
from tests.support.fuzz import examples

FIRST = CardPolicy((LOWEST_INDEX,))


def tried(cards: list[CardState], *claims: Claim, node_policy: str = BINPACK) -> tuple[Grant, ...] | Counter[Reason]:
    before = [(each.used, each.memory_free, each.cores_free, dict(each.tenants)) for each in cards]
    answer = on_node(node("n"), cards, Request(claims, node_policy=node_policy))
    assert before == [(each.used, each.memory_free, each.cores_free, dict(each.tenants)) for each in cards]
    return answer


def given_to(cards: list[CardState], *claims: Claim) -> list[list[int]]:
    """The indices of the cards that each claim gets."""
    answer = tried(cards, *claims)
    assert isinstance(answer, tuple), answer
    assert [each.containers for each in answer] == [each.containers for each in claims]
    assert [each.role for each in answer] == [each.role for each in claims]
    return [[part.index for part in each.shares] for each in answer]


def refusal(cards: list[CardState], *claims: Claim) -> Counter[Reason]:
    answer = tried(cards, *claims)
    assert isinstance(answer, Counter), answer
    return answer


def app(mib: int, container: int = 0, **wishes: Any) -> Claim:
    return claim(mib, container=container, **{"policy": FIRST, **wishes})


def init(mib: int, container: int = 0, **wishes: Any) -> Claim:
    return app(mib, container, role=Role.INIT, **wishes)


def sidecar(mib: int, container: int = 0, **wishes: Any) -> Claim:
    return app(mib, container, role=Role.SIDECAR, **wishes)


def test_a_pod_without_cards_fits_anywhere() -> None:
    assert tried([]) == ()
    assert tried([card()]) == ()


def test_a_grant_says_who_got_what() -> None:
    asked = claim(1_000, container=3, cores=20, extras=(("aicpu", 1),), role=Role.SIDECAR)
    home = card(7, extras=(("aicpu", 2),))
    assert tried([home], asked) == (
        Grant(DIALECT, (3,), Role.SIDECAR, (share("GPU-7", 1_000, 20, extras=(("aicpu", 1),)),)),
    )


def test_a_grant_carries_the_qos_and_class_that_its_neighbours_must_bear() -> None:
    asked = claim(families=frozenset({"metax"}), rules=Shared("fixed-share", "offline"))
    answer = tried([card(family="metax")], asked)
    assert isinstance(answer, tuple)
    assert answer[0].tag == ("fixed-share", "offline")
    online = tried([card(family="metax")], claim(families=frozenset({"metax"}), rules=Shared(None, "online")))
    assert isinstance(online, tuple)
    assert online[0].tag == ("", "online")


def test_a_percentage_becomes_an_amount_on_each_card() -> None:
    answer = tried([card(0, mib=8_000), card(1, mib=24_000)], claim(memory_percent=25, count=2, policy=FIRST))
    assert isinstance(answer, tuple)
    assert [part.memory_bytes // MIB for part in answer[0].shares] == [2_000, 6_000]


TWO = MigProfile("2g.10gb", 9_856 * MIB, 28, ((0, 2), (2, 2), (4, 2)))


def a100(index: int = 0, **state: Any) -> CardState:
    return card(index, **{"mode": "mig", "mib": 40_960, "mig": (TWO,), **state})


def starts(answer: tuple[Grant, ...] | Counter[Reason]) -> list[list[tuple[int, int]]]:
    """Card and place of each instance, by container."""
    assert isinstance(answer, tuple), answer
    return [[(part.index, part.mig.start) for part in each.shares if part.mig] for each in answer]


def test_one_container_may_get_several_instances_of_one_card() -> None:
    assert starts(tried([a100()], app(8_000, count=2, instances=True))) == [[(0, 0), (0, 2)]]
    assert starts(tried([a100(0), a100(1)], app(8_000, count=2, instances=True))) == [[(0, 0), (0, 2)]]


def test_what_the_first_card_cannot_give_the_next_one_gives() -> None:
    held = {"default/a": Charge(1, mig=(MigInstance("2g.10gb", 0, 2),))}
    cards = [a100(0, used=1, tenants=held), a100(1)]
    assert starts(tried(cards, app(8_000, count=4, instances=True))) == [[(0, 2), (0, 4), (1, 0), (1, 2)]]


def test_a_pod_that_wants_its_cards_alone_may_have_several_instances_of_one() -> None:
    alone = CardPolicy((LOWEST_INDEX,), mutex=True)
    assert starts(tried([a100()], app(8_000, count=3, instances=True, policy=alone))) == [[(0, 0), (0, 2), (0, 4)]]
    stranger = a100(used=1, tenants={"default/a": Charge(1)})
    assert refusal([stranger], app(8_000, count=2, instances=True, policy=alone))


def test_containers_of_a_pod_share_the_instances_of_a_card() -> None:
    two, one = app(8_000, 0, count=2, instances=True), app(8_000, 1, instances=True)
    assert starts(tried([a100()], two, one)) == [[(0, 0), (0, 2)], [(0, 4)]]
    assert refusal([a100()], two, app(8_000, 1, count=2, instances=True))


def test_instances_are_divided_among_cards_so_that_all_containers_fit() -> None:
    """The second container fits only on the second card, whose instances the first would like to have."""
    large = MigProfile("4g.20gb", 20_096 * MIB, 56, ((0, 4),))
    cards = [a100(0, mig=(TWO, large)), a100(1)]
    wants = app(8_000, 0, count=3, instances=True), app(20_000, 1, instances=True)
    assert starts(tried(cards, *wants)) == [[(1, 0), (1, 2), (1, 4)], [(0, 0)]]


def test_topology_aware_pods_get_linked_cards_and_several_instances_only_if_they_must() -> None:
    linked = CardPolicy((LOWEST_INDEX,), pick=Pick.LINKS)
    cards = [a100(i, links={f"GPU-{j}": 10 * i * j for j in range(3)}) for i in range(3)]
    assert starts(tried(cards, app(8_000, count=2, instances=True, policy=linked))) == [[(1, 0), (2, 0)]]
    assert starts(tried(cards[:1], app(8_000, count=2, instances=True, policy=linked))) == [[(0, 0), (0, 2)]]


def test_too_few_instances_are_told_with_their_number() -> None:
    answer = refusal([a100()], app(8_000, count=4, instances=True))
    assert answer[Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST] == 3
    assert refusal([a100(slots=2)], app(8_000, count=4, instances=True)) == {Reason.NODE_INSUFFICIENT_DEVICE: 1}
    assert refusal([a100()], app(8_000, count=2)) == {Reason.NODE_INSUFFICIENT_DEVICE: 1}


def test_a_card_in_mig_mode_gives_a_whole_instance() -> None:
    profile = MigProfile("1g.10gb", 9_856 * MIB, 14, ((0, 1), (1, 1)))
    answer = tried([card(mode="mig", mib=81_920, mig=(profile,))], claim(5_000, cores=10, instances=True))
    assert isinstance(answer, tuple)
    assert answer[0].shares == (share("GPU-0", 9_856, 14, mig=MigInstance("1g.10gb", 1, 1)),)


def test_the_share_is_as_large_as_the_instance_that_was_chosen() -> None:
    small = MigProfile("1g.10gb", 9_856 * MIB, 14, ((0, 1),))
    large = MigProfile("3g.40gb", 40_192 * MIB, 42, ((4, 4),))
    for profiles in ((small, large), (large, small)):
        answer = tried([card(mode="mig", mib=81_920, mig=profiles)], claim(9_857, instances=True))
        assert isinstance(answer, tuple)
        assert answer[0].shares == (share("GPU-0", 40_192, 42, mig=MigInstance("3g.40gb", 4, 4)),)


def test_containers_do_not_get_the_same_instance() -> None:
    profile = MigProfile("1g.10gb", 9_856 * MIB, 14, ((0, 1), (1, 1)))
    home = card(mode="mig", mib=81_920, mig=(profile,))
    for first in (app(5_000, instances=True), init(5_000, instances=True)):
        # The instance of an init container stays: it is made once.
        answer = tried([home], first, app(5_000, 1, instances=True))
        assert isinstance(answer, tuple)
        assert [each.shares[0].mig for each in answer] == [MigInstance("1g.10gb", start, 1) for start in (1, 0)]
    three = [each(1, i, instances=True) for i, each in enumerate((init, app, app))]
    assert refusal([home], *three) == Counter({Reason.CARD_MIG_TOPOLOGY_INFEASIBLE: 1})


def test_only_cards_of_the_claims_vendor_are_counted() -> None:
    cards = [card(0, family="metax"), card(1)]
    assert given_to(cards, app(1)) == [[1]]
    assert refusal(cards, app(1, count=2)) == Counter({Reason.NODE_INSUFFICIENT_DEVICE: 1})
    assert refusal(cards, app(1), app(1, 1, count=2)) == Counter({Reason.NODE_INSUFFICIENT_DEVICE: 1})
    assert refusal(cards, app(1, count=2), app(1, 1)) == Counter({Reason.NODE_INSUFFICIENT_DEVICE: 1})


def test_one_container_that_does_not_fit_is_told_by_its_cards() -> None:
    cards = [card(0, used_mib=16_000), card(1, healthy=False)]
    assert refusal(cards, app(1)) == Counter({Reason.CARD_INSUFFICIENT_MEMORY: 1, Reason.CARD_NOT_HEALTH: 1})


def test_containers_share_a_card_that_has_room_for_both() -> None:
    assert given_to([card(0), card(1)], app(8_000), app(8_000, 1)) == [[0], [0]]
    assert given_to([card(0), card(1)], app(8_000), app(8_001, 1)) == [[0], [1]]


def test_a_container_moves_aside_for_one_that_fits_nowhere_else() -> None:
    """In order, the small one would take the only card that the large one fits on."""
    assert given_to([card(0), card(1, used_mib=8_000)], app(8_000), app(9_000, 1)) == [[1], [0]]


def test_two_containers_move_aside_for_the_third() -> None:
    cards = [card(0), card(1, used_mib=8_000), card(2, used_mib=8_000)]
    assert given_to(cards, app(5_000), app(5_000, 1), app(16_000, 2)) == [[1], [2], [0]]


def test_the_first_way_in_order_of_preference_is_taken() -> None:
    """Other sets are tried as they come: cards 0 and 1 block the second container, cards 0 and 2 do not."""
    cards = [card(0), card(1), card(2)]
    assert given_to(cards, app(9_000, count=2), app(9_000, 1, selection=only("GPU-1"))) == [[0, 2], [1]]


def only(*ids: str) -> Any:
    return replace(claim().selection, use_ids=frozenset(ids))


def test_cards_that_must_lie_together_do_so_on_every_way() -> None:
    """The first container's preferred NUMA node has the only card of the second, so it moves as a whole."""
    near = CardPolicy(pick=Pick.TREE, scope="NUMANode")
    pair = claim(memory_percent=100, cores=100, count=2, policy=near)
    other = claim(16_000, container=1, selection=only("GPU-0"))
    cards = [card(i, numa=i // 2, pcie=str(i)) for i in range(4)]
    assert given_to(cards, pair) == [[0, 1]]
    assert given_to(cards, pair, other) == [[2, 3], [0]]
    cards[3] = card(3, numa=1, pcie="3", healthy=False)
    assert isinstance(refusal(cards, pair, other), Counter)


def test_the_refusal_is_that_of_the_first_container_that_found_no_room() -> None:
    """On the preferred way that is the second, by cores; on another way it fits, and the third finds no memory."""
    claims = [app(1, cores=50), app(1, 1, cores=60), app(17_000, 2)]
    assert refusal([card(0), card(1, used_cores=50)], *claims) == Counter({Reason.CARD_INSUFFICIENT_CORE: 2})


def test_init_containers_give_back_what_they_take() -> None:
    assert given_to([card()], init(16_000), init(16_000, 1), app(16_000, 2)) == [[0], [0], [0]]
    assert given_to([card(used=3)], init(1), app(1, 1)) == [[0], [0]]


def test_sidecars_keep_what_they_take_beside_all_that_start_later() -> None:
    assert given_to([card()], sidecar(4_000), init(12_000, 1), app(12_000, 2)) == [[0], [0], [0]]
    assert refusal([card()], sidecar(4_000), init(12_001, 1)) == Counter({Reason.CARD_INSUFFICIENT_MEMORY: 1})
    assert refusal([card()], sidecar(4_000), app(12_001, 1)) == Counter({Reason.CARD_INSUFFICIENT_MEMORY: 1})


def test_a_sidecar_does_not_disturb_an_init_container_that_ended_before_it_started() -> None:
    assert given_to([card()], init(16_000), sidecar(4_000, 1), app(12_000, 2)) == [[0], [0], [0]]
    assert isinstance(refusal([card()], init(16_000), sidecar(4_000, 1), init(12_001, 2)), Counter)


def test_containers_are_served_as_they_start_and_answered_as_they_were_asked() -> None:
    """The app container is named first, but the init container has the first choice."""
    cards = [card(0), card(1)]
    assert given_to(cards, app(9_000, 2), sidecar(9_000, 0), app(1, 1)) == [[1], [0], [0]]


def test_equal_claims_are_told_apart() -> None:
    one = app(9_000)
    assert given_to([card(0), card(1)], one, replace(one, containers=(1,))) == [[0], [1]]


def test_a_pod_that_stays_together_takes_one_card() -> None:
    cards = [card(0, used_mib=8_000), card(1)]
    apart = [app(8_000), app(8_000, 1)]
    assert given_to(cards, *apart) == [[0], [1]]
    assert given_to(cards, *(replace(each, together=True) for each in apart)) == [[1], [1]]


def test_a_pod_that_cannot_stay_together_does_not_fit() -> None:
    answer = refusal([card(0), card(1)], app(9_000, together=True), app(9_000, 1, together=True))
    assert answer == Counter({Reason.CARD_INSUFFICIENT_MEMORY: 1, Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE: 1})


def test_after_several_cards_no_card_is_the_one_to_stay_on() -> None:
    """Moore Threads: one container may have several cards, or several containers one."""
    cards = [card(0), card(1)]
    assert given_to(cards, app(1, count=2, together=True)) == [[0, 1]]
    assert refusal(cards, app(1, count=2, together=True), app(1, 1, together=True)) == Counter(
        {Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE: 2}
    )


def test_only_earlier_containers_of_the_same_dialect_bind() -> None:
    later = claim(together=True)
    assert bound_to(later, ()) is None
    assert bound_to(claim(), (grant(share("GPU-0")),)) is None
    card = frozenset({"GPU-0"})
    assert bound_to(later, (grant(share("GPU-0")),)) == card
    assert bound_to(later, (grant(share("GPU-0")), grant(share("GPU-0"), container=1))) == card
    assert bound_to(later, (grant(share("GPU-0"), share("GPU-1")),)) == frozenset()
    assert bound_to(replace(later, dialect="volcano-share"), (grant(share("GPU-0")),)) is None


def test_containers_of_one_pod_mind_each_others_class() -> None:
    """An offline container does not join the pod's own online one."""
    both = frozenset({"metax"})
    claims = [
        claim(families=both, rules=Shared(None, "online"), policy=CardPolicy(pick=Pick.RULES)),
        claim(families=both, rules=Shared("best-effort", "offline"), container=1),
    ]
    assert given_to([card(0, family="metax"), card(1, family="metax")], *claims) == [[0], [1]]


def test_extras_of_a_pods_other_containers_count() -> None:
    cards = [card(0, extras=(("aicpu", 3),)), card(1, extras=(("aicpu", 3),))]
    two = (("aicpu", 2),)
    assert given_to(cards, app(1, extras=two), app(1, 1, extras=two)) == [[0], [1]]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """The claims for which cards were tried, one after the other."""
    module, tried = sys.modules[on_node.__module__], []
    grant_as_ever = module.grant

    def counted(asked: Claim, cards: Any) -> Any:
        tried.append(asked)
        return grant_as_ever(asked, cards)

    monkeypatch.setattr(module, "grant", counted)
    return tried


def test_the_search_is_bounded(trials: list[Claim]) -> None:
    """Twelve containers that do not fit on eight cards could be tried in billions of ways."""
    claims = [app(5_000, container) for container in range(11)]
    answer = tried([card(index, used_mib=index) for index in range(5)], *claims, app(9_000, 11), app(16_000, 12))
    assert isinstance(answer, Counter)
    assert MOST_TRIALS <= len(trials) <= MOST_TRIALS + len(claims)


def test_a_container_that_nobody_disturbs_is_not_sought_room_for_twice(trials: list[Claim]) -> None:
    """However the others are placed, the only MetaX card stays full."""
    cards = [*(card(index) for index in range(4)), card(4, family="metax", used=4)]
    others = [app(1_000, container) for container in range(4)]
    assert isinstance(tried(cards, *others, app(1, 4, families=frozenset({"metax"}))), Counter)
    assert trials == others


def test_a_pod_that_fits_at_once_is_found_however_many_containers_it_has() -> None:
    claims = [app(1_000, container) for container in range(40)]
    assert given_to([card(index) for index in range(10)], *claims) == [[index // 4] for index in range(40)]


free = st.builds(
    lambda used, mib, cores: card(used=used, used_mib=mib, used_cores=cores),
    st.integers(0, 3),
    st.sampled_from([0, 4_000, 8_000, 12_000]),
    st.sampled_from([0, 50]),
)
wishes = st.tuples(
    st.sampled_from([1, 4_000, 6_000, 8_000, 16_000]),
    st.sampled_from([1, 30, 50]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([Role.APP, Role.APP, Role.SIDECAR, Role.INIT]),
)


def fits_somehow(cards: list[CardState], claims: list[Claim], together: bool) -> bool:
    """Whether any choice of cards for all claims stays within every card at the pod's peak."""
    ways = [list(combinations(cards, each.count)) for each in claims]
    for way in product(*ways):
        if together and len({each.device.id for chosen in way for each in chosen}) > 1:
            continue
        grants = [
            grant(
                *(share(one.device.id, each.memory_bytes // MIB, each.cores) for one in chosen),
                container=each.containers[0],
                role=each.role,
            )
            for each, chosen in zip(claims, way, strict=True)
        ]
        taken = charges(grants)
        if all(within(each, taken.get(each.device.id, Charge())) for each in cards):
            return True
    return False


def within(card: CardState, charge: Charge) -> bool:
    return (
        charge.slots + card.used <= card.device.slots
        and charge.memory_bytes <= card.memory_free
        and charge.cores <= card.cores_free
    )


@examples(quick=60, ci=300)
@given(st.lists(free, min_size=1, max_size=3), st.lists(wishes, min_size=1, max_size=4), st.booleans())
def test_a_pod_fits_if_its_containers_fit_in_any_way(
    drawn: list[CardState], asked: list[tuple[int, int, int, Role]], together: bool
) -> None:
    cards = numbered(drawn)
    early = [each for each in asked if each[3] is not Role.APP] + [each for each in asked if each[3] is Role.APP]
    claims = [
        app(mib, position, cores=cores, count=1 if together else count, role=role, together=together)
        for position, (mib, cores, count, role) in enumerate(early)
    ]
    enough = all(each.count <= len(cards) for each in claims)
    assert isinstance(tried(cards, *claims), tuple) is (enough and fits_somehow(cards, claims, together))
