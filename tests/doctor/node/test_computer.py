"""What is read of a computer."""

from __future__ import annotations

import pytest

from tests.doctor.node.host import Host


def test_processes_by_their_programs(host: Host) -> None:
    host.process(7, "/usr/bin/containerd", "--config", "/etc/c.toml", "--address=/run/c.sock")
    host.process(8, "kubelet")
    host.write("/proc/9/cmdline")  # of the kernel
    assert [each.pid for each in host.computer.processes()] == [7, 8]
    found = host.computer.process("containerd", "crio")
    assert found is not None
    assert (found.option("--config", "-c"), found.option("--address"), found.option("--log-level")) == (
        "/etc/c.toml",
        "/run/c.sock",
        "",
    )


def test_an_option_without_its_value(host: Host) -> None:
    host.process(7, "containerd", "--config")
    found = host.computer.process("containerd")
    assert found is not None
    assert found.option("--config") == ""


@pytest.mark.parametrize("path", ["/run/nri/nri.sock", "/var/run/nri/nri.sock"])
def test_a_socket_is_known_by_both_names_of_its_folder(host: Host, path: str) -> None:
    assert host.computer.listening(path) is False
    host.listens("/run/nri/nri.sock")
    assert host.computer.listening(path) is True
    assert host.computer.at(path) == host.root / "run/nri/nri.sock"


def test_without_the_kernels_list_nothing_is_known(host: Host) -> None:
    (host.root / "proc/1/net/unix").unlink()
    assert host.computer.listening("/run/x") is None
