"""What a node publishes of its cards is what `sight` reads: for every dialect, whatever the cards."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, Published
from subak.dialects.interpreter import Interpreter
from subak.dialects.koordinator_names import MODEL, VENDOR
from subak.dialects.metax_gpu import MEMORY_MIB
from subak.dialects.stock import one_stock
from subak.model import manifest
from subak.model.device import MIB, Device, MigProfile
from subak.model.node import Node
from tests.support.fuzz import examples

Cards = list[Device]

NODE = "n1"
INTERPRETER = Interpreter()
PROFILE = MigProfile("1g.10gb", 9_856 * MIB, 14, ((0, 1), (1, 1)))

mebibytes = st.integers(1, 200_000).map(lambda amount: amount * MIB)
sizes = st.integers(1, 8)
percent = st.integers(1, 100)
slots = st.integers(2, 200)
numas = st.integers(0, 3)
models = st.sampled_from(["A10", "Tesla-P40", "MXC500"])


def ours(family: str, index: int) -> str:
    """The id of a card that no source names."""
    return f"{NODE}-{family}-{index}"


def each_its_own(card: Callable[[st.DrawFn, int], Device]) -> st.SearchStrategy[Cards]:
    """Cards of which no two need be alike."""

    @st.composite
    def cards(draw: st.DrawFn) -> Cards:
        return [card(draw, index) for index in range(draw(sizes))]

    return cards()


@st.composite
def alike(draw: st.DrawFn, family: str, block_mib: int, cores: int, model: str = "") -> Cards:
    """Equal cards without names, the last ones broken: all that sums can tell."""
    memory_bytes, count = draw(st.integers(1, 900)) * block_mib * MIB, draw(sizes)
    healthy = draw(st.integers(1, count))
    return [Device(ours(family, i), i, family, model, memory_bytes, cores, healthy=i < healthy) for i in range(count)]


def hami_nvidia(draw: st.DrawFn, index: int) -> Device:
    mig = draw(st.sampled_from([(), (PROFILE,)]))
    mode = "mig" if mig else draw(st.sampled_from(["hami-core", "mps"]))
    card = Device(f"GPU-{index}", index, "nvidia", draw(models), draw(mebibytes), draw(percent), draw(slots))
    return msgspec.structs.replace(card, numa=draw(numas), mode=mode, healthy=draw(st.booleans()), mig=mig)


def volcano_vgpu(draw: st.DrawFn, index: int) -> Device:
    card = Device(f"GPU-{index}", index, "nvidia", draw(models), draw(mebibytes), slots=draw(slots))
    return msgspec.structs.replace(card, mode=draw(st.sampled_from(["hami-core", "mps"])), healthy=draw(st.booleans()))


@st.composite
def volcano_share(draw: st.DrawFn) -> Cards:
    units = draw(st.integers(1, 90_000))
    return [
        Device(ours("nvidia", i), i, "nvidia", memory_bytes=units * MIB, slots=units, healthy=draw(st.booleans()))
        for i in range(draw(sizes))
    ]


def iluvatar(word: str) -> st.SearchStrategy[Cards]:
    def card(draw: st.DrawFn, index: int) -> Device:
        found = Device(f"GPU-{index}", index, "iluvatar", word, draw(mebibytes), draw(percent), draw(slots))
        return msgspec.structs.replace(found, numa=draw(numas), healthy=draw(st.booleans()))

    return each_its_own(card)


def metax_sgpu(draw: st.DrawFn, index: int) -> Device:
    card = Device(f"GPU-{index}", index, "metax", "", draw(mebibytes), draw(percent), draw(slots), mode="sgpu")
    qos = draw(st.sampled_from(["", "fixed-share"]))
    return msgspec.structs.replace(card, numa=draw(numas), healthy=draw(st.booleans()), qos=qos, zone=draw(numas))


@st.composite
def metax_gpu(draw: st.DrawFn) -> Cards:
    count = draw(sizes)
    healthy, groups = draw(st.integers(1, count)), draw(st.integers(1, 3))
    return [
        Device(
            ours("metax", i),
            i,
            "metax",
            memory_bytes=MEMORY_MIB * MIB,
            slots=1,
            healthy=i < healthy,
            zone=1 + i * groups // count if count >= groups else 0,
            pcie=draw(st.sampled_from(["", "pci0000:3a", "pci0001:3a"])),
        )
        for i in range(count)
    ]


def koordinator(draw: st.DrawFn, index: int) -> Device:
    family, model = draw(st.sampled_from(["nvidia", "metax", "cambricon"])), draw(models)
    card = Device(f"GPU-{index}", index, family, model, draw(st.integers(MIB, 1 << 40)), draw(percent), minor=index)
    labels = {VENDOR: family, MODEL: model}
    return msgspec.structs.replace(
        card, numa=draw(numas), pcie="pci0000:3a", healthy=draw(st.booleans()), labels=labels
    )


CARDS: dict[str, st.SearchStrategy[Cards]] = {
    "hami-nvidia": each_its_own(hami_nvidia),
    "volcano-vgpu": each_its_own(volcano_vgpu),
    "volcano-share": volcano_share(),
    "hami-iluvatar": alike("iluvatar", 256, 100),
    "hami-mthreads": alike("mthreads", 512, 16),
    "hami-metax-sgpu": each_its_own(metax_sgpu),
    "hami-metax-gpu": metax_gpu(),
    "koordinator": each_its_own(koordinator),
    **{f"hami-iluvatar-{word}": iluvatar(word) for word in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")},
}


def objects(said: Published) -> tuple[manifest.Node, manifest.Device | None]:
    """The objects of a node that says this."""
    content = {
        "metadata": {"name": NODE, "annotations": said.annotations, "labels": said.labels},
        "status": {"capacity": said.capacity, "allocatable": said.allocatable},
    }
    device = None if said.device is None else msgspec.convert(said.device, manifest.Device)
    return msgspec.convert(content, manifest.Node), device


@pytest.mark.parametrize("dialect", INTERPRETER.dialects, ids=lambda each: each.name)
@given(data=st.data())
@examples(quick=20, ci=200)
def test_a_node_reads_back_as_the_cards_that_it_published(dialect: Dialect, data: st.DataObject) -> None:
    cards = sorted(data.draw(CARDS[dialect.name]), key=lambda each: (each.family, each.index))
    sight = dialect.sight(*objects(dialect.publish(Node(NODE, tuple(cards)))))
    devices, warnings = one_stock(NODE, [sight])
    assert (list(devices), warnings, sight.warnings) == (cards, [], ())
    assert sight.source is dialect.agent.source


@pytest.mark.parametrize("dialect", INTERPRETER.dialects, ids=lambda each: each.name)
def test_cards_of_other_vendors_are_not_published(dialect: Dialect) -> None:
    said = dialect.publish(Node(NODE, (Device("GPU-0", 0, "nobody's", memory_bytes=MIB),)))
    assert not said.capacity
    assert not said.annotations
    assert not dialect.sight(*objects(said)).sightings
