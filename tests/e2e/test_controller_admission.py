"""`subak controller` with everything on: it reviews new pods, places them, and its policy outlives it."""

from __future__ import annotations

import signal

import pytest

from tests.e2e import namespace
from tests.e2e.admission import POLICY, eventually, remove
from tests.e2e.cluster import Cluster
from tests.e2e.controller import apply_manifests, controller, free_lease, until_pods
from tests.e2e.fakes import administrator, fake_nodes
from tests.support.machines import machines
from tinykube.client import MERGE_PATCH
from tinykube.resource import PODS
from tinykube.status import ApiError

SPACE = "default"
RECORD = "volcano.sh/gpu-index"


def pod(name: str, **variables: str) -> dict[str, object]:
    """A pod that names no scheduler, as most do."""
    resources = {"limits": {"volcano.sh/gpu-memory": "1000"}}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    container = {"name": "c", "image": "none", "resources": resources, "env": env}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_pods_are_reviewed_placed_and_guarded_by_one_program(cluster: Cluster) -> None:
    apply_manifests(cluster)
    url = f"https://{namespace.ADDRESS}:9443"
    async with administrator(cluster) as client, fake_nodes(client, machines({"name": "gpu", "profile": "volcano"})):

        async def sent_to_us() -> bool:
            try:
                tried = await client.create(PODS, pod("a"), SPACE, dry_run=True)
            except ApiError:  # it has read one of our two webhooks only
                return False
            return bool(tried["spec"]["schedulerName"] == "subak")

        try:
            async with controller(cluster, client, f"--webhook-url={url}") as running:
                await running.until("trouble", [])
                await eventually(sent_to_us)  # an API server takes a moment to read a new webhook
                await client.create(PODS, pod("a"), SPACE)
                pods = await until_pods(client, SPACE, lambda pods: bool(pods["a"]["spec"].get("nodeName")))
                assert pods["a"]["spec"]["schedulerName"] == "subak"
                assert pods["a"]["metadata"]["annotations"][RECORD] == "0"
                with pytest.raises(ApiError, match="CUDA_DISABLE_CONTROL"):
                    await client.create(PODS, pod("b", CUDA_DISABLE_CONTROL="true"), SPACE)
                assert await running.end(signal.SIGTERM) == 0
            forged = {"metadata": {"annotations": {RECORD: "7"}}}

            async def guarded() -> bool:
                try:
                    await client.patch(PODS, "a", SPACE, forged, kind=MERGE_PATCH, dry_run=True)
                except ApiError as error:
                    return POLICY in error.message
                return False

            await eventually(guarded)  # and a new policy
            with pytest.raises(ApiError, match="failed calling webhook"):
                await client.create(PODS, pod("c"), SPACE)
        finally:
            await remove(client)
            for each in (await client.list(PODS, SPACE)).items:
                await client.delete(PODS, each["metadata"]["name"], SPACE, grace=0)
            await free_lease(client)
