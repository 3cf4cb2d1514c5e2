"""How cards look: what is full looks full, what is idle takes no room, and the width is the terminal's."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from subak.cli.drawing import Scene, draw
from subak.model.card import CardState
from subak.model.device import MIB, Device
from subak.model.node import Node
from subak.model.placement import Charge
from subak.node.usage import Use, Uses


def card(
    index: int = 0,
    used_mib: int = 0,
    cores: int = 0,
    slots: int = 0,
    *,
    tenant: str = "default/p",
    model: str = "A10",
    healthy: bool = True,
) -> CardState:
    device = Device(
        f"GPU-{index}", index, "nvidia", model, memory_bytes=1000 * MIB, cores=100, slots=10, healthy=healthy
    )
    held = {tenant: Charge(memory_bytes=used_mib * MIB, cores=cores, slots=slots)} if slots else {}
    return CardState.of(device, slots, used_mib * MIB, cores, held)


def drawn(*cards: CardState, uses: Uses | None = None, width: int | None = None, node: Node | None = None) -> list[str]:
    """The lines, on a terminal of this width or in a file."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=width is not None, color_system=None, soft_wrap=True)
    draw(console, [Scene(node or Node("n1"), cards)], uses)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("full", [card(0, 1000, 0, 1), card(0, 0, 100, 1), card(0, 0, 0, 10)])
def test_a_full_card_looks_full_whatever_fills_it(full: CardState) -> None:
    almost = drawn(card(used_mib=990, cores=99, slots=9))
    assert "·" not in drawn(full)[2]
    assert "·" in almost[2]


def test_memory_is_told_apart_from_what_else_fills_a_card() -> None:
    assert " █████▒▒▒▒▒▒▒············ " in drawn(card(used_mib=200, cores=50, slots=1))[2]


def test_whoever_holds_a_part_is_below_the_card_with_all_that_it_holds() -> None:
    assert drawn(card(used_mib=500, cores=30, slots=1)) == [
        "                                    MEMORY MiB   CORES  SLOTS",
        "n1",
        "  0  A10  ████████████············   500/1,000  30/100   1/10",
        "     default/p                             500      30      1",
    ]


def test_idle_cards_of_a_node_share_a_line() -> None:
    busy = card(2, 100, slots=1)
    lines = drawn(card(0), card(1), busy, *(card(index) for index in range(3, 8)))
    assert [line.split()[:3] for line in lines[2:]] == [
        ["0-1,3-7", "A10", "7"],
        ["2", "A10", lines[3].split()[2]],
        ["default/p", "100", "-"],
    ]
    assert [line.split()[0] for line in drawn(card(0), card(1, model="A30"))[2:]] == ["0", "1"]


@pytest.mark.parametrize(("fault", "word"), [({"healthy": False}, "unhealthy"), ({"cordoned": True}, "cordoned")])
def test_a_card_that_takes_nobody_new_is_neither_idle_nor_free(fault: dict[str, Any], word: str) -> None:
    broken = card(0, 100, slots=1)
    broken.device = msgspec.structs.replace(broken.device, **fault)
    _, _, shown, tenant, rest = drawn(broken, card(1))
    assert shown.split() == ["0", "A10", word, "100", "-", "1"]  # what is still held of it, and no more
    assert tenant.split() == ["default/p", "100", "-", "1"]
    assert rest.split()[:3] == ["1", "A10", "idle"]


def test_who_takes_no_slot_fills_none() -> None:
    shared = card(used_mib=100)
    shared.take(Charge(shares=12, memory_bytes=100 * MIB))
    assert drawn(shared)[2].split()[-1] == "0/10"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lines_take_the_width_of_the_terminal(width: int) -> None:
    lines = drawn(card(used_mib=100, slots=1, model="GeForce GTX 1080 Ti"), card(1), width=width)
    assert {len(line) for line in lines if line != "n1"} == {min(width, 100)}  # with the longest of bars


def test_a_long_name_keeps_the_columns_straight() -> None:
    lines = drawn(card(used_mib=100, slots=1, tenant=f"default/{'x' * 40}"), width=80)
    assert len(lines) == 4
    assert {len(line) for line in lines[2:]} == {80}
    lines = drawn(card(used_mib=100, slots=1, tenant=f"default/{'x' * 60}"), width=80)
    assert [line.split() for line in lines[3:]] == [[f"default/{'x' * 60}"], ["100", "-", "1"]]
    assert {len(line) for line in (lines[2], lines[4])} == {80}


def test_a_file_gets_the_same_on_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    narrow = drawn(card(used_mib=100, slots=1))
    monkeypatch.setenv("COLUMNS", "200")
    assert drawn(card(used_mib=100, slots=1)) == narrow


def test_what_is_used_has_columns_of_its_own_where_it_is_known() -> None:
    busy = card(used_mib=500, cores=30, slots=1)
    heading, _, whole, tenant = drawn(busy, uses={("GPU-0", "default/p"): Use(200 * MIB, 28)})
    assert heading.split() == ["MEMORY", "MiB", "CORES", "SLOTS", "USED", "MiB", "TIME", "%"]
    assert (whole.split()[-2:], tenant.split()[-2:]) == (["200", "28"], ["200", "28"])


@pytest.mark.parametrize(
    ("device", "labels", "expected"),
    [
        (Device("a", 0, "nvidia", "NVIDIA-Tesla P40"), {}, "Tesla P40"),
        (Device("a", 0, "metax"), {"metax-tech.com/gpu.product": "MXC500"}, "MXC500"),
        (Device("a", 0, "mthreads"), {"subak.io/mthreads-model": "MTT-S4000"}, "MTT-S4000"),
        (Device("a", 0, "nvidia"), {"node.koordinator.sh/gpu-model": "Tesla-P40"}, "Tesla-P40"),
        (Device("a", 0, "iluvatar"), {}, "iluvatar"),
    ],
)
def test_cards_carry_the_name_of_their_model(device: Device, labels: dict[str, str], expected: str) -> None:
    assert (
        drawn(CardState.of(device), node=Node("n1", labels=labels))[2].split("idle")[0].split(maxsplit=1)[1].strip()
        == expected
    )
