"""Cards that break, recover, get lost and are cut anew, as a driver tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node import health
from subak.node.discovery import carried_on
from subak.node.driver import LIBRARY, Nvidia, library
from subak.node.health import Health
from subak.node.machine import Machine
from tests.support.machines import INTERPRETER, machine
from tests.support.nvml import GIB, Driver, Gpu, Instance

ONE = Gpu("GPU-1", "0000:01:00.0", minor=0)
TWO = Gpu("GPU-2", "0000:02:00.0", minor=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def source(driver: Driver, root: Path) -> tuple[Nvidia, Clock]:
    clock = Clock()
    made = Nvidia("n1", INTERPRETER, lambda: driver, root)
    made._health = Health(driver, clock)
    return made, clock


def seen(made: Nvidia) -> dict[str, bool]:
    found = made.look().machine
    return {} if found is None else {each.id: each.healthy for each in found.devices}


def hear(made: Nvidia) -> bool:
    """Wait once for an event."""
    assert made._health is not None
    return made._health.watching and made._health.wait(1000)


def test_a_card_with_an_xid_error_is_broken_and_well_again_when_the_driver_demands_nothing(tmp_path: Path) -> None:
    driver = Driver([ONE, TWO])
    made, clock = source(driver, tmp_path)
    assert seen(made) == {"GPU-1": True, "GPU-2": True}
    driver.happened.append((TWO, 79))
    assert hear(made)
    assert seen(made) == {"GPU-1": True, "GPU-2": False}
    clock.now = health.CALM / 2
    assert seen(made) == {"GPU-1": True, "GPU-2": False}
    clock.now = health.CALM * 2
    assert seen(made) == {"GPU-1": True, "GPU-2": True}


@pytest.mark.parametrize("xid", sorted(health.APPLICATION_ERRORS))
def test_what_a_program_causes_breaks_no_card(xid: int, tmp_path: Path) -> None:
    driver = Driver([ONE])
    made, _ = source(driver, tmp_path)
    seen(made)
    driver.happened.append((ONE, xid))
    assert not hear(made)
    assert seen(made) == {"GPU-1": True}


def test_a_card_that_the_driver_wants_reset_is_broken_until_it_is(tmp_path: Path) -> None:
    driver = Driver([replace(ONE, demand=1), TWO])
    made, clock = source(driver, tmp_path)
    assert seen(made) == {"GPU-1": False, "GPU-2": True}
    assert made._health is not None
    assert made._health.faults[0].reason == "the driver demands a reset"
    driver.gpus = [ONE, TWO]
    assert seen(made) == {"GPU-1": False, "GPU-2": True}
    clock.now = health.CALM * 2
    assert seen(made) == {"GPU-1": True, "GPU-2": True}


def test_an_older_driver_tells_of_no_recovery_so_a_card_must_have_been_gone(tmp_path: Path) -> None:
    old = replace(ONE, demand=None)
    driver = Driver([old, replace(TWO, demand=None)])
    made, clock = source(driver, tmp_path)
    seen(made)
    driver.happened.append((old, 48))
    assert hear(made)
    clock.now = health.CALM * 100
    assert seen(made)["GPU-1"] is False
    driver.gpus = [replace(old, lost=True), replace(TWO, demand=None)]
    assert seen(made) == {"GPU-2": True}
    driver.gpus = [old, replace(TWO, demand=None)]
    assert seen(made) == {"GPU-1": True, "GPU-2": True}


def test_nobody_holds_the_driver_while_a_card_has_to_be_reset(tmp_path: Path) -> None:
    driver = Driver([ONE])
    made, _ = source(driver, tmp_path)
    seen(made)
    assert (driver.open, driver.watched) == (1, 1)
    driver.happened.append((ONE, 95))
    assert hear(made)
    seen(made)
    assert (driver.open, driver.watched) == (0, 0)


def test_an_error_of_a_card_in_mig_mode_breaks_all_its_instances(tmp_path: Path) -> None:
    cut = replace(ONE, mig=True, instances=[Instance("MIG-a", 10 * GIB, 1), Instance("MIG-b", 10 * GIB, 2)])
    driver = Driver([cut, TWO])
    made, _ = source(driver, tmp_path)
    assert seen(made) == {"MIG-a": True, "MIG-b": True, "GPU-2": True}
    driver.happened.append((cut, 94))
    assert hear(made)
    assert seen(made) == {"MIG-a": False, "MIG-b": False, "GPU-2": True}


def test_a_card_that_is_plugged_in_is_found(tmp_path: Path) -> None:
    gpus = tmp_path / "proc/driver/nvidia/gpus"
    (gpus / ONE.bus).mkdir(parents=True)
    driver = Driver([ONE])
    made, _ = source(driver, tmp_path)
    assert seen(made) == {"GPU-1": True}
    (gpus / TWO.bus).mkdir()
    driver.gpus = [ONE, TWO]
    assert seen(made) == {"GPU-1": True, "GPU-2": True}
    assert (driver.open, driver.watched) == (1, 1), "the driver was let go of, and is held again"


def test_the_library_is_found_below_the_first_root_that_has_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    place = second / "usr/lib64" / LIBRARY
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    assert library([first, second]) == place
    assert library([first]) is None


@given(st.data())
def test_while_pods_hold_cards_no_card_changes_its_number_or_is_forgotten(data: st.DataObject) -> None:
    """Whatever comes and goes: the number of a card means the same card, and nobody is healthy who is not there."""
    stock = machine(
        name="n1", cards={"vendor": "nvidia", "model": "A", "count": 6, "memory": "8Gi"}, speaks=["hami"]
    ).devices
    known: Machine | None = None
    numbers: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        chosen = data.draw(st.lists(st.sampled_from(stock), unique_by=lambda each: each.id))
        there = {each.id for each in chosen}
        numbered = tuple(msgspec.structs.replace(each, index=index) for index, each in enumerate(chosen))
        found = replace(machine("koordinator", name="n1"), devices=numbered)
        known = carried_on(known, found if data.draw(st.booleans()) else None, idle=False)
        if known is None:
            continue
        for each in known.devices:
            assert numbers.setdefault(each.id, each.index) == each.index
            assert each.id in there or not each.healthy
        assert len({each.index for each in known.devices}) == len(known.devices) == len(numbers)


def test_when_nobody_holds_anything_lost_cards_are_forgotten() -> None:
    two = machine("koordinator", name="n1")
    one = machine("koordinator", name="n1", cards={"count": 1})
    assert carried_on(two, one, idle=True) == one
    kept = carried_on(two, one, idle=False)
    assert kept is not None
    assert [each.healthy for each in kept.devices] == [True, False]
