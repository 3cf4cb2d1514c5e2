"""The arbiter alone, without any API server, as an agent uses it.  `tests/local/hardware` has its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from subak.model import manifest
from subak.model.reason import Refusal
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.machine import Machine
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER, machine

HALF = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "12000"}


def bound(machine: Machine, uid: str, limits: dict[str, Any]) -> manifest.Pod:
    """A pod as a scheduler that knows of no other pod binds it."""
    node, _ = machine.digest(INTERPRETER)
    content: dict[str, Any] = {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}, {"name": "side"}]},
    }
    pod = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    placement = place(Snapshot([node]), INTERPRETER.request(pod))
    assert placement is not None
    annotations = {**pod.annotations, **INTERPRETER.annotations(pod, placement, node, 0)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(
        pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=machine.name)
    )


def test_a_container_gets_its_cards_once_until_the_pod_is_released(tmp_path: Path) -> None:
    a10 = machine("shared", taints=[])
    arbiter = Arbiter(a10, INTERPRETER, Host(tmp_path, simulated=True))
    first, second = bound(a10, "first", HALF), bound(a10, "second", HALF)
    mine, nothing = arbiter.admit(first)
    assert mine.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "12000m"
    assert all(Path(each.source).exists() for each in mine.mounts)
    assert not nothing.env
    assert arbiter.admit(first) == [mine, nothing]
    assert arbiter.free() == []
    with pytest.raises(Refusal, match="which would overcommit the card") as refused:
        arbiter.admit(second)
    assert refused.value.cause == "Overcommitted"
    assert not arbiter.holds(second)
    assert arbiter.release(first)
    assert not arbiter.release(first)
    assert arbiter.admit(second)


def test_a_pod_of_before_a_restart_keeps_its_cards(tmp_path: Path) -> None:
    a10 = machine("shared", taints=[])
    first = bound(a10, "first", HALF)
    arbiter = Arbiter(a10, INTERPRETER)
    arbiter.restore(first)
    assert arbiter.holds(first)
    assert [each.name for each in arbiter.serving(first)] == ["hami-nvidia"]
    with pytest.raises(Refusal, match="default/first hold the rest"):
        arbiter.admit(bound(a10, "second", HALF))
