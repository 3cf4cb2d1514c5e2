"""Fake nodes and kube-scheduler, by which other tests measure ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.support.machines import machines
from tinykube.resource import PODS


async def test_kube_scheduler_places_pods_on_fake_nodes(cluster: Cluster, tmp_path: Path) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000},
    }
    (tmp_path / "scheduler.yaml").write_text(json.dumps(configuration))
    hardware = machines({"name": "fake", "profile": "koordinator", "count": 2})
    pod = {
        "metadata": {"name": "placed"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]},
    }
    async with administrator(cluster) as client, fake_nodes(client, hardware):
        cluster.start("kube-scheduler", f"--config={tmp_path / 'scheduler.yaml'}")
        try:
            await client.create(PODS, pod, "default")
            async with asyncio.timeout(30):
                while not (found := await client.get(PODS, "placed", "default"))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            assert found["spec"]["nodeName"] in {each.name for each in hardware}
        finally:
            cluster.stop("kube-scheduler")
            await client.delete(PODS, "placed", "default", grace=0)
