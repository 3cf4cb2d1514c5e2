"""The container runtime, NRI and CDI on a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.doctor import Finding, Level
from subak.doctor.node import cri, nri, runtime
from subak.doctor.node.runtime import Runtime
from subak.node.nri import wire
from tests.doctor.node.host import Host

SAYS = "containerd github.com/containerd/containerd/v2 2.3.7 abcdef"
SOCKET, NRI = "/run/containerd/containerd.sock", "/var/run/nri/nri.sock"
CONFIG = "/etc/containerd/config.toml"
SWITCH = '[plugins."io.containerd.nri.v1.nri"]\ndisable = {}\n'
VALIDATOR = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\n'


def test_the_runtime_that_runs_is_asked_for_its_version(host: Host) -> None:
    host.process(7, "/usr/local/bin/containerd", "-c", "/etc/c.toml", version=SAYS)
    assert runtime.find(host.computer) == Runtime("containerd", "2.3.7", SOCKET, "/etc/c.toml")


def test_crio(host: Host) -> None:
    host.process(7, "/usr/bin/crio", version="crio version 1.34.0")
    assert runtime.find(host.computer) == Runtime("cri-o", "1.34.0", "/run/crio/crio.sock", "/etc/crio/crio.conf")


def test_the_runtime_of_k3s_is_known_by_its_socket(host: Host) -> None:
    host.write("/run/k3s/containerd/containerd.sock")
    host.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml")
    found = runtime.find(host.computer)
    assert found is not None
    assert (found.socket, found.version) == ("/run/k3s/containerd/containerd.sock", "")
    assert found.config == "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"


@asynccontextmanager
async def serving(host: Host, method: str = cri.VERSION, answer: bytes = b"") -> AsyncIterator[None]:
    """A runtime that gives this answer to one question."""

    async def answered(request: bytes, context: object) -> bytes:
        return answer

    service, name = method.strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(answered, request_deserializer=bytes, response_serializer=bytes)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    place = host.computer.at(SOCKET)
    place.parent.mkdir(parents=True, exist_ok=True)
    server.add_insecure_port(f"unix:{place}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


VERSIONED = wire.text(1, "0.1.0") + wire.text(2, "containerd") + wire.text(3, "v2.2.1") + wire.text(4, "v1")


async def test_what_a_runtime_answers_counts_before_what_its_program_says(host: Host) -> None:
    host.process(7, "containerd", version=SAYS)
    async with serving(host, answer=VERSIONED):
        assert [each.seen for each in await runtime.reachable(host.computer)] == ["containerd 2.2.1"]


async def test_a_runtime_without_its_part_for_kubelets(host: Host) -> None:
    host.process(7, "containerd", version=SAYS)
    async with serving(host, "/containerd.services.version.v1.Version/Version"):
        known, bad = await runtime.reachable(host.computer)
    assert (known.seen, bad.level) == ("containerd 2.3.7", Level.FAILED)
    assert "its CRI plugin is off" in bad.seen
    assert "disabled_plugins" in bad.remedy


async def test_a_runtime_that_cannot_be_asked(host: Host) -> None:
    (finding,) = await runtime.reachable(host.computer)
    assert (finding.level, "no container runtime was found" in finding.seen) == (Level.FAILED, True)
    host.process(7, "containerd", version=SAYS)
    assert [each.level for each in await runtime.reachable(host.computer)] == [Level.OK, Level.FAILED]
    async with serving(host, answer=b"\xff"):
        _, bad = await runtime.reachable(host.computer)
    assert "answers what is no answer" in bad.seen


@given(st.binary(max_size=40))
def test_no_bytes_are_too_odd_for_an_answer(content: bytes) -> None:
    with suppress(wire.Malformed):
        assert isinstance(cri.read(content).version, str)


async def test_nri_that_listens(host: Host) -> None:
    host.process(7, "containerd", version=SAYS)
    host.listens(NRI)
    assert [each.level for each in await nri.switched_on(host.computer)] == [Level.OK]


NO_CONNECTIONS = SWITCH.format("false") + "disable_connections = true\n"


@pytest.mark.parametrize(
    ("version", "config", "level", "words", "remedy"),
    [
        (SAYS, SWITCH.format("true"), Level.WARNING, "NRI switched off", "disable = false"),
        ("containerd containerd.io 1.7.27 x", "", Level.WARNING, "NRI switched off", "disable = false"),
        (SAYS, NO_CONNECTIONS, Level.WARNING, "forbids plugins to connect", "disable_connections = false"),
        (SAYS, SWITCH.format("false"), Level.FAILED, "nobody listens", "systemctl restart containerd"),
    ],
)
async def test_nri_that_is_off_or_does_not_listen(
    host: Host, version: str, config: str, level: Level, words: str, remedy: str
) -> None:
    host.process(7, "containerd", version=version)
    host.write(CONFIG, config)
    (finding,) = await nri.switched_on(host.computer)
    assert finding.level is level
    assert words in finding.seen
    assert remedy in finding.remedy


async def validator(host: Host) -> list[Finding]:
    return list(await nri.validator(host.computer))


async def test_the_default_validator(host: Host) -> None:
    assert await validator(host) == []
    host.process(7, "containerd", version=SAYS)
    (finding,) = await validator(host)
    assert finding.level is Level.FAILED
    assert "default_validator] enable = true" in finding.remedy
    host.write(CONFIG, VALIDATOR)
    assert [each.level for each in await validator(host)] == [Level.OK]
    host.process(7, "containerd", version="containerd containerd.io 1.7.27 x")
    assert await validator(host) == []  # it has none: the check of the version tells so


async def test_cdi_and_its_specifications(host: Host) -> None:
    host.process(7, "containerd", version=SAYS)
    host.write("/etc/cdi/good.yaml", "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: []\n")
    host.write("/etc/cdi/README", "no specification")
    (finding,) = await nri.cdi(host.computer)
    assert (finding.level, finding.seen) == (Level.OK, "on; specifications in /etc/cdi and /var/run/cdi: 1")
    host.write("/run/cdi/bad.json", "{")
    (finding,) = await nri.cdi(host.computer)
    assert (finding.level, "bad.json" in finding.seen) == (Level.WARNING, True)
    host.write(CONFIG, "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n")
    (finding,) = await nri.cdi(host.computer)
    assert (finding.level, "CDI is off" in finding.seen) == (Level.WARNING, True)
