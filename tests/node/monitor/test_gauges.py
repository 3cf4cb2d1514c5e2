"""What the driver says of whole cards, as far as it says anything."""
# ruff: noqa: N802

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from subak.node.monitor.gauges import Gauges, Reading
from tests.support.nvml import GIB, NVMLError


@dataclass
class Driver:
    """The functions of `pynvml` that are asked; a card is what it tells, and None where it tells nothing."""

    cards: dict[str, dict[str, int | None]]
    away: bool = False
    opened: int = 0
    NVMLError: type[Exception] = field(default=NVMLError)
    NVML_TEMPERATURE_GPU: int = 0

    def nvmlInit(self) -> None:
        if self.away:
            raise NVMLError("Driver Not Loaded")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if self.away or uuid not in self.cards:
            raise NVMLError("Not Found")
        return uuid

    def _told(self, uuid: str, what: str) -> int:
        figure = self.cards[uuid].get(what)
        if figure is None:
            raise NVMLError("Not Supported")
        return figure

    def nvmlDeviceGetMemoryInfo(self, uuid: str) -> SimpleNamespace:
        return SimpleNamespace(used=self._told(uuid, "memory"))

    def nvmlDeviceGetUtilizationRates(self, uuid: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._told(uuid, "busy"))

    def nvmlDeviceGetTemperature(self, uuid: str, sensor: int) -> int:
        return self._told(uuid, "celsius")

    def nvmlDeviceGetPowerUsage(self, uuid: str) -> int:
        return self._told(uuid, "milliwatts")


def gauges(driver: Driver) -> Gauges:
    return Gauges(lambda: driver.cards, lambda: driver)


def test_a_card_tells_its_figures_in_base_units() -> None:
    driver = Driver({"GPU-a": {"memory": 3 * GIB, "busy": 40, "celsius": 61, "milliwatts": 250_500}})
    assert gauges(driver).read(["GPU-a"]) == {"GPU-a": Reading(3 * GIB, 0.4, 61, 250.5)}


def test_what_a_card_does_not_tell_is_missing() -> None:
    driver = Driver({"MIG-a": {"memory": GIB}})
    assert gauges(driver).read(["MIG-a", "GPU-gone"]) == {"MIG-a": Reading(GIB)}


def test_a_driver_that_goes_and_comes_back_is_asked_again() -> None:
    driver = Driver({"GPU-a": {"memory": GIB}})
    asking = gauges(driver)
    assert asking.read(["GPU-a"])
    assert asking.read(["GPU-a"])
    assert driver.opened == 1
    driver.away = True
    assert asking.read(["GPU-a"]) == {}
    assert asking.read(["GPU-a"]) == {}
    driver.away = False
    assert asking.read(["GPU-a"])
    assert driver.opened == 1


def test_the_driver_is_let_go_where_no_card_is_wanted() -> None:
    """A card cannot be reset while somebody holds the driver."""
    driver = Driver({"GPU-a": {"memory": GIB}})
    asking = gauges(driver)
    assert asking.read(["GPU-a"])
    assert asking.read([]) == {}
    assert driver.opened == 0


def test_without_cards_no_driver_is_loaded() -> None:
    def load() -> Driver:
        raise AssertionError("there is nothing to ask")

    assert Gauges(lambda: (), load).read([]) == {}
