from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, QuotaUnit, hami
from subak.dialects.amounts import asked
from subak.dialects.config import Config
from subak.dialects.config import Mthreads as Names
from subak.dialects.mthreads import Mthreads, part_sizes
from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, SPREAD
from tests.dialects.manifests import Limits, admitted, annotated, node_of, pod, pod_of, stocked

S4000 = Mthreads(Names())
S5000 = Mthreads(Config.of({"mthreads": {"memoryPerCard": [160]}}).mthreads)
DIALECT: Dialect = S4000

VGPU, MEMORY, CORE = "mthreads.com/vgpu", "mthreads.com/sgpu-memory", "mthreads.com/sgpu-core"

# The pod of Moore Threads' support document, as it stands there.
DOCUMENT = """
apiVersion: v1
kind: Pod
metadata:
  name: gpushare-pod-default
spec:
  restartPolicy: OnFailure
  containers:
    - image: core.harbor.zlidc.mthreads.com:30003/mt-ai/lm-qy2:v17-mpc
      imagePullPolicy: IfNotPresent
      name: gpushare-pod-1
      command: ["sleep"]
      args: ["100000"]
      resources:
        limits:
          mthreads.com/vgpu: 1
          mthreads.com/sgpu-memory: 32
          mthreads.com/sgpu-core: 8
"""


def filled(dialect: Mthreads, limits: Limits) -> dict[str, str]:
    """The limits of the only container after admission."""
    container = admitted(dialect, pod(limits)).spec.containers[0]
    return {name: str(amount) for name, amount in container.limits.items()}


def share(index: int, mib: int = 16384, cores: int = 8) -> Share:
    return Share(f"n1-mthreads-{index}", index, mib * MIB, cores)


class TestAdmission:
    @pytest.mark.parametrize(
        ("limits", "memory", "core"),
        [
            ({VGPU: "2", MEMORY: "2", CORE: "1"}, "192", "32"),
            ({VGPU: "1"}, "96", "16"),
            ({VGPU: "1", CORE: "16"}, "96", "16"),
            ({VGPU: "1", MEMORY: "2", CORE: "1"}, "2", "1"),
            ({VGPU: "3"}, "288", "48"),
        ],
    )
    def test_whole_cards_are_filled_in_and_parts_are_kept(self, limits: Limits, memory: str, core: str) -> None:
        assert filled(S4000, limits) == {VGPU: limits[VGPU], MEMORY: memory, CORE: core}

    def test_several_cards_are_announced_to_the_vendor(self) -> None:
        assert S4000.admit(pod({VGPU: 2})).annotations == {"mthreads.com/request-gpu-num": "2"}
        assert not S4000.admit(pod({VGPU: 1})).annotations

    def test_the_documents_pod_is_taken_as_it_is(self) -> None:
        patch = S4000.admit(pod_of(DOCUMENT))
        assert not patch.limits
        assert not patch.annotations
        assert not patch.env

    def test_a_count_that_is_only_requested_gets_limits(self) -> None:
        text = f"spec: {{containers: [{{name: c, resources: {{requests: {{{VGPU}: 1}}}}}}]}}"
        assert S4000.admit(pod_of(text)).limits == {0: {CORE: "16", MEMORY: "96"}}

    @pytest.mark.parametrize("count", [0, "0", -1, "-2", "-500m"])
    def test_a_count_below_one_is_refused_in_hamis_words(self, count: str | int) -> None:
        with pytest.raises(Refusal) as caught:
            S4000.admit(pod({VGPU: count, MEMORY: 2}))
        assert str(caught.value) == "mthreads.com/vgpu must be greater than 0"
        assert caught.value.field == "spec.containers[0].resources.limits[mthreads.com/vgpu]"
        assert caught.value.value == str(count)

    @pytest.mark.parametrize("memory", [0, 1, 3, 48, 97, 128, "16Gi"])
    def test_other_sizes_of_memory_are_refused_in_hamis_words(self, memory: str | int) -> None:
        with pytest.raises(Refusal) as caught:
            S4000.admit(pod({VGPU: 1, MEMORY: memory, CORE: 1}))
        expected = "sGPU memory request value is invalid, valid values are [2, 4, 8, 16, 32, 64, 96]"
        assert str(caught.value) == expected
        assert caught.value.field == "spec.containers[0].resources.limits[mthreads.com/sgpu-memory]"

    @pytest.mark.parametrize("memory", [2, 4, 8, 16, 32, 64, 96])
    def test_all_legal_sizes_pass(self, memory: int) -> None:
        assert not S4000.admit(pod({VGPU: 1, MEMORY: memory})).limits

    @pytest.mark.parametrize(
        ("limits", "field", "message"),
        [
            ({VGPU: "1.5"}, VGPU, "takes a whole number of cards"),
            ({VGPU: 1, MEMORY: "2.5"}, MEMORY, "units of 512 MiB"),
            ({VGPU: 1, MEMORY: -2}, MEMORY, "must not be negative"),
            ({VGPU: 1, MEMORY: "lots"}, MEMORY, "not a quantity"),
            ({VGPU: 1, MEMORY: 2, CORE: 17}, CORE, "a card has 16: give at most 16"),
            ({VGPU: 1, CORE: 4}, CORE, "without mthreads.com/sgpu-memory the whole card is meant: add"),
            ({MEMORY: 32}, VGPU, "add mthreads.com/vgpu: 1"),
            ({CORE: 8}, VGPU, "add mthreads.com/vgpu: 1"),
            ({VGPU: 1, "mthreads.com/gpu": 1}, "mthreads.com/gpu", "cannot be mixed"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_by_field(self, limits: Limits, field: str, message: str) -> None:
        with pytest.raises(Refusal, match=message) as caught:
            S4000.admit(pod({}, limits))
        assert caught.value.field == f"spec.containers[1].resources.limits[{field}]"

    def test_several_containers_cannot_have_several_cards(self) -> None:
        asking = pod({VGPU: 1, MEMORY: 2}, {}, {VGPU: 2})
        for attempt in (S4000.admit, S4000.ask):
            with pytest.raises(Refusal, match="Device sharing for multi-cards is not supported.*only one") as caught:
                attempt(asking)
            assert caught.value.field == "spec.containers[2].resources.limits[mthreads.com/vgpu]"

    def test_one_container_with_several_cards_may_have_neighbours_without(self) -> None:
        assert S4000.admit(pod({}, {VGPU: 2})).limits == {1: {CORE: "32", MEMORY: "192"}}

    def test_an_unknown_policy_is_refused(self) -> None:
        with pytest.raises(Refusal, match="'tightest' is no policy"):
            S4000.admit(pod({VGPU: 1}, annotations={hami.NODE_POLICY: "tightest"}))

    @pytest.mark.parametrize("limits", [{VGPU: 1}, {VGPU: 2}, {VGPU: 1, MEMORY: 32, CORE: 8}])
    def test_admission_of_an_admitted_pod_changes_nothing(self, limits: Limits) -> None:
        once = admitted(S4000, pod(limits))
        assert admitted(S4000, once) == once


class TestLargerCards:
    def test_the_s5000_has_its_own_sizes(self) -> None:
        assert S5000.sizes == [2, 4, 8, 16, 32, 64, 128, 160]
        assert part_sizes((96, 160)) == [2, 4, 8, 16, 32, 64, 96, 128, 160]
        with pytest.raises(Refusal, match=r"valid values are \[2, 4, 8, 16, 32, 64, 128, 160\]"):
            S5000.admit(pod({VGPU: 1, MEMORY: 96}))

    def test_whole_cards_have_the_largest_size(self) -> None:
        assert filled(S5000, {VGPU: 1}) == {VGPU: "1", MEMORY: "160", CORE: "16"}
        assert filled(S5000, {VGPU: "2"}) == {VGPU: "2", MEMORY: "320", CORE: "32"}


class TestAsking:
    def test_the_documents_pod_asks_for_half_the_cores_and_16_gib(self) -> None:
        ask = S4000.ask(pod_of(DOCUMENT))
        (claim,) = ask.claims
        assert (claim.count, claim.memory_bytes, claim.memory_percent, claim.cores) == (1, 16384 * MIB, 0, 8)
        assert claim.families == {"mthreads"}
        assert claim.dialect == "hami-mthreads"
        assert (ask.node_policy, claim.policy.order) == (BINPACK, (SPREAD,))

    def test_amounts_are_divided_among_the_cards(self) -> None:
        (claim,) = S4000.ask(admitted(S4000, pod({VGPU: 2}))).claims
        assert (claim.count, claim.memory_bytes, claim.memory_percent, claim.cores) == (2, 49152 * MIB, 0, 16)

    def test_a_pod_that_no_admission_filled_in_means_all_memory(self) -> None:
        text = f"spec: {{containers: [{{name: c, resources: {{limits: {{}}, requests: {{{VGPU}: '1'}}}}}}]}}"
        asking = pod_of(text)
        (claim,) = S4000.ask(asking).claims
        assert (claim.count, claim.memory_bytes, claim.memory_percent, claim.cores) == (1, 0, 100, 0)
        assert S4000.amounts(asked(asking)[0]) == {"count": 1, "memory_bytes": 0, "percent": 100, "cores": 0}

    def test_the_containers_of_a_pod_share_one_card(self) -> None:
        ask = S4000.ask(pod({VGPU: 1, MEMORY: 32}, {VGPU: 1, MEMORY: 16}))
        assert all(claim.together for claim in ask.claims)
        assert [claim.containers for claim in ask.claims] == [(0,), (1,)]
        with_init = S4000.ask(pod({VGPU: 1, MEMORY: 32}, init=[{VGPU: 1, MEMORY: 2}]))
        assert all(claim.together for claim in with_init.claims)

    def test_cores_above_a_hundred_are_clamped(self) -> None:
        (claim,) = S4000.ask(pod({VGPU: 1, MEMORY: 2, CORE: 120})).claims
        assert claim.cores == 100

    def test_a_mistake_of_unit_is_refused_even_without_admission(self) -> None:
        with pytest.raises(Refusal, match="counts units of 512 MiB"):
            S4000.ask(pod({VGPU: 1, MEMORY: "16Gi"}))

    def test_cards_are_chosen_by_id(self) -> None:
        chosen = {
            "mthreads.ai/use-gpuuuid": "n1-mthreads-0,n1-mthreads-1",
            "mthreads.ai/nouse-gpuuuid": "n1-mthreads-1",
        }
        (claim,) = S4000.ask(pod({VGPU: 1}, annotations=chosen)).claims
        assert [claim.selection.admits_id(f"n1-mthreads-{i}") for i in range(3)] == [True, False, False]

    def test_pods_of_other_vendors_are_not_spoken_for(self) -> None:
        assert not S4000.speaks(pod({"nvidia.com/gpu": 1}))
        assert not S4000.speaks(pod({"mthreads.com/gpu": 1}))
        assert S4000.speaks(pod({}, {MEMORY: 2}))


def test_quotas_count_blocks_of_memory_and_cores() -> None:
    assert S4000.quota_units == {
        MEMORY: QuotaUnit("hami-mthreads", memory=True, factor=512),
        CORE: QuotaUnit("hami-mthreads", memory=False),
    }


class TestNodes:
    @pytest.mark.parametrize(
        ("capacity", "cards", "mib"),
        [
            ({CORE: 1, MEMORY: 1}, 1, 8192),
            ({CORE: 128, MEMORY: 768}, 8, 49152),
            ({CORE: "17", MEMORY: "96"}, 2, 46260),
            ({CORE: 16, MEMORY: 160}, 1, 81920),
        ],
    )
    def test_cards_follow_from_the_capacity(self, capacity: Limits, cards: int, mib: int) -> None:
        node = stocked(node_of("n1", capacity), DIALECT)
        assert [card.id for card in node.devices] == [f"n1-mthreads-{i}" for i in range(cards)]
        assert {(card.memory_bytes, card.cores, card.slots) for card in node.devices} == {(mib * MIB, 16, 100)}
        assert node.offers == {"hami-mthreads"}

    @pytest.mark.parametrize("capacity", [{CORE: 16}, {CORE: "x", MEMORY: 96}])
    def test_capacity_that_tells_no_cards_is_a_warning(self, capacity: Limits) -> None:
        sight = S4000.sight(node_of("n1", capacity), None)
        assert not sight.sightings
        assert "mthreads.com/sgpu-core and mthreads.com/sgpu-memory must both" in sight.warnings[0]

    def test_capacity_is_the_sum_over_healthy_cards(self) -> None:
        node = stocked(node_of("n1", {CORE: 48, MEMORY: 288}), S4000)
        assert S4000.publish(node).allocatable == {VGPU: "300", MEMORY: "288", CORE: "48"}
        first, *rest = node.devices
        broken = replace(node, devices=(msgspec.structs.replace(first, healthy=False), *rest))
        assert S4000.publish(broken).allocatable == {VGPU: "200", MEMORY: "192", CORE: "32"}
        others = replace(node, devices=tuple(msgspec.structs.replace(each, family="nvidia") for each in node.devices))
        assert S4000.publish(others).allocatable == S4000.publish(Node("n2")).allocatable == {}

    def test_the_vendors_agent_needs_no_lock(self) -> None:
        assert (S4000.agent.lock, S4000.agent.handshake) == ("", "")


class TestRecords:
    def test_hamis_and_the_vendors_annotations_are_written(self) -> None:
        placement = Placement("n1", (Grant(S4000.name, (0,), Role.APP, (share(1),)),))
        written = S4000.write(pod_of(DOCUMENT), placement, Node("n1"), 1_700_000_000_123_456_789)
        assert written == {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-phase": "allocating",
            "hami.io/bind-time": "1700000000",
            "hami.io/mthreads-vgpu-devices-allocated": "n1-mthreads-1,Mthreads,16384,8:;",
            "mthreads.com/gpu-index": "1",
            "mthreads.com/predicate-time": "1700000000123456789",
            "mthreads.com/predicate-node": "n1",
        }
        assert S4000.owned >= written.keys()

    def test_indices_are_listed_in_the_order_of_allocation(self) -> None:
        placement = Placement("n1", (Grant(S4000.name, (1,), Role.APP, (share(1, 49152, 16), share(0, 49152, 16))),))
        written = S4000.write(pod({}, {VGPU: 2}), placement, Node("n1"), 1)
        assert written["mthreads.com/gpu-index"] == "1,0"
        assert written["hami.io/mthreads-vgpu-devices-allocated"].startswith(";n1-mthreads-1,")

    @given(data=st.data())
    def test_what_is_written_is_read_back(self, data: st.DataObject) -> None:
        asks = data.draw(st.lists(st.booleans(), min_size=1, max_size=4).filter(any))
        asking = pod(*({VGPU: 1, MEMORY: 2} if each else {} for each in asks))
        node = stocked(node_of("n1", {CORE: 128, MEMORY: 768}), S4000)
        shares = st.builds(share, st.integers(0, 7), st.integers(1, 49152), st.integers(0, 16))
        grants = tuple(
            Grant(S4000.name, (position,), Role.APP, (data.draw(shares),)) for position, each in enumerate(asks) if each
        )
        written = S4000.write(asking, Placement("n1", grants), node, 1)
        assert S4000.read(annotated(asking, written), node) == grants

    def test_malformed_records_are_an_error(self) -> None:
        bound = annotated(pod({VGPU: 1}), {"hami.io/mthreads-vgpu-devices-allocated": "n1-mthreads-1,Mthreads:;"})
        with pytest.raises(ValueError, match="device string"):
            S4000.read(bound, Node("n1"))

    def test_a_pod_without_records_holds_nothing(self) -> None:
        assert S4000.read(pod_of(DOCUMENT), Node("n1")) == ()
        assert S4000.read(pod({VGPU: "many"}), Node("n1")) == ()

    def test_the_runtime_learns_cards_and_limits(self) -> None:
        grant = Grant(S4000.name, (0,), Role.APP, (share(3), share(1)))
        assert S4000.inject(pod({VGPU: 2}), grant, 0, Node("n1")).env == {
            "MTHREADS_VISIBLE_DEVICES": "3,1",
            "MTHREADS_QOS_MEMORY_LIMIT": str(16 << 30),
            "MTHREADS_QOS_COMPUTING_POWER_WEIGHT": "8",
        }

    def test_no_share_of_cores_is_no_weight(self) -> None:
        grant = Grant(S4000.name, (0,), Role.APP, (share(0, cores=0),))
        injection = S4000.inject(pod({VGPU: 1, MEMORY: 32}), grant, 0, Node("n1"))
        assert "MTHREADS_QOS_COMPUTING_POWER_WEIGHT" not in injection.env


def test_renamed_resources_are_understood() -> None:
    renamed = Mthreads(msgspec.structs.replace(Names(), resource_count_name="example.com/cards"))
    assert renamed.admit(pod({"example.com/cards": 1})).limits == {0: {CORE: "16", MEMORY: "96"}}
