"""A vendor that does not exist, with a request language of its own, in this one file: what a new dialect takes.

`python -m tests.test_made_up_vendor up ...` is `subak` with one more line in its registry of dialects.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from subak.dialects import Agent, Ask, Injection, Measure, Part, Patch, Published, QuotaUnit, Sight, Sighting, Source
from subak.dialects.amounts import asked, mentions, offers
from subak.dialects.interpreter import Interpreter
from subak.dialects.registry import MAKERS
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.request import BINPACK, CardPolicy, Claim
from tests.support.live import Live, live

GIB = 1 << 30
ASKED, CARDS, HELD = "acme.example/gib", "acme.example/cards", "acme.example/held"


class Acme:
    """`acme.example/gib: 4` asks for so much of one card, for each container."""

    name = "acme"
    families = frozenset({"acme"})
    resources = frozenset({ASKED})
    owned = recorded = frozenset({HELD})
    agent = Agent("acme", ("acme",), Source.REGISTER)
    quota_units: Mapping[str, QuotaUnit] = {}
    measures: Mapping[str, Sequence[Measure]] = {ASKED: [Measure(Part.MEMORY, GIB)]}

    def speaks(self, pod: manifest.Pod) -> bool:
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        self.ask(pod)
        return Patch()

    def ask(self, pod: manifest.Pod) -> Ask:
        amounts = [ask(ASKED, "GiB") or 0 for ask in asked(pod)]
        return Ask(
            tuple(
                Claim(self.name, self.families, (i,), role, memory_bytes=amount * GIB, policy=CardPolicy((BINPACK,)))
                for i, (amount, role) in enumerate(zip(amounts, pod.roles, strict=True))
                if amount
            )
        )

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        sightings = (
            Sighting("acme", i, id, model="Acme One", memory_bytes=gib * GIB, healthy=healthy)
            for i, (id, gib, healthy) in enumerate(json.loads(node.annotations.get(CARDS, "[]")))
        )
        return Sight(offers(node.allocatable, self.resources), Source.REGISTER, tuple(sightings))

    def publish(self, node: Node) -> Published:
        cards = [each for each in node.devices if each.family == "acme"]
        register = json.dumps([(each.id, each.memory_bytes // GIB, each.healthy) for each in cards])
        return Published.counted(
            cards, lambda some: {ASKED: str(sum(each.memory_bytes // GIB for each in some))}, {CARDS: register}
        )

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        mine = [(grant.containers[0], grant.shares[0]) for grant in placement.grants if grant.dialect == self.name]
        held = {str(position): [share.id, share.memory_bytes // GIB] for position, share in mine}
        return {HELD: json.dumps(held)}

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        held: dict[str, Any] = json.loads(pod.annotations.get(HELD, "{}"))
        return tuple(self._grant(int(i), pod, id, gib, node) for i, (id, gib) in held.items())

    def _grant(self, position: int, pod: manifest.Pod, id: str, gib: int, node: Node) -> Grant:
        card = node.device(id)
        share = Share(id, 0 if card is None else card.index, gib * GIB, 0)
        return Grant(self.name, (position,), pod.roles[position], (share,))

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        (share,) = grant.shares
        return Injection({"ACME_CARD": str(share.index), "ACME_GIB": str(share.memory_bytes // GIB)})


HARDWARE = """
nodes:
- {name: lab, cards: {vendor: acme, model: Acme One, memory: 16Gi, count: 2}, speaks: [acme]}
"""


def pod(name: str, gib: int, command: str = "env; sleep 600") -> str:
    container = {"name": "c", "image": "x", "command": ["sh", "-c", command], "resources": {"limits": {ASKED: gib}}}
    spec = {"containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def acme(cluster: Live, *words: str, stdin: str = "", code: int = 0) -> str:
    command = [sys.executable, "-m", "tests.test_made_up_vendor", *words]
    done = subprocess.run(command, env=cluster.env, input=stdin, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_made_up_vendor_is_read_placed_published_injected_and_shown(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(HARDWARE)
    with live("--hardware", tmp_path / "lab.yaml", program="tests.test_made_up_vendor") as cluster:
        node = json.loads(acme(cluster, "get", "node", "lab", "-o", "json"))
        assert node["status"]["allocatable"][ASKED] == "32"
        for name, gib in (("a", 10), ("b", 6), ("c", 12), ("d", 8)):
            acme(cluster, "apply", "-f", "-", stdin=pod(name, gib))
        acme(cluster, "wait", "--for=condition=Ready", "pod/a", "pod/b", "pod/c", "--timeout=60s")
        seen = {name: acme(cluster, "logs", name).splitlines() for name in "abc"}
        assert {"ACME_CARD=0", "ACME_GIB=10"} <= set(seen["a"])
        assert {"ACME_CARD=0", "ACME_GIB=6"} <= set(seen["b"])
        assert {"ACME_CARD=1", "ACME_GIB=12"} <= set(seen["c"])
        cards = json.loads(acme(cluster, "top", "lab", "-o", "json"))["nodes"][0]["cards"]
        assert [card["memory_used_mib"] for card in cards] == [16_384, 12_288]
        assert "largest free slice 4,096 MiB, 8,192 MiB asked" in acme(cluster, "why", "d", code=1)


def test_it_stands_in_the_registry_of_this_process_only() -> None:
    assert "acme" not in Interpreter().by_name


if __name__ == "__main__":
    MAKERS.append(lambda config: [Acme()])
    sys.argv[0] = "subak"
    from subak.cli import main

    main()
