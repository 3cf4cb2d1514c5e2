"""What a card carries, in every amount that it has."""

from __future__ import annotations

import msgspec
import pytest

from subak.model.device import MIB, Device, VirtualFunction
from subak.model.node import Node
from subak.model.placement import Charge, Function
from subak.scheduler.load import Load, became_smaller

CARD = Device(
    "GPU-1",
    0,
    "nvidia",
    memory_bytes=1000 * MIB,
    cores=100,
    slots=2,
    extras=(("aicpu", 7),),
    functions=(VirtualFunction("0000:1"),),
)

CHARGES = {
    "1,200 of 1,000 MiB of memory": Charge(memory_bytes=600 * MIB),
    "120 of 100 cores": Charge(cores=60),
    "4 of 2 slots": Charge(slots=2),
    "8 of 7 aicpu": Charge(extras={"aicpu": 4}),
    "2 of 1 virtual function 0000:1": Charge(functions=(Function("0000:1"),)),
    "2 of 1 virtual function that is not listed": Charge(functions=(Function("that is not listed"),)),
}


@pytest.mark.parametrize("excess", CHARGES)
def test_two_pods_exceed_what_one_does_not(excess: str) -> None:
    charge = CHARGES[excess]
    assert Load(CARD, [charge]).excess() == []
    assert not Load(CARD, [charge]).has_room(charge)
    assert Load(CARD, [charge, charge]).excess() == [excess]


def test_a_pod_that_takes_no_cores_has_room_where_cores_are_overcommitted() -> None:
    load = Load(CARD, [Charge(cores=150)])
    assert load.has_room(Charge(memory_bytes=MIB))
    assert not load.has_room(Charge(cores=1))


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 999 * MIB},
        {"cores": 50},
        {"slots": 1},
        {"extras": ()},
        {"functions": ()},
        {"index": 3},
    ],
    ids=str,
)
def test_a_card_with_less_of_anything_became_smaller(change: dict[str, object]) -> None:
    other = msgspec.structs.replace(CARD, **change)
    assert became_smaller(Node("n", (CARD,)), Node("n", (other,)))


@pytest.mark.parametrize("change", [{}, {"id": "GPU-2"}, {"healthy": False}, {"memory_bytes": 2000 * MIB}], ids=str)
def test_another_id_health_or_more_memory_is_nothing_smaller(change: dict[str, object]) -> None:
    other = msgspec.structs.replace(CARD, **change)
    assert not became_smaller(Node("n", (CARD,)), Node("n", (other, CARD)))
