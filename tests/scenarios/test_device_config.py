"""`subak up --device-config`: every command reads the cluster in the names and defaults with which it was started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scenarios.test_up import ready, sleeper
from tests.support.commands import subak
from tests.support.live import Live, live

pytestmark = pytest.mark.long

CONFIG = "mthreads: {resourceCountName: lab.example/card, resourceMemoryName: lab.example/units}"
LIMITS = {"lab.example/card": 1, "lab.example/units": 8, "mthreads.com/sgpu-core": 2}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "device-config.yaml"
    path.write_text(CONFIG)
    return path


def held(cluster: Live, *options: str | Path) -> list[int]:
    """What the pods hold of the card, in MiB, according to three commands."""
    more = ("-o", "json", "--kubeconfig", cluster.kubeconfig, *options)
    top = json.loads(subak("top", "lab", *more).out)["nodes"][0]["cards"]
    why = json.loads(subak("why", "p", *more).out)["cards"]
    nodes = json.loads(subak("nodes", *more).out)["nodes"]
    (node,) = (each for each in nodes if each["name"] == "lab")
    return [top[0]["memory_used_mib"] if top else 0, why[0]["memory_used_mib"] if why else 0, node["memory_used_mib"]]


def test_commands_learn_the_device_config_from_the_cluster(tmp_path: Path, config: Path) -> None:
    state, standard = ("--state", tmp_path / "state"), tmp_path / "standard.yaml"
    standard.write_text("{}")
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text("nodes: [{profile: moore-threads, name: lab}]")
    common = (*state, "--hardware", hardware, "--runtime", "none")
    with live(*common, "--device-config", config) as cluster:
        cluster.run("subak", "apply", "-f", "-", stdin=sleeper("p", "60", **LIMITS))
        ready(cluster, "p")
        assert held(cluster) == [4_096, 4_096, 4_096]
        assert held(cluster, "--device-config", config) == [4_096, 4_096, 4_096]
        assert held(cluster, "--device-config", standard) == [0, 0, 0]
        assert "it holds no card" in cluster.subak("why", "p", "--device-config", standard).stdout
    with live(*common) as cluster:  # what ran goes on as it was
        assert held(cluster) == [4_096, 4_096, 4_096]
