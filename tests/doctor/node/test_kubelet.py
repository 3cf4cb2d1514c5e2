"""Kubelet on a node."""

from __future__ import annotations

from subak.doctor import Level
from subak.doctor.node import kubelet
from tests.doctor.node.host import Host

PLUGINS, RESOURCES = "/var/lib/kubelet/device-plugins/kubelet.sock", "/var/lib/kubelet/pod-resources/kubelet.sock"


async def test_whether_it_runs(host: Host) -> None:
    assert [each.level for each in await kubelet.running(host.computer)] == [Level.FAILED]
    host.write(PLUGINS)
    assert [each.level for each in await kubelet.running(host.computer)] == [Level.UNKNOWN]
    host.process(8, "/usr/bin/kubelet", version="Kubernetes v1.36.3")
    assert [each.seen for each in await kubelet.running(host.computer)] == ["v1.36.3"]


async def test_the_kubelet_of_k3s(host: Host) -> None:
    host.process(8, "/usr/local/bin/k3s", "server")
    assert [each.level for each in await kubelet.running(host.computer)] == [Level.OK]


async def test_its_sockets(host: Host) -> None:
    (finding,) = await kubelet.sockets(host.computer)
    assert "device-plugins is not there" in finding.seen
    host.write(PLUGINS)
    (finding,) = await kubelet.sockets(host.computer)
    assert (finding.level, RESOURCES in finding.seen) == (Level.WARNING, True)
    host.write(RESOURCES)  # left behind by a kubelet that has ended
    (finding,) = await kubelet.sockets(host.computer)
    assert (finding.level, finding.seen.startswith("PodResources: ")) == (Level.WARNING, True)


async def test_old_cgroups_under_a_new_kubelet(host: Host) -> None:
    assert [each.seen for each in await kubelet.cgroups(host.computer)] == ["version 1"]
    host.process(8, "kubelet", version="Kubernetes v1.36.3")
    assert [each.level for each in await kubelet.cgroups(host.computer)] == [Level.WARNING]
    host.write("/sys/fs/cgroup/cgroup.controllers")
    assert [each.seen for each in await kubelet.cgroups(host.computer)] == ["version 2"]
