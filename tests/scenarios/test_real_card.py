"""`subak up` on a machine with a card: pods share it, and none gets more than its part.

The card is the mock driver's.  To Subak and to programs in containers it is real.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from subak.local.runtime import capability
from tests.support.card import CONTEXT_MIB, OUT_OF_MEMORY, TAKEN, TENANT, UUID, Card, Tenant
from tests.support.live import PATIENCE, Live, live

PODS = {
    "hami": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1024, "nvidia.com/gpucores": 30}, {}),
    "volcano": ({"volcano.sh/gpu-memory": 1000}, {}),
    "koordinator": (
        {"koordinator.sh/gpu-core": 25, "koordinator.sh/gpu-memory-ratio": 25},
        {"koordinator.sh/gpu-isolation-provider": "HAMi-core"},
    ),
}
MIB = {"hami": 1024, "volcano": 1000, "koordinator": 2048}


@dataclass(frozen=True)
class Machine:
    """The cluster, and what programs need to see the card."""

    cluster: Live
    env: dict[str, str]

    def ask(self, pod: str, words: str, before: str = "") -> str:
        """CUDA's answer to a program in the pod, after the shell has run `before`."""
        return self.sh(pod, f'{before}\nexec "$@"', sys.executable, "-c", TENANT, stdin=words)[1]

    def sh(self, pod: str, script: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """Exit code and output of a script in the pod."""
        command = ("subak", "exec", "-i", pod, "--", "sh", "-c", script, "sh", *arguments)
        ran = self.cluster.run(*command, stdin=stdin, check=False)
        return ran.returncode, ran.stdout + ran.stderr


def pod(name: str, env: dict[str, str], *folders: Path) -> dict[str, Any]:
    """A pod with a part of the card, whose container only waits."""
    limits, labels = PODS[name]
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "100000"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": f"v{n}", "mountPath": str(path)} for n, path in enumerate(folders)],
    }
    volumes = [{"name": f"v{n}", "hostPath": {"path": str(path)}} for n, path in enumerate(folders)]
    metadata = {"name": name, "labels": labels}
    spec = {"containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def machine(mock_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine whose card three pods share."""
    obstacle = asyncio.run(capability.obstacle())
    if obstacle:
        pytest.skip(obstacle)
    place = tmp_path_factory.mktemp("machine")
    (place / "state").mkdir()
    card = Card(mock_driver, place / "state" / "card")
    (place / "hardware.yaml").write_text("nodes: [{profile: moore-threads}]")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in card.env.items():
            patch.setenv(name, value)
        patch.setenv("SUBAK_SLICES", str(place / "slices"))
        patch.setenv("SUBAK_TURNS", str(place / "turns"))
        with live("--hardware", place / "hardware.yaml") as cluster:
            pods = [pod(name, card.env, mock_driver, place / "state") for name in PODS]
            cluster.run("subak", "apply", "-f", "-", stdin=yaml.safe_dump_all(pods))
            deadline = time.monotonic() + PATIENCE
            while cluster.subak("get", "pods").stdout.count("Running") < len(PODS):
                assert time.monotonic() < deadline, cluster.subak("get", "pods").stdout
            yield Machine(cluster, card.env)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_its_part_of_the_card_and_no_more(machine: Machine, name: str) -> None:
    mib = MIB[name]
    assert machine.ask(name, f"total\ntake {mib}\ntake {mib - 200}\n") == f"{mib}\n{OUT_OF_MEMORY}{TAKEN}"
    assert f"CUDA_DEVICE_MEMORY_LIMIT_0={mib << 20}" in machine.sh(name, "cat /etc/subak/limits")[1].splitlines()


@pytest.mark.parametrize(
    ("name", "more"),
    [("hami", ""), ("hami", "CUDA_DEVICE_MEMORY_LIMIT_0=8g CUDA_DISABLE_CONTROL=true"), ("koordinator", "")],
)
def test_a_program_without_its_environment_is_limited_too(machine: Machine, name: str, more: str) -> None:
    bare = shlex.join(f"{key}={value}" for key, value in machine.env.items())
    answers = machine.ask(name, "total\ntake 3000\n", f'set -- env -i {bare} {more} "$@"')
    assert answers == f"{MIB[name]}\n{OUT_OF_MEMORY}"


def test_a_container_cannot_change_its_limits(machine: Machine) -> None:
    tricks = ("echo > /etc/subak/limits", "rm -f /etc/subak/limits", "chmod 666 /etc/subak/limits")
    script = "; ".join(f"({trick}) 2>/dev/null && echo it worked: {trick.split()[0]}" for trick in tricks)
    code, said = machine.sh("hami", f"{script}; cat /etc/subak/limits")
    assert (code, "it worked" in said) == (0, False)
    assert "CUDA_DEVICE_SM_LIMIT_0=30" in said.splitlines()


def test_top_tells_what_a_pod_uses_beside_what_it_has(machine: Machine) -> None:
    command = ["subak", "exec", "-i", "koordinator", "--", sys.executable, "-c", TENANT]
    pipes = subprocess.PIPE
    tenant = Tenant(subprocess.Popen(command, stdin=pipes, stdout=pipes, text=True, env=machine.cluster.env))
    assert tenant.ask("take 500") == TAKEN
    deadline = time.monotonic() + PATIENCE
    while (used := uses(machine)).get("default/koordinator") != 500 + CONTEXT_MIB:
        assert time.monotonic() < deadline, used
    rows = [line.split() for line in machine.cluster.subak("top").stdout.splitlines()]
    assert ["default/koordinator", "2,048", "25", "-", str(500 + CONTEXT_MIB), "0"] in rows
    assert tenant.end() == 0
    assert uses(machine)["default/koordinator"] == 0


def test_a_container_that_is_started_again_has_all_of_its_part(machine: Machine, mock_driver: Path) -> None:
    """The killed program was in a pid namespace that no longer exists: programs inside cannot see that it is gone."""
    state = Path(machine.env["MOCK_MACHINE"]).parent
    again = pod("volcano", machine.env, mock_driver, state)
    again["metadata"]["name"] = "again"
    program = f"{TENANT}import time\ntime.sleep(2)\nos._exit(9)\n"
    script = 'printf \'take 700\\n\' | "$0" -c "$1"'
    again["spec"]["containers"][0]["command"] = ["sh", "-c", script, sys.executable, program]
    machine.cluster.run("subak", "apply", "-f", "-", stdin=yaml.safe_dump(again))
    deadline = time.monotonic() + PATIENCE
    while not (before := machine.cluster.subak("logs", "again", "--previous", check=False).stdout):
        assert time.monotonic() < deadline, machine.cluster.subak("get", "pods").stdout
    while not (now := machine.cluster.subak("logs", "again", check=False).stdout):
        assert time.monotonic() < deadline, machine.cluster.subak("get", "pods").stdout
    machine.cluster.subak("delete", "pod", "again")
    assert (before, now) == (TAKEN, TAKEN)


def uses(machine: Machine) -> dict[str, int | None]:
    """What each pod uses, in MiB."""
    nodes = json.loads(machine.cluster.subak("top", "-o", "json").stdout)["nodes"]
    tenants = [each for node in nodes for card in node["cards"] if card["uuid"] == UUID for each in card["tenants"]]
    return {each["pod"]: each["in_use"] and each["in_use"]["memory_mib"] for each in tenants}
