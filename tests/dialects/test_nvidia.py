from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, Injection, QuotaUnit, Source
from subak.dialects.config import Nvidia as Names
from subak.dialects.nvidia import Nvidia
from subak.model import manifest
from subak.model.device import MIB, Device, MigProfile
from subak.model.manifest import Role
from subak.model.mount import Mount, Purpose
from subak.model.node import Node
from subak.model.placement import Grant, MigInstance, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, MUTEX, NUMA, SPREAD, Pick
from tests.dialects.manifests import Limits, admitted, annotated, node_of, pod, stocked

NVIDIA: Dialect = Nvidia(Names())

GPU, MEMORY, PERCENT = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
CORES, PRIORITY = "nvidia.com/gpucores", "nvidia.com/priority"

REGISTER, SCORES = "hami.io/node-nvidia-register", "hami.io/node-nvidia-score"
TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
MIG = "hami.io/vgpu-mig-allocations"

PROFILES = (MigProfile("1g.10gb", 9856 * MIB, 14, ((0, 1), (1, 1))), MigProfile("3g.40gb", 40192 * MIB, 42, ((0, 4),)))
MIG_NODE = Node("n1", (Device("GPU-m", 0, "nvidia", mode="mig", mig=PROFILES), Device("GPU-p", 1, "nvidia")))

NOW = 1_700_000_000 * 10**9


def card(id: str = "GPU-a", index: int = 0, **fields: Any) -> dict[str, Any]:
    """An entry of the register, as HAMi's plugin writes it: zeros and false are left out."""
    return {
        "id": id,
        **({"index": index} if index else {}),
        **{"count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "mode": "hami-core", "health": True},
        **fields,
    }


def seen(*cards: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> manifest.Node:
    """A node whose register lists these cards."""
    return node_of("n1", {GPU: 10 * len(cards)}, {REGISTER: json.dumps(cards), **(annotations or {})})


def amounts(limits: Limits, dialect: Dialect = NVIDIA) -> tuple[int, int, int, int]:
    """Cards, MiB, percent and cores that the only claim of an admitted container asks for."""
    (claim,) = dialect.ask(admitted(dialect, pod(limits))).claims
    return claim.count, claim.memory_bytes // MIB, claim.memory_percent, claim.cores


class TestAsking:
    @pytest.mark.parametrize(
        ("limits", "expected"),
        [
            ({GPU: 1}, (1, 0, 100, 100)),
            ({GPU: "2"}, (2, 0, 100, 100)),
            ({GPU: 1, CORES: 70}, (1, 0, 100, 70)),
            ({GPU: 1, MEMORY: 3000}, (1, 3000, 0, 0)),
            ({GPU: 1, MEMORY: "3k"}, (1, 3000, 0, 0)),
            ({GPU: 1, MEMORY: 3000, CORES: 30}, (1, 3000, 0, 30)),
            ({GPU: 1, PERCENT: 50}, (1, 0, 50, 0)),
            ({GPU: 1, PERCENT: 100}, (1, 0, 100, 100)),
            ({GPU: 1, PERCENT: 100, CORES: 30}, (1, 0, 100, 30)),
            ({GPU: 1, MEMORY: 3000, PERCENT: 50}, (1, 3000, 0, 0)),
            ({GPU: 1, MEMORY: 3000, PERCENT: 0}, (1, 3000, 0, 0)),
            ({GPU: 1, PERCENT: 0}, (1, 0, 100, 0)),
            ({GPU: 1, MEMORY: 0}, (1, 0, 100, 0)),
            ({MEMORY: 3000}, (1, 3000, 0, 0)),
            ({PERCENT: 20}, (1, 0, 20, 0)),
            ({CORES: 20}, (1, 0, 100, 20)),
        ],
    )
    def test_what_each_resource_means(self, limits: Limits, expected: tuple[int, int, int, int]) -> None:
        assert NVIDIA.speaks(pod(limits))
        assert amounts(limits) == expected

    def test_requests_are_read_where_limits_do_not_tell(self) -> None:
        content = {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: 2, MEMORY: 100}}}]}}
        (claim,) = NVIDIA.ask(admitted(NVIDIA, msgspec.convert(content, manifest.Pod))).claims
        assert (claim.count, claim.memory_bytes) == (2, 100 * MIB)

    @pytest.mark.parametrize("limits", [{}, {"cpu": 1}, {PRIORITY: 1}, {"volcano.sh/gpu-memory": 1}])
    def test_a_container_that_asks_for_no_part_of_a_card_is_not_ours(self, limits: Limits) -> None:
        assert not NVIDIA.speaks(pod(limits))
        assert not NVIDIA.admit(pod(limits)).limits
        assert not NVIDIA.ask(pod(limits)).claims

    def test_no_card_may_be_asked_for_in_so_many_words(self) -> None:
        asking = pod({GPU: 0})
        assert not NVIDIA.admit(asking).limits
        assert not NVIDIA.ask(asking).claims

    def test_each_container_has_a_claim_in_its_role(self) -> None:
        ask = NVIDIA.ask(pod({}, {GPU: 1}, {GPU: 2}, init=[{GPU: 1}]))
        assert [(claim.containers, claim.role, claim.count) for claim in ask.claims] == [
            ((0,), Role.INIT, 1),
            ((2,), Role.APP, 1),
            ((3,), Role.APP, 2),
        ]
        assert {claim.families for claim in ask.claims} == {frozenset({"nvidia"})}
        assert {claim.dialect for claim in ask.claims} == {"hami-nvidia"}

    def test_annotations_choose_cards(self) -> None:
        wish = {
            "nvidia.com/use-gputype": "a100,H100",
            "nvidia.com/nouse-gputype": "pcie",
            "nvidia.com/use-gpuuuid": "GPU-a,GPU-b",
            "nvidia.com/nouse-gpuuuid": "GPU-b",
            "nvidia.com/vgpu-mode": "mig",
        }
        (claim,) = NVIDIA.ask(pod({GPU: 1}, annotations=wish)).claims
        selection = claim.selection
        assert [selection.admits_type(f"NVIDIA-{each}") for each in ("A100-SXM4", "A100-PCIe", "T4")] == [
            True,
            False,
            False,
        ]
        assert [selection.admits_id(f"GPU-{each}") for each in "abc"] == [True, False, False]
        assert [selection.admits_mode(each) for each in ("mig", "hami-core")] == [True, False]

    def test_policies_of_the_pod_are_honoured(self) -> None:
        plain = NVIDIA.ask(pod({GPU: 1}))
        assert (plain.node_policy, plain.claims[0].policy.order, plain.claims[0].policy.numa_bind) == (
            BINPACK,
            (SPREAD,),
            False,
        )
        wish = {
            "hami.io/node-scheduler-policy": "spread",
            "hami.io/gpu-scheduler-policy": "binpack,numa",
            "nvidia.com/numa-bind": " True ",
        }
        ask = NVIDIA.ask(pod({GPU: 1}, annotations=wish))
        policy = ask.claims[0].policy
        assert (ask.node_policy, policy.order, policy.numa_bind) == (SPREAD, (BINPACK, NUMA), True)
        (claim,) = NVIDIA.ask(
            pod({GPU: 1}, annotations={"hami.io/gpu-scheduler-policy": "mutex,topology-aware"})
        ).claims
        assert (claim.policy.order, claim.policy.mutex, claim.policy.pick) == ((MUTEX,), True, Pick.LINKS)

    @pytest.mark.parametrize(
        ("text", "bound"),
        [("true", True), ("TRUE", True), ("1", True), ("t", True), ("false", False), ("0", False), ("", False)],
    )
    def test_only_a_clear_yes_binds_to_a_numa_node(self, text: str, bound: bool) -> None:
        (claim,) = NVIDIA.ask(pod({GPU: 1}, annotations={"nvidia.com/numa-bind": text})).claims
        assert claim.policy.numa_bind is bound


class TestConfiguration:
    def test_resources_may_have_other_names(self) -> None:
        names = Names(resource_count_name="x/gpu", resource_memory_name="x/mem", resource_core_name="x/cores")
        dialect = Nvidia(names)
        assert amounts({"x/gpu": 1, "x/mem": 7, "x/cores": 8}, dialect) == (1, 7, 0, 8)
        assert not dialect.speaks(pod({GPU: 1}))
        assert dialect.publish(stocked(seen(card()), dialect)).allocatable == {"x/gpu": "10"}

    def test_defaults_for_what_the_pod_does_not_say(self) -> None:
        dialect = Nvidia(Names(default_memory=5000, default_cores=25, default_gpu_num=2))
        assert amounts({MEMORY: 100}, dialect) == (2, 100, 0, 25)
        assert amounts({GPU: 1, CORES: 10}, dialect) == (1, 5000, 0, 10)
        assert amounts({GPU: 1, PERCENT: 10}, dialect) == (1, 0, 10, 25)

    def test_memory_may_count_in_larger_units(self) -> None:
        dialect = Nvidia(Names(memory_factor=512, default_memory=100))
        assert amounts({GPU: 1, MEMORY: 4}, dialect) == (1, 2048, 0, 0)
        assert amounts({GPU: 1, CORES: 5}, dialect) == (1, 100, 0, 5)
        assert dialect.quota_units[MEMORY] == QuotaUnit("hami-nvidia", memory=True, factor=512)
        with pytest.raises(Refusal, match="so 4194304 means 2,147,483,648 MiB"):
            dialect.admit(pod({GPU: 1, MEMORY: 2**22}))

    def test_a_quota_counts_memory_and_cores(self) -> None:
        assert NVIDIA.quota_units == {
            MEMORY: QuotaUnit("hami-nvidia", memory=True, factor=1),
            CORES: QuotaUnit("hami-nvidia", memory=False),
        }


class TestRefusals:
    @pytest.mark.parametrize(
        ("limits", "name", "value", "message"),
        [
            ({GPU: "1.5"}, GPU, "1.5", "'1.5' is not a whole number; nvidia.com/gpu takes a whole number of cards"),
            ({GPU: -1}, GPU, "-1", "nvidia.com/gpu must not be negative; give a whole number of cards, 0 or more"),
            (
                {GPU: "two"},
                GPU,
                "two",
                "'two' is not a quantity: use a number with an optional suffix such as Mi, Gi, k, M, G; "
                "nvidia.com/gpu takes a whole number of cards",
            ),
            (
                {GPU: 1, MEMORY: "500m"},
                MEMORY,
                "500m",
                "'500m' is not a whole number; nvidia.com/gpumem takes a whole number of MiB",
            ),
            (
                {GPU: 1, MEMORY: "16Gi"},
                MEMORY,
                "16Gi",
                "nvidia.com/gpumem counts MiB, so 16Gi means 17,179,869,184 MiB; for 16Gi give 16384",
            ),
            (
                {GPU: 1, CORES: -5},
                CORES,
                "-5",
                "nvidia.com/gpucores must not be negative; give a whole number of percent, 0 or more",
            ),
            (
                {GPU: 1, PERCENT: 101},
                PERCENT,
                "101",
                "invalid nvidia.com/gpumem-percentage value 101 in container c1: must be an integer between 0 and 100",
            ),
            (
                {GPU: 1, PERCENT: -1},
                PERCENT,
                "-1",
                "invalid nvidia.com/gpumem-percentage value -1 in container c1: must be an integer between 0 and 100",
            ),
            (
                {GPU: 1, PERCENT: "half"},
                PERCENT,
                "half",
                "invalid nvidia.com/gpumem-percentage value half in container c1: must be an integer between 0 and 100",
            ),
            (
                {GPU: 0, MEMORY: 100},
                GPU,
                "0",
                "nvidia.com/gpu is 0 although a part of a card is asked for: give 1 or more",
            ),
            (
                {GPU: 0, CORES: 100},
                GPU,
                "0",
                "nvidia.com/gpu is 0 although a part of a card is asked for: give 1 or more",
            ),
            ({GPU: 1, CORES: 130}, CORES, "130", "nvidia.com/gpucores is 130, but a card has 100: give at most 100"),
            ({GPU: 1, PRIORITY: 2}, PRIORITY, "2", "nvidia.com/priority is 2: 0 is high, 1 is low"),
            (
                {GPU: 1, PRIORITY: "0.5"},
                PRIORITY,
                "0.5",
                "'0.5' is not a whole number; nvidia.com/priority takes a whole number",
            ),
        ],
    )
    def test_what_cannot_be_meant_is_refused_by_field(
        self, limits: Limits, name: str, value: str, message: str
    ) -> None:
        with pytest.raises(Refusal) as caught:
            NVIDIA.admit(pod({}, limits))
        refusal = caught.value
        assert refusal.field == f"spec.containers[1].resources.limits[{name}]"
        assert (refusal.value, refusal.message) == (value, message)

    @pytest.mark.parametrize("priority", [0, 1, "1"])
    def test_both_priorities_are_taken(self, priority: str | int) -> None:
        assert amounts({GPU: 1, MEMORY: 5, PRIORITY: priority}) == (1, 5, 0, 0)

    def test_an_init_container_is_named_as_one(self) -> None:
        with pytest.raises(Refusal) as caught:
            NVIDIA.admit(pod({}, init=[{GPU: "1.5"}]))
        assert caught.value.field == f"spec.initContainers[0].resources.limits[{GPU}]"

    @pytest.mark.parametrize("wrong", [{PERCENT: 200}, {MEMORY: -1}, {CORES: "0.5"}])
    def test_amounts_that_stand_in_requests_are_named_there(self, wrong: dict[str, Any]) -> None:
        content = {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: 1, **wrong}}}]}}
        with pytest.raises(Refusal) as caught:
            NVIDIA.admit(msgspec.convert(content, manifest.Pod))
        assert [f"spec.containers[0].resources.requests[{name}]" for name in wrong] == [caught.value.field]

    def test_admission_of_an_admitted_pod_changes_nothing(self) -> None:
        once = admitted(NVIDIA, pod({GPU: 1}, {MEMORY: 100}, {PERCENT: 100}))
        assert admitted(NVIDIA, once) == once

    def test_only_what_is_missing_is_filled_in(self) -> None:
        patch = NVIDIA.admit(pod({"cpu": 1}, {GPU: 1}, {CORES: 5}, {GPU: 1, MEMORY: 1}))
        assert patch.limits == {1: {CORES: "100"}, 2: {GPU: "1"}}
        assert not patch.env
        assert not patch.annotations


class TestRegister:
    def test_all_fields_of_a_card_are_taken_over(self) -> None:
        profile = {"name": "1g.10gb", "memoryMB": 9856, "core": 14, "sliceCount": 1, "placements": [{"size": 1}]}
        entry = card(index=3, numa=1, mode="mig", migProfiles=[profile, {"name": "7g.79gb"}])
        node = stocked(seen(entry), NVIDIA)
        assert node.devices == (
            Device(
                "GPU-a",
                3,
                "nvidia",
                model="NVIDIA-T4",
                memory_bytes=8192 * MIB,
                cores=100,
                slots=10,
                numa=1,
                mode="mig",
                mig=(MigProfile("1g.10gb", 9856 * MIB, 14, ((0, 1),)), MigProfile("7g.79gb", 0, 0, ())),
            ),
        )
        assert node.offers == {"hami-nvidia"}

    def test_fields_that_are_left_out_are_zero_and_false(self) -> None:
        (device,) = stocked(seen({"id": "GPU-a"}), NVIDIA).devices
        assert device == Device("GPU-a", 0, "nvidia", memory_bytes=0, cores=0, slots=0, healthy=False, mode="hami-core")

    def test_the_colon_form_of_older_versions_is_read(self) -> None:
        text = "GPU-a,10,8192,100,NVIDIA-T4,0,true:GPU-b,5,4096,90,NVIDIA-P4,1,false:"
        node = stocked(node_of("n1", {}, {REGISTER: text, "hami.io/device-cordon": "GPU-b"}), NVIDIA)
        assert [
            (each.id, each.index, each.model, each.memory_bytes // MIB, each.cores, each.slots) for each in node.devices
        ] == [
            ("GPU-a", 0, "NVIDIA-T4", 8192, 100, 10),
            ("GPU-b", 1, "NVIDIA-P4", 4096, 90, 5),
        ]
        assert [(each.numa, each.healthy, each.cordoned, each.mode) for each in node.devices] == [
            (0, True, False, "hami-core"),
            (1, False, True, "hami-core"),
        ]

    def test_both_forms_describe_the_same_card(self) -> None:
        colons = node_of("n1", {}, {REGISTER: "GPU-a,10,8192,100,NVIDIA-T4,1,true,2,mig:"})
        assert stocked(colons, NVIDIA).devices == stocked(seen(card(index=2, numa=1, mode="mig")), NVIDIA).devices

    def test_cards_that_all_claim_index_0_are_numbered_in_their_order(self) -> None:
        node = stocked(seen(card("GPU-b"), card("GPU-a")), NVIDIA)
        assert [(each.id, each.index) for each in node.devices] == [("GPU-b", 0), ("GPU-a", 1)]

    def test_cordoned_cards_are_kept_from_new_pods(self) -> None:
        node = stocked(
            seen(card("GPU-a"), card("GPU-b", 1), annotations={"hami.io/device-cordon": " GPU-b ,GPU-x"}), NVIDIA
        )
        assert [each.cordoned for each in node.devices] == [False, True]

    def test_pair_scores_become_links(self) -> None:
        scores = [
            {"uuid": "GPU-a", "score": {"GPU-b": 50}},
            {"uuid": "GPU-x", "score": {"GPU-a": 1}},
            {"uuid": "GPU-b"},
        ]
        node = stocked(seen(card("GPU-a"), card("GPU-b", 1), annotations={SCORES: json.dumps(scores)}), NVIDIA)
        assert [each.links for each in node.devices] == [{"GPU-b": 50}, {}]

    @pytest.mark.parametrize(
        "text", ["", "{}", "[{]", '[{"score": {}}]', '[{"uuid": "GPU-a", "score": {"GPU-b": "near"}}]']
    )
    def test_malformed_pair_scores_cost_the_links_and_no_card(self, text: str) -> None:
        sight = NVIDIA.sight(seen(card(), annotations={SCORES: text}), None)
        assert [each.id for each in sight.sightings] == ["GPU-a"]
        (warning,) = sight.warnings
        assert warning.startswith(f"node n1: annotation {SCORES}: ")
        assert warning.endswith("; its cards count as not connected")
        assert sight.offered
        assert not sight.hidden

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "'' is no register"),
            ("null", "'null' is no register"),
            ("[", "Input data was truncated"),
            ("[null]", "Expected `object`, got `null` - at `$[0]`"),
            ('[{"index": 1}]', "Object missing required field `id` - at `$[0]`"),
            ('[{"id": "GPU-a", "devmem": "8Gi"}]', "Expected `int`, got `str` - at `$[0].devmem`"),
            (
                '[{"id": "GPU-a", "migProfiles": [{"name": "x", "placements": [{"start": 0}]}]}]',
                "missing required field `size`",
            ),
            ('[{"id": "GPU-a", "migProfiles": [{"name": "x", "placements": [{"size": 0}]}]}]', "Expected `int` >= 1"),
            ('[{"id": "GPU-a", "more": ' + "[" * 99_999 + "]" * 99_999 + "}]", "the JSON has too many levels"),
            ("GPU-a,10,8192:", "has 3 fields"),
        ],
    )
    def test_a_malformed_register_is_a_warning_that_says_what_is_wrong(self, text: str, complaint: str) -> None:
        sight = NVIDIA.sight(node_of("n1", {GPU: 10}, {REGISTER: text}), None)
        (warning,) = sight.warnings
        assert warning.startswith(f"node n1: annotation {REGISTER}: ")
        assert complaint in warning
        assert not sight.sightings
        assert sight.hidden == "nvidia"
        assert sight.offered

    def test_a_node_offers_the_dialect_by_its_register_or_by_its_resource(self) -> None:
        assert NVIDIA.sight(node_of("n1", {}, {REGISTER: "[]"}), None).offered
        assert NVIDIA.sight(node_of("n1", {GPU: 1}), None).offered
        assert not NVIDIA.sight(node_of("n1", {GPU: "ten"}), None).offered
        assert NVIDIA.sight(node_of("n1", {GPU: 8}), None).source is Source.CAPACITY
        assert not NVIDIA.sight(node_of("n1", {GPU: 8}, allocatable={GPU: 0}), None).offered
        assert not NVIDIA.sight(node_of("n1", {MEMORY: 8}), None).offered

    def test_a_node_publishes_the_slots_of_its_healthy_cards(self) -> None:
        node = stocked(seen(card("GPU-a"), card("GPU-b", 1, health=False), card("GPU-c", 2, count=3)), NVIDIA)
        assert NVIDIA.publish(node).allocatable == {GPU: "13"}
        assert NVIDIA.publish(Node("n2")).allocatable == {}


def bound(asking: manifest.Pod, *grants: Grant, node: Node = MIG_NODE) -> manifest.Pod:
    """The pod as it is after binding."""
    return annotated(asking, NVIDIA.write(asking, Placement("n1", grants), node, NOW))


class TestRecord:
    def test_the_device_string_stands_in_both_annotations(self) -> None:
        asking = pod({}, {GPU: 1})
        written = NVIDIA.write(
            asking,
            Placement("n1", (Grant("hami-nvidia", (1,), Role.APP, (Share("GPU-p", 1, 3000 * MIB, 30),)),)),
            MIG_NODE,
            NOW,
        )
        assert written[TO_ALLOCATE] == written[ALLOCATED] == ";GPU-p,NVIDIA,3000,30:;"
        assert written["hami.io/vgpu-node"] == "n1"
        assert written["hami.io/bind-phase"] == "allocating"
        assert MIG not in written
        assert written.keys() <= NVIDIA.owned

    def test_mig_instances_have_an_annotation_of_their_own(self) -> None:
        share = Share("GPU-m", 0, 9856 * MIB, 14, mig=MigInstance("1g.10gb", 1, 1))
        grant = Grant("hami-nvidia", (1,), Role.APP, (Share("GPU-p", 1, MIB, 0), share))
        running = bound(pod({}, {GPU: 2, MEMORY: 1}), grant)
        assert json.loads(running.annotations[MIG]) == [
            {
                **{"containerIndex": 1, "deviceIndex": 1, "gpuUUID": "GPU-m", "profile": "1g.10gb"},
                **{
                    "placement": {"start": 1, "size": 1},
                    "migUUID": "",
                    "gpuInstanceID": None,
                    "computeInstanceID": None,
                },
            }
        ]
        assert NVIDIA.read(running, MIG_NODE) == (grant,)

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 7), st.sampled_from(["1g.10gb", "3g.40gb"])),
            unique_by=lambda drawn: drawn[0],
        )
    )
    def test_what_is_written_is_read_back(self, drawn: list[tuple[int, int, int, str]]) -> None:
        grants = tuple(
            Grant("hami-nvidia", (i,), Role.APP, (Share("GPU-m", 0, MIB, 1, mig=MigInstance(profile, start, size)),))
            for i, start, size, profile in sorted(drawn)
        )
        asking = pod(*({GPU: 1} if i in {each[0] for each in drawn} else {} for i in range(3)))
        assert NVIDIA.read(bound(asking, *grants), MIG_NODE) == grants

    def test_what_the_agent_adds_does_no_harm(self) -> None:
        grant = Grant("hami-nvidia", (0,), Role.APP, (Share("GPU-m", 0, MIB, 1, mig=MigInstance("1g.10gb", 0, 1)),))
        running = bound(pod({GPU: 1}), grant)
        (entry,) = json.loads(running.annotations[MIG])
        told = {**entry, "placement": {"size": 1}, "migUUID": "MIG-1", "gpuInstanceID": 7, "computeInstanceID": 0}
        assert NVIDIA.read(annotated(running, {MIG: json.dumps([told])}), MIG_NODE) == (grant,)

    def test_instances_of_a_string_that_lost_its_places_are_found(self) -> None:
        """HAMi 2.10 counts both by the same wrong place."""
        entry = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-m", "profile": "1g.10gb"}
        told = json.dumps([{**entry, "placement": {"start": 1, "size": 1}}])
        running = pod({}, {GPU: 1}, annotations={ALLOCATED: "GPU-m,NVIDIA,9856,14:;", MIG: told})
        (grant,) = NVIDIA.read(running, MIG_NODE)
        assert (grant.containers, grant.shares[0].mig) == ((1,), MigInstance("1g.10gb", 1, 1))

    @pytest.mark.parametrize("string", ["GPU-m,NVIDIA,9856,14:;", "GPU-m[1g.10gb-0],NVIDIA,9856,14:;"])
    def test_an_instance_whose_place_nobody_told_blocks_every_place(self, string: str) -> None:
        (grant,) = NVIDIA.read(pod({GPU: 1}, annotations={ALLOCATED: string}), MIG_NODE)
        assert grant.shares == (Share("GPU-m", 0, 9856 * MIB, 14, mig=MigInstance("unknown", 0, 4)),)

    def test_a_card_that_is_not_cut_blocks_none(self) -> None:
        (grant,) = NVIDIA.read(pod({GPU: 1}, annotations={ALLOCATED: "GPU-p,NVIDIA,1,0:GPU-x,NVIDIA,1,0:;"}), MIG_NODE)
        assert [share.mig for share in grant.shares] == [None, None]

    @pytest.mark.parametrize("text", ["[", "{}", '[{"containerIndex": 0}]', '[{"containerIndex": "first"}]'])
    def test_a_malformed_record_of_instances_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="`|truncated"):
            NVIDIA.read(pod({GPU: 1}, annotations={ALLOCATED: "GPU-m,NVIDIA,1,0:;", MIG: text}), MIG_NODE)

    def test_a_pod_that_hami_did_not_place_is_not_judged(self) -> None:
        assert NVIDIA.read(pod({GPU: 1, MEMORY: "16Gi"}), MIG_NODE) == ()

    def test_the_place_of_a_sidecar_without_card_may_be_missing(self) -> None:
        running = pod({}, {GPU: 1, MEMORY: 5}, annotations={ALLOCATED: "GPU-p,NVIDIA,5,0:;"})
        (grant,) = NVIDIA.read(running, MIG_NODE)
        assert grant == Grant("hami-nvidia", (1,), Role.APP, (Share("GPU-p", 1, 5 * MIB, 0),))


def inject(
    asking: manifest.Pod, *shares: Share, position: int = 0, dialect: Dialect = NVIDIA, node: Node = MIG_NODE
) -> Injection:
    return dialect.inject(asking, Grant("hami-nvidia", (position,), Role.APP, shares), position, node)


class TestInjection:
    def test_a_container_sees_its_cards_and_their_limits(self) -> None:
        shares = Share("GPU-p", 1, 3000 * MIB, 30), Share("GPU-m", 0, 4000 * MIB, 30)
        injection = inject(pod({GPU: 2}), *shares)
        assert injection.env == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-p,GPU-m",
            "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
            "CUDA_DEVICE_MEMORY_LIMIT_1": "4000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/default_p_c0.cache",
        }
        assert [each.destination for each in injection.mounts] == [
            "/usr/local/vgpu",
            "/usr/local/vgpu/libvgpu.so",
            "/tmp/vgpulock",
            "/etc/ld.so.preload",
        ]

    def test_without_uuids_the_cards_are_told_by_index(self) -> None:
        assert inject(pod({GPU: 1}), Share("n1-nvidia-1", 1, MIB, 0)).env["NVIDIA_VISIBLE_DEVICES"] == "1"

    @pytest.mark.parametrize(("limits", "told"), [({}, None), ({PRIORITY: 0}, "0"), ({PRIORITY: "1"}, "1")])
    def test_a_priority_is_handed_on(self, limits: Limits, told: str | None) -> None:
        asking = pod({}, {GPU: 1, **limits})
        assert inject(asking, Share("GPU-p", 1, MIB, 0), position=1).env.get("CUDA_TASK_PRIORITY") == told

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            (Names(), None),
            (Names(gpu_core_policy="default"), None),
            (Names(gpu_core_policy=""), None),
            (Names(gpu_core_policy="force"), "force"),
            (Names(gpu_core_policy="force", disable_core_limit=True), "disable"),
        ],
    )
    def test_the_core_policy_of_the_cluster(self, names: Names, told: str | None) -> None:
        env = inject(pod({GPU: 1}), Share("GPU-p", 1, MIB, 0), dialect=Nvidia(names)).env
        assert env.get("GPU_CORE_UTILIZATION_POLICY") == told

    @pytest.mark.parametrize(("scaling", "told"), [(1, None), (0.5, None), (1.5, "true")])
    def test_a_cluster_that_promises_more_memory_than_there_is_says_so(self, scaling: float, told: str | None) -> None:
        dialect = Nvidia(Names(device_memory_scaling=scaling))
        assert inject(pod({GPU: 1}), Share("GPU-p", 1, MIB, 0), dialect=dialect).env.get("CUDA_OVERSUBSCRIBE") == told

    @pytest.mark.parametrize(("value", "preloaded"), [("true", False), ("false", True), (None, True)])
    def test_a_user_may_switch_the_library_off(self, value: str | None, preloaded: bool) -> None:
        content = {
            "metadata": {"name": "p", "uid": "u-1"},
            "spec": {
                "containers": [
                    {"name": "main", "env": [{"name": "CUDA_DISABLE_CONTROL", "value": value}]},
                ]
            },
        }
        mounts = inject(msgspec.convert(content, manifest.Pod), Share("GPU-p", 1, MIB, 0)).mounts
        assert any(each.destination == "/etc/ld.so.preload" for each in mounts) is preloaded
        assert Mount("/usr/local/vgpu", "/usr/local/vgpu/containers/u-1_main", purpose=Purpose.ACCOUNT) in mounts
