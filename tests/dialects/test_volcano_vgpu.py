"""Volcano's vGPU: slices of cards, read from and written for Volcano's own plugin."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, Published, Source
from subak.dialects.config import Volcano
from subak.dialects.hami import Held
from subak.dialects.stock import one_stock
from subak.dialects.volcano_vgpu import (
    ALLOCATED,
    CORES,
    MEMORY,
    NUMBER,
    PERCENTAGE,
    PODGROUP_POLICY,
    REGISTER,
    TO_ALLOCATE,
    VolcanoVgpu,
    decode,
)
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share, charges
from subak.model.reason import Refusal
from subak.model.request import BINPACK, FEWEST_TENANTS, HIGHEST_INDEX, MOST_MEMORY_USED, NUMA, SPREAD, Claim
from tests.dialects.manifests import annotated

NOW = 1593764466550835304
SECONDS = "1593764466"
CARD_POLICY = "hami.io/gpu-scheduler-policy"

vgpu: Dialect = VolcanoVgpu(Volcano())
tenfold: Dialect = VolcanoVgpu(Volcano(gpu_memory_factor=10))

Limits = dict[str, manifest.Amount]


def pod(
    *apps: Limits, init: tuple[Limits, ...] = (), annotations: dict[str, str] | None = None, sidecars: bool = False
) -> manifest.Pod:
    early = [container(f"init-{i}", limits, "Always" if sidecars else None) for i, limits in enumerate(init)]
    late = [container(f"app-{i}", limits) for i, limits in enumerate(apps)]
    return manifest.Pod(
        metadata=manifest.Metadata(name="p", uid="u", annotations=annotations),
        spec=manifest.PodSpec(containers=late, init_containers=early),
    )


def container(name: str, limits: Limits, restart_policy: str | None = None) -> manifest.Container:
    return manifest.Container(name=name, resources=manifest.Resources(limits=limits), restart_policy=restart_policy)


def registered(register: str | None, allocatable: int | str | None = None, **annotations: str) -> manifest.Node:
    given = {**annotations, **({} if register is None else {REGISTER: register})}
    amounts: Limits = {} if allocatable is None else {NUMBER: allocatable}
    return manifest.Node(
        metadata=manifest.Metadata(name="n", annotations=given), status=manifest.NodeStatus(allocatable=amounts)
    )


def node(*sizes: int) -> Node:
    """A node with cards of so many bytes."""
    cards = (Device(f"GPU-{i}", i, "nvidia", memory_bytes=size, slots=10) for i, size in enumerate(sizes))
    return Node("n", tuple(cards), frozenset({"volcano-vgpu"}))


def only(*apps: Limits, **annotations: str) -> Claim:
    (claim,) = vgpu.ask(pod(*apps, annotations=annotations)).claims
    return claim


# What is asked for


def test_slices_with_memory_and_cores_of_each() -> None:
    claim = only({NUMBER: 2, MEMORY: 3000, CORES: 30})
    assert (claim.count, claim.memory_bytes, claim.cores) == (2, 3000 * MIB, 30)
    assert claim.role is Role.APP


@pytest.mark.parametrize("part", [{MEMORY: 3000}, {PERCENTAGE: 50}, {CORES: 30}])
def test_a_size_without_a_number_means_one_slice(part: Limits) -> None:
    assert only(part).count == 1
    assert vgpu.admit(pod({}, part)).limits == {1: {NUMBER: "1"}}
    assert vgpu.admit(pod({**part, NUMBER: 2})).limits == {}


def test_without_memory_the_whole_of_each_card_is_meant() -> None:
    claim = only({NUMBER: 3, CORES: 100})
    cards = node(30000 * MIB, 20000 * MIB, 30000 * MIB).devices
    assert (claim.count, claim.cores) == (3, 100)
    assert [claim.memory_on(card) for card in cards] == [card.memory_bytes for card in cards]


def test_a_percentage_beats_an_amount_of_memory() -> None:
    claim = only({MEMORY: 1000, PERCENTAGE: 50})
    (card,) = node(30000 * MIB).devices
    assert claim.memory_on(card) == 15000 * MIB
    assert only({PERCENTAGE: 50}).memory_on(card) == 15000 * MIB
    assert only({MEMORY: 1000, PERCENTAGE: 0}).memory_on(card) == 1000 * MIB


def test_more_cores_than_a_card_has_mean_the_whole_card() -> None:
    assert only({NUMBER: 1, CORES: 250}).cores == 100


def test_init_containers_ask_too() -> None:
    claims = vgpu.ask(pod({NUMBER: 1}, init=({NUMBER: 2},))).claims
    assert [(claim.containers, claim.role, claim.count) for claim in claims] == [
        ((0,), Role.INIT, 2),
        ((1,), Role.APP, 1),
    ]


@pytest.mark.parametrize("limits", [{}, {NUMBER: 0}, {MEMORY: 0}, {NUMBER: 0, MEMORY: 0, CORES: 0}])
def test_nothing_is_asked_for_by_a_zero(limits: Limits) -> None:
    assert vgpu.ask(pod(limits)).claims == ()
    assert vgpu.admit(pod(limits)).limits == {}


@pytest.mark.parametrize("resource", [NUMBER, MEMORY, CORES, PERCENTAGE])
@pytest.mark.parametrize("amount", ["500m", -1, "1.5", "half"])
def test_an_amount_that_is_no_whole_number_is_refused(resource: str, amount: manifest.Amount) -> None:
    with pytest.raises(Refusal) as refusal:
        vgpu.admit(pod({NUMBER: 1, resource: amount}))
    assert refusal.value.field == f"spec.containers[0].resources.limits[{resource}]"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({NUMBER: 1, PERCENTAGE: 101}, "vgpu-memory-percentage is 101: give a whole number from 0 to 100"),
        ({NUMBER: 0, MEMORY: 100}, "vgpu-number is 0 although a part of a card is asked for"),
        ({MEMORY: "16Gi"}, "vgpu-memory counts MiB, so 16Gi means 17,179,869,184 MiB"),
    ],
)
def test_what_cannot_be_meant_is_refused(limits: Limits, message: str) -> None:
    for step in (vgpu.admit, vgpu.ask):
        with pytest.raises(Refusal, match=message):
            step(pod(limits))


def test_a_policy_for_pod_groups_that_nobody_knows_is_refused() -> None:
    for step in (vgpu.admit, vgpu.ask):
        with pytest.raises(Refusal, match="give 'spread', or remove it") as refusal:
            step(pod({NUMBER: 1}, annotations={PODGROUP_POLICY: "pack"}))
        assert refusal.value.field == f"metadata.annotations[{PODGROUP_POLICY}]"


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (None, (HIGHEST_INDEX,)),
        (BINPACK, (MOST_MEMORY_USED,)),
        (SPREAD, (FEWEST_TENANTS,)),
        ("binpack,numa", (MOST_MEMORY_USED, NUMA)),
    ],
)
def test_cards_are_ordered_as_volcano_does(policy: str | None, order: tuple[str, ...]) -> None:
    annotations = {} if policy is None else {CARD_POLICY: policy}
    assert only({NUMBER: 1}, **annotations).policy.order == order


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(Refusal, match="'best' is no policy"):
        vgpu.admit(pod({NUMBER: 1}, annotations={CARD_POLICY: "best"}))


def test_the_pod_chooses_its_node_policy() -> None:
    assert vgpu.ask(pod({NUMBER: 1})).node_policy == BINPACK
    spread = pod({NUMBER: 1}, annotations={"hami.io/node-scheduler-policy": "spread"})
    assert vgpu.ask(spread).node_policy == SPREAD


def test_the_pod_chooses_among_cards() -> None:
    selection = only(
        {NUMBER: 1},
        **{
            "volcano.sh/vgpu-use-gpuuuid": "GPU-1, GPU-2,",
            "volcano.sh/vgpu-nouse-gpuuuid": "GPU-2",
            "nvidia.com/use-gputype": "A100,h100",
            "nvidia.com/nouse-gputype": "pcie",
            "volcano.sh/vgpu-mode": "hami-core",
        },
    ).selection
    assert [id for id in ("GPU-0", "GPU-1", "GPU-2") if selection.admits_id(id)] == ["GPU-1"]
    models = ["NVIDIA-A100-SXM", "NVIDIA-H100-PCIe", "NVIDIA-T4"]
    assert [model for model in models if selection.admits_type(model)] == ["NVIDIA-A100-SXM"]
    assert selection.admits_mode("hami-core")
    assert not selection.admits_mode("mig")


def test_a_pod_that_mentions_no_vgpu_speaks_another_dialect() -> None:
    assert vgpu.speaks(pod({}, {CORES: 1}))
    assert not vgpu.speaks(pod({"volcano.sh/gpu-memory": 1}))


def test_a_quota_may_limit_memory_in_the_pods_units_and_cores() -> None:
    units = {name: (unit.memory, unit.factor) for name, unit in tenfold.quota_units.items()}
    assert units == {MEMORY: (True, 10), CORES: (False, 1)}


# What a node offers


def test_the_register_tells_each_card_with_its_own_size() -> None:
    text = "GPU-a,10,81920,NVIDIA-NVIDIA A100,true,hami-core:GPU-b,5,24576,NVIDIA-A10,false,mig,more:"
    sight = vgpu.sight(registered(text, **{"hami.io/device-cordon": "GPU-a"}), None)
    assert sight.offered
    assert sight.source is Source.REGISTER
    assert [sighting.index for sighting in sight.sightings] == [None, None]
    (first, second), warnings = one_stock("n", [sight])
    assert not warnings
    assert (first.id, first.index, first.slots, first.memory_bytes) == ("GPU-a", 0, 10, 81920 * MIB)
    assert (first.model, first.mode, first.healthy, first.cordoned) == ("NVIDIA-NVIDIA A100", "hami-core", True, True)
    assert (second.id, second.index, second.slots, second.memory_bytes) == ("GPU-b", 1, 5, 24576 * MIB)
    assert (second.model, second.mode, second.healthy, second.cordoned) == ("NVIDIA-A10", "mig", False, False)


def test_the_plugins_factor_makes_each_unit_larger() -> None:
    (sighting,) = tenfold.sight(registered("GPU-a,10,8192,NVIDIA-A100,true,hami-core:"), None).sightings
    assert sighting.memory_bytes == 81920 * MIB
    assert tenfold.ask(pod({MEMORY: 100})).claims[0].memory_bytes == 1000 * MIB


@pytest.mark.parametrize(("allocatable", "offered"), [(20, True), (0, False), (None, False), ("x", False)])
def test_a_node_without_register_offers_what_it_publishes(allocatable: int | str | None, offered: bool) -> None:
    sight = vgpu.sight(registered(None, allocatable), None)
    assert (sight.offered, sight.sightings, sight.warnings) == (offered, (), ())


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "GPU-a,10,81920,NVIDIA-A100,true:",
        "GPU-a,ten,81920,NVIDIA-A100,true,hami-core:",
        "GPU-a,10,-5,NVIDIA-A100,true,hami-core:",
        ",10,81920,NVIDIA-A100,true,hami-core:",
        "GPU-a,10,81920,NVIDIA-A100,true,hami-core:GPU-b:",
    ],
)
def test_a_register_that_cannot_be_read_is_a_warning(text: str) -> None:
    sight = vgpu.sight(registered(text, 10), None)
    assert sight.offered
    assert not sight.sightings
    assert sight.warnings[0].startswith(f"node n: annotation {REGISTER}: ")


@given(st.text(alphabet="GPU-0123456789,:; truefalsê٣", max_size=80))
def test_no_register_makes_the_reading_fail(text: str) -> None:
    one_stock("n", [vgpu.sight(registered(text), None)])


def test_a_node_publishes_slices_memory_and_cores_of_healthy_cards() -> None:
    cards = (
        Device("GPU-0", 0, "nvidia", memory_bytes=8192 * MIB, slots=10),
        Device("GPU-1", 1, "nvidia", memory_bytes=8192 * MIB, slots=10, healthy=False),
        Device("GPU-2", 2, "nvidia", memory_bytes=1000 * MIB, slots=5),
    )
    assert vgpu.publish(Node("n", cards)).allocatable == {NUMBER: "15", MEMORY: "9192", CORES: "200"}
    assert vgpu.publish(Node("n", cards[1:2])).allocatable == {NUMBER: "0", MEMORY: "0", CORES: "0"}
    assert vgpu.publish(Node("n")) == Published()


# What is written and read


def placed(pod: manifest.Pod, node: Node, cards: dict[int, list[int]], dialect: Dialect = vgpu) -> Placement:
    """The placement of the dialect's own claims on these cards, by container."""
    grants = []
    for claim in dialect.ask(pod).claims:
        devices = [node.devices[index] for index in cards[claim.containers[0]]]
        shares = tuple(Share(each.id, each.index, claim.memory_on(each), claim.cores) for each in devices)
        grants.append(Grant(dialect.name, claim.containers, claim.role, shares))
    return Placement(node.name, tuple(grants))


def written(pod: manifest.Pod, node: Node, cards: dict[int, list[int]], dialect: Dialect = vgpu) -> dict[str, str]:
    return dialect.write(pod, placed(pod, node, cards, dialect), node, NOW)


def test_volcanos_annotations_are_written() -> None:
    asking = pod({NUMBER: 2, MEMORY: 4096, CORES: 30}, {}, {MEMORY: 1})
    text = "GPU-1,NVIDIA,4096,30:GPU-0,NVIDIA,4096,30:;;GPU-1,NVIDIA,1,0:;"
    assert written(asking, node(8192 * MIB, 8192 * MIB), {0: [1, 0], 2: [1]}) == {
        "volcano.sh/vgpu-node": "n",
        "volcano.sh/vgpu-time": SECONDS,
        "volcano.sh/vgpu-ids-new": text,
        "volcano.sh/devices-to-allocate": text,
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": SECONDS,
    }


def test_idle_init_containers_have_no_place_because_volcanos_plugin_knows_none() -> None:
    asking = pod({}, {MEMORY: 5}, init=({},))
    annotations = written(asking, node(100 * MIB), {2: [0]})
    assert annotations[TO_ALLOCATE] == ";GPU-0,NVIDIA,5,0:;"
    assert vgpu.read(annotated(asking, annotations), node(100 * MIB))[0].containers == (2,)


def test_init_containers_with_cards_come_first() -> None:
    asking = pod({MEMORY: 5}, init=({MEMORY: 7},))
    assert written(asking, node(100 * MIB), {0: [0], 1: [0]})[ALLOCATED] == "GPU-0,NVIDIA,7,0:;GPU-0,NVIDIA,5,0:;"


@pytest.mark.parametrize(
    ("text", "entries", "warnings"),
    [
        ("GPU-0,NVIDIA,4096,30:", [Held("GPU-0", "NVIDIA", 4096, 30)], 0),
        ("GPU-0,NVIDIA,-1,30:", [], 1),
        ("GPU-0,NVIDIA,4096,-3:", [], 1),
        ("GPU-0,NVIDIA,much,30:", [], 1),
        ("GPU-0,NVIDIA,4096:", [], 1),
        ("GPU-0:", [], 1),
        ("GPU-0,NVIDIA:GPU-1,NVIDIA,1,2:GPU-2,NVIDIA,x,2:", [Held("GPU-1", "NVIDIA", 1, 2)], 2),
        ("", [], 0),
    ],
)
def test_entries_that_cannot_be_read_are_dropped_and_reported(text: str, entries: list[Held], warnings: int) -> None:
    places, sentences = decode(text)
    assert places == [entries]
    assert len(sentences) == warnings


def test_what_can_be_read_is_booked() -> None:
    bound = pod({NUMBER: 2, MEMORY: 1000}, annotations={ALLOCATED: "GPU-0,NVIDIA,1000,25:GPU-1,NVIDIA,x,25:"})
    (charge,) = charges(vgpu.read(bound, node(8192 * MIB, 8192 * MIB))).values()
    assert (charge.slots, charge.memory_bytes, charge.cores) == (1, 1000 * MIB, 25)


def test_a_string_without_any_readable_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="volcano.sh/vgpu-ids-new: 'GPU-0,NVIDIA'"):
        vgpu.read(pod({NUMBER: 1}, annotations={ALLOCATED: "GPU-0,NVIDIA:"}), node(1))


@pytest.mark.parametrize("text", [None, "", ";", ";;"])
def test_no_entries_mean_no_cards(text: str | None) -> None:
    annotations = {} if text is None else {ALLOCATED: text}
    assert vgpu.read(pod({NUMBER: 1}, {}, annotations=annotations), node(1)) == ()


@pytest.mark.parametrize(
    ("apps", "init", "text", "positions"),
    [
        (({}, {MEMORY: 5}), (), "GPU-0,NVIDIA,5,0:", [1]),
        (({MEMORY: 5},), ({},), "GPU-0,NVIDIA,5,0:", [1]),
        (({MEMORY: 5},), ({MEMORY: 7},), "GPU-0,NVIDIA,5,0:", [1]),
        (({MEMORY: 5}, {}, {MEMORY: 5}), ({},), "GPU-0,NVIDIA,5,0:;GPU-0,NVIDIA,5,0:", [1, 3]),
        (({MEMORY: 5}, {}), (), "GPU-0,NVIDIA,5,0:;", [0]),
    ],
)
def test_cards_that_volcano_gave_are_found_at_their_containers(
    apps: tuple[Limits, ...], init: tuple[Limits, ...], text: str, positions: list[int]
) -> None:
    grants = vgpu.read(pod(*apps, init=init, annotations={ALLOCATED: text}), node(100 * MIB))
    assert [grant.containers for grant in grants] == [(position,) for position in positions]


def test_a_string_for_more_containers_than_ask_is_an_error() -> None:
    text = "GPU-0,NVIDIA,5,0:;GPU-0,NVIDIA,5,0:;GPU-0,NVIDIA,5,0:"
    with pytest.raises(ValueError, match="speaks of 3 containers with cards, the pod has 1 that ask"):
        vgpu.read(pod({MEMORY: 5}, {}, annotations={ALLOCATED: text}), node(100 * MIB))


def test_a_mig_instance_is_booked_on_its_card() -> None:
    bound = pod({MEMORY: 5}, annotations={ALLOCATED: "GPU-1[0-2],NVIDIA,5,0:"})
    assert vgpu.read(bound, node(100 * MIB, 100 * MIB))[0].shares == (Share("GPU-1", 1, 5 * MIB, 0),)


def test_a_card_that_left_the_node_keeps_its_name() -> None:
    bound = pod({MEMORY: 5}, annotations={ALLOCATED: "GPU-9,NVIDIA,5,0:"})
    assert vgpu.read(bound, node(100 * MIB))[0].shares == (Share("GPU-9", -1, 5 * MIB, 0),)


@given(st.text(alphabet="GPU-01,:;NVIDA[]. x", max_size=60))
def test_a_damaged_string_gives_grants_or_a_value_error(text: str) -> None:
    bound = pod({MEMORY: 5}, {NUMBER: 2}, init=({MEMORY: 1},), annotations={ALLOCATED: text})
    with contextlib.suppress(ValueError):
        assert all(grant.shares for grant in vgpu.read(bound, node(100 * MIB)))


@st.composite
def placements(draw: st.DrawFn) -> tuple[manifest.Pod, Node, Placement, Dialect]:
    """Any pod and any cards for it; card sizes that are no whole MiB come from a Device object."""
    dialect = draw(st.sampled_from([vgpu, tenfold]))
    sizes = st.integers(1, 90_000).map(lambda mib: mib * MIB) | st.integers(1, 10**11)
    machine = node(*draw(st.lists(sizes, min_size=1, max_size=8)))
    every = range(len(machine.devices))
    amounts: dict[str, Any] = {
        NUMBER: st.integers(1, len(every)),
        MEMORY: st.integers(0, 9000),
        PERCENTAGE: st.integers(0, 100),
        CORES: st.integers(0, 150),
    }
    limits: st.SearchStrategy[Limits] = st.fixed_dictionaries({}, optional=amounts)
    apps, init = (draw(st.lists(limits, min_size=n, max_size=3)) for n in (1, 0))
    asking = pod(*apps, init=tuple(init), sidecars=draw(st.booleans()))
    cards = {claim.containers[0]: draw(st.permutations(every))[: claim.count] for claim in dialect.ask(asking).claims}
    return asking, machine, placed(asking, machine, cards, dialect), dialect


@given(placements())
def test_what_is_written_is_read_again(case: tuple[manifest.Pod, Node, Placement, Dialect]) -> None:
    pod, node, placement, dialect = case
    annotations = dialect.write(pod, placement, node, NOW)
    assert set(annotations) <= dialect.owned
    assert dialect.read(annotated(pod, annotations), node) == placement.grants


# What a container gets


def test_a_container_sees_its_cards_by_uuid_and_is_held_to_its_share() -> None:
    asking = pod({}, {NUMBER: 2, MEMORY: 3000, CORES: 30})
    machine = node(8192 * MIB, 8192 * MIB)
    (grant,) = placed(asking, machine, {1: [1, 0]}).grants
    injection = vgpu.inject(asking, grant, 1, machine)
    assert injection.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-0"
    assert injection.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert injection.env["CUDA_DEVICE_MEMORY_LIMIT_1"] == "3000m"
    assert injection.env["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert "/usr/local/vgpu/libvgpu.so" in [mount.destination for mount in injection.mounts]


def test_the_memory_limit_is_in_mib_whatever_the_factor() -> None:
    asking = pod({MEMORY: 300})
    (grant,) = placed(asking, node(8192 * MIB), {0: [0]}, tenfold).grants
    assert tenfold.inject(asking, grant, 0, node(8192 * MIB)).env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
