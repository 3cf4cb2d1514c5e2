"""Amounts that cannot be meant get one treatment in all dialects: refused at admission with field, value and remedy."""

from __future__ import annotations

import pytest

from subak.dialects.interpreter import Interpreter
from subak.model.reason import Refusal
from tests.dialects.manifests import Limits, pod

SPEAKS = Interpreter()

CARDS: dict[str, Limits] = {
    "nvidia.com/gpu": {},
    "volcano.sh/gpu-number": {},
    "volcano.sh/vgpu-number": {},
    "iluvatar.ai/vgpu": {},
    "iluvatar.ai/BI-V150-vgpu": {},
    "mthreads.com/vgpu": {},
    "metax-tech.com/sgpu": {},
    "metax-tech.com/gpu": {},
    "koordinator.sh/gpu.shared": {"koordinator.sh/gpu-memory": "1Ti"},
    "amd.com/gpu": {},
}
"""The resources that count cards, with what must stand beside them."""

MEMORY: dict[str, Limits] = {
    "nvidia.com/gpumem": {"nvidia.com/gpu": 1},
    "volcano.sh/gpu-memory": {},
    "volcano.sh/vgpu-memory": {"volcano.sh/vgpu-number": 1},
    "iluvatar.ai/vcuda-memory": {"iluvatar.ai/vgpu": 1},
    "iluvatar.ai/BI-V150.vMem": {"iluvatar.ai/BI-V150-vgpu": 1},
    "mthreads.com/sgpu-memory": {"mthreads.com/vgpu": 1},
}
"""The resources that count units of memory."""

CORES: dict[str, Limits] = {
    "nvidia.com/gpucores": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000},
    "volcano.sh/vgpu-cores": {"volcano.sh/vgpu-number": 1},
    "iluvatar.ai/vcuda-core": {"iluvatar.ai/vgpu": 1},
    "iluvatar.ai/BI-V150.vCore": {"iluvatar.ai/BI-V150-vgpu": 1},
    "mthreads.com/sgpu-core": {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32},
    "metax-tech.com/vcore": {"metax-tech.com/sgpu": 1},
}

PERCENT: dict[str, Limits] = {
    "nvidia.com/gpumem-percentage": {"nvidia.com/gpu": 1},
    "volcano.sh/vgpu-memory-percentage": {"volcano.sh/vgpu-number": 1},
    "koordinator.sh/gpu-memory-ratio": {},
    "koordinator.sh/gpu": {},
}


def refusal(limits: Limits) -> Refusal:
    with pytest.raises(Refusal) as caught:
        SPEAKS.admit(pod(limits))
    return caught.value


@pytest.mark.parametrize("name", CARDS | MEMORY | CORES | PERCENT)
@pytest.mark.parametrize("amount", ["-1", "0.5", "500m", "lots"])
def test_what_is_no_whole_number_is_refused_by_field(name: str, amount: str) -> None:
    beside = (CARDS | MEMORY | CORES | PERCENT)[name]
    found = refusal({**beside, name: amount})
    assert (found.field.endswith(f"[{name}]"), found.value) == (True, amount)
    assert any(word in found.message for word in ("whole number", "must", "valid values"))


@pytest.mark.parametrize("name", CARDS)
def test_more_cards_than_any_node_has(name: str) -> None:
    found = refusal({**CARDS[name], name: 1_025})
    assert "asks for 1,025 cards; no node has more than 1,024" in found.message
    assert f"{name}=1025" in found.value


@pytest.mark.parametrize("name", MEMORY)
@pytest.mark.parametrize("amount", ["1Mi", "8192Mi", "1Gi", "8G"])
def test_bytes_where_units_are_counted(name: str, amount: str) -> None:
    found = refusal({**MEMORY[name], name: amount})
    assert (found.field.endswith(f"[{name}]"), found.value) == (True, amount)
    assert "give" in found.message or "valid values" in found.message


@pytest.mark.parametrize(("name", "most"), [(name, 16 if "mthreads" in name else 100) for name in CORES])
def test_more_cores_than_a_card_has(name: str, most: int) -> None:
    found = refusal({**CORES[name], name: most + 1})
    assert (found.field.endswith(f"[{name}]"), found.value) == (True, str(most + 1))
    assert found.message == f"{name} is {most + 1}, but a card has {most}: give at most {most}"
    SPEAKS.admit(pod({**CORES[name], name: most}))


@pytest.mark.parametrize("name", PERCENT)
def test_more_than_all_of_a_card(name: str) -> None:
    assert any(word in refusal({**PERCENT[name], name: 150}).message for word in ("100", "whole cards"))


@pytest.mark.parametrize(
    ("limits", "field", "message"),
    [
        (
            {"volcano.sh/gpu-memory": 1000, "volcano.sh/gpu-number": 1},
            "volcano.sh/gpu-number",
            "keep to one of them in all containers",
        ),
        ({"koordinator.sh/gpu-memory": 8192}, "koordinator.sh/gpu-memory", "add a suffix, as in 1024Mi"),
        (
            {"volcano.sh/vgpu-number": 0, "volcano.sh/vgpu-cores": 10},
            "volcano.sh/vgpu-number",
            "although a part of a card is asked for: give 1 or more",
        ),
    ],
)
def test_amounts_that_contradict_each_other(limits: Limits, field: str, message: str) -> None:
    found = refusal(limits)
    assert found.field.endswith(f"[{field}]")
    assert message in found.message


def test_cores_of_two_cards_on_one() -> None:
    """Koordinator's webhook spreads an app container over two cards, but leaves init containers as they are."""
    amounts: Limits = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory": "64Gi"}
    assert SPEAKS.request(SPEAKS.admit(pod(amounts))).claims[0].count == 2
    with pytest.raises(Refusal, match="gpu-core is 200 on each card, but a card has 100: spread it over more with"):
        SPEAKS.admit(pod({"cpu": 1}, init=[amounts]))
