"""Kubelet: its sockets for device plugins and for who holds which device, its version, and the cgroups below it."""

from __future__ import annotations

from collections.abc import Sequence

from subak.doctor import Finding, failed, ok, unknown, versions, warning
from subak.doctor.node import Computer
from subak.doctor.node.runtime import asked
from subak.node.plugin.podresources import NoAnswer, PodResources
from tinykube.aside import aside

PLUGINS = "/var/lib/kubelet/device-plugins/kubelet.sock"
"""Compiled into kubelet."""
RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
NO_CGROUP_V1 = (1, 35)
"""From this version on kubelet refuses cgroup v1, unless it is told not to."""


async def running(computer: Computer) -> Sequence[Finding]:
    """Whether kubelet runs, and its version."""
    process = computer.process("kubelet")
    if process is not None:
        version = await aside(lambda: asked(computer, process))
        return [ok(version or "it runs")]
    if computer.process("k3s", "k3s-server", "k3s-agent", "rke2", "microk8s", "k0s"):
        return [ok("it runs inside the distribution's own program")]
    if computer.at(PLUGINS).exists():
        return [unknown("no process is seen, but its sockets are there", "share the host's process namespace")]
    return [failed("no kubelet runs on this computer", "is this a node? for one machine without Kubernetes: subak up")]


async def sockets(computer: Computer) -> Sequence[Finding]:
    """Whether its sockets are there."""
    found: list[Finding] = []
    if not computer.at(PLUGINS).parent.is_dir():
        remedy = "start kubelet; if its --root-dir is another, link that folder here: device plugins find it only here"
        return [failed(f"{PLUGINS.rpartition('/')[0]} is not there", remedy)]
    if not computer.at(PLUGINS).exists():
        found.append(failed(f"{PLUGINS} is not there, so no device plugin can register", "systemctl restart kubelet"))
    if not computer.at(RESOURCES).exists():
        seen = f"{RESOURCES} is not there, so nobody can tell which pod holds which device"
        found.append(warning(seen, "let kubelet serve PodResources (it does by default): systemctl restart kubelet"))
        return found
    try:
        holders = await PodResources(computer.at(RESOURCES)).containers()
    except NoAnswer as error:
        return [*found, warning(f"PodResources: {error}", "systemctl status kubelet")]
    return found or [ok(f"device plugins and PodResources are served, {len(holders)} containers")]


async def cgroups(computer: Computer) -> Sequence[Finding]:
    """Which cgroups the computer has."""
    if computer.at("/sys/fs/cgroup/cgroup.controllers").exists():
        return [ok("version 2")]
    process = computer.process("kubelet")
    version = versions.read(await aside(lambda: asked(computer, process))) if process else None
    if version is None or version < NO_CGROUP_V1:
        return [ok("version 1")]
    seen = f"version 1, which kubelet {'.'.join(map(str, version))} serves only with failCgroupV1: false"
    return [warning(seen, "boot with systemd.unified_cgroup_hierarchy=1: later versions of kubelet refuse it")]
