"""The documents of Volcano, Koordinator and HAMi, live on a real node: what they print is what is seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.e2e import images
from tests.e2e.agent import environment, living
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tests.e2e.node import RealNode
from tinykube.resource import PODS

EXAMPLES = Path(__file__).parents[2] / "examples"


def apply(cluster: Cluster, *files: str) -> None:
    """Apply files of the examples, each when the pods of the one before are ready."""
    for each in files:
        made = kubectl(cluster, "apply", "-f", str(EXAMPLES / each), "-o", "name").split()
        kubectl(cluster, "wait", "--for=condition=Ready", *made, "--timeout=50s")


def shown(cluster: Cluster, what: str, path: str) -> str:
    return kubectl(cluster, "get", *what.split(), "-o", f"jsonpath={{{path}}}")


async def test_two_pods_of_volcanos_document_share_a_card(node: RealNode) -> None:
    async with living(node, {"profile": "volcano"}) as world:
        for amounts in ("capacity", "allocatable"):
            said = json.loads(shown(world.cluster, f"node {node.name}", f".status.{amounts}"))
            assert (said["volcano.sh/gpu-memory"], said["volcano.sh/gpu-number"]) == ("89424", "8")
        apply(world.cluster, "volcano/gpu-pod1.yaml", "volcano/gpu-pod2.yaml")
        for name in ("gpu-pod1", "gpu-pod2"):
            inside = environment(world.cluster, name)
            assert inside["VOLCANO_GPU_MEMORY_TOTAL"] == "11178"
            assert inside["VOLCANO_GPU_ALLOCATED"] == "1024"
            assert inside["NVIDIA_VISIBLE_DEVICES"] == "0"


async def test_the_pod_of_koordinators_document_sees_the_limit_that_it_was_allotted(node: RealNode) -> None:
    async with living(node, {"profile": "koordinator"}) as world:
        cards = json.loads(shown(world.cluster, f"device {node.name}", ".spec.devices"))
        assert [(each["minor"], each["resources"]["koordinator.sh/gpu-memory"]) for each in cards] == [
            (0, "23040Mi"),
            (1, "23040Mi"),
        ]
        apply(world.cluster, "koordinator/notebook.yaml", "koordinator/pod.yaml")
        record = shown(
            world.cluster, "pod pod-example", ".metadata.annotations.scheduling\\.koordinator\\.sh/device-allocated"
        )
        (allotted,) = json.loads(record)["gpu"]
        assert (allotted["minor"], allotted["resources"]) == (
            1,
            {
                "koordinator.sh/gpu-core": "50",
                "koordinator.sh/gpu-memory": "11520Mi",
                "koordinator.sh/gpu-memory-ratio": "50",
            },
        )
        inside = environment(world.cluster, "pod-example")
        assert inside["CUDA_DEVICE_MEMORY_LIMIT_0"] == str(11520 << 20)
        assert inside["NVIDIA_VISIBLE_DEVICES"] == cards[1]["id"]
        preload = kubectl(world.cluster, "exec", "pod-example", "--", "cat", "/etc/ld.so.preload")
        assert preload.strip() == "/usr/local/vgpu/libvgpu.so"
        seen = kubectl(world.cluster, "exec", "pod-example", "--", "nvidia-smi")
        assert re.findall(r"(\d+)MiB */ *(\d+)MiB", seen) == [("0", "11520")], seen
        assert allocated(world.cluster, "pod-example", 11000) == "allocated 11000 MiB"
        assert allocated(world.cluster, "pod-example", 11521) == "refused 11521 MiB: CUDA error 2"


def allocated(cluster: Cluster, pod: str, mib: int, container: str = "") -> str:
    """What becomes of a program that asks for memory of its card."""
    chosen = ["-c", container] if container else []
    script = f"allocate {mib} || true"
    return kubectl(cluster, "exec", pod, *chosen, "--", "sh", "-c", script).strip()


async def test_each_container_of_a_hami_pod_has_its_own_limits(node: RealNode) -> None:
    asked = {"small": (1000, 10), "large": (3000, 30)}
    containers: list[dict[str, Any]] = [
        {
            "name": name,
            "image": images.PLAIN,
            "command": ["sleep", "10000"],
            "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}},
        }
        for name, (mib, cores) in asked.items()
    ]
    async with living(node, {"profile": "koordinator"}) as world:
        spec = {"containers": containers, "schedulerName": "hami-scheduler", "terminationGracePeriodSeconds": 0}
        await world.client.create(PODS, {"metadata": {"name": "pair"}, "spec": spec}, "default")
        kubectl(world.cluster, "wait", "--for=condition=Ready", "pod/pair", "--timeout=50s")
        for name, (mib, cores) in asked.items():
            inside = environment(world.cluster, "pair", name)
            assert inside["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{mib}m"
            assert inside["CUDA_DEVICE_SM_LIMIT"] == str(cores)
            assert allocated(world.cluster, "pair", mib - 100, name) == f"allocated {mib - 100} MiB"
            assert allocated(world.cluster, "pair", mib + 1, name) == f"refused {mib + 1} MiB: CUDA error 2"
