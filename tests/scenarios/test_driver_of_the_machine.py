"""A machine with an NVIDIA driver in a folder of its own, as cloud images have it: `subak up` offers its card, and
simulated cards are what they are elsewhere.

The driver is that of the tests, in the cache of the dynamic loader, which only a mount namespace has.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from subak.local.hardware.objects import PROFILE
from subak.local.runtime import capability
from subak.local.runtime.machine import search_path
from subak.node import nvml
from tests.support import hidden
from tests.support.card import UUID, driver
from tests.support.live import ROOT, live

pytestmark = pytest.mark.long

LDCONFIG = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
TOTAL = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader")


@dataclass(frozen=True)
class Machine:
    """The command that runs another one on it, and the folder of its driver."""

    inside: tuple[str, ...]
    folder: Path


@pytest.fixture
def machine(libsubak: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine on which the loader finds the driver without any variable."""
    if obstacle := asyncio.run(capability.obstacle()):
        pytest.skip(obstacle)
    if LDCONFIG is None or shutil.which("unshare") is None:
        pytest.skip("ldconfig and unshare make such a machine")
    folder = tmp_path / "nvidia" / "lib"
    folder.mkdir(parents=True)
    driver(libsubak.parent / "mock", folder)
    programs = tmp_path / "nvidia" / "bin"  # on the PATH: then containers see the installation
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBAK_SLICES", str(tmp_path / "slices"))
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    (tmp_path / "conf").write_text(f"{folder}\n")
    subprocess.run([LDCONFIG, "-X", "-f", tmp_path / "conf", "-C", tmp_path / "cache"], check=True)
    own = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
    mount = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'
    return Machine(("unshare", *own, "--mount", "sh", "-c", mount, str(tmp_path / "cache")), folder)


def pod(name: str, profile: str) -> dict[str, Any]:
    """A pod with 1000 MiB of a card, on the node of this profile."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "1000"], "resources": {"limits": limits}}
    spec = {"nodeSelector": {PROFILE: profile}, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_pods_find_the_driver_and_the_tool_of_their_own_card(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = machine.folder.parent / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho the tool of the machine\n")
    tool.chmod(0o755)
    monkeypatch.delenv(hidden.VARIABLE)
    (tmp_path / "hardware.yaml").write_text("nodes: [{profile: koordinator}]")
    with live("--hardware", tmp_path / "hardware.yaml", inside=machine.inside) as cluster:
        pods = [pod("simulated", "koordinator"), pod("real", nvml.PROFILE)]
        cluster.run("subak", "apply", "-f", "-", stdin=yaml.safe_dump_all(pods))
        cluster.subak("wait", "--for=condition=Ready", "pod/simulated", "pod/real")
        assert cluster.subak("exec", "simulated", "--", *TOTAL).stdout == "1000 MiB\n"
        given = cluster.subak("exec", "simulated", "--", "subak-allocate", "900Mi").stdout
        assert given == "900 MiB given, 900 of 1000 MiB were free: CUDA_SUCCESS\n"
        shown = cluster.subak("exec", "real", "--", "nvidia-smi").stdout
        if shutil.which("nvidia-smi", path=search_path()) is None:  # else this computer has another one
            assert shown == "the tool of the machine\n"


@pytest.mark.parametrize("seen", [True, False])
def test_tests_see_its_card_only_if_they_ask(machine: Machine, seen: bool) -> None:
    env = {**os.environ, **({hidden.VARIABLE: ""} if seen else {}), "KUBECONFIG": "/nowhere"}
    command = [*machine.inside, sys.executable, "-m", "subak.cli", "top", "-o", "json"]
    shown = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (UUID in shown.stdout) is seen, shown.stdout + shown.stderr
