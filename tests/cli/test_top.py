"""`subak top` on the machine's own cards, and the use that nodes report.

On a live cluster it is tested with all other commands, and on real cards in `scenarios/test_real_card.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subak.cli import use
from subak.cli.use import MOST_NODES, of_nodes
from subak.node.usage import Use
from tests.support.card import CONTEXT_MIB, TAKEN, UUID, Card, Tenant
from tinykube.client import Client
from tinykube.transport import Request, Response

MIB = 1 << 20


@pytest.fixture
def machine(card: Card, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    """A machine with a card, and without a cluster."""
    for name in ("KUBECONFIG", "LD_PRELOAD", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    places = {"SUBAK_TURNS": "turns", "SUBAK_SLICES": "slices", "HOME": "home"}
    for name, value in {**card.env, **{name: str(tmp_path / folder) for name, folder in places.items()}}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(checkout / "src"))
    return card


def subak(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subak.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def slice_of(card: Card, *options: str) -> Tenant:
    command = [sys.executable, "-m", "subak.cli", "run", *options, "--", *card.tenant]
    return Tenant(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


def until(look: Callable[[], Any], expected: object) -> None:
    deadline = time.monotonic() + 60
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found


def tenants() -> dict[str, Any]:
    (shown,) = json.loads(subak("top", "-o", "json").stdout)["machine"]["cards"]
    return {each["pod"].rpartition("-")[2]: each["in_use"] for each in shown["tenants"]}


def test_slices_are_shown_with_what_they_use(machine: Card) -> None:
    limited, other = slice_of(machine, "--memory", "1Gi", "--cores", "30"), slice_of(machine, "--memory", "2Gi")
    assert (limited.ask("take 500"), other.ask("take 1000")) == (TAKEN, TAKEN)
    used = ((500 + CONTEXT_MIB, 0), (1000 + CONTEXT_MIB, None))  # nobody counts the time of one without a limit
    until(lambda: {(each["memory_mib"], each["time_percent"]) for each in tenants().values() if each}, set(used))
    shown = subak("top")
    assert "without a cluster: no API server is known" in shown.stderr
    assert re.search(rf" 1,024 +30 +1 +{500 + CONTEXT_MIB} +0$", shown.stdout, re.MULTILINE), shown.stdout
    assert re.search(rf" 2,048 +- +1 +{1000 + CONTEXT_MIB:,} +-$", shown.stdout, re.MULTILINE), shown.stdout
    for each in (limited, other):
        assert each.end() == 0
    assert tenants() == {}


def test_a_slice_whose_programs_use_no_card_is_unknown_and_not_nought(machine: Card) -> None:
    command = [sys.executable, "-m", "subak.cli", "run", "--memory", "1Gi", "--", "sh", "-c", "echo; read line"]
    waiting = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waiting.stdout is not None
    waiting.stdout.readline()
    assert tenants() == {"1": None}
    (card,) = json.loads(subak("top", "-o", "json").stdout)["machine"]["cards"]
    assert (card["uuid"], card["memory_used_mib"], card["in_use"]) == (UUID, 1024, None)
    waiting.communicate("\n", timeout=60)


def test_a_machine_without_cards_needs_a_cluster(machine: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH")
    shown = subak("top")
    if "no API server is known" not in shown.stderr or shown.returncode == 0:
        pytest.skip("this computer has cards of its own")
    assert (shown.returncode, shown.stdout) == (2, "")


@pytest.mark.parametrize("named", ["option", "node"])
def test_whoever_names_a_cluster_or_a_node_wants_no_other(machine: Card, named: str) -> None:
    shown = subak("top", "--kubeconfig", "/nowhere/config") if named == "option" else subak("top", "elsewhere")
    assert (shown.returncode, shown.stdout) == (2, "")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_output_that_takes_no_more_is_not_the_cluster_s_fault(machine: Card, form: str) -> None:
    command = [sys.executable, "-m", "subak.cli", "top", "-o", form]
    with open("/dev/full", "w") as full:
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    (_, error) = shown.stderr.splitlines()  # after the note that there is no cluster
    assert (shown.returncode, error) == (1, "error: the output cannot be used: No space left on device")
    reader, writer = os.pipe()
    os.close(reader)
    shown = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (shown.returncode, len(shown.stderr.splitlines())) == (1, 1)


# What nodes report.


class Nodes:
    """An API server that passes on what kubelets answer."""

    def __init__(self, answers: dict[str, tuple[int, Any]]) -> None:
        self.answers = answers
        self.asked = 0

    async def send(self, request: Request) -> Response:
        self.asked += 1
        status, body = self.answers[request.path.split("/")[4]]
        return Response(status, {"content-type": "application/json"}, msgspec.json.encode(body))

    async def close(self) -> None:
        """Nothing to close."""


def pod(name: str, *containers: Any) -> dict[str, Any]:
    return {"podRef": {"name": name, "namespace": "team"}, "containers": list(containers)}


async def test_containers_of_a_pod_count_together() -> None:
    one = {"name": "a", "accelerators": [{"id": "GPU-a", "memoryUsed": 5, "dutyCycle": 10}]}
    two = {"name": "b", "accelerators": [{"id": "GPU-a", "memoryUsed": 7, "dutyCycle": 1}, {"id": "GPU-b"}]}
    answers = {"n1": (200, {"node": {}, "pods": [pod("p", one, two)]})}
    found = await of_nodes(Client(Nodes(answers)), ["n1"])
    assert found == {("GPU-a", "team/p"): Use(12, 11), ("GPU-b", "team/p"): Use(0, None)}


async def test_nodes_that_say_nothing_of_cards_leave_them_unknown() -> None:
    answers = {
        "plain": (200, {"node": {}, "pods": [pod("p", {"name": "c"}), {"podRef": {}}]}),
        "empty": (200, {"node": {}}),
        "forbidden": (403, {"kind": "Status", "reason": "Forbidden", "code": 403}),
        "broken": (200, {"pods": "many"}),
        "lost": (502, "Bad Gateway"),
    }
    assert await of_nodes(Client(Nodes(answers)), list(answers)) == {}


async def test_a_node_that_never_answers_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Nodes):
        async def send(self, request: Request) -> Response:
            if "silent" in request.path:
                await asyncio.Event().wait()
            return await super().send(request)

    monkeypatch.setattr(use, "PATIENCE", 0.01)
    card = {"name": "c", "accelerators": [{"id": "GPU-a", "memoryUsed": 5}]}
    nodes = Silent({"n1": (200, {"pods": [pod("p", card)]})})
    assert await of_nodes(Client(nodes), ["silent", "n1"]) == {("GPU-a", "team/p"): Use(5, None)}


async def test_a_huge_cluster_is_not_asked_node_by_node() -> None:
    nodes = Nodes({})
    assert await of_nodes(Client(nodes), [f"n{number}" for number in range(MOST_NODES + 1)]) == {}
    assert nodes.asked == 0


def test_slices_that_cannot_be_read_are_a_warning(machine: Card, tmp_path: Path) -> None:
    (tmp_path / "slices").touch()
    shown = subak("top")
    assert (
        f"warning: who has slices of this machine's own cards is not known: slices cannot be kept in {tmp_path}"
        in shown.stderr
    )
    assert "Traceback" not in shown.stderr
