"""`subak up` has Volcano's scheduler configuration, and an edit of it takes effect without a restart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from subak.dialects.interpreter import Interpreter
from subak.local.cluster import LocalCluster
from subak.local.hardware import profiles
from subak.local.volcano import CONFIG_MAP
from subak.scheduler.record import State
from tests.scenarios.test_up import until
from tests.support.live import PATIENCE, Live, live
from tinykube.resource import CONFIG_MAPS, PODS, PRIORITY_CLASSES
from tinykube.yaml import read

pytestmark = pytest.mark.long

KEY = "volcano-scheduler.conf"
GUIDE = CONFIG_MAP.read_text()
LARGE = 20_000
"""MiB that only one card of the cluster has."""
PREEMPTING = GUIDE.replace("enqueue, allocate", "enqueue, preempt, allocate").replace(
    "name: gang", "name: gang\n        enablePreemptable: false"
)
"""So that a pod by itself may leave, which its gang of one needs: as in Volcano's chart."""
ON, OFF = "predicate.GPUSharingEnable: true", "predicate.GPUSharingEnable: false"


def pod(name: str, priority: str = "", **limits: int) -> str:
    named = {f"volcano.sh/{key.replace('_', '-')}": amount for key, amount in limits.items()}
    container = {"name": "c", "image": "busybox", "resources": {"limits": named}}
    spec = {
        "schedulerName": "volcano",
        "priorityClassName": priority,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


class Watched:
    """A cluster, and what it has said on standard error."""

    def __init__(self, cluster: Live, said: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._capture = said
        self._said = ""

    @property
    def said(self) -> str:
        self._said += self._capture.readouterr().err
        return self._said

    def apply(self, text: str) -> None:
        self._cluster.run("subak", "apply", "-f", "-", stdin=text)

    def ready(self, name: str) -> None:
        self._cluster.subak("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def configuration(self) -> str:
        found = self._get("configmap", "volcano-scheduler-configmap", "-n", "volcano-system")
        return str(found["data"][KEY])

    def why_it_waits(self, name: str) -> str:
        conditions = self._get("pod", name).get("status", {}).get("conditions", [])
        return "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def _get(self, *what: str) -> dict[str, Any]:
        return dict(json.loads(self._cluster.subak("get", *what, "-o", "json").stdout))


def test_an_edit_takes_effect_and_an_invalid_one_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    with live("--runtime", "none") as started:
        cluster = Watched(started, capfd)
        assert cluster.configuration() == read(GUIDE).content["data"][KEY]
        cluster.apply(pod("shared", gpu_memory=1024))
        cluster.ready("shared")

        cluster.apply(GUIDE.replace(ON, OFF))
        cluster.apply(GUIDE.replace(ON, OFF).replace("allocate", "alocate"))
        until(lambda: "the scheduler configuration before stays in force" in cluster.said, "it refuses the text")
        assert f"configmap volcano-system/volcano-scheduler-configmap: {KEY}: actions: 'alocate'" in cluster.said
        cluster.apply(pod("refused", gpu_memory=1024))
        cluster.apply(pod("whole", gpu_number=1))
        cluster.ready("whole")
        until(lambda: "predicate.GPUSharingEnable is false" in cluster.why_it_waits("refused"), "it refuses the pod")

        cluster.apply(GUIDE)
        cluster.ready("refused")


async def test_preempt_makes_room_as_soon_as_it_is_among_the_actions() -> None:
    interpreter = Interpreter()
    async with LocalCluster(profiles.default(interpreter), interpreter, runtime="none") as cluster:
        client, core = cluster.client, cluster.scheduler.core

        async def state(name: str, wanted: State | None) -> None:
            async with asyncio.timeout(PATIENCE):
                while core.state(f"default/{name}") is not wanted:
                    await asyncio.sleep(0.02)

        await client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await client.create(PODS, read(pod("low", gpu_memory=LARGE)).content, "default")
        await state("low", State.HELD)
        await client.create(PODS, read(pod("important", "high", gpu_memory=LARGE)).content, "default")
        await state("important", State.WAITING)
        await client.patch(CONFIG_MAPS, "volcano-scheduler-configmap", "volcano-system", read(PREEMPTING).content)
        await state("important", State.HELD)
        await state("low", None)
