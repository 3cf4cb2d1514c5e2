"""Descriptions of hardware: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subak.local.hardware import profiles
from subak.local.hardware.description import BadDescription
from subak.model.device import MIB
from subak.model.manifest import Taint
from subak.node.machine import Machine
from tests.support.bombs import BOMB
from tests.support.machines import INTERPRETER, machine, machines

GIB = 1024 * MIB
CARDS = {"vendor": "nvidia", "model": "A10", "memory": "24Gi"}


def described(text: str, folder: Path) -> list[Machine]:
    path = folder / "hardware.yaml"
    path.write_text(text, encoding="utf-8")
    return profiles.read(path, INTERPRETER)


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(BadDescription) as error:
        described(text, folder)
    return str(error.value).replace(f"{folder}/", "")


def test_the_default_cluster_has_one_node_of_every_profile() -> None:
    found = {each.name: each for each in profiles.default(INTERPRETER)}
    assert {name: each.profile for name, each in found.items()} == {
        "gtx1080ti": "volcano",
        "p40": "koordinator",
        "s4000": "moore-threads",
        "mr-v100": "iluvatar-mr-v100",
        "bi-v150": "iluvatar-bi-v150",
        "c500-sgpu": "metax-sgpu",
        "c500": "metax-gpu",
        "a10": "shared",
    }
    sizes = {name: (len(each.devices), each.devices[0].memory_bytes // MIB) for name, each in found.items()}
    assert sizes == {
        "gtx1080ti": (8, 11178),
        "p40": (2, 23040),
        "s4000": (8, 48 * 1024),
        "mr-v100": (4, 32 * 1024),
        "bi-v150": (2, 64 * 1024),
        "c500-sgpu": (8, 64 * 1024),
        "c500": (8, 64 * 1024),
        "a10": (1, 23028),
    }
    assert found["a10"].taints == (Taint(key="subak.io/shared", value="true", effect="NoSchedule"),)
    assert [each.zone for each in found["c500"].devices] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert len({each.pcie for each in found["c500"].devices}) == 2


def test_a_file_describes_nodes(tmp_path: Path) -> None:
    (node,) = described(
        """
        nodes:
        - name: lab
          cards: {vendor: nvidia, model: Tesla T4, count: 4, memory: 15360Mi, shares: 4,
                  numa: [[0, 1], [2, 3]], links: [[2, 3]], unhealthy: [1]}
          speaks: [hami]
          cpu: 48
          memory: 192Gi
          labels: {rack: a1, "example.com/tier": ""}
          taints: ["a=b:NoSchedule", "c:NoExecute"]
        """,
        tmp_path,
    )
    assert (node.name, node.profile, node.cpu, node.memory) == ("lab", "custom", "48", "192Gi")
    assert node.labels == {"rack": "a1", "example.com/tier": ""}
    assert [(each.key, each.value, each.effect) for each in node.taints] == [
        ("a", "b", "NoSchedule"),
        ("c", "", "NoExecute"),
    ]
    cards = node.devices
    assert {(each.model, each.memory_bytes, each.slots) for each in cards} == {("NVIDIA-Tesla T4", 15360 * MIB, 4)}
    assert [each.numa for each in cards] == [0, 0, 1, 1]
    assert [each.healthy for each in cards] == [True, False, True, True]
    assert cards[2].links == {cards[0].id: 10, cards[1].id: 10, cards[3].id: 150}


def test_nodes_are_numbered_where_a_count_is_given() -> None:
    assert [each.name for each in machines({"profile": "shared", "count": 3})] == ["a10-1", "a10-2", "a10-3"]
    assert [each.name for each in machines({"profile": "shared", "count": 1})] == ["a10-1"]
    assert [each.name for each in machines({"profile": "shared", "name": "lab"})] == ["lab"]


def test_what_is_said_beside_a_profile_goes_first() -> None:
    node = machine("koordinator", cards={"count": 4}, cpu=8)
    assert (len(node.devices), node.devices[0].memory_bytes, node.cpu) == (4, 23040 * MIB, "8")


def test_cards_have_the_same_ids_in_every_run_and_no_two_the_same() -> None:
    first, again = (machines({"profile": "shared", "count": 5}) for _ in range(2))
    ids = [card.id for node in first for card in node.devices]
    assert ids == [card.id for node in again for card in node.devices]
    assert len(set(ids)) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "hardware.yaml: the file: None must be a mapping with nodes"),
        ("nodes: []", "hardware.yaml: nodes: [] must be a list of nodes, such as [{profile: koordinator}]"),
        ("nodes: [{profile: p41}]", "nodes[0].profile: 'p41' must be one of volcano, koordinator, moore-threads"),
        ("nodes: [{profile: shared, card: 1}]", "nodes[0].card: 1 is unknown: use name, count, profile, cards"),
        ("node: []", "hardware.yaml: node: [] is unknown: use nodes"),
        ("nodes: [{profile: shared}, {profile: shared}]", "nodes[1].name: 'a10' is the name of an earlier node too"),
        ("nodes: [{profile: shared, name: A10}]", "nodes[0].name: 'A10' must be a name of lower-case letters"),
        ("nodes: [{profile: shared, count: 0}]", "nodes[0].count: 0 must be a whole number from 1 to 100,000"),
        ("nodes: [{profile: shared, count: true}]", "nodes[0].count: True must be a whole number"),
        ("nodes: [{profile: shared, cards: 3}]", "nodes[0].cards: 3 must be a mapping with vendor, model"),
        ("nodes: [{profile: shared, memory: 4XB}]", "nodes[0].memory: '4XB' must be an amount above 0, such as 256Gi"),
        ("nodes: [{profile: shared, labels: {a: 1}}]", "nodes[0].labels[a]: 1 must be a text: put it in quotes"),
        ("nodes: [{profile: shared, labels: {subak.io/profile: x}}]", "labels[subak.io/profile]: 'x' has a bad key"),
        ("nodes: [{profile: shared, labels: {a: 'b c'}}]", "nodes[0].labels[a]: 'b c' is no label"),
        ("nodes: [{profile: shared, taints: ['a=b']}]", "nodes[0].taints: 'a=b' is no taint: write key=value:NoSched"),
        (
            "nodes: [{profile: shared, speaks: []}]",
            "speaks: [] must name one or more of hami, koordinator, volcano, volcano-vgpu",
        ),
        ("nodes: [{profile: moore-threads, speaks: [volcano]}]", "speaks: ['volcano'] must name one or more of hami"),
        ("nodes: [{profile: shared, speaks: [hami, hami]}]", "speaks: ['hami', 'hami'] has an entry twice"),
        ("nodes: [{profile: iluvatar-bi-v150, cards: {model: X}}]", "must name one or more of hami-legacy for iluvat"),
        ("nodes: [{profile: shared, profile: shared}]", "hardware.yaml:1: key 'profile' is given twice: remove one"),
        ("nodes: " + "[" * 100_000, "hardware.yaml:1:107: not valid YAML: exceeded max depth of 100"),
        (BOMB, "not valid YAML: document contains excessive aliasing"),
        ("nodes: [", "hardware.yaml:2:1: not valid YAML: did not find expected node content"),
    ],
)
def test_a_bad_description_is_refused_with_field_value_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    said = complaint(tmp_path, text)
    assert said.startswith("hardware.yaml:")
    assert expected in said


@pytest.mark.parametrize(
    ("profile", "cards", "expected"),
    [
        ("shared", {"memory": "100"}, "cards.memory: '100' must be a whole number of MiB up to 16Ti, such as 24Gi"),
        ("shared", {"memory": 0}, "cards.memory: 0 must be an amount above 0, such as 23040Mi"),
        ("shared", {"memory": "17Ti"}, "cards.memory: '17Ti' must be a whole number of MiB up to 16Ti"),
        ("moore-threads", {"memory": "100Mi"}, "cards.memory: '100Mi' must be a whole number of blocks of 512 MiB"),
        ("metax-gpu", {"memory": "32Gi"}, "cards.memory: '32Gi' must be 64Gi: MetaX's plugin does not tell the size"),
        ("shared", {"vendor": "voodoo"}, "cards.vendor: 'voodoo' must be one of nvidia, iluvatar, mthreads, metax"),
        ("shared", {"count": 1025}, "cards.count: 1025 must be a whole number from 1 to 1,024"),
        ("shared", {"mode": "whole"}, "cards.mode: 'whole' is for metax cards only: remove it"),
        ("metax-gpu", {"mode": "half"}, "cards.mode: 'half' must be one of sgpu, whole"),
        ("moore-threads", {"shares": 4}, "cards.shares: 4 cannot be chosen for these plugins: remove it"),
        (
            "koordinator",
            {"numa": [0, 1]},
            "cards.numa: [0, 1] must be a list of groups of card numbers, such as [[0, 1]",
        ),
        (
            "koordinator",
            {"links": [[0, 2]]},
            "cards.links: [0, 2] must be a list of card numbers from 0 to 1, each once",
        ),
        (
            "koordinator",
            {"links": [[0], [0]]},
            "cards.links: [0, 0] must be a list of card numbers from 0 to 1, each once",
        ),
        ("koordinator", {"unhealthy": 1}, "cards.unhealthy: 1 must be a list of card numbers from 0 to 1, each once"),
        ("metax-gpu", {"unhealthy": [0]}, "cards.unhealthy: [0] must be [7]: MetaX's plugin tells only how many cards"),
        ("koordinator", {"unhealthy": [True]}, "cards.unhealthy: [True] must be a list of card numbers"),
        ("shared", {"model": "A:10"}, "cards.model: 'A:10' must be a text of up to 63 letters without ',', ':'"),
        ("shared", {"memmory": "1Gi"}, "cards.memmory: '1Gi' is unknown: use vendor, model, count, memory, shares"),
    ],
)
def test_bad_cards_are_refused_with_field_value_and_remedy(profile: str, cards: Any, expected: str) -> None:
    with pytest.raises(BadDescription) as error:
        machine(profile, cards=cards)
    assert f"hardware.yaml: nodes[0].{expected}" in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadDescription, match="missing.yaml: cannot be read: No such file or directory"):
        profiles.read(tmp_path / "missing.yaml", INTERPRETER)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadDescription, match="binary.yaml: cannot be read: it is not UTF-8 text"):
        profiles.read(tmp_path / "binary.yaml", INTERPRETER)


def test_a_thousand_nodes_are_described_in_one_line() -> None:
    found = machines({"profile": "volcano", "count": 1000})
    assert (len(found), len({card.id for node in found for card in node.devices})) == (1000, 8000)


def test_the_shares_of_a_card_follow_the_plugin_that_is_believed_first() -> None:
    slots = {
        tuple(speaks): machine(name="n", cards=CARDS, speaks=list(speaks)).devices[0].slots
        for speaks in (("hami",), ("volcano",), ("koordinator",), ("volcano", "koordinator"), ("koordinator", "hami"))
    }
    assert slots == {
        ("hami",): 10,
        ("volcano",): 24 * 1024,
        ("koordinator",): 100,
        ("volcano", "koordinator"): 100,
        ("koordinator", "hami"): 10,
    }
