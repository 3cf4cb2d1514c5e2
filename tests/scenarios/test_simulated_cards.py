"""`subak up` with simulated NVIDIA cards: their driver is simulated too, and libsubak holds pods to their share of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from subak.local.runtime import capability
from tests.support.card import CONTEXT_MIB
from tests.support.live import PATIENCE, ROOT, Live, live

TOTAL = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader")
HARDWARE = "nodes: [{profile: koordinator}, {name: plain, profile: volcano, speaks: [volcano]}]"


def greedy() -> dict[str, Any]:
    """A pod with a whole card whose programs nobody limits, as HAMi lets it choose."""
    return pod("greedy", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000}, CUDA_DISABLE_CONTROL="true")


def pod(name: str, limits: dict[str, int], **env: str) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "100000"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": limits},
    }
    metadata = {"name": name, "annotations": {"hami.io/gpu-scheduler-policy": "binpack"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


@pytest.fixture(scope="module")
def cluster(libsubak: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The pods of Koordinator's document and two others, on one node; one of Volcano's on another."""
    obstacle = asyncio.run(capability.obstacle())
    if obstacle:
        pytest.skip(obstacle)
    hardware = tmp_path_factory.mktemp("cluster") / "hardware.yaml"
    hardware.write_text(HARDWARE)
    documents = [
        yaml.safe_load((ROOT / f"examples/koordinator/{name}.yaml").read_text()) for name in ("notebook", "pod")
    ]
    pods = [*documents, greedy(), pod("volcano", {"volcano.sh/gpu-memory": 1000})]
    with live("--hardware", hardware) as running:
        for each in pods:  # one after the other: the document's pod is to get card 1
            running.run("subak", "apply", "-f", "-", stdin=yaml.safe_dump(each))
            running.subak("wait", "--for=condition=Ready", f"pod/{each['metadata']['name']}")
        yield running


def inside(cluster: Live, pod: str, *command: str) -> tuple[int, str]:
    ran = cluster.subak("exec", pod, "--", *command, check=False)
    return ran.returncode, ran.stdout


def holder(cluster: Live, pod: str, size: str) -> subprocess.Popen[str]:
    """A program in the pod that has taken so much and keeps it."""
    command = ["subak", "exec", pod, "--", "subak-allocate", size, "1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cluster.env)
    assert process.stdout is not None
    assert process.stdout.readline().endswith(": given\n")
    return process


def test_enter_the_pod_and_see_the_upper_limit(cluster: Live) -> None:
    """The last step of Koordinator's document."""
    code, table = inside(cluster, "pod-example", "nvidia-smi")
    assert code == 0
    assert "0MiB /  11520MiB" in table
    assert "simulated" in table
    assert inside(cluster, "pod-example", "subak-allocate", "11Gi") == (
        0,
        "11264 MiB of Tesla P40 (simulated) with 11520 MiB, of which 11420 are free: given\n",
    )
    code, answer = inside(cluster, "pod-example", "subak-allocate", "12Gi")
    assert code == 1
    assert answer.endswith("refused, CUDA_ERROR_OUT_OF_MEMORY (2)\n")


@pytest.mark.parametrize(
    "bare", [("env", "-i"), ("env", "-i", "CUDA_DEVICE_MEMORY_LIMIT=20g", "CUDA_DISABLE_CONTROL=true")]
)
def test_a_program_without_its_environment_sees_the_same(cluster: Live, bare: tuple[str, ...]) -> None:
    assert inside(cluster, "pod-example", *bare, *TOTAL) == (0, "11520 MiB\n")


def test_a_program_cannot_reach_a_card_that_its_container_was_not_given(cluster: Live) -> None:
    only = inside(cluster, "pod-example", "nvidia-smi", "-L")
    assert only[1].count("UUID") == 1
    assert inside(cluster, "pod-example", "env", "NVIDIA_VISIBLE_DEVICES=all", "nvidia-smi", "-L") == only
    assert inside(cluster, "notebook", "nvidia-smi", "-L")[1] != only[1]


def test_where_no_agent_tells_uuids_a_container_has_its_card_by_number(cluster: Live) -> None:
    assert inside(cluster, "volcano", *TOTAL) == (0, "1000 MiB\n")
    assert inside(cluster, "volcano", "env", "-i", "nvidia-smi", "-L")[0] != 0


def test_tenants_of_a_card_share_its_memory_and_each_sees_its_own(cluster: Live) -> None:
    """Both have processes of the same numbers, in namespaces of their own."""
    shared = [name for name in ("notebook", "pod-example") if card(cluster, name) == card(cluster, "greedy")]
    (neighbour,) = shared
    held = holder(cluster, neighbour, "2Gi")
    taken = holder(cluster, "greedy", "18Gi")
    for name, mib in ((neighbour, 2048), ("greedy", 18432)):
        listed = inside(cluster, name, "nvidia-smi", "--query-compute-apps=used_memory", "--format=csv,noheader")
        assert listed == (0, f"{mib + CONTEXT_MIB} MiB\n")
    code, answer = inside(cluster, neighbour, "subak-allocate", "8Gi")  # its limit would allow it, the card is full
    assert (code, "CUDA_ERROR_OUT_OF_MEMORY" in answer) == (1, True)
    until_top_says(cluster, f"default/{neighbour}", 2048 + CONTEXT_MIB)
    for process in (taken, held):
        process.kill()
        process.communicate()
    until_top_says(cluster, f"default/{neighbour}", 0)
    assert inside(cluster, neighbour, "subak-allocate", "8Gi")[0] == 0


def card(cluster: Live, name: str) -> str:
    """The first line of `nvidia-smi -L`, which has the UUID."""
    return inside(cluster, name, "nvidia-smi", "-L")[1]


def until_top_says(cluster: Live, pod: str, mib: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        nodes = json.loads(cluster.subak("top", "-o", "json").stdout)["nodes"]
        tenants = [each for node in nodes for card in node["cards"] for each in card["tenants"] if each["pod"] == pod]
        used = [each["in_use"] and each["in_use"]["memory_mib"] for each in tenants]
        if used == [mib]:
            return
        assert time.monotonic() < deadline, used
