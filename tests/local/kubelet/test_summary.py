"""What a node's pods use, in the Summary API."""

from __future__ import annotations

from subak.local.kubelet.summary import summary
from subak.model import manifest
from subak.model.device import Device
from subak.node.usage import Use
from tests.support.kubelet.scripted import ScriptedDevices

CARD = Device(id="GPU-a", index=0, family="nvidia", model="NVIDIA A10", memory_bytes=24 << 30)


def pod(name: str, *containers: str) -> manifest.Pod:
    spec = manifest.PodSpec(containers=[manifest.Container(name=each) for each in containers])
    return manifest.Pod(metadata=manifest.Metadata(name=name, namespace="team", uid=f"uid-{name}"), spec=spec)


def test_each_container_has_its_own_figures() -> None:
    devices = ScriptedDevices(used={"p": {"main": [(CARD, Use(200 << 20, 12))]}})
    (found,) = summary("n1", [pod("p", "main", "side")], devices)["pods"]
    assert found["podRef"] == {"name": "p", "namespace": "team", "uid": "uid-p"}
    accelerator = {
        "make": "nvidia",
        "model": "NVIDIA A10",
        "id": "GPU-a",
        "memoryTotal": 24 << 30,
        "memoryUsed": 200 << 20,
        "dutyCycle": 12,
    }
    assert found["containers"] == [
        {"name": "main", "accelerators": [accelerator]},
        {"name": "side", "accelerators": []},
    ]


def test_time_that_nobody_counts_is_not_told_as_nought() -> None:
    devices = ScriptedDevices(used={"p": {"main": [(CARD, Use(1, None))]}})
    found = summary("n1", [pod("p", "main")], devices)
    assert "dutyCycle" not in found["pods"][0]["containers"][0]["accelerators"][0]


def test_a_node_without_pods_is_told_too() -> None:
    assert summary("n1", [], ScriptedDevices()) == {"node": {"nodeName": "n1"}, "pods": []}
