"""Agents that have died: what a node must show before it gets no new pods, and what proves nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from subak.dialects import agent
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node

INTERPRETER = Interpreter()
NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC).timestamp()


def requesting(age: float) -> str:
    """What a scheduler of HAMi wrote so many seconds ago."""
    return f"Requesting_{datetime.fromtimestamp(NOW - age, UTC):%Y-%m-%d %H:%M:%S}"


def seen(allocatable: dict[str, Any], annotations: dict[str, str], now: float | None = NOW) -> tuple[Node, list[str]]:
    content = {
        "metadata": {"name": "n1", "annotations": annotations},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4", **allocatable}},
    }
    return INTERPRETER.node(msgspec.convert(content, manifest.Node), now=now)


def nvidia(allocatable: Any, handshake: str | None, now: float | None = NOW, health: bool = True) -> Node:
    card = {"id": "GPU-a", "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "health": health}
    annotations = {"hami.io/node-nvidia-register": json.dumps([card])}
    if handshake is not None:
        annotations["hami.io/node-handshake"] = handshake
    return seen({} if allocatable is None else {"nvidia.com/gpu": allocatable}, annotations, now)[0]


class TestNvidia:
    @pytest.mark.parametrize("allocatable", [0, "0", None])
    def test_nothing_allocatable_and_a_minute_without_answer_is_death(self, allocatable: Any) -> None:
        node = nvidia(allocatable, requesting(61))
        assert node.dead == {
            "hami-nvidia": "agent dead: 0 nvidia.com/gpu allocatable beside 1 registered card, hami.io/node-handshake "
            "unanswered for more than 60 s; restart it on the node"
        }
        assert node.doubtful_until is None

    def test_the_cards_stay_so_that_running_pods_count(self) -> None:
        assert nvidia(0, requesting(61)).devices == nvidia(10, requesting(61)).devices
        assert "hami-nvidia" in nvidia(0, requesting(61)).offers

    def test_within_the_minute_it_is_told_when_to_look_again(self) -> None:
        node = nvidia(0, requesting(60))
        assert not node.dead
        assert node.doubtful_until == NOW
        assert nvidia(0, requesting(60), now=NOW + 0.001).dead

    def test_without_a_clock_nobody_dies_of_silence(self) -> None:
        node = nvidia(0, requesting(3600), now=None)
        assert not node.dead
        assert node.doubtful_until == NOW - 3600 + 60

    def test_an_old_request_alone_is_no_death(self) -> None:
        node = nvidia(10, requesting(86_400))
        assert (node.dead, node.doubtful_until) == ({}, None)

    @pytest.mark.parametrize(
        "handshake", [None, "", "Reported 2024.01.02", "Deleted_2024-01-02 00:00:00", "Requesting_soon", requesting(-9)]
    )
    def test_anything_but_an_old_request_means_nothing(self, handshake: str | None) -> None:
        assert not nvidia(0, handshake).dead

    def test_a_node_whose_cards_are_all_broken_has_none_allocatable_either(self) -> None:
        node = nvidia(0, requesting(61), health=False)
        assert not node.dead

    def test_what_cannot_be_read_proves_nothing(self) -> None:
        assert not nvidia("many", requesting(61)).dead

    def test_the_administrator_is_told(self) -> None:
        card = {"id": "GPU-a", "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "health": True}
        keys = {"hami.io/node-nvidia-register": json.dumps([card]), "hami.io/node-handshake": requesting(61)}
        _, (warning,) = seen({"nvidia.com/gpu": 0}, keys)
        assert warning.startswith("node n1: hami-nvidia: agent dead: 0 nvidia.com/gpu allocatable")
        assert warning.endswith("no new pods")


def iluvatar(allocatable: dict[str, Any], handshake: str | None = None) -> Node:
    annotations = {
        "hami.io/node-MR-V100-register": "IX-0,10,32768,100,MR-V100,0,true:IX-1,10,32768,100,MR-V100,0,true:"
    }
    if handshake is not None:
        annotations["hami.io/node-handshake-MR-V100"] = handshake
    return seen(allocatable, annotations)[0]


class TestIluvatar:
    VGPU, CORES = "iluvatar.ai/MR-V100-vgpu", "iluvatar.ai/MR-V100.vCore"

    def test_allocatable_that_fell_to_0_beside_a_register_is_death(self) -> None:
        assert iluvatar({self.VGPU: 0}).dead == {
            "hami-iluvatar-MR-V100": f"agent dead: 0 {self.VGPU} allocatable beside 2 registered cards; "
            "restart it on the node"
        }

    def test_who_still_publishes_lives_however_old_the_request(self) -> None:
        assert not iluvatar({self.VGPU: 20}, requesting(86_400)).dead

    def test_an_agent_that_never_published_a_number_is_judged_by_what_it_publishes(self) -> None:
        assert not iluvatar({}).dead
        assert not iluvatar({self.CORES: 200}).dead
        assert iluvatar({self.CORES: 0}).dead

    def test_hamis_rule_holds_too(self) -> None:
        assert iluvatar({}, requesting(61)).dead
        assert not iluvatar({}, requesting(59)).dead
        assert not iluvatar({}, "Reported 2026-11-15 11:00:00").dead


class TestVolcanoVgpu:
    def vgpu(self, allocatable: dict[str, Any], health: str = "true") -> Node:
        register = f"GPU-a,10,16384,NVIDIA-T4,{health},hami-core:"
        return seen(allocatable, {"volcano.sh/node-vgpu-register": register})[0]

    def test_allocatable_that_fell_to_0_beside_a_register_is_death(self) -> None:
        assert self.vgpu({"volcano.sh/vgpu-number": 0}).dead == {
            "volcano-vgpu": "agent dead: 0 volcano.sh/vgpu-number allocatable beside 1 registered card; "
            "restart it on the node"
        }

    def test_a_register_alone_is_no_death(self) -> None:
        assert not self.vgpu({}).dead
        assert not self.vgpu({"volcano.sh/vgpu-number": 10}).dead
        assert not self.vgpu({"volcano.sh/vgpu-number": 0}, health="false").dead


def test_dialects_on_one_node_die_each_for_itself() -> None:
    card = {"id": "GPU-a", "count": 10, "devmem": 16384, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    keys = {
        "hami.io/node-nvidia-register": json.dumps([card]),
        "hami.io/node-handshake": requesting(61),
        "volcano.sh/node-vgpu-register": "GPU-a,10,16384,NVIDIA-T4,true,hami-core:",
    }
    node, _ = seen({"nvidia.com/gpu": 10, "volcano.sh/vgpu-number": 0}, keys)
    assert list(node.dead) == ["volcano-vgpu"]
    node, _ = seen({"nvidia.com/gpu": 0, "volcano.sh/vgpu-number": 10}, keys)
    assert list(node.dead) == ["hami-nvidia"]


def test_the_time_is_read_as_utc() -> None:
    assert agent.unanswered_after("Requesting_1970-01-01 00:00:00") == agent.PATIENCE_S
