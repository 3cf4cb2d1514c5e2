"""NRI's messages: the bytes that runtimes expect, and what is known of a runtime by its version."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.nri import messages
from subak.node.nri.messages import (
    Adjustment,
    Container,
    DeviceNode,
    Event,
    Mount,
    Runtime,
    Sandbox,
    Subject,
    Synchronization,
)
from subak.node.nri.ttrpc import RESPONSE, Message, Response
from subak.node.nri.wire import Fields, Malformed
from tests.support import nri

LIBRARY = "/usr/local/vgpu/libvgpu.so"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
MOUNTS = st.builds(Mount, TEXTS, TEXTS, TEXTS, st.lists(st.text("ab", min_size=1)).map(tuple))
NODES = st.builds(
    DeviceNode, TEXTS, TEXTS, st.integers(0, 4095), st.integers(0, 2**20), st.none() | st.integers(0, 0o777)
)
ADJUSTMENTS = st.builds(
    Adjustment,
    st.dictionaries(TEXTS, TEXTS).map(lambda env: tuple(env.items())),
    st.lists(MOUNTS).map(tuple),
    st.lists(NODES).map(tuple),
    st.lists(TEXTS).map(tuple),
)


def answer(stream: int, payload: bytes) -> str:
    """A response without the frame around it."""
    return Message(stream, RESPONSE, Response(payload).encode()).encode().hex()


def test_answers_are_what_runtimes_expect() -> None:
    assert answer(1, messages.subscription([Event.CREATE_CONTAINER])) == "0000000400000001020012021008"
    assert answer(3, messages.synchronized(False)) == "00000000000000030200"
    assert answer(3, messages.synchronized(True)) == "0000000400000003020012021001"
    adjustment = Adjustment(
        env=(("NVIDIA_VISIBLE_DEVICES", "1"), ("CUDA_DEVICE_MEMORY_LIMIT", "12079595520")),
        mounts=(Mount(LIBRARY, "bind", LIBRARY, ("rbind",)),),
    )
    assert answer(5, messages.adjusted(adjustment)) == (
        "000000930000000502001290010a8d011a450a1a2f7573722f6c6f63616c2f766770752f6c6962766770752e736f120462696e641a1a2f"
        "7573722f6c6f63616c2f766770752f6c6962766770752e736f22057262696e64221b0a164e56494449415f56495349424c455f4445564943"
        "455312013122270a18435544415f4445564943455f4d454d4f52595f4c494d4954120b3132303739353935353230"
    )


def test_a_device_node_is_what_runtimes_expect() -> None:
    node = DeviceNode("/dev/nvidia1", "c", 195, 1, 0o666)
    assert node.encode().hex() == "0a0c2f6465762f6e76696469613112016318c30120012a0308b603"
    assert DeviceNode.decode(Fields(node.encode())) == node


@given(ADJUSTMENTS)
def test_an_adjustment_reads_back(adjustment: Adjustment) -> None:
    assert Adjustment.decode(Fields(adjustment.encode())) == adjustment


def test_a_container_and_its_pod_are_read() -> None:
    sandbox = nri.pod("u", "p", "ns", {"a": "b"})
    content = nri.container("c", "u", ["A=1", "A=2=3", "odd"], [Mount("/d", "bind", "/s", ("ro",))])
    subject = Subject.decode(nri.about(sandbox, content))
    assert subject.sandbox == Sandbox("sandbox-u", "p", "u", "ns", {"kubernetes.io/config.source": "api", "a": "b"})
    assert (subject.container.name, subject.container.sandbox, subject.sandbox.key) == ("c", "sandbox-u", "ns/p")
    assert subject.container.variables == {"A": "2=3", "odd": ""}
    assert subject.container.mounts == (Mount("/d", "bind", "/s", ("ro",)),)
    assert Container.decode(Fields(content)) == subject.container


@given(st.binary())
def test_no_bytes_are_too_odd(content: bytes) -> None:
    for decode in (Subject.decode, Synchronization.decode, Runtime.decode):
        with suppress(Malformed):
            decode(content)


@pytest.mark.parametrize(
    ("runtime", "validates", "cdi"),
    [
        (Runtime("containerd", "v1.7.0"), False, False),
        (Runtime("containerd", "1.7.29"), False, False),
        (Runtime("containerd", "1.7.30"), False, True),
        (Runtime("containerd", "v2.0.5"), False, False),
        (Runtime("containerd", "v2.1.0"), False, True),
        (Runtime("containerd", "v2.2.0"), True, True),
        (Runtime("containerd", "v2.2.0-rc.1+unknown"), True, True),
        (Runtime("containerd", "v2.3.7", nri="v0.12.0"), True, True),
        (Runtime("containerd", "v2.3.7", nri="(devel)"), True, True),
        (Runtime("cri-o", "1.34.0"), False, False),
        (Runtime("cri-o", "1.36.0", nri="v0.12.0"), True, False),
        (Runtime(), False, False),
    ],
)
def test_a_runtime_is_known_by_its_version(runtime: Runtime, validates: bool, cdi: bool) -> None:
    assert (runtime.validates, runtime.injects_cdi) == (validates, cdi)
