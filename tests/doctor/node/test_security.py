"""SELinux and AppArmor on a node."""

from __future__ import annotations

import os

import pytest

from subak.doctor import Level
from subak.doctor.node import security
from tests.doctor.node.host import Host


async def test_which_is_on(host: Host) -> None:
    async def seen() -> str:
        (finding,) = await security.modules(host.computer)
        assert finding.level is Level.OK
        return finding.seen

    assert await seen() == "neither SELinux nor AppArmor is on"
    host.write("/sys/module/apparmor/parameters/enabled", "Y\n")
    assert (await seen()).startswith("AppArmor is on")
    host.write("/sys/fs/selinux/enforce", "0")
    assert "permissive" in await seen()


async def test_labels_under_selinux(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write("/sys/fs/selinux/enforce", "1")
    assert [each.level for each in await security.modules(host.computer)] == [Level.UNKNOWN]
    host.write("/run/subak/agent.lock")
    labels = {"/run/subak": b"system_u:object_r:var_run_t:s0\0"}

    def label(path: object, name: str) -> bytes:
        assert name == "security.selinux"
        return labels["/" + str(path).removeprefix(f"{host.root}/")]

    monkeypatch.setattr(os, "getxattr", label)
    (finding,) = await security.modules(host.computer)
    assert finding.level is Level.WARNING
    assert "restorecon -R /run/subak" in finding.remedy
    labels["/run/subak"] = b"system_u:object_r:container_file_t:s0\0"
    assert [each.level for each in await security.modules(host.computer)] == [Level.OK]
