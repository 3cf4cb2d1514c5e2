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
import yaml

from subak.cli import use
from subak.cli.use import AGENT, MOST_NODES, Reported, agents, of_nodes
from subak.model import manifest
from subak.node.usage import Use
from tests.support.card import CONTEXT_MIB, TAKEN, UUID, Card, Tenant
from tinykube.client import Client
from tinykube.transport import Request, Response

MIB = 1 << 20
MANIFEST = Path(__file__).parents[2] / "deploy/manifests/agent.yaml"


@pytest.fixture
def bare(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a card, and without a cluster."""
    for name in ("KUBECONFIG", "LD_PRELOAD", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in {"SUBAK_TURNS": "turns", "SUBAK_SLICES": "slices", "HOME": "home"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("PYTHONPATH", str(checkout / "src"))


@pytest.fixture
def machine(bare: None, card: Card, monkeypatch: pytest.MonkeyPatch) -> Card:
    """A machine with a card, and without a cluster."""
    for name, value in card.env.items():
        monkeypatch.setenv(name, value)
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_slice_whose_programs_use_no_card_is_unknown_and_not_nought(machine: Card) -> None:
    command = [sys.executable, "-m", "subak.cli", "run", "--memory", "1Gi", "--", "sh", "-c", "echo; read line"]
    waiting = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waiting.stdout is not None
    waiting.stdout.readline()
    assert tenants() == {"1": None}
    (card,) = json.loads(subak("top", "-o", "json").stdout)["machine"]["cards"]
    assert (card["uuid"], card["memory_used_mib"], card["in_use"]) == (UUID, 1024, None)
    waiting.communicate("\n", timeout=60)


@pytest.mark.long
def test_a_machine_without_cards_needs_a_cluster(bare: None) -> None:
    shown = subak("top")
    assert "no API server is known" in shown.stderr
    assert (shown.returncode, shown.stdout) == (2, "")


@pytest.mark.long
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
        parts = request.path.split("/")
        status, body = self.answers[parts[4] if parts[3] == "nodes" else request.path]
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
    assert found.uses == {("GPU-a", "team/p"): Use(12, 11), ("GPU-b", "team/p"): Use(0, None)}


async def test_nodes_that_say_nothing_of_cards_leave_them_unknown() -> None:
    answers = {
        "plain": (200, {"node": {}, "pods": [pod("p", {"name": "c"}), {"podRef": {}}]}),
        "empty": (200, {"node": {}}),
        "forbidden": (403, {"kind": "Status", "reason": "Forbidden", "code": 403}),
        "broken": (200, {"pods": "many"}),
        "lost": (502, "Bad Gateway"),
    }
    assert await of_nodes(Client(Nodes(answers)), list(answers)) == Reported({})


async def test_a_node_that_never_answers_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Nodes):
        async def send(self, request: Request) -> Response:
            if "silent" in request.path:
                await asyncio.Event().wait()
            return await super().send(request)

    monkeypatch.setattr(use, "PATIENCE", 0.01)
    card = {"name": "c", "accelerators": [{"id": "GPU-a", "memoryUsed": 5}]}
    nodes = Silent({"n1": (200, {"pods": [pod("p", card)]})})
    assert (await of_nodes(Client(nodes), ["silent", "n1"])).uses == {("GPU-a", "team/p"): Use(5, None)}


async def test_a_huge_cluster_is_not_asked_node_by_node() -> None:
    nodes = Nodes({})
    found = await of_nodes(Client(nodes), [f"n{number}" for number in range(MOST_NODES + 1)])
    assert (found.uses, nodes.asked) == ({}, 0)
    assert found.complaints() == [
        "what is used on n0, n1, n10, n100, n101 and 196 more nodes is not known: "
        "more than 200 nodes are not asked; name some of them"
    ]


def agents_path(pod: str) -> str:
    return f"/api/v1/namespaces/subak-system/pods/{pod}/proxy/use"


def row(pod: str, container: str, memory: int | None, time: int | None = None) -> dict[str, Any]:
    """A container as an agent tells of it."""
    names = {"namespace": "team", "pod": pod, "container": container, "card": "GPU-a"}
    limits = {"memory_limit_bytes": 100, "time_limit_percent": 30, "blocked": False, "lifted": False}
    return {**names, **limits, "memory_used_bytes": memory, "time_used_percent": time}


async def test_an_agent_tells_what_the_containers_of_its_node_use() -> None:
    rows = [row("p", "a", 5, 10), row("p", "b", 7, 1), row("odd", "c", None)]
    answers = {agents_path("agent-x"): (200, {"node": "n1", "containers": rows})}
    found = await of_nodes(Client(Nodes(answers)), ["n1"], {"n1": "agent-x", "n2": "agent-y"})
    assert found == Reported({("GPU-a", "team/p"): Use(12, 11)})


async def test_nodes_whose_agents_do_not_answer_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Nodes):
        async def send(self, request: Request) -> Response:
            if "agent-silent" in request.path:
                await asyncio.Event().wait()
            return await super().send(request)

    monkeypatch.setattr(use, "PATIENCE", 0.01)
    forbidden = (403, {"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no"})
    lost = (503, {"kind": "Status", "code": 503, "message": "error trying to reach service"})
    answers = {
        agents_path("agent-1"): forbidden,
        agents_path("agent-2"): forbidden,
        agents_path("agent-lost"): lost,
        agents_path("agent-old"): (200, {"cards": []}),
        agents_path("agent-fine"): (200, {"node": "n6", "containers": [row("p", "c", 5)]}),
    }
    pods = {"n1": "agent-1", "n2": "agent-2", "n3": "agent-lost", "n4": "agent-old", "n5": "agent-silent"}
    found = await of_nodes(Client(Silent(answers)), ["n5", "n2", "n1", "n3", "n4", "n6"], {**pods, "n6": "agent-fine"})
    assert found.uses == {("GPU-a", "team/p"): Use(5, None)}
    assert found.complaints() == [
        "what is used on n1, n2 is not known: you may not ask the agents; an administrator can allow it: "
        "kubectl create rolebinding NAME -n subak-system --role=subak-use-viewer ...",
        "what is used on n3 is not known: agent agent-lost does not answer: error trying to reach service",
        "what is used on n4 is not known: the answer of agent agent-old cannot be read: is it of another version?",
        "what is used on n5 is not known: agent agent-silent did not answer within 0 s",
    ]


def agents_pod(name: str, node: str, **fields: Any) -> manifest.Pod:
    metadata = {"name": name, "namespace": "subak-system", "labels": {**AGENT}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, **fields}, manifest.Pod)


def test_agents_are_known_by_the_labels_of_their_manifest() -> None:
    (agent,) = (each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "DaemonSet")
    template = agent["spec"]["template"]
    assert AGENT.items() <= template["metadata"]["labels"].items()
    (ports,) = (each["ports"] for each in template["spec"]["containers"])
    assert ports[0]["containerPort"] == 9394, "the API server passes requests on to the first port"
    stranger = msgspec.structs.replace(agents_pod("x", "n3"), metadata=manifest.Metadata(name="x", namespace="team"))
    ended = agents_pod("old", "n2", status={"phase": "Failed"})
    assert agents([agents_pod("a", "n1"), ended, stranger]) == {"n1": "a"}


def test_slices_that_cannot_be_read_are_a_warning(
    machine: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SUBAK_SLICES", str(tmp_path / "file/slices"))
    shown = subak("top")
    assert (
        f"warning: who has slices of this machine's own cards is not known: {tmp_path}/file cannot be used"
        in shown.stderr
    )
    assert "Traceback" not in shown.stderr
