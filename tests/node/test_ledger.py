"""The node's own account: it never lets a card carry more than it has, whatever was written."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Function, Grant, MigInstance, Placement, Share
from subak.node.ledger import Ledger, Overcommitted
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.descriptions import limits, nodes
from tests.support.fuzz import examples
from tests.support.machines import INTERPRETER, machine

CARD = Device("GPU-0", 0, "nvidia", memory_bytes=1000 * MIB, slots=4)
OTHER = Device("GPU-1", 1, "nvidia", memory_bytes=1000 * MIB, slots=4)


def ledger(*devices: Device) -> Ledger:
    return Ledger(Node("n", devices or (CARD, OTHER)))


def placed(*shares: Share, role: Role = Role.APP) -> Placement:
    return Placement("n", (Grant("hami-nvidia", (0,), role, shares),))


def share(mib: int = 100, cores: int = 10, id: str = "GPU-0", **more: object) -> Share:
    return Share(id, 0, mib * MIB, cores, **more)  # type: ignore[arg-type]


def test_pods_share_a_card_until_it_is_full() -> None:
    book = ledger()
    book.take("u1", "default/a", placed(share(600, 50)))
    book.take("u2", "default/b", placed(share(400, 50)))
    with pytest.raises(Overcommitted) as error:
        book.take("u3", "default/c", placed(share(1, 0)))
    assert str(error.value) == (
        "card GPU-0 of node n has 0 MiB, 0 cores, 2 slots left (default/a, default/b hold the rest); pod default/c "
        "takes 1 MiB, 0 cores, 1 slot, which would overcommit the card"
    )


@pytest.mark.parametrize("too_much", [share(1001, 0), share(0, 101)])
def test_no_pod_gets_more_than_a_card(too_much: Share) -> None:
    with pytest.raises(Overcommitted, match="nobody holds any of it"):
        ledger().take("u", "default/a", placed(too_much))


def test_slots_are_counted_too() -> None:
    book = ledger()
    for number in range(4):
        book.take(f"u{number}", f"default/p{number}", placed(share(1, 0)))
    with pytest.raises(Overcommitted, match="has 996 MiB, 100 cores, 0 slots left"):
        book.take("u5", "default/p5", placed(share(1, 0)))


def test_who_counts_no_slots_takes_none() -> None:
    book = ledger()
    for number in range(9):
        grant = Grant("volcano-share", (0,), Role.APP, (share(100, 0),), slotted=False)
        book.take(f"u{number}", f"default/p{number}", Placement("n", (grant,)))
    book.take("u9", "default/p9", placed(share(100, 0)))


def test_what_pods_hold_beyond_a_card_keeps_only_those_off_who_take_more_of_it() -> None:
    """After a restart the books may show more cores than the card has: who takes none is not refused for that."""
    book = ledger()
    book.restore("u1", "default/a", placed(share(100, 150)))
    book.take("u2", "default/b", placed(share(100, 0)))
    with pytest.raises(Overcommitted, match="-50 cores"):
        book.take("u3", "default/c", placed(share(100, 1)))


def test_what_ends_is_free_again() -> None:
    book = ledger()
    book.take("u1", "default/a", placed(share(1000, 100)))
    assert [each.id for each in book.free()] == ["GPU-1"]
    assert book.give_back("u1") is not None
    assert book.give_back("u1") is None
    book.take("u2", "default/a", placed(share(1000, 100)))


def test_a_refused_pod_leaves_nothing_behind() -> None:
    book = ledger()
    with pytest.raises(Overcommitted):
        book.take("u1", "default/a", placed(share(10), share(2000, id="GPU-1")))
    assert len(book.free()) == 2


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    book = ledger()
    book.take("old", "default/a", placed(share(600)))
    with pytest.raises(Overcommitted, match=r"400 MiB.*default/a hold the rest"):
        book.take("new", "default/a", placed(share(600)))


def test_an_unknown_card_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Overcommitted, match="node n has no card GPU-9; its cards are GPU-0, GPU-1"):
        ledger().take("u", "default/a", placed(share(id="GPU-9")))


def test_a_broken_card_is_refused() -> None:
    broken = Device("GPU-0", 0, "nvidia", memory_bytes=MIB, healthy=False)
    with pytest.raises(Overcommitted, match="card GPU-0 of node n is broken"):
        ledger(broken).take("u", "default/a", placed(share(1)))


def test_what_ran_before_counts_even_if_it_is_too_much() -> None:
    book = ledger()
    book.restore("u1", "default/a", placed(share(900)))
    book.restore("u2", "default/b", placed(share(900)))
    with pytest.raises(Overcommitted, match="has -800 MiB"):
        book.take("u3", "default/c", placed(share(1, 0)))


def test_mig_instances_do_not_overlap() -> None:
    book = ledger()
    book.take("u1", "default/a", placed(share(1, 0, mig=MigInstance("3g", 4, 4))))
    book.take("u2", "default/b", placed(share(1, 0, mig=MigInstance("2g", 0, 2))))
    with pytest.raises(Overcommitted, match="takes MIG slices 1 to 1, pod default/b has MIG slices 0 to 1"):
        book.take("u3", "default/c", placed(share(1, 0, mig=MigInstance("1g", 1, 1))))


def test_a_virtual_function_is_one_pods() -> None:
    book = ledger()
    book.take("u1", "default/a", placed(share(1, 0, functions=(Function("0000:1f:00.2"),))))
    with pytest.raises(Overcommitted, match="takes 0000:1f:00.2, which pod default/a has"):
        book.take("u2", "default/b", placed(share(1, 0, functions=(Function("0000:1f:00.2"),))))


def test_amounts_that_only_some_vendors_count_are_counted() -> None:
    book = ledger(Device("NPU-0", 0, "huawei", memory_bytes=MIB, extras=(("huawei.com/npu-cpu", 7),)))
    book.take("u1", "default/a", placed(share(0, 0, id="NPU-0", extras=(("huawei.com/npu-cpu", 4),))))
    with pytest.raises(Overcommitted, match=r"3 huawei.com/npu-cpu left.*takes.*4 huawei.com/npu-cpu"):
        book.take("u2", "default/b", placed(share(0, 0, id="NPU-0", extras=(("huawei.com/npu-cpu", 4),))))


def test_bytes_are_told_where_mib_would_hide_the_difference() -> None:
    book = ledger(Device("GPU-0", 0, "nvidia", memory_bytes=MIB - 1))
    with pytest.raises(Overcommitted, match=r"has 1,048,575 bytes.*takes 1 MiB"):
        book.take("u", "default/a", placed(share(1, 0)))


takes = st.tuples(st.integers(0, 9), st.sampled_from(("GPU-0", "GPU-1")), st.integers(0, 700), st.integers(0, 70))


@given(st.lists(takes, max_size=40))
def test_no_card_ever_carries_more_than_it_has(steps: list[tuple[int, str, int, int]]) -> None:
    """Pods come and go in any order: one that is known ends, one that is not asks."""
    book = ledger()
    for number, card, mib, cores in steps:
        uid = f"u{number}"
        if book.give_back(uid) is not None:
            continue
        try:
            book.take(uid, f"default/p{number}", placed(share(mib, cores, card)))
        except Overcommitted:
            continue
        for device in (CARD, OTHER):
            held = [each.charges[device.id] for each in book.holdings.values() if device.id in each.charges]
            assert sum(each.memory_bytes for each in held) <= device.memory_bytes
            assert sum(each.cores for each in held) <= device.cores
            assert sum(each.slots for each in held) <= device.slots


@given(st.data())
@examples(quick=30, ci=150)
def test_what_the_scheduler_places_the_node_honours(data: st.DataObject) -> None:
    """Its ledger and the scheduler's are kept apart; they must agree on every pod, read back from its annotations."""
    described = machine(**data.draw(nodes()))
    node, _ = described.digest(INTERPRETER)
    snapshot, book = Snapshot([node]), Ledger(node)
    for number in range(data.draw(st.integers(1, 12))):
        dialect = data.draw(st.sampled_from(sorted(node.offers)))
        container = {"name": "c", "resources": {"limits": data.draw(limits(dialect))}}
        content = {"metadata": {"name": f"p{number}"}, "spec": {"nodeName": "n", "containers": [container]}}
        pod = msgspec.convert(content, manifest.Pod)
        placement = place(snapshot, INTERPRETER.request(pod))
        if placement is None:
            continue
        snapshot.assume(pod.key, placement)
        written = INTERPRETER.annotations(pod, placement, node, 10**18)
        metadata = manifest.Metadata(name=pod.name, annotations=written)
        bound = msgspec.structs.replace(pod, metadata=metadata)
        book.take(pod.key, pod.key, INTERPRETER.placement(bound, node))


def test_two_tenants_of_the_same_name_both_count() -> None:
    """A pod that was deleted by force still runs while the next one has its name already."""
    book = ledger()
    book.take("u1", "default/a", placed(share(500, 0)))
    book.take("u2", "default/a", placed(share(500, 0)))
    with pytest.raises(Overcommitted, match="has 0 MiB"):
        book.take("u3", "default/b", placed(share(1, 0)))


def test_of_many_tenants_a_refusal_names_a_few() -> None:
    book = ledger(Device("GPU-0", 0, "nvidia", memory_bytes=1000 * MIB, slots=100))
    for number in range(10):
        book.take(f"u{number}", f"default/p{number}", placed(share(100, 0)))
    with pytest.raises(Overcommitted, match=r"default/p3, default/p4 and 5 more hold the rest\); pod default/b takes"):
        book.take("u", "default/b", placed(share(1, 0)))


def test_a_pod_that_counts_for_more_than_it_takes_counts_in_full_and_not_against_itself() -> None:
    book = ledger()
    book.restore("u1", "default/a", Placement("n"), placed(share(900, 0)))
    with pytest.raises(Overcommitted, match="default/a hold the rest"):
        book.take("u2", "default/b", placed(share(200, 0)))
    book.take("u1", "default/a", placed(share(100, 0)), placed(share(800, 0)))
    book.take("u2", "default/b", placed(share(200, 0)))
