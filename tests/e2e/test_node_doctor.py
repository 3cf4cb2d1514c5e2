"""`subak doctor --node` on a real node: with NRI on and off, and with our agent there and gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from subak import __version__
from tests.e2e.agent import agent, living, prepared
from tests.e2e.cluster import Cluster
from tests.e2e.controller import kubectl
from tests.e2e.node import RealNode
from tests.e2e.users import User

VOLCANO = {"profile": "volcano"}
LABEL = "koordinator.sh/gpu-isolation-provider"


def examined(node: RealNode, *options: str, code: int) -> dict[str, dict[str, Any]]:
    """What the doctor finds on the node; the last finding of each check."""
    command = [
        sys.executable,
        "-m",
        "subak.cli",
        "doctor",
        "--node",
        "-o",
        "json",
        f"--agent=http://{node.address}:9394",
    ]
    done = node.run([*command, *options], {"KUBECONFIG": str(node.cluster.kubeconfig)})
    assert (done.returncode, done.stderr) == (code, ""), done
    return {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def examined_from_a_pod(node: RealNode) -> dict[str, dict[str, Any]]:
    """The same from outside the node's namespaces, where its files are below another folder."""
    command = [sys.executable, "-m", "subak.cli", "doctor", "--node", "-o", "json"]
    options = [f"--agent=http://{node.address}:9394", f"--host-root={node.path('/')}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    return {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def states(found: dict[str, dict[str, Any]], *names: str) -> list[str]:
    return [found[name]["state"] for name in names]


async def test_a_node_with_everything(cluster: Cluster) -> None:
    with RealNode(cluster) as node:
        async with prepared(node):
            with agent(node, VOLCANO):
                found = examined(node, code=0)
                runtime = ("version", "NRI", "default validator", "CDI")
                assert states(found, *runtime) == ["ok"] * 4, [found[name] for name in runtime]
                assert found["version"]["seen"].startswith("containerd 2.")
                assert states(found, "kubelet", "sockets", "NVIDIA", "library", "turns", "clock") == ["ok"] * 6
                assert found["kubelet"]["seen"].startswith("v1.")
                assert found["window"]["seen"] == f"ready, {__version__}"
                assert found["lock"]["seen"].endswith("holds /run/subak/agent.lock")
                outside = examined_from_a_pod(node)
                assert states(outside, *runtime, "kubelet", "sockets", "lock", "window") == ["ok"] * 8
            found = examined(node, code=1)
            assert found["lock"]["seen"] == "nobody holds /run/subak/agent.lock: the agent has ended"
            assert states(found, "window", "NRI") == ["failed", "ok"]


def test_a_node_without_nri_is_told_how_to_switch_it_on(cluster: Cluster, tmp_path: Path) -> None:
    with RealNode(cluster, nri=False) as node:
        found = examined(node, code=0)
        assert "containerd has NRI switched off" in found["NRI"]["seen"]
        assert "the agent can only evict" in found["NRI"]["seen"]
        assert "disable = false" in found["NRI"]["to_do"]
        assert str(node.directory / "containerd.toml") in found["NRI"]["to_do"]
        node.kill("containerd")
        found = examined(node, code=1)
        assert found["version"]["state"] == "failed"


async def test_a_cluster_with_a_real_node(cluster: Cluster) -> None:
    somebody = User(cluster.kubeconfig)
    with RealNode(cluster) as node:
        async with living(node, {"profile": "koordinator"}) as world:
            done = await somebody.run("subak", "doctor", "-o", "json")
            found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
            assert states(found, "agents", "container runtimes", "capacity", "labels", "overcommitted") == ["ok"] * 5
            assert {each["check"] for each in found.values() if each["state"] != "ok"} == {"replicas", "versions"}
            world.agent.kill()  # or it would put it right at once
            gone = {LABEL: None}
            patch = json.dumps({"metadata": {"annotations": {"subak.io/agent": "plugin"}, "labels": gone}})
            kubectl(cluster, "patch", "node", node.name, "-p", patch)
            done = await somebody.run("subak", "doctor", "-o", "json")
            world.agent.start()
            found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
            assert found["labels"]["seen"] == f"{node.name} lacks {LABEL}=HAMi-core"
            assert "can only find and evict" in found["device plugins"]["seen"]
