"""Resources of Volcano's cards that a configuration switches off."""

from __future__ import annotations

import msgspec
import pytest

from subak.batch.parser import parse
from subak.batch.switches import check
from subak.model import manifest
from subak.model.reason import Refusal

VGPU = (
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-number",
)


def off(older: str = "", newer: str = "") -> dict[str, str]:
    """What is switched off by these arguments of `predicates` and of `deviceshare`, which comes first."""
    plugins = f"[{{name: deviceshare, arguments: {{{newer}}}}}, {{name: predicates, arguments: {{{older}}}}}]"
    return dict(parse(f"actions: allocate\ntiers: [{{plugins: {plugins}}}]", "here").off)


def test_everything_is_on_that_nobody_switches_off() -> None:
    assert off() == off("predicate.GPUSharingEnable: true", "deviceshare.VGPUEnable: true") == {}


def test_sharing_and_whole_cards_go_together() -> None:
    assert off("predicate.GPUSharingEnable: true, predicate.GPUNumberEnable: true") == {}


def test_each_switch_is_for_its_own_resources() -> None:
    assert off("predicate.GPUNumberEnable: false") == {"volcano.sh/gpu-number": "predicate.GPUNumberEnable"}
    assert off("", 'deviceshare.VGPUEnable: "0"') == dict.fromkeys(VGPU, "deviceshare.VGPUEnable")


def test_the_newer_spelling_counts_where_both_are_written() -> None:
    assert off("predicate.GPUSharingEnable: false", "deviceshare.GPUSharingEnable: true") == {}
    found = off("predicate.GPUSharingEnable: true", "deviceshare.GPUSharingEnable: false")
    assert found == {"volcano.sh/gpu-memory": "deviceshare.GPUSharingEnable"}


def asking(**limits: str) -> manifest.Pod:
    named = {f"volcano.sh/{name.replace('_', '-')}": amount for name, amount in limits.items()}
    containers = [{"name": "c", "resources": {"limits": named}}]
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": containers}}, manifest.Pod)


def test_a_pod_that_asks_for_what_is_off_is_refused_by_the_name_of_the_switch() -> None:
    switched = off("predicate.GPUSharingEnable: false")
    with pytest.raises(
        Refusal, match=r"predicate\.GPUSharingEnable is false in the scheduler configuration"
    ) as refusal:
        check(switched, asking(gpu_memory="1024"))
    assert refusal.value.field == "spec.containers[0].resources.limits[volcano.sh/gpu-memory]"
    assert refusal.value.value == "1024"


def test_others_are_not_refused() -> None:
    check(off("predicate.GPUSharingEnable: false"), asking(gpu_number="1"))
    check(off("predicate.GPUSharingEnable: false"), asking(gpu_memory="0"))
    check(off(), asking(gpu_memory="1024"))
