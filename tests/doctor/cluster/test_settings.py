"""The device config, and names of schedulers that others serve."""

from __future__ import annotations

from subak.doctor import Level
from subak.doctor.cluster import settings
from tests.doctor.canned import SUBAK, Answer, items
from tests.doctor.cluster.worlds import found, lease, levels

ALL = "GET /apis/coordination.k8s.io/v1/leases"


async def test_a_device_config_that_cannot_be_read() -> None:
    where = f"GET {SUBAK}/configmaps/hami-scheduler-device"
    good: dict[str, Answer] = {where: {"data": {"device-config.yaml": "nvidia: {deviceSplitCount: 4}"}}}
    bad: dict[str, Answer] = {where: {"data": {"device-config.yaml": "nvidia: {deviceSplitCount: many}"}}}
    assert levels(await found(settings.config, {})) == [Level.OK]
    assert levels(await found(settings.config, good)) == [Level.OK]
    (finding,) = await found(settings.config, bad)
    assert finding.level is Level.FAILED
    assert "configmap subak-system/hami-scheduler-device" in finding.seen


async def test_a_name_whose_own_scheduler_lives() -> None:
    assert levels(await found(settings.names, {ALL: items()})) == [Level.OK]
    assert levels(await found(settings.names, {ALL: items(lease("volcano", seconds_ago=99))})) == [Level.OK]
    assert levels(await found(settings.names, {ALL: items(lease("volcano", ""))})) == [Level.OK]  # given back
    findings = await found(settings.names, {ALL: items(lease("volcano", "vc-1"))})
    assert {each.level for each in findings} == {Level.WARNING}
    assert "it holds Lease subak-system/volcano (vc-1)" in findings[0].seen
