"""The ledger: records, cards, pods that are stuck."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from subak.doctor import Level
from subak.doctor.cluster import ledger
from tests.doctor.canned import items
from tests.doctor.cluster.worlds import NOW, found, levels
from tests.doctor.cluster.worlds import ledger as books
from tests.support.commands import asking, offering, running

ROOM = offering("a", 1_000)


def since(pod: dict[str, Any], minutes: int, phase: str = "Pending") -> dict[str, Any]:
    """A pod that has its place, and was created so many minutes before noon."""
    created = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = pod["metadata"] | {"namespace": "n", "creationTimestamp": created}
    return {**pod, "metadata": metadata, "status": {"phase": phase}}


async def test_all_is_well() -> None:
    world = books([ROOM], [running(600, "a", "x"), asking(900, "y")])
    for check in (ledger.readable, ledger.overcommitted, ledger.stuck):
        assert levels(await found(check, {}, world)) == [Level.OK]


async def test_a_record_that_cannot_be_read() -> None:
    odd = running(600, "a", "x")
    odd["metadata"]["annotations"] = {"volcano.sh/gpu-index": "nonsense"}
    world = books([ROOM], [odd])
    findings = await found(ledger.readable, {}, world)
    assert {each.level for each in findings} == {Level.WARNING}
    assert "pod default/x" in findings[0].seen or "pod x" in findings[0].seen
    assert "delete it" in findings[0].remedy


async def test_an_overcommitted_card_is_named_with_its_tenants() -> None:
    (finding,) = await found(ledger.overcommitted, {}, books([ROOM], [running(600, "a", "x"), running(700, "a", "y")]))
    assert finding.level is Level.FAILED
    assert "of a carries 1,300 of 1,000 MiB" in finding.seen
    assert "x" in finding.seen


async def test_a_pod_without_a_record_proves_nothing() -> None:
    unknown = running(700, "a", "y")
    unknown["metadata"]["annotations"] = {}
    assert levels(await found(ledger.overcommitted, {}, books([ROOM], [running(600, "a", "x"), unknown]))) == [Level.OK]


async def test_pods_that_do_not_start_or_do_not_end() -> None:
    bound = since(running(100, "a", "late"), 10)
    fresh = since(running(100, "a", "fresh"), 1)
    ending = since(running(100, "a", "ending"), 60, "Running")
    ending["metadata"]["deletionTimestamp"] = (NOW - timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    findings = await found(ledger.stuck, {}, books([ROOM], [bound, fresh, ending]))
    assert [each.seen for each in findings] == [
        "bound more than 5 minutes ago and not started: n/late",
        "deleted more than 5 minutes ago and still there: n/ending",
    ]


async def test_pods_that_kubelet_refused() -> None:
    refused = {
        "metadata": {"name": "x", "namespace": "n"},
        "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
    }
    (finding,) = await found(ledger.stuck, {"GET /api/v1/pods": items(refused)}, books([ROOM]))
    assert finding.seen == "refused by kubelet (UnexpectedAdmissionError): n/x"


async def test_pods_that_wait_are_no_trouble() -> None:
    (finding,) = await found(ledger.stuck, {}, books([ROOM], [asking(5_000, "huge")]))
    assert (finding.level, finding.seen) == (Level.OK, "1 of 1 pods with cards wait for a place (subak why POD)")
