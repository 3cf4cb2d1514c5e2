from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet import probe
from subak.local.kubelet.action import Result
from subak.local.kubelet.pod import Container, Probe
from subak.local.kubelet.probe import Kind, Streak
from tests.support import virtual
from tests.support.kubelet.pods import container


@given(st.lists(st.booleans(), min_size=1), st.integers(1, 3), st.integers(1, 3))
def test_a_result_counts_when_it_came_so_often_in_a_row(results: list[bool], good: int, bad: int) -> None:
    streak = Streak(good, bad)
    for index, result in enumerate(results):
        needed = good if result else bad
        in_a_row = index + 1 >= needed and set(results[index + 1 - needed : index + 1]) == {result}
        assert streak.count(result) is in_a_row


def spec(**probes: Any) -> Container:
    return msgspec.convert(container(**probes), Container)


def reports(each: Container, seconds: float, good_after: float = 0.0) -> list[tuple[float, str, bool]]:
    """When which probe reported what, for so long."""
    found: list[tuple[float, str, bool]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def check(_: Probe) -> Result:
            return Result(loop.time() - began >= good_after)

        def report(kind: Kind, _: Probe, result: Result, counts: bool) -> bool:
            found.append((round(loop.time() - began), str(kind), result.good))
            return not (kind is Kind.STARTUP and result.good and counts)

        task = asyncio.create_task(probe.watch(each, check, report))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual.run(story())
    return found


TCP = {"tcpSocket": {"port": 1}}


def test_probes_come_after_their_delay_and_then_with_their_period() -> None:
    found = reports(spec(readinessProbe={**TCP, "initialDelaySeconds": 5, "periodSeconds": 3}), 12.5)
    assert found == [(5, "Readiness", True), (8, "Readiness", True), (11, "Readiness", True)]


def test_other_probes_wait_until_the_container_has_started() -> None:
    each = spec(startupProbe={**TCP, "periodSeconds": 2}, livenessProbe={**TCP, "periodSeconds": 10})
    found = reports(each, 15.5, good_after=3.5)
    assert found == [
        (0, "Startup", False),
        (2, "Startup", False),
        (4, "Startup", True),
        (4, "Liveness", True),
        (14, "Liveness", True),
    ]


def test_what_is_not_probed_is_said() -> None:
    grpc = spec(livenessProbe={"grpc": {"port": 1}})
    assert probe.unserved(grpc, True) == "Liveness probe of kind grpc is not served here: it counts as passed"
    assert "a stand-in is not probed" in probe.unserved(spec(readinessProbe=TCP), False)
    assert probe.unserved(spec(readinessProbe=TCP), True) == ""
