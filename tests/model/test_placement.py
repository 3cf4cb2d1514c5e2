"""What a pod takes of each card at its peak, against going through the moments of its life."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.placement import Charge, Grant, MigInstance, Share, charges
from tests.support.cards import grant, share

APP, INIT, SIDECAR = Role.APP, Role.INIT, Role.SIDECAR


def peak(*grants: Grant, card: str = "GPU-0") -> tuple[int, int, int]:
    """Shares, MiB and cores that the pod takes of a card, whatever the order in which its grants are told."""
    answers = {
        (charge.slots, charge.memory_bytes // MIB, charge.cores)
        for told in permutations(grants)
        for charge in [charges(told)[card]]
    }
    assert len(answers) == 1
    return answers.pop()


def part(mib: int, container: int, role: Role = APP, cores: int = 0, **more: MigInstance) -> Grant:
    return grant(share("GPU-0", mib, cores, **more), container=container, role=role)


def test_a_pod_without_cards_takes_nothing() -> None:
    assert charges(()) == {}


def test_one_container_takes_what_it_got_of_each_card() -> None:
    taken = charges([grant(share("GPU-0", 100, 10), share("GPU-1", 200, 20))])
    assert {card: (each.slots, each.memory_bytes // MIB, each.cores) for card, each in taken.items()} == {
        "GPU-0": (1, 100, 10),
        "GPU-1": (1, 200, 20),
    }


@pytest.mark.parametrize("role", list(Role))
def test_two_shares_of_one_card_in_one_container_add_up(role: Role) -> None:
    both = grant(share("GPU-0", 100, 10), share("GPU-0", 200, 20), role=role)
    assert peak(both) == (2, 300, 30)
    assert peak(both, part(1, 1)) == (3 if role is not INIT else 2, 301 if role is not INIT else 300, 30)


def test_app_containers_run_together() -> None:
    assert peak(part(100, 0, cores=10), part(200, 1, cores=20)) == (2, 300, 30)


def test_init_containers_run_one_after_the_other_before_the_rest() -> None:
    assert peak(part(500, 0, INIT), part(300, 1, INIT), part(100, 2)) == (1, 500, 0)
    assert peak(part(500, 0, INIT), part(300, 1), part(400, 2)) == (2, 700, 0)


def test_each_amount_has_its_own_peak() -> None:
    assert peak(part(500, 0, INIT, cores=10), part(100, 1, cores=40)) == (1, 500, 40)


def test_a_sidecar_runs_beside_all_that_starts_after_it() -> None:
    assert peak(part(100, 0, SIDECAR), part(500, 1, INIT), part(200, 2)) == (2, 600, 0)
    assert peak(part(500, 0, INIT), part(100, 1, SIDECAR), part(200, 2)) == (2, 500, 0)
    assert peak(part(100, 0, SIDECAR), part(200, 1)) == (2, 300, 0)


def test_app_containers_come_last_whatever_their_position() -> None:
    """Positions count init containers first; a reader that numbers them otherwise gets the same."""
    assert peak(part(200, 0), part(500, 0, INIT)) == (1, 500, 0)


def test_a_mig_instance_of_an_init_container_stays() -> None:
    """It is made once, for the pod; the app container gets another."""
    instances = [MigInstance("1g.10gb", start, 1) for start in (6, 5)]
    grants = [part(100, 0, INIT, mig=instances[0]), part(100, 1, mig=instances[1])]
    assert peak(*grants) == (2, 200, 0)
    assert charges(grants)["GPU-0"].mig == tuple(instances)
    assert charges(grants[:1])["GPU-0"].mig == (instances[0],)
    assert [each.given_back for each in grants] == [False, False]
    assert part(100, 0, INIT).given_back
    assert not part(100, 0, SIDECAR).given_back


def test_extras_are_counted_as_all_else() -> None:
    def using(role: Role, container: int, **extras: int) -> Grant:
        return grant(share("GPU-0", extras=tuple(extras.items())), container=container, role=role)

    grants = [using(INIT, 0, aicpu=5, dvpp=1), using(APP, 1, aicpu=2), using(APP, 2, aicpu=2, vpc=3)]
    assert charges(grants)["GPU-0"].extras == {"aicpu": 5, "dvpp": 1, "vpc": 3}
    assert charges(grants[:1])["GPU-0"].extras == {"aicpu": 5, "dvpp": 1}


def test_the_tag_is_that_of_the_container_that_came_first() -> None:
    first = grant(share("GPU-0"), tag=("fixed-share", "offline"))
    second = grant(share("GPU-0"), share("GPU-1"), container=1, tag=("best-effort", ""))
    taken = charges([second, first])
    assert taken["GPU-0"].tag == ("fixed-share", "offline")
    assert taken["GPU-1"].tag == ("best-effort", "")
    assert charges([first])["GPU-0"].tag == ("fixed-share", "offline")


def test_charges_of_two_pods_do_not_share_their_extras() -> None:
    one, other = Charge(), Charge()
    one.add(share("GPU-0", extras=(("aicpu", 1),)), True)
    assert other.extras == {}


def test_adding_and_taking_away_a_share_leaves_nothing() -> None:
    charge, piece = Charge(), share("GPU-0", 100, 10, extras=(("aicpu", 2),))
    charge.add(piece, True)
    assert (charge.slots, charge.memory_bytes, charge.cores, charge.extras) == (1, 100 * MIB, 10, {"aicpu": 2})
    charge.add(piece, True, -1)
    assert (charge.slots, charge.memory_bytes, charge.cores, charge.extras) == (0, 0, 0, {"aicpu": 0})


@st.composite
def lives(draw: st.DrawFn) -> list[Grant]:
    """The grants of a pod: init containers and sidecars in any order, then app containers."""
    early = draw(st.lists(st.sampled_from([INIT, SIDECAR]), max_size=3))
    roles = [*early, *[APP] * draw(st.integers(0, 3))]
    pieces = st.builds(
        lambda card, mib, cores, aicpu: share(card, mib, cores, extras=(("aicpu", aicpu),) if aicpu else ()),
        st.sampled_from(["GPU-0", "GPU-1"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 2),
    )
    return [
        grant(*draw(st.lists(pieces, min_size=1, max_size=3)), container=position, role=role)
        for position, role in enumerate(roles)
    ]


def moments(grants: list[Grant]) -> list[list[Grant]]:
    """Who runs at each moment: an init container beside the sidecars before it; in the end all but init containers."""
    return [
        *(
            [*(each for each in grants[:i] if each.role is SIDECAR), one]
            for i, one in enumerate(grants)
            if one.role is INIT
        ),
        [each for each in grants if each.role is not INIT],
    ]


@given(lives())
def test_the_peak_is_the_most_of_all_moments(grants: list[Grant]) -> None:
    taken = charges(grants[::-1])
    assert set(taken) == {piece.id for each in grants for piece in each.shares}
    for card, charge in taken.items():
        running: list[list[Share]] = [
            [piece for each in moment for piece in each.shares if piece.id == card] for moment in moments(grants)
        ]
        assert charge.slots == max(len(pieces) for pieces in running)
        assert charge.memory_bytes == max(sum(piece.memory_bytes for piece in pieces) for pieces in running)
        assert charge.cores == max(sum(piece.cores for piece in pieces) for pieces in running)
        aicpu = max(sum(dict(piece.extras).get("aicpu", 0) for piece in pieces) for pieces in running)
        assert charge.extras.get("aicpu", 0) == aicpu
