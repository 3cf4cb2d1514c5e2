"""What pods ask for and hold in one account for all dialects, and users' names for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from subak.batch.dimensions import Dimensions
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import MIB
from subak.model.node import Node
from subak.model.placement import Placement
from subak.policy.decider import Decider
from tests.support.cards import device
from tests.support.world import INTERPRETER, KINDS, make, pods

GIB = 1024 * MIB


def cluster(*nodes: Node) -> tuple[Decider, Dimensions]:
    decider = Decider(Interpreter(), nodes)
    return decider, Dimensions(decider.interpreter, decider.snapshot)


def all_cards(name: str = "n") -> Node:
    """Cards of all vendors that dialects speak of."""
    cards = [
        device(0),
        device(1),
        device(2, id="IX", family="iluvatar", model="MR-V100", mib=32_768),
        device(3, id="MT", family="mthreads", cores=16, mib=49_152),
        device(4, id="MX", family="metax", mib=65_536, mode="sgpu"),
    ]
    offers = frozenset(each.name for each in INTERPRETER.dialects)
    return Node(name, tuple(cards), offers, allocatable={"cpu": 64_000, "memory": 512 * GIB, "pods": 110})


def pod(limits: dict[str, Any], **more: Any) -> manifest.Pod:
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], **more}
    content = {"metadata": {"name": "p", "uid": "u"}, "spec": spec}
    return INTERPRETER.admit(msgspec.convert(content, manifest.Pod))


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"cpu": "1500m", "memory": "1Gi"}, {"cpu": 1500, "memory": GIB}),
        ({"volcano.sh/gpu-memory": 4000}, {"nvidia/memory": 4000 * MIB}),
        ({"volcano.sh/gpu-number": 2}, {"nvidia/memory": 32_000 * MIB, "nvidia/cores": 200, "nvidia/cards": 2}),
        (
            {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30},
            {"nvidia/memory": 8000 * MIB, "nvidia/cores": 60, "nvidia/slots": 2},
        ),
        (
            {"nvidia.com/gpu": 1},
            {"nvidia/memory": 16_000 * MIB, "nvidia/cores": 100, "nvidia/slots": 1, "nvidia/cards": 1},
        ),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 25},
            {"nvidia/memory": 4000 * MIB, "nvidia/slots": 1},
        ),
        ({"koordinator.sh/gpu": 50}, {"nvidia/memory": 8000 * MIB, "nvidia/cores": 50}),
        ({"iluvatar.ai/vgpu": 1, "iluvatar.ai/vcuda-memory": 4}, {"iluvatar/memory": GIB, "iluvatar/slots": 1}),
        (
            {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 4},
            {"mthreads/memory": 16 * GIB, "mthreads/cores": 4, "mthreads/slots": 1},
        ),
        (
            {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4, "metax-tech.com/vcore": 10},
            {"metax/memory": 4 * GIB, "metax/cores": 10, "metax/slots": 1},
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_a_pod_asks_for_is_what_it_holds_when_it_is_placed(limits: dict[str, Any], asked: dict[str, Any]) -> None:
    decider, dimensions = cluster(all_cards())
    wish = pod(limits)
    request = decider.request(wish)
    assert dimensions.asked(request) == {"pods": 1, **asked}
    answer = decider.decide("default", request)
    assert isinstance(answer, Placement)
    decider.assume("default/p", wish, request, answer)
    assert dimensions.held("default/p") == {"pods": 1, **asked}


def test_nobody_holds_what_was_not_booked() -> None:
    assert cluster(all_cards())[1].held("default/nobody") is None


def test_init_containers_count_with_those_that_run_beside_them_only() -> None:
    decider, dimensions = cluster(all_cards())

    def container(name: str, mib: int, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {"volcano.sh/gpu-memory": mib}}, **more}

    early = [container("sidecar", 1000, restartPolicy="Always"), container("init", 5000)]
    wish = pod({"volcano.sh/gpu-memory": 3000}, initContainers=early)
    assert dimensions.asked(decider.request(wish))["nvidia/memory"] == 6000 * MIB


def test_percents_are_estimated_anew_when_other_cards_are_usual() -> None:
    decider, dimensions = cluster(all_cards())
    request = decider.request(pod({"koordinator.sh/gpu-memory-ratio": 50}))
    assert dimensions.asked(request)["nvidia/memory"] == 8000 * MIB
    large = tuple(device(i, id=f"L{i}", mib=80_000) for i in range(4))
    decider.snapshot.put([Node("large", large, frozenset({"koordinator"}))])
    assert dimensions.asked(request)["nvidia/memory"] == 40_000 * MIB


def test_what_a_pod_holds_on_a_node_that_is_gone_still_counts() -> None:
    decider, dimensions = cluster(all_cards())
    wish = pod({"volcano.sh/gpu-memory": 4000})
    request = decider.request(wish)
    answer = decider.decide("default", request)
    assert isinstance(answer, Placement)
    decider.assume("default/p", wish, request, answer)
    decider.snapshot.remove("n")
    assert dimensions.held("default/p") == {"pods": 1, "nvidia/memory": 4000 * MIB}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"cpu": "500m", "memory": "1Gi", "pods": 3}, {"cpu": 500, "memory": GIB, "pods": 3}),
        ({"volcano.sh/gpu-memory": 1000, "volcano.sh/gpu-number": 2}, {"nvidia/memory": 1000 * MIB, "nvidia/cards": 2}),
        ({"volcano.sh/vgpu-number": 4, "volcano.sh/vgpu-cores": 150}, {"nvidia/slots": 4, "nvidia/cores": 150}),
        ({"nvidia.com/gpu": 4, "nvidia.com/gpumem": 1000}, {"nvidia/slots": 4, "nvidia/memory": 1000 * MIB}),
        ({"nvidia.com/gpumem-percentage": 200}, {"nvidia/memory": 32_000 * MIB}),
        ({"koordinator.sh/gpu": 200}, {"nvidia/cores": 200, "nvidia/memory": 32_000 * MIB}),
        ({"kubernetes.io/gpu-memory": "8Gi"}, {"nvidia/memory": 8 * GIB}),
        ({"iluvatar.ai/MR-V100.vMem": 4}, {"iluvatar/memory": GIB}),
        ({"mthreads.com/sgpu-memory": 2, "mthreads.com/sgpu-core": 16}, {"mthreads/memory": GIB, "mthreads/cores": 16}),
        ({"metax-tech.com/gpu": 2, "metax-tech.com/vmemory": 3}, {"metax/cards": 2, "metax/memory": 3 * GIB}),
        ({"volcano.sh/gpu-memory": 1000, "nvidia.com/gpumem": 500}, {"nvidia/memory": 1500 * MIB}),
        ({"volcano.sh/gpu-memory": 0}, {"nvidia/memory": 0}),
        ({"requests.cpu": 5, "count/pods": 1, "limits.memory": "1Gi"}, {}),
    ],
    ids=lambda value: ",".join(value) or "nothing",
)
def test_users_names_become_ours(written: dict[str, Any], meant: dict[str, Any]) -> None:
    _, dimensions = cluster(all_cards())
    assert dimensions.read(written, "queue q") == (meant, [])


@pytest.mark.parametrize(
    ("written", "warning"),
    [
        ({"nvidia.com/gpumen": 4}, "queue q: no dialect has a resource nvidia.com/gpumen, and no node has any of it"),
        ({"cpu": "much"}, "queue q: cpu: 'much' is not a quantity"),
        (
            {"volcano.sh/gpu-memory": "64Gi"},
            "queue q: volcano.sh/gpu-memory counts units of 1 MiB: for 64Gi give 6",
        ),
        ({"pods": 1, "nvidia.com/gpu": "2E"}, "queue q: nvidia.com/gpu: 2E is more than any cluster has"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_meant_is_ignored_with_a_warning(written: dict[str, Any], warning: str) -> None:
    found, warnings = cluster(all_cards())[1].read({**written, "pods": 1}, "queue q")
    assert found == {"pods": 1}
    assert len(warnings) == 1
    assert warnings[0].startswith(warning)


def test_a_resource_of_nodes_that_no_dialect_knows_counts_under_its_own_name() -> None:
    decider, dimensions = cluster()
    before = dimensions.version
    decider.snapshot.put([Node("n", allocatable={"cpu": 1000, "example.com/fpga": 8})])
    assert dimensions.version > before
    assert dimensions.read({"example.com/fpga": 2}, "queue q") == ({"example.com/fpga": 2}, [])
    assert dimensions.total["example.com/fpga"] == 8


def test_a_capability_of_no_cpu_or_memory_is_no_limit_but_one_of_no_cards_is() -> None:
    _, dimensions = cluster(all_cards())
    written: dict[str, manifest.Amount] = {"cpu": 0, "memory": 0, "volcano.sh/gpu-memory": 0}
    assert dimensions.limits(written, "queue q") == ({"nvidia/memory": 0}, [])


def test_amounts_are_said_in_users_words() -> None:
    _, dimensions = cluster(all_cards())
    amounts = {"cpu": 1500, "memory": GIB, "pods": 2, "nvidia/memory": 1000 * MIB, "nvidia/cards": 2, "amd/slots": 3}
    assert dimensions.write(amounts) == {
        "cpu": "1500m",
        "memory": "1Gi",
        "pods": "2",
        "volcano.sh/gpu-memory": "1000",
        "volcano.sh/gpu-number": "2",
    }


def test_the_words_that_a_user_has_used_are_used_for_the_answer() -> None:
    _, dimensions = cluster(all_cards())
    assert dimensions.write({"nvidia/memory": GIB}, ["nvidia.com/gpumem"]) == {"nvidia.com/gpumem": "1024"}
    assert dimensions.write({"nvidia/memory": GIB}, ["koordinator.sh/gpu-memory"]) == {
        "koordinator.sh/gpu-memory": str(GIB)
    }


def test_every_resource_of_every_dialect_that_counts_something_is_understood() -> None:
    uncounted = {"nvidia.com/priority", "koordinator.sh/gpu.shared", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"}
    spelled = {name for name in INTERPRETER.resources if name.rpartition("/")[2] in ("gpu-shared", "gpu.shared")}
    assert INTERPRETER.resources - INTERPRETER.measures.keys() == (uncounted | spelled)


@given(kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=3), asking=st.lists(pods(), max_size=6))
def test_nobody_holds_less_than_was_asked_where_cards_are_alike(kinds: list[int], asking: list[manifest.Pod]) -> None:
    """A MIG instance may be smaller than the card of which all was asked for; templates are larger than what was."""
    decider, dimensions = cluster(*(make(kinds[0], f"node-{i}") for i in range(len(kinds))))
    assume(not any(node.cut for node in decider.snapshot))
    for i, each in enumerate(asking):
        try:
            request = decider.request(decider.interpreter.admit(each))
        except ValueError:
            continue
        answer = decider.decide("default", request)
        if isinstance(answer, Placement):
            estimate = dimensions.asked(request)
            decider.assume(f"default/p{i}", each, request, answer)
            held = dimensions.held(f"default/p{i}") or {}
            alike = len({(card.memory_bytes, card.cores) for node in decider.snapshot for card in node.devices}) == 1
            if alike:
                less = {name: amount for name, amount in estimate.items() if held.get(name, 0) < amount}
                assert not less, (less, held)
