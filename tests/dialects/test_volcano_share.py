"""Volcano's GPU sharing: the user guide's pods and nodes work unchanged, and what is written can be read again."""

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, Source
from subak.dialects.config import Volcano
from subak.dialects.stock import one_stock
from subak.dialects.volcano_share import GPUS, INDEX, MEMORY, NUMBER, PREDICATE_TIME, UNHEALTHY, VolcanoShare
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Charge, Grant, Placement, Share, charges
from subak.model.reason import Refusal
from subak.model.request import BINPACK, LOWEST_INDEX, SPREAD
from tests.dialects.manifests import annotated

NOW = 1593764466550835304

GUIDE_PODS = """
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod1
spec:
  schedulerName: volcano
  containers:
    - name: cuda-container
      image: nvidia/cuda:9.0-devel
      command: ["sleep"]
      args: ["100000"]
      resources:
        limits:
          volcano.sh/gpu-memory: 1024 # requesting 1024MB GPU memory
---
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod2
spec:
  schedulerName: volcano
  containers:
    - name: cuda-container
      image: nvidia/cuda:9.0-devel
      command: ["sleep"]
      args: ["100000"]
      resources:
        limits:
          volcano.sh/gpu-memory: 1024 # requesting 1024MB GPU memory
"""

GUIDE_NODE = """
metadata:
  name: volcano-control-plane
status:
  addresses:
  - address: 172.17.0.3
    type: InternalIP
  - address: volcano-control-plane
    type: Hostname
  allocatable:
    cpu: "4"
    ephemeral-storage: 123722704Ki
    hugepages-1Gi: "0"
    hugepages-2Mi: "0"
    memory: 8174332Ki
    pods: "110"
    volcano.sh/gpu-memory: "89424"
    volcano.sh/gpu-number: "8"    # GPU resource
  capacity:
    cpu: "4"
    ephemeral-storage: 123722704Ki
    hugepages-1Gi: "0"
    hugepages-2Mi: "0"
    memory: 8174332Ki
    pods: "110"
    volcano.sh/gpu-memory: "89424"
    volcano.sh/gpu-number: "8"   # GPU resource
"""

guide_pods = [msgspec.convert(each, manifest.Pod) for each in yaml.safe_load_all(GUIDE_PODS)]
volcano: Dialect = VolcanoShare(Volcano())
tenfold: Dialect = VolcanoShare(Volcano(gpu_memory_factor=10))

Limits = dict[str, manifest.Amount]


def pod(
    *apps: Limits, init: tuple[Limits, ...] = (), sidecars: tuple[Limits, ...] = (), sidecars_first: bool = False
) -> manifest.Pod:
    """A pod with these limits."""
    early = [container(f"init-{i}", limits) for i, limits in enumerate(init)]
    beside = [container(f"sidecar-{i}", limits, "Always") for i, limits in enumerate(sidecars)]
    spec = manifest.PodSpec(
        containers=[container(f"app-{i}", limits) for i, limits in enumerate(apps)],
        init_containers=beside + early if sidecars_first else early + beside,
    )
    return manifest.Pod(metadata=manifest.Metadata(name="p", uid="u"), spec=spec)


def container(name: str, limits: Limits, restart_policy: str | None = None) -> manifest.Container:
    return manifest.Container(name=name, resources=manifest.Resources(limits=limits), restart_policy=restart_policy)


def published(memory: Any = None, number: Any = None, unhealthy: str | None = None) -> manifest.Node:
    amounts = {name: amount for name, amount in ((MEMORY, memory), (NUMBER, number)) if amount is not None}
    return manifest.Node(
        metadata=manifest.Metadata(name="n", annotations=None if unhealthy is None else {UNHEALTHY: unhealthy}),
        status=manifest.NodeStatus(capacity=amounts, allocatable=amounts),
    )


def node(*sizes_mib: int) -> Node:
    cards = (Device(f"GPU-{i}", i, "nvidia", memory_bytes=mib * MIB) for i, mib in enumerate(sizes_mib))
    return Node("n", tuple(cards), frozenset({"volcano-share"}))


def cards_of(grants: tuple[Grant, ...]) -> dict[int, list[int]]:
    return {grant.containers[0]: [share.index for share in grant.shares] for grant in grants}


def peak(*apps: Limits, init: tuple[Limits, ...] = (), sidecars: tuple[Limits, ...] = ()) -> Charge:
    """What a pod takes from the only card it gets."""
    grants = volcano.read(annotated(pod(*apps, init=init, sidecars=sidecars), {INDEX: "0"}), node(10_000))
    return charges(grants)["GPU-0"]


# What is asked for


@pytest.mark.parametrize("pod", guide_pods)
def test_the_guides_pods_ask_for_a_part_of_one_card(pod: manifest.Pod) -> None:
    assert volcano.speaks(pod)
    assert volcano.admit(pod).limits == {}
    ask = volcano.ask(pod)
    (claim,) = ask.claims
    assert (claim.count, claim.memory_bytes, claim.cores, claim.role) == (1, 1024 * MIB, 0, Role.APP)
    assert claim.policy.order == (LOWEST_INDEX,)
    assert all(claim.together for claim in ask.claims)
    assert ask.node_policy == BINPACK


def test_the_largest_init_container_counts_where_it_beats_the_sum() -> None:
    assert peak({MEMORY: 2}, init=({MEMORY: 1}, {MEMORY: 3})).memory_bytes == 3 * MIB
    assert peak({MEMORY: 2}, {MEMORY: 2}, init=({MEMORY: 3},)).memory_bytes == 4 * MIB


def test_a_sidecar_counts_beside_the_app_containers() -> None:
    assert peak({MEMORY: 2}, sidecars=({MEMORY: 3},)).memory_bytes == 5 * MIB


def test_containers_of_one_pod_add_up_on_their_one_card() -> None:
    ask = volcano.ask(pod({MEMORY: 600}, {MEMORY: 600}))
    assert all(claim.together for claim in ask.claims)
    assert [claim.memory_bytes for claim in ask.claims] == [600 * MIB, 600 * MIB]
    assert peak({MEMORY: 600}, {MEMORY: 600}).memory_bytes == 1200 * MIB


def test_whole_cards_must_be_idle_and_are_taken_wholly() -> None:
    ask = volcano.ask(pod({NUMBER: 1}, {NUMBER: 3}))
    assert not any(claim.together for claim in ask.claims)
    assert [(claim.count, claim.containers) for claim in ask.claims] == [(1, (0,)), (3, (1,))]
    for claim in ask.claims:
        assert claim.idle
        assert (claim.memory_percent, claim.cores) == (100, FULL_CORES)
        assert claim.policy.order == (LOWEST_INDEX,)


def test_init_containers_ask_for_whole_cards_in_their_own_role() -> None:
    claims = volcano.ask(pod({NUMBER: 2}, init=({NUMBER: 1}, {NUMBER: 3}))).claims
    assert [(claim.count, claim.role) for claim in claims] == [(1, Role.INIT), (3, Role.INIT), (2, Role.APP)]


def test_memory_wins_where_both_are_asked_for() -> None:
    ask = volcano.ask(pod({MEMORY: 100, NUMBER: 2}))
    assert all(claim.together for claim in ask.claims)
    assert [(claim.count, claim.memory_bytes, claim.idle) for claim in ask.claims] == [(1, 100 * MIB, False)]


@pytest.mark.parametrize(("text", "mib"), [("1k", 1000), ("1Ki", 1024), (1024, 1024), ("3e3", 3000)])
def test_amounts_are_read_as_kubernetes_writes_them(text: manifest.Amount, mib: int) -> None:
    assert volcano.ask(pod({MEMORY: text})).claims[0].memory_bytes == mib * MIB


def test_the_plugins_factor_makes_each_unit_larger() -> None:
    assert tenfold.ask(pod({MEMORY: 1024})).claims[0].memory_bytes == 10240 * MIB


@pytest.mark.parametrize("limits", [{}, {MEMORY: 0}, {NUMBER: 0}, {MEMORY: 0, NUMBER: "0"}])
def test_nothing_is_asked_for_by_a_zero(limits: Limits) -> None:
    assert volcano.admit(pod(limits)).limits == {}
    assert volcano.ask(pod(limits)).claims == ()


def test_a_zero_of_memory_leaves_the_number() -> None:
    ask = volcano.ask(pod({MEMORY: 0, NUMBER: 2}))
    assert [claim.count for claim in ask.claims] == [2]
    assert not any(claim.together for claim in ask.claims)


@pytest.mark.parametrize("resource", [MEMORY, NUMBER])
@pytest.mark.parametrize("amount", ["500m", "-1", -1, "1.5", 0.5, "12MB", "many", ""])
def test_an_amount_that_is_no_whole_number_is_refused(resource: str, amount: manifest.Amount) -> None:
    with pytest.raises(Refusal) as refusal:
        volcano.admit(pod({resource: 1}, {resource: amount}))
    assert refusal.value.field == f"spec.containers[1].resources.limits[{resource}]"
    assert refusal.value.value == str(amount)


def test_a_byte_suffix_is_refused_and_explained() -> None:
    with pytest.raises(Refusal, match="gpu-memory counts MiB, so 16Gi means 17,179,869,184 MiB"):
        volcano.admit(pod({MEMORY: "16Gi"}))
    with pytest.raises(Refusal, match="counts units of 10 MiB"):
        tenfold.ask(pod({MEMORY: "16Gi"}))


def test_users_may_choose_policies_in_hamis_words() -> None:
    words = {"hami.io/gpu-scheduler-policy": "spread", "hami.io/node-scheduler-policy": "spread"}
    ask = volcano.ask(annotated(pod({MEMORY: 1}), words))
    assert ask.node_policy == SPREAD
    assert ask.claims[0].policy.order == (SPREAD,)


@pytest.mark.parametrize("key", ["hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"])
def test_an_unknown_policy_is_refused(key: str) -> None:
    for step in (volcano.admit, volcano.ask):
        with pytest.raises(Refusal, match="'best' is no policy"):
            step(annotated(pod({MEMORY: 1}), {key: "best"}))


def test_a_pod_that_mentions_neither_resource_speaks_another_dialect() -> None:
    assert not volcano.speaks(pod({"nvidia.com/gpu": 1}))


def test_a_quota_on_memory_counts_the_same_units_as_a_pod() -> None:
    assert {name: unit.factor for name, unit in tenfold.quota_units.items()} == {MEMORY: 10}


# What a node offers


def test_the_guides_node_has_eight_equal_cards() -> None:
    sight = volcano.sight(msgspec.convert(yaml.safe_load(GUIDE_NODE), manifest.Node), None)
    assert sight.offered
    assert sight.source is Source.CAPACITY
    devices, warnings = one_stock("n", [sight])
    assert not warnings
    assert [(each.index, each.memory_bytes, each.healthy) for each in devices] == [
        (i, 11178 * MIB, True) for i in range(8)
    ]
    assert [each.slots for each in devices] == [11178] * 8


@pytest.mark.parametrize(
    ("memory", "number", "sizes"),
    [
        (89424, None, []),
        (None, 8, []),
        (100, 0, []),
        (100, 3, [33, 33, 33]),
        ("89424", "8", [11178] * 8),
        ("4k", 2, [2000, 2000]),
        (0, 2, [0, 0]),
        (None, None, []),
        (0, 0, []),
    ],
)
def test_both_totals_are_needed_to_know_the_cards(memory: Any, number: Any, sizes: list[int]) -> None:
    sight = volcano.sight(published(memory, number), None)
    assert [sighting.memory_bytes for sighting in sight.sightings] == [size * MIB for size in sizes]
    assert [sighting.index for sighting in sight.sightings] == list(range(len(sizes)))
    assert sight.offered == bool(memory or number)
    assert bool(sight.warnings) == (number == 0 and memory == 100)


def test_units_of_several_mib_make_larger_cards() -> None:
    (sighting,) = tenfold.sight(published(1117, 1), None).sightings
    assert (sighting.memory_bytes, sighting.slots) == (11170 * MIB, 1117)


def test_a_card_without_known_memory_still_serves_a_whole_card_tenant() -> None:
    (sighting,) = volcano.sight(published(0, 1), None).sightings
    assert sighting.slots == 1


def test_broken_cards_are_seen_as_broken_and_bad_entries_reported() -> None:
    sight = volcano.sight(published(400, 4, "x,2, 9"), None)
    assert [sighting.healthy for sighting in sight.sightings] == [True, True, False, True]
    assert len(sight.warnings) == 2
    assert "'x'" in sight.warnings[0]
    assert "'9'" in sight.warnings[1]


@pytest.mark.parametrize(
    ("memory", "number"), [("lots", 2), (100, "1.5"), (-5, 2), (100, -1), (100, "1E"), ("1E", 1), ("", "")]
)
def test_a_capacity_that_cannot_be_read_is_a_warning(memory: Any, number: Any) -> None:
    sight = volcano.sight(published(memory, number), None)
    assert not sight.sightings
    assert "node n" in sight.warnings[0]


amounts = st.none() | st.text(max_size=8) | st.integers() | st.floats() | st.sampled_from(["8", "1k", "1E", "-3"])


@given(amounts, amounts, st.none() | st.text(max_size=20) | st.from_regex(r"[0-9x, -]{0,12}", fullmatch=True))
def test_no_node_makes_the_reading_fail(memory: Any, number: Any, unhealthy: str | None) -> None:
    sight = volcano.sight(published(memory, number, unhealthy), None)
    one_stock("n", [sight])


def test_a_node_publishes_units_and_cards_of_what_is_healthy() -> None:
    devices = (
        Device("GPU-0", 0, "nvidia", memory_bytes=11178 * MIB),
        Device("GPU-1", 1, "nvidia", memory_bytes=24576 * MIB, healthy=False),
        Device("mx", 0, "metax", memory_bytes=64 * MIB),
    )
    assert volcano.publish(Node("n", devices)).allocatable == {MEMORY: "11178", NUMBER: "1"}
    assert tenfold.publish(Node("n", devices)).allocatable == {MEMORY: "1117", NUMBER: "1"}
    assert volcano.publish(Node("n", devices[1:])).allocatable == {MEMORY: "0", NUMBER: "0"}
    assert volcano.publish(Node("n", devices[2:])).allocatable == {}


# What is written and read


def written(pod: manifest.Pod, node: Node, cards: dict[int, list[int]], dialect: Dialect = volcano) -> dict[str, str]:
    return dialect.write(pod, placed(pod, node, cards, dialect), node, NOW)


def placed(pod: manifest.Pod, node: Node, cards: dict[int, list[int]], dialect: Dialect = volcano) -> Placement:
    """The placement of the dialect's own claims on these cards, by container."""
    grants = []
    for claim in dialect.ask(pod).claims:
        devices = [node.devices[index] for index in cards[claim.containers[0]]]
        shares = tuple(Share(each.id, each.index, claim.memory_on(each), claim.cores) for each in devices)
        grants.append(Grant(dialect.name, claim.containers, claim.role, shares, slotted=False))
    return Placement(node.name, tuple(grants))


def test_the_guides_annotations_are_written() -> None:
    assert written(pod({MEMORY: 1024}), node(11178), {0: [0]}) == {INDEX: "0", PREDICATE_TIME: "1593764466550835304"}


@pytest.mark.parametrize(("cards", "text"), [([2], "2"), ([0, 1, 3], "0,1,3"), ([7, 0], "7,0")])
def test_indices_are_written_in_the_order_they_were_given(cards: list[int], text: str) -> None:
    assert written(pod({NUMBER: len(cards)}), node(*[100] * 8), {0: cards}) == {
        INDEX: text,
        PREDICATE_TIME: str(NOW),
    }


def test_a_pod_without_cards_gets_no_annotation() -> None:
    assert written(pod({}), node(100), {}) == {}


@pytest.mark.parametrize("text", [None, "", "0, 1", "a", "-1", "0,", ",", "+1", "1.0", "٣", "9" * 5000])
def test_an_index_that_cannot_be_read_means_no_card(text: str | None) -> None:
    annotations = {} if text is None else {INDEX: text}
    assert volcano.read(annotated(pod({MEMORY: 1}), annotations), node(100)) == ()


def test_a_list_of_indices_is_read_as_the_pods_cards() -> None:
    grants = volcano.read(annotated(pod({NUMBER: 3}), {INDEX: "0,1,3"}), node(100, 200, 300, 400))
    assert cards_of(grants) == {0: [0, 1, 3]}
    assert [(share.id, share.memory_bytes, share.cores) for share in grants[0].shares] == [
        ("GPU-0", 100 * MIB, 100),
        ("GPU-1", 200 * MIB, 100),
        ("GPU-3", 400 * MIB, 100),
    ]


def test_containers_take_their_cards_from_volcanos_list_in_turn() -> None:
    asking = pod({NUMBER: 1}, {}, {NUMBER: 2}, init=({NUMBER: 2},))
    grants = volcano.read(annotated(asking, {INDEX: "7,0,3"}), node(*[100] * 8))
    assert cards_of(grants) == {0: [7, 0], 1: [7], 3: [0, 3]}


def test_a_list_that_is_too_short_for_sidecars_is_shared() -> None:
    asking = pod({NUMBER: 1}, sidecars=({NUMBER: 1},))
    assert cards_of(volcano.read(annotated(asking, {INDEX: "4"}), node(*[100] * 8))) == {0: [4], 1: [4]}


def test_a_shared_pod_with_several_indices_is_booked_on_all_of_them() -> None:
    assert set(charges(volcano.read(annotated(pod({MEMORY: 5}), {INDEX: "0,1"}), node(10, 10)))) == {"GPU-0", "GPU-1"}


def test_a_card_that_left_the_node_keeps_its_place_in_the_books() -> None:
    (grant,) = volcano.read(annotated(pod({MEMORY: 5}), {INDEX: "3"}), node(10))
    assert grant.shares == (Share("n-nvidia-3", 3, 5 * MIB, 0),)


def test_an_init_container_on_other_cards_needs_our_own_annotation() -> None:
    asking = pod({NUMBER: 1}, init=({NUMBER: 2},))
    annotations = written(asking, node(*[100] * 4), {0: [0, 1], 1: [2]})
    assert annotations == {INDEX: "0,1,2", PREDICATE_TIME: str(NOW), GPUS: "0,1;2"}
    assert cards_of(volcano.read(annotated(asking, annotations), node(*[100] * 4))) == {0: [0, 1], 1: [2]}


def test_an_init_container_leaves_the_cards_of_sidecars_alone() -> None:
    asking = pod({NUMBER: 2}, init=({NUMBER: 1},), sidecars=({NUMBER: 1},), sidecars_first=True)
    grants = volcano.read(annotated(asking, {INDEX: "0,1,2"}), node(*[100] * 4))
    assert cards_of(grants) == {0: [0], 1: [1], 2: [1, 2]}


def test_an_init_container_on_the_pods_first_cards_needs_none() -> None:
    asking = pod({NUMBER: 2}, init=({NUMBER: 1},), sidecars=({NUMBER: 1},))
    assert GPUS not in written(asking, node(*[100] * 4), {0: [0], 1: [0], 2: [1, 2]})


@pytest.mark.parametrize("text", ["0", "0;1;2", "0;x", "0, 1;2"])
def test_a_damaged_annotation_of_ours_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="subak.io/volcano-gpus"):
        volcano.read(annotated(pod({NUMBER: 1}, {NUMBER: 1}), {INDEX: "0,1", GPUS: text}), node(1, 2))


def test_only_the_controller_and_agents_write_what_records_the_cards() -> None:
    assert set(written(pod({NUMBER: 1}, init=({NUMBER: 1},)), node(1, 2), {0: [0], 1: [1]})) <= volcano.owned
    assert "volcano.sh/gpu-assigned" in volcano.owned


@st.composite
def placements(draw: st.DrawFn) -> tuple[manifest.Pod, Node, Placement, Dialect]:
    """Any pod and any cards for it: more than a policy would choose."""
    dialect = draw(st.sampled_from([volcano, tenfold]))
    machine = node(*draw(st.lists(st.integers(1, 90_000), min_size=1, max_size=8)))
    every = range(len(machine.devices))
    resource = draw(st.sampled_from([MEMORY, NUMBER]))
    most = 5000 if resource == MEMORY else len(every)
    limits: st.SearchStrategy[Limits] = st.dictionaries(st.just(resource), st.integers(0, most))
    apps, init, sidecars = (tuple(draw(st.lists(limits, min_size=n, max_size=3))) for n in (1, 0, 0))
    asking = pod(*apps, init=init, sidecars=sidecars, sidecars_first=draw(st.booleans()))
    one = draw(st.sampled_from(every))
    cards = {
        claim.containers[0]: [one] if resource == MEMORY else draw(st.permutations(every))[: claim.count]
        for claim in dialect.ask(asking).claims
    }
    return asking, machine, placed(asking, machine, cards, dialect), dialect


@given(placements())
def test_what_is_written_is_read_again(case: tuple[manifest.Pod, Node, Placement, Dialect]) -> None:
    pod, node, placement, dialect = case
    annotations = dialect.write(pod, placement, node, NOW)
    assert set(annotations) <= dialect.owned
    assert dialect.read(annotated(pod, annotations), node) == placement.grants


@given(placements())
def test_shared_cards_never_need_our_own_annotation(case: tuple[manifest.Pod, Node, Placement, Dialect]) -> None:
    pod, node, placement, dialect = case
    if any(claim.together for claim in dialect.ask(pod).claims):
        assert GPUS not in dialect.write(pod, placement, node, NOW)


# What a container gets


def injected(pod: manifest.Pod, node: Node, dialect: Dialect = volcano) -> list[dict[str, str]]:
    return [dialect.inject(pod, grant, grant.containers[0], node).env for grant in dialect.read(pod, node)]


@pytest.mark.parametrize("pod", guide_pods)
def test_the_guides_variables_are_set(pod: manifest.Pod) -> None:
    bound = annotated(pod, {INDEX: "0", PREDICATE_TIME: str(NOW)})
    (env,) = injected(bound, node(*[11178] * 8))
    assert env["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert env["VOLCANO_GPU_ALLOCATED"] == "1024"
    assert env["VOLCANO_GPU_MEMORY_TOTAL"] == "11178"


def test_the_factor_shows_in_the_amount_and_not_in_the_card() -> None:
    (env,) = injected(annotated(pod({MEMORY: 1024}), {INDEX: "0"}), node(11178), tenfold)
    assert (env["VOLCANO_GPU_ALLOCATED"], env["VOLCANO_GPU_MEMORY_TOTAL"]) == ("10240", "11178")
    assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "10240m"


def test_each_container_of_a_pod_is_served_with_its_own_amount() -> None:
    envs = injected(annotated(pod({MEMORY: 512}, {}, {MEMORY: 256}), {INDEX: "0"}), node(11178))
    assert [env["NVIDIA_VISIBLE_DEVICES"] for env in envs] == ["0", "0"]
    assert [env["VOLCANO_GPU_ALLOCATED"] for env in envs] == ["512", "256"]


def test_equal_pods_each_see_their_own_card() -> None:
    for index in ("0", "1"):
        (env,) = injected(annotated(pod({MEMORY: 1024}), {INDEX: index}), node(11178, 24576))
        assert env["NVIDIA_VISIBLE_DEVICES"] == index
        assert env["VOLCANO_GPU_MEMORY_TOTAL"] == {"0": "11178", "1": "24576"}[index]


def test_a_part_of_a_card_is_held_to_its_memory() -> None:
    bound = annotated(pod({MEMORY: 1024}), {INDEX: "0"})
    (grant,) = volcano.read(bound, node(11178))
    injection = volcano.inject(bound, grant, 0, node(11178))
    assert injection.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1024m"
    assert "CUDA_DEVICE_SM_LIMIT" not in injection.env
    assert "/etc/ld.so.preload" in [mount.destination for mount in injection.mounts]


def test_whole_cards_are_not_limited() -> None:
    bound = annotated(pod({NUMBER: 2}, {NUMBER: 1}), {INDEX: "3,1,0"})
    machine = node(100, 200, 300, 400)
    injections = [volcano.inject(bound, grant, grant.containers[0], machine) for grant in volcano.read(bound, machine)]
    assert [injection.env for injection in injections] == [
        {"NVIDIA_VISIBLE_DEVICES": "3,1", "VOLCANO_GPU_ALLOCATED": "2", "VOLCANO_GPU_MEMORY_TOTAL": "400"},
        {"NVIDIA_VISIBLE_DEVICES": "0", "VOLCANO_GPU_ALLOCATED": "1", "VOLCANO_GPU_MEMORY_TOTAL": "100"},
    ]
    assert not any(injection.mounts for injection in injections)
