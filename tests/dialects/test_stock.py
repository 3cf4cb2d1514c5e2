from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import MOST_CARDS, Sight, Sighting, Source
from subak.dialects.interpreter import Interpreter
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.node import Node

INTERPRETER = Interpreter()

HAMI, VGPU = "hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register"
NVIDIA_GPU, VOLCANO_MEMORY, VOLCANO_NUMBER = "nvidia.com/gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
MR_CORE, MR_MEMORY = "iluvatar.ai/MR-V100.vCore", "iluvatar.ai/MR-V100.vMem"
BI_CORE, BI_MEMORY = "iluvatar.ai/BI-V150.vCore", "iluvatar.ai/BI-V150.vMem"


BROKEN = {HAMI: "[{"}
"""A register that cannot be read."""


def register(*cards: Mapping[str, Any]) -> dict[str, str]:
    """HAMi's register of these cards, `{"id": ..., ...}`; what they do not say is that of a healthy card of 8 GiB."""
    usual = {"count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    return {HAMI: json.dumps([{**usual, "index": i, **card} for i, card in enumerate(cards)])}


def device_object(*cards: Mapping[str, Any]) -> manifest.Device:
    """Koordinator's Device object of these cards; `memory` is the card's."""
    entries = [
        {
            **{"type": "gpu", "minor": i, "health": True, "topology": {"nodeID": 1, "pcieID": "pci0"}},
            "resources": {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": card.get("memory", "8Gi")},
            **{name: value for name, value in card.items() if name != "memory"},
        }
        for i, card in enumerate(cards)
    ]
    return msgspec.convert({"metadata": {"name": "n1"}, "spec": {"devices": entries}}, manifest.Device)


def volcano(count: int, mib: int = 8192) -> dict[str, int]:
    """Volcano's capacity of so many cards of this size."""
    return {VOLCANO_MEMORY: count * mib, VOLCANO_NUMBER: count}


def vgpu(*ids: str) -> dict[str, str]:
    """Volcano's vGPU register of these cards."""
    return {VGPU: "".join(f"{id},7,8192,NVIDIA-T4,true,hami-core:" for id in ids)}


def seen(
    capacity: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    device: manifest.Device | None = None,
) -> tuple[Node, list[str]]:
    content = {
        "metadata": {"name": "n1", "annotations": dict(annotations or {})},
        "status": {"capacity": dict(capacity or {})},
    }
    return INTERPRETER.node(msgspec.convert(content, manifest.Node), device)


def named(devices: Sequence[Device]) -> list[tuple[str, int]]:
    return [(device.id, device.index) for device in devices]


class TestOneStock:
    def test_cards_that_hami_volcano_and_koordinator_describe_are_counted_once(self) -> None:
        node, warnings = seen(
            {NVIDIA_GPU: 20, **volcano(2)},
            {**register({"id": "GPU-a"}, {"id": "GPU-b"}), **vgpu("GPU-a", "GPU-b")},
            device_object({"id": "GPU-a"}, {"id": "GPU-b"}),
        )
        assert not warnings
        assert node.offers >= {"hami-nvidia", "volcano-share", "volcano-vgpu", "koordinator"}
        assert named(node.devices) == [("GPU-a", 0), ("GPU-b", 1)]
        assert {device.memory_bytes for device in node.devices} == {8192 * MIB}

    def test_each_source_adds_what_the_better_one_does_not_say(self) -> None:
        node, _ = seen({}, register({"id": "GPU-a"}), device_object({"id": "GPU-a", "minor": 0}))
        (device,) = node.devices
        assert (device.model, device.slots, device.mode) == ("NVIDIA-T4", 10, "hami-core")  # the register's
        assert (device.pcie, device.minor) == ("pci0", 0)  # the Device object's

    def test_the_register_is_believed_before_the_device_object_and_that_before_the_capacity(self) -> None:
        annotations, device = register({"id": "GPU-a", "index": 3, "numa": 0}), device_object({"id": "GPU-a"})
        node, _ = seen(volcano(1), annotations, device)
        assert [(each.index, each.slots, each.numa) for each in node.devices] == [(3, 10, 0)]
        node, _ = seen(volcano(1), {}, device)
        assert [(each.index, each.slots, each.numa) for each in node.devices] == [(0, 100, 1)]
        node, _ = seen(volcano(1))
        assert [(each.id, each.index, each.slots) for each in node.devices] == [("n1-nvidia-0", 0, 8192)]

    def test_a_source_without_ids_is_matched_by_index(self) -> None:
        """Volcano calls card 1 unhealthy: that is the one with index 1, wherever the register lists it."""
        cards = register({"id": "GPU-b", "index": 1}, {"id": "GPU-a", "index": 0})
        node, warnings = seen(volcano(2), {**cards, "volcano.sh/gpu-unhealthy-ids": "1"})
        assert not warnings
        assert [(each.id, each.healthy) for each in node.devices] == [("GPU-a", True), ("GPU-b", False)]

    def test_an_index_counts_for_more_than_the_place_in_a_list(self) -> None:
        broken_first = device_object({"minor": 1, "health": False}, {"minor": 0})
        node, warnings = seen({}, register({"id": "GPU-a"}, {"id": "GPU-b"}), broken_first)
        assert not warnings
        assert [(each.id, each.healthy) for each in node.devices] == [("GPU-a", True), ("GPU-b", False)]

    def test_a_source_that_knows_only_an_order_is_matched_by_id(self) -> None:
        node, warnings = seen({}, {**register({"id": "GPU-a"}, {"id": "GPU-b"}), **vgpu("GPU-b", "GPU-a")})
        assert not warnings
        assert named(node.devices) == [("GPU-a", 0), ("GPU-b", 1)]

    def test_vendors_stand_side_by_side(self) -> None:
        sgpu = [{"uuid": "MX-0", "totalDevCount": 4, "totalCompute": 100, "totalVRam": 100, "healthy": True}]
        node, warnings = seen(
            {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 96},
            {**register({"id": "GPU-a"}), "metax-tech.com/node-gpu-devices": json.dumps(sgpu)},
        )
        assert not warnings
        assert [(each.family, each.id) for each in node.devices] == [
            ("metax", "MX-0"),
            ("mthreads", "n1-mthreads-0"),
            ("nvidia", "GPU-a"),
        ]

    @given(
        count=st.integers(1, 4),
        sources=st.sets(st.sampled_from(["hami", "vgpu", "koordinator", "volcano"]), min_size=1),
    )
    def test_sources_that_agree_give_every_card_once_without_a_warning(self, count: int, sources: set[str]) -> None:
        ids = [f"GPU-{i}" for i in range(count)]
        annotations = {
            **(register(*({"id": id} for id in ids)) if "hami" in sources else {}),
            **(vgpu(*ids) if "vgpu" in sources else {}),
        }
        device = device_object(*({"id": id} for id in ids)) if "koordinator" in sources else None
        node, warnings = seen(volcano(count) if "volcano" in sources else {}, annotations, device)
        assert not warnings
        assert [each.index for each in node.devices] == list(range(count))
        assert {each.memory_bytes for each in node.devices} == {8192 * MIB}
        counted = [f"n1-nvidia-{i}" for i in range(count)]
        assert [each.id for each in node.devices] == (counted if sources == {"volcano"} else ids)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(Source),
                st.lists(
                    st.builds(
                        Sighting,
                        st.sampled_from(["nvidia", "metax"]),
                        st.none() | st.integers(0, 3),
                        st.none() | st.sampled_from(["a", "b", "c", "n1-nvidia-1"]),
                    ),
                    max_size=4,
                ),
                st.sampled_from(["", "X"]),
                st.sampled_from(["", "nvidia"]),
            ),
            max_size=4,
        )
    )
    def test_no_two_cards_have_the_same_id_or_index(self, drawn: list[tuple[Source, list[Sighting], str, str]]) -> None:
        sights = [Sight(True, source, tuple(cards), only=only, hidden=hidden) for source, cards, only, hidden in drawn]
        devices, _ = one_stock("n1", sights)
        for family in ("nvidia", "metax"):
            mine = [each for each in devices if each.family == family]
            assert len({each.id for each in mine}) == len({each.index for each in mine}) == len(mine)


class TestContradictions:
    def test_the_number_of_cards(self) -> None:
        node, warnings = seen(volcano(4), register({"id": "GPU-a"}))
        assert named(node.devices) == [("GPU-a", 0)]
        assert warnings == [
            "node n1: the register annotation lists 1 nvidia cards, the capacity 4; the first is believed"
        ]

    def test_a_card_that_the_better_source_does_not_know(self) -> None:
        node, warnings = seen({}, register({"id": "GPU-a"}), device_object({"id": "GPU-x"}))
        assert named(node.devices) == [("GPU-a", 0)]
        assert warnings == ["node n1: card GPU-x of the Device object is unknown to the register annotation; ignored"]

    def test_the_memory_of_a_card(self) -> None:
        node, warnings = seen({}, register({"id": "GPU-a"}), device_object({"id": "GPU-a", "memory": "16Gi"}))
        assert [each.memory_bytes for each in node.devices] == [8192 * MIB]
        assert warnings == [
            "node n1: card GPU-a has 8192 MiB by one source and 16384 MiB by the Device object; the first is believed"
        ]

    def test_an_average_contradicts_nobody(self) -> None:
        cards = register({"id": "GPU-a", "devmem": 8000}, {"id": "GPU-b", "devmem": 24000})
        node, warnings = seen(volcano(2, 16000), cards)
        assert not warnings
        assert [each.memory_bytes // MIB for each in node.devices] == [8000, 24000]

    def test_the_finer_memory_counts_where_both_are_the_same_in_mib(self) -> None:
        """81,251 MiB in the register, 192 KiB more in the Device object: the same card, measured better."""
        node, warnings = seen(
            {}, register({"id": "GPU-a", "devmem": 81251}), device_object({"id": "GPU-a", "memory": "83201216Ki"})
        )
        assert not warnings
        assert [each.memory_bytes for each in node.devices] == [83201216 * 1024]

    @pytest.mark.parametrize(
        ("register_says", "object_says"), [(True, True), (True, False), (False, True), (False, False)]
    )
    def test_a_card_that_anybody_calls_broken_is_not_used(self, register_says: bool, object_says: bool) -> None:
        cards, device = (
            register({"id": "GPU-a", "health": register_says}),
            device_object({"id": "GPU-a", "health": object_says}),
        )
        node, warnings = seen({}, cards, device)
        assert not warnings
        assert [each.healthy for each in node.devices] == [register_says and object_says]

    @pytest.mark.parametrize(
        ("one", "other", "cordoned"),
        [(True, False, True), (False, True, True), (None, True, True), (False, False, False)],
    )
    def test_a_card_that_anybody_cordons_is_cordoned(self, one: bool | None, other: bool, cordoned: bool) -> None:
        first = Sight(True, Source.REGISTER, (Sighting("nvidia", 0, "GPU-a", cordoned=one),))
        second = Sight(True, Source.DEVICE_OBJECT, (Sighting("nvidia", 0, "GPU-a", cordoned=other),))
        (device,), warnings = one_stock("n1", [second, first])
        assert not warnings
        assert device.cordoned is cordoned

    def test_a_card_that_is_listed_twice_counts_once_and_shifts_no_other(self) -> None:
        cards = register(
            {"id": "GPU-a", "index": 0}, {"id": "GPU-a", "index": 0, "devmem": 1}, {"id": "GPU-b", "index": 1}
        )
        node, warnings = seen({}, cards)
        assert warnings == ["node n1: card GPU-a is listed twice; the first entry counts"]
        assert [(each.id, each.index, each.memory_bytes // MIB) for each in node.devices] == [
            ("GPU-a", 0, 8192),
            ("GPU-b", 1, 8192),
        ]


class TestUnreadableRegister:
    """What running pods hold is written with the ids of the register: a card under another id would look free."""

    def test_cards_that_are_merely_counted_are_withheld(self) -> None:
        node, warnings = seen({NVIDIA_GPU: 20, **volcano(2)}, BROKEN)
        assert not node.devices
        assert len(warnings) == 2
        assert warnings[0].startswith(f"node n1: annotation {HAMI}: ")
        assert warnings[1] == "node n1: its nvidia cards are not used until the register can be read"

    def test_cards_with_ids_are_used(self) -> None:
        node, warnings = seen({**volcano(1)}, BROKEN, device_object({"id": "GPU-a"}))
        assert named(node.devices) == [("GPU-a", 0)]
        assert len(warnings) == 1
        node, _ = seen({}, {**BROKEN, **vgpu("GPU-a")})
        assert named(node.devices) == [("GPU-a", 0)]

    def test_a_device_object_without_ids_is_no_better_than_a_count(self) -> None:
        node, warnings = seen({}, BROKEN, device_object({"id": "GPU-a"}, {}))
        assert not node.devices
        assert warnings[-1] == "node n1: its nvidia cards are not used until the register can be read"

    def test_other_vendors_cards_are_used(self) -> None:
        capacity = {**volcano(2), "mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 96}
        node, _ = seen(capacity, BROKEN)
        assert [each.family for each in node.devices] == ["mthreads"]


class TestIluvatarModels:
    MR = "hami.io/node-MR-V100-register"
    BI = "hami.io/node-BI-V150-register"

    def shape(self, node: Node) -> list[tuple[str, int, str, int]]:
        return [(each.id, each.index, each.model, each.memory_bytes // MIB) for each in node.devices]

    def test_two_registers_tell_two_sets_of_cards(self) -> None:
        mr = "IX-0,4,32768,100,MR-V100,0,true,0,:IX-1,4,32768,100,MR-V100,0,true,1,:"
        node, warnings = seen({}, {self.MR: mr, self.BI: "IX-2,4,65536,100,BI-V150,0,true,2,:"})
        assert not warnings
        assert self.shape(node) == [
            ("IX-0", 0, "MR-V100", 32768),
            ("IX-1", 1, "MR-V100", 32768),
            ("IX-2", 2, "BI-V150", 65536),
        ]

    def test_registers_that_each_count_from_0_are_numbered_on(self) -> None:
        node, warnings = seen({}, {self.MR: "IX-0,4,1,100,MR-V100,0,true:", self.BI: "IX-1,4,2,100,BI-V150,0,true:"})
        assert not warnings
        assert self.shape(node) == [("IX-0", 0, "MR-V100", 1), ("IX-1", 1, "BI-V150", 2)]

    def test_the_capacities_of_two_models_add_up(self) -> None:
        node, warnings = seen({MR_CORE: 200, MR_MEMORY: 256, BI_CORE: 100, BI_MEMORY: 256})
        assert not warnings
        assert self.shape(node) == [
            ("n1-iluvatar-0", 0, "MR-V100", 32768),
            ("n1-iluvatar-1", 1, "MR-V100", 32768),
            ("n1-iluvatar-2", 2, "BI-V150", 65536),
        ]

    def test_a_model_with_a_register_stands_beside_one_that_is_counted(self) -> None:
        node, warnings = seen({BI_CORE: 100, BI_MEMORY: 256}, {self.MR: "IX-0,4,32768,100,MR-V100,0,true:"})
        assert not warnings
        assert self.shape(node) == [("IX-0", 0, "MR-V100", 32768), ("n1-iluvatar-1", 1, "BI-V150", 65536)]

    def test_the_older_names_count_the_same_cards(self) -> None:
        legacy = {"iluvatar.ai/vcuda-core": 300, "iluvatar.ai/vcuda-memory": 512}
        node, warnings = seen({MR_CORE: 200, MR_MEMORY: 256, BI_CORE: 100, BI_MEMORY: 256, **legacy})
        assert not warnings
        assert [each.model for each in node.devices] == ["MR-V100", "MR-V100", "BI-V150"]
        assert node.offers == {"hami-iluvatar", "hami-iluvatar-MR-V100", "hami-iluvatar-BI-V150"}

    def test_one_unreadable_register_withholds_the_cards_that_are_merely_counted(self) -> None:
        node, warnings = seen({BI_CORE: 100, BI_MEMORY: 256}, {self.MR: "garbage"})
        assert not node.devices
        assert warnings[-1] == "node n1: its iluvatar cards are not used until the register can be read"
        node, _ = seen({}, {self.MR: "garbage", self.BI: "IX-1,4,2,100,BI-V150,0,true:"})
        assert self.shape(node) == [("IX-1", 0, "BI-V150", 2)]


class TestNumbersThatCannotBe:
    @pytest.mark.parametrize(
        ("field", "amount", "named_as"),
        [
            ("devmem", -1, "memory_bytes of -1,048,576"),
            ("devmem", 2**24 + 1, "memory_bytes of 17,592,187,092,992"),
            ("count", -3, "slots of -3"),
            ("devcore", 2**24 + 1, "cores of 16,777,217"),
        ],
    )
    def test_a_card_beyond_reason_is_left_out_alone(self, field: str, amount: int, named_as: str) -> None:
        node, warnings = seen({}, register({"id": "GPU-a", field: amount}, {"id": "GPU-b"}))
        assert warnings == [f"node n1: card GPU-a: {named_as} cannot be true; the card is left out"]
        assert named(node.devices) == [("GPU-b", 1)]

    def test_the_largest_card_and_the_largest_node_that_can_be_are_used(self) -> None:
        node, warnings = seen({}, register({"id": "GPU-a", "devmem": 2**24, "count": 2**24, "devcore": 2**24}))
        assert not warnings
        assert named(node.devices) == [("GPU-a", 0)]
        node, warnings = seen({"mthreads.com/sgpu-core": 16 * MOST_CARDS, "mthreads.com/sgpu-memory": 96 * MOST_CARDS})
        assert not warnings
        assert len(node.devices) == MOST_CARDS

    def test_a_node_of_more_cards_than_can_be_has_none(self) -> None:
        for count in (MOST_CARDS + 1, 10**9):
            node, warnings = seen({"mthreads.com/sgpu-core": 16 * count, "mthreads.com/sgpu-memory": 96 * count})
            assert not node.devices
            assert warnings == [f"node n1: more than {MOST_CARDS:,} mthreads cards cannot be true; none is used"]
