"""Ordinary users of a real cluster: a token with few rights, and the commands that they run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from tests.e2e import PARTS, namespace
from tests.e2e.cluster import ADDRESS, Cluster
from tests.e2e.controller import MANIFESTS
from tests.support.live import ROOT, commands
from tinykube.client import Client
from tinykube.resource import NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource

TEAM, SYSTEM = "team-a", "subak-system"
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", kind="RoleBinding")
EVERYWHERE = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
ROLES = "rbac.authorization.k8s.io"
ENDPOINTS = Resource("", "v1", "endpoints", kind="Endpoints")


class User:
    """Somebody with a kubeconfig, and the commands that they run; any exit code will do for `code` None."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def run(self, *command: str | Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        env = commands({"KUBECONFIG": str(self._kubeconfig)})
        env["PATH"] += f"{os.pathsep}{os.environ[PARTS]}"

        def wait() -> subprocess.CompletedProcess[str]:
            return subprocess.run([str(word) for word in command], env=env, cwd=ROOT, capture_output=True, text=True)

        done = await asyncio.to_thread(wait)
        assert code in (None, done.returncode), (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done


@asynccontextmanager
async def user(client: Client, cluster: Cluster, directory: Path) -> AsyncIterator[User]:
    """Somebody who may edit objects in one namespace, as most people do."""
    await client.create(NAMESPACES, {"metadata": {"name": TEAM}})
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "ordinary"}}, TEAM)
    subject = {"kind": "ServiceAccount", "name": "ordinary", "namespace": TEAM}
    for part in ("view", "edit"):  # what the role `edit` is put together from, by a controller that does not run here
        role = {"apiGroup": ROLES, "kind": "ClusterRole", "name": f"system:aggregate-to-{part}"}
        await client.create(BINDINGS, {"metadata": {"name": part}, "roleRef": role, "subjects": [subject]}, TEAM)
    path = SERVICE_ACCOUNTS.path(TEAM, "ordinary", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = json.loads((await client.request("POST", path, None, request)).body)["status"]["token"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": ADDRESS, "certificate-authority": str(cluster.certificate)}}],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": TEAM}}],
    }
    (directory / "kubeconfig").write_text(yaml.safe_dump(config))
    try:
        yield User(directory / "kubeconfig")
    finally:
        await client.delete(NAMESPACES, TEAM)
        async with asyncio.timeout(30):  # the next one has the same name
            while any(each["metadata"]["name"] == TEAM for each in (await client.list(NAMESPACES)).items):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def published(client: Client) -> AsyncIterator[None]:
    """Let the Service find the controller.  It runs as a process here, so it gets a pod and Endpoints made by hand."""
    template = next(yaml.safe_load_all((MANIFESTS / "controller.yaml").read_text()))["spec"]["template"]
    metadata, spec = template["metadata"] | {"name": "window"}, template["spec"] | {"nodeName": "gpu"}
    await client.create(PODS, {"metadata": metadata, "spec": spec}, SYSTEM)
    address = {"podIP": namespace.ADDRESS, "podIPs": [{"ip": namespace.ADDRESS}], "phase": "Running"}
    await client.patch_status(PODS, "window", SYSTEM, address)
    target = {"kind": "Pod", "name": "window", "namespace": SYSTEM}
    subset = {"addresses": [{"ip": namespace.ADDRESS, "targetRef": target}], "ports": [{"name": "http", "port": 9440}]}
    body = {"metadata": {"name": "subak-controller"}, "subsets": [subset]}
    await client.create(ENDPOINTS, body, SYSTEM)
    try:
        yield
    finally:
        await client.delete(ENDPOINTS, "subak-controller", SYSTEM)
        await client.delete(PODS, "window", SYSTEM, grace=0)
