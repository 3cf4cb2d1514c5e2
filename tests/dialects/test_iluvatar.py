from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Dialect, QuotaUnit, Source, hami
from subak.dialects.amounts import asked
from subak.dialects.config import Config
from subak.dialects.config import Iluvatar as LegacyNames
from subak.dialects.iluvatar import IluvatarChip, IluvatarLegacy, vendor_annotations
from subak.model import manifest
from subak.model.device import MIB
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, SPREAD
from tests.dialects.manifests import Limits, admitted, annotated, node_of, pod, pod_of, stocked

LEGACY: Dialect = IluvatarLegacy(LegacyNames())
CHIPS = {names.common_word: IluvatarChip(names) for names in Config().iluvatars}
MR_V100, BI_V150 = CHIPS["MR-V100"], CHIPS["BI-V150"]

VGPU, MEMORY, CORE = "iluvatar.ai/vgpu", "iluvatar.ai/vcuda-memory", "iluvatar.ai/vcuda-core"
MR_VGPU, MR_MEMORY, MR_CORE = "iluvatar.ai/MR-V100-vgpu", "iluvatar.ai/MR-V100.vMem", "iluvatar.ai/MR-V100.vCore"

# The pod of Iluvatar's support document, as it stands there.
DOCUMENT = """
apiVersion: v1
kind: Pod
metadata:
  name: poddemo
spec:
  restartPolicy: Never
  containers:
  - name: poddemo
    image: harbor.4pd.io/vgpu/corex_transformers@sha256:36a01ec452e6ee63c7aa08bfa1fa16d469ad19cc1e6000cf120ada83e4ceec1e
    command: 
    - bash
    args:
    - -c
    - |
      set -ex
      echo "export LD_LIBRARY_PATH=/usr/local/corex/lib64:$LD_LIBRARY_PATH">> /root/.bashrc
      cp -f /usr/local/iluvatar/lib64/libcuda.* /usr/local/corex/lib64/
      cp -f /usr/local/iluvatar/lib64/libixml.* /usr/local/corex/lib64/
      source /root/.bashrc
      sleep 360000
    resources:
      requests:
        iluvatar.ai/vgpu: 1
        iluvatar.ai/vcuda-core: 50
        iluvatar.ai/vcuda-memory: 64
      limits:
        iluvatar.ai/vgpu: 1
        iluvatar.ai/vcuda-core: 50
        iluvatar.ai/vcuda-memory: 64
"""  # noqa: W291

REGISTER = "GPU-a,10,32768,100,MR-V100,0,true:GPU-b,10,32768,100,MR-V100,1,false:"
"""Two cards in the register, the second broken."""


def amounts(dialect: IluvatarLegacy | IluvatarChip, limits: Limits) -> tuple[int, int, int, int] | None:
    """Cards, MiB, percent and cores."""
    found = dialect.amounts(asked(pod(limits))[0])
    return found and (found["count"], found["memory_bytes"] // MIB, found["percent"], found["cores"])


def share(index: int, mib: int = 16384, cores: int = 50, id: str = "") -> Share:
    return Share(id or f"n1-iluvatar-{index}", index, mib * MIB, cores)


class TestAsking:
    def test_the_documents_pod_is_taken_as_it_is_and_asks_for_half_a_card(self) -> None:
        document = pod_of(DOCUMENT)
        assert LEGACY.speaks(document)
        assert not LEGACY.admit(document).limits
        assert not LEGACY.admit(document).env
        ask = LEGACY.ask(document)
        (claim,) = ask.claims
        assert (claim.count, claim.memory_bytes, claim.memory_percent, claim.cores) == (1, 16384 * MIB, 0, 50)
        assert claim.families == {"iluvatar"}
        assert claim.dialect == "hami-iluvatar"
        assert not claim.selection.models
        assert (ask.node_policy, claim.policy.order) == (BINPACK, (SPREAD,))

    @pytest.mark.parametrize(
        ("word", "limits", "expected"),
        [
            ("MR-V100", {MR_VGPU: "1"}, (1, 0, 100, 0)),
            ("MR-V100", {}, None),
            ("MR-V100", {MR_VGPU: "1", MR_MEMORY: "0"}, (1, 0, 100, 0)),
            ("MR-V100", {MR_VGPU: 0}, None),
            (
                "BI-V150",
                {"iluvatar.ai/BI-V150-vgpu": "1", "iluvatar.ai/BI-V150.vCore": "50", "iluvatar.ai/BI-V150.vMem": "64"},
                (1, 16384, 0, 50),
            ),
            ("MR-V100", {MR_VGPU: "2", MR_MEMORY: "64"}, (2, 16384, 0, 0)),
            ("MR-V100", {MR_VGPU: "1", MR_MEMORY: "1k"}, (1, 256000, 0, 0)),
            ("MR-V100", {"iluvatar.ai/BI-V150-vgpu": 1}, None),
        ],
    )
    def test_amounts_of_the_newer_generation(self, word: str, limits: Limits, expected: object) -> None:
        assert amounts(CHIPS[word], limits) == expected

    def test_limits_and_requests_are_read_alike(self) -> None:
        only_requests = {"spec": {"containers": [{"name": "c", "resources": {"requests": {VGPU: 1, MEMORY: 64}}}]}}
        (claim,) = LEGACY.ask(msgspec.convert(only_requests, manifest.Pod)).claims
        assert (claim.count, claim.memory_bytes) == (1, 16384 * MIB)

    def test_a_claim_of_the_newer_generation_means_its_model_only(self) -> None:
        (claim,) = MR_V100.ask(pod({MR_VGPU: 1})).claims
        assert claim.selection.admits_type("MR-V100")
        assert not claim.selection.admits_type("BI-V100")
        assert not claim.selection.admits_type("")

    def test_each_generation_has_its_own_words_for_choosing_cards(self) -> None:
        chosen = {"iluvatar.ai/use-gpuuuid": "a, b", "iluvatar.ai/nouse-gpuuuid": "b"}
        (old,) = LEGACY.ask(pod({VGPU: 1}, annotations=chosen)).claims
        assert [old.selection.admits_id(id) for id in ("a", "b", "c")] == [True, False, False]
        chosen = {"hami.io/use-MR-V100-uuid": "a,b", "hami.io/no-use-MR-V100-uuid": "b"}
        (new,) = MR_V100.ask(pod({MR_VGPU: 1}, annotations=chosen)).claims
        assert [new.selection.admits_id(id) for id in ("a", "b", "c")] == [True, False, False]
        (other,) = BI_V150.ask(pod({"iluvatar.ai/BI-V150-vgpu": 1}, annotations=chosen)).claims
        assert other.selection.admits_id("c")

    def test_policies_of_the_pod_are_honoured(self) -> None:
        wish = {hami.NODE_POLICY: "spread", hami.CARD_POLICY: "binpack"}
        ask = LEGACY.ask(pod({VGPU: 1}, annotations=wish))
        assert (ask.node_policy, ask.claims[0].policy.order) == (SPREAD, (BINPACK,))

    def test_init_containers_ask_too_in_their_role(self) -> None:
        ask = LEGACY.ask(pod({}, {VGPU: 1}, init=[{VGPU: 1}]))
        assert [(claim.containers, claim.role) for claim in ask.claims] == [((0,), Role.INIT), ((2,), Role.APP)]


class TestAdmission:
    def test_more_than_one_card_means_all_cores_of_each(self) -> None:
        asking = pod({VGPU: 2})
        assert LEGACY.admit(asking).limits == {0: {CORE: "200"}}
        (claim,) = LEGACY.ask(admitted(LEGACY, asking)).claims
        assert (claim.count, claim.cores, claim.memory_percent) == (2, 100, 100)

    @pytest.mark.parametrize(
        ("limits", "field", "message"),
        [
            ({VGPU: 1, CORE: 101}, CORE, "iluvatar.ai/vcuda-core is 101, but a card has 100: give at most 100"),
            ({VGPU: 2, MEMORY: 64}, MEMORY, "iluvatar.ai/vcuda-memory is 64, but 2 cards are given whole: leave"),
            ({VGPU: 2, CORE: 30}, CORE, "iluvatar.ai/vcuda-core is 30, but 2 cards are given whole: leave"),
        ],
    )
    def test_a_part_that_no_card_gives_is_refused(self, limits: Limits, field: str, message: str) -> None:
        with pytest.raises(Refusal, match=message) as caught:
            LEGACY.admit(pod(limits))
        assert caught.value.field == f"spec.containers[0].resources.limits[{field}]"

    def test_what_hami_admitted_is_still_read(self) -> None:
        """A running pod counts, whatever its amounts."""
        (claim,) = LEGACY.ask(pod({VGPU: 2, CORE: 200, MEMORY: 64})).claims
        assert (claim.count, claim.cores, claim.memory_bytes) == (2, 100, 16384 * MIB)

    def test_two_whole_cards_of_the_newer_generation(self) -> None:
        (claim,) = MR_V100.ask(admitted(MR_V100, pod({MR_VGPU: 2}))).claims
        assert (claim.count, claim.cores, claim.memory_percent) == (2, 100, 100)

    def test_one_card_keeps_its_amounts_and_learns_the_containers_name(self) -> None:
        patch = MR_V100.admit(pod({}, {MR_VGPU: "1", MR_CORE: "50"}))
        assert not patch.limits
        assert patch.env == {1: {"SOL_CONTINER_NAME": "c1"}}

    def test_a_name_that_the_user_set_stays(self) -> None:
        text = f"""
            spec:
              containers:
              - {{name: c, env: [{{name: SOL_CONTINER_NAME, value: mine}}], resources: {{limits: {{{MR_VGPU}: 1}}}}}}
        """
        asking = pod_of(text)
        assert not MR_V100.admit(asking).env
        grant = Grant(MR_V100.name, (0,), Role.APP, (share(0),))
        assert MR_V100.inject(asking, grant, 0, Node("n1")).env == {"SOL_CONTINER_NAME": "mine"}

    def test_the_older_generation_gets_no_variable(self) -> None:
        assert not LEGACY.admit(pod({VGPU: 1})).env
        grant = Grant(LEGACY.name, (0,), Role.APP, (share(0),))
        assert not LEGACY.inject(pod({VGPU: 1}), grant, 0, Node("n1")).env

    @pytest.mark.parametrize("dialect", [LEGACY, MR_V100])
    def test_admission_of_an_admitted_pod_changes_nothing(self, dialect: Dialect) -> None:
        once = admitted(dialect, pod({VGPU: 3, MR_VGPU: 2}))
        assert admitted(dialect, once) == once

    @pytest.mark.parametrize(
        ("limits", "field", "message"),
        [
            ({VGPU: 1, MEMORY: "16Gi"}, MEMORY, "counts units of 256 MiB, so 16Gi means"),
            ({VGPU: 1, MEMORY: "65537"}, MEMORY, "units of 256 MiB"),
            ({VGPU: 1, MEMORY: "0.5"}, MEMORY, "takes a whole number of units of 256 MiB"),
            ({VGPU: "500m"}, VGPU, "takes a whole number of cards"),
            ({VGPU: -1}, VGPU, "must not be negative"),
            ({VGPU: 1, CORE: "half"}, CORE, "not a quantity"),
            ({CORE: 50}, VGPU, "add iluvatar.ai/vgpu: 1"),
            ({MEMORY: 64}, VGPU, "add iluvatar.ai/vgpu: 1"),
            ({VGPU: 0, MEMORY: 64}, VGPU, "add iluvatar.ai/vgpu: 1"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_by_field(self, limits: Limits, field: str, message: str) -> None:
        for attempt in (LEGACY.admit, LEGACY.ask):
            with pytest.raises(Refusal, match=message) as caught:
                attempt(pod({}, limits))
            assert caught.value.field == f"spec.containers[1].resources.limits[{field}]"

    def test_the_largest_amount_of_memory_that_a_card_may_have_is_taken(self) -> None:
        (claim,) = LEGACY.ask(pod({VGPU: 1, MEMORY: 65536})).claims
        assert claim.memory_bytes == 65536 * 256 * MIB

    def test_the_missing_count_of_the_newer_generation_is_named(self) -> None:
        with pytest.raises(Refusal, match="add iluvatar.ai/MR-V100-vgpu: 1"):
            MR_V100.admit(pod({MR_CORE: 50}))

    def test_an_unknown_policy_is_refused(self) -> None:
        with pytest.raises(Refusal, match="'tightest' is no policy"):
            LEGACY.admit(pod({VGPU: 1}, annotations={hami.CARD_POLICY: "tightest"}))


def test_quotas_count_blocks_of_memory_and_cores() -> None:
    assert MR_V100.quota_units == {
        MR_MEMORY: QuotaUnit("hami-iluvatar-MR-V100", memory=True, factor=256),
        MR_CORE: QuotaUnit("hami-iluvatar-MR-V100", memory=False),
    }


class TestNodes:
    def test_sixteen_cards_follow_from_the_capacity(self) -> None:
        seen = node_of("n1", {CORE: "1600", MEMORY: "2048"})
        node = stocked(seen, LEGACY)
        assert len(node.devices) == 16
        first = node.devices[0]
        assert (first.id, first.memory_bytes, first.cores, first.slots) == ("n1-iluvatar-0", 32768 * MIB, 100, 100)
        assert node.offers == {"hami-iluvatar"}

    def test_a_rest_of_cores_is_one_more_card(self) -> None:
        node = stocked(node_of("n1", {CORE: "150", MEMORY: "3"}), LEGACY)
        assert [each.index for each in node.devices] == [0, 1]
        assert node.devices[0].memory_bytes == 512 * MIB

    def test_the_register_is_believed_before_the_capacity(self) -> None:
        seen = node_of("n1", {MR_CORE: 1600, MR_MEMORY: 2048}, {"hami.io/node-MR-V100-register": REGISTER})
        assert MR_V100.sight(seen, None).source is Source.REGISTER
        node = stocked(seen, MR_V100)
        assert [(card.id, card.index, card.healthy, card.numa) for card in node.devices] == [
            ("GPU-a", 0, True, 0),
            ("GPU-b", 1, False, 1),
        ]
        assert {(card.model, card.memory_bytes, card.cores, card.slots) for card in node.devices} == {
            ("MR-V100", 32768 * MIB, 100, 10)
        }

    def test_a_register_alone_offers_the_dialect_of_its_model_only(self) -> None:
        seen = node_of("n1", {}, {"hami.io/node-MR-V100-register": REGISTER})
        assert MR_V100.sight(seen, None).offered
        assert not BI_V150.sight(seen, None).offered
        assert not LEGACY.sight(seen, None).offered

    def test_the_index_of_the_long_register_form_is_kept(self) -> None:
        text = "GPU-a,10,8192,100,MR-V100,0,true,3,hami-core:GPU-b,10,8192,100,MR-V100,0,true,1,hami-core:"
        node = stocked(node_of("n1", {}, {"hami.io/node-MR-V100-register": text}), MR_V100)
        assert [(card.id, card.index) for card in node.devices] == [("GPU-b", 1), ("GPU-a", 3)]

    @pytest.mark.parametrize(("type", "fits"), [("Iluvatar mr-v100 32G", True), ("BI-V100", False)])
    def test_the_word_within_the_registered_type_is_enough(self, type: str, fits: bool) -> None:
        text = f"GPU-a,10,8192,100,{type},0,true:"
        node = stocked(node_of("n1", {}, {"hami.io/node-MR-V100-register": text}), MR_V100)
        (claim,) = MR_V100.ask(pod({MR_VGPU: 1})).claims
        assert claim.selection.admits_type(node.devices[0].model) is fits

    def test_without_a_register_the_newer_generation_reads_the_capacity(self) -> None:
        node = stocked(node_of("n1", {MR_CORE: "1600", MR_MEMORY: "2048"}), MR_V100)
        assert len(node.devices) == 16
        assert (node.devices[15].id, node.devices[15].model) == ("n1-iluvatar-15", "MR-V100")
        assert node.offers == {"hami-iluvatar-MR-V100"}

    def test_both_generations_describe_the_same_cards_once(self) -> None:
        both = {CORE: 200, MEMORY: 256, MR_CORE: 200, MR_MEMORY: 256}
        node = stocked(node_of("n1", both), LEGACY, MR_V100)
        assert [(card.id, card.model) for card in node.devices] == [
            ("n1-iluvatar-0", "MR-V100"),
            ("n1-iluvatar-1", "MR-V100"),
        ]
        assert node.offers == {"hami-iluvatar", "hami-iluvatar-MR-V100"}
        registered = stocked(node_of("n1", both, {"hami.io/node-MR-V100-register": REGISTER}), LEGACY, MR_V100)
        assert [card.id for card in registered.devices] == ["GPU-a", "GPU-b"]

    @pytest.mark.parametrize("text", ["", "nonsense", "GPU-a,10:", ",:", "GPU-a,ten,8192,100,MR-V100,0,true:"])
    def test_an_unreadable_register_is_a_warning_and_no_cards(self, text: str) -> None:
        seen = node_of("n1", {MR_CORE: 100, MR_MEMORY: 128}, {"hami.io/node-MR-V100-register": text})
        sight = MR_V100.sight(seen, None)
        assert sight.offered
        assert not sight.sightings
        assert "hami.io/node-MR-V100-register" in sight.warnings[0]

    @pytest.mark.parametrize(
        "capacity", [{CORE: 100}, {MEMORY: 128}, {CORE: "many", MEMORY: 128}, {CORE: 100, MEMORY: -1}, {VGPU: 8}]
    )
    def test_capacity_that_tells_no_cards_is_a_warning(self, capacity: Limits) -> None:
        sight = LEGACY.sight(node_of("n1", capacity), None)
        assert not sight.sightings
        assert len(sight.warnings) == 1
        assert sight.warnings[0].startswith("node n1: its cards are unknown")

    @pytest.mark.parametrize("capacity", [{}, {"cpu": 8}, {CORE: "0", MEMORY: 0}])
    def test_a_node_without_such_cards_offers_nothing_and_warns_of_nothing(self, capacity: Limits) -> None:
        for dialect in (LEGACY, MR_V100):
            sight = dialect.sight(node_of("n1", capacity), None)
            assert (sight.offered, sight.sightings, sight.warnings) == (False, (), ())

    def test_broken_devices_leave_allocatable_but_do_not_renumber_cards(self) -> None:
        seen = node_of("n1", {CORE: 800, MEMORY: 1024}, allocatable={CORE: 700, MEMORY: 896})
        assert [each.supposed_healthy for each in LEGACY.sight(seen, None).sightings] == [True] * 7 + [False]

    def test_capacity_is_the_sum_over_healthy_cards_of_the_model(self) -> None:
        node = stocked(node_of("n1", {CORE: "400", MEMORY: "512"}), LEGACY)
        first, second, *rest = node.devices
        mixed = replace(
            node,
            devices=(
                msgspec.structs.replace(first, healthy=False),
                msgspec.structs.replace(second, model="MR-V100"),
                *rest,
            ),
        )
        assert LEGACY.publish(mixed).allocatable == {VGPU: "300", MEMORY: "384", CORE: "300"}
        assert MR_V100.publish(mixed).allocatable == {MR_VGPU: "100", MR_MEMORY: "128", MR_CORE: "100"}
        assert BI_V150.publish(mixed).allocatable == {}

    @given(cards=st.integers(1, 16), blocks=st.integers(1, 1024))
    def test_the_published_capacity_describes_the_cards_again(self, cards: int, blocks: int) -> None:
        node = stocked(node_of("n1", {CORE: 100 * cards, MEMORY: blocks * cards}), LEGACY)
        assert stocked(node_of("n1", LEGACY.publish(node).allocatable), LEGACY).devices == node.devices

    def test_only_the_newer_generation_takes_part_in_lock_and_handshake(self) -> None:
        assert (LEGACY.agent.lock, LEGACY.agent.handshake) == ("", "")
        agent = MR_V100.agent
        assert (agent.lock, agent.handshake) == ("hami.io/mutex.lock", "hami.io/node-handshake-MR-V100")


class TestRecords:
    def test_the_vendors_annotations_name_cards_by_the_containers_place(self) -> None:
        shares = [[share(3)], [], [share(0, 32768, 100), share(1, 32768, 100)]]
        assert vendor_annotations(shares, 1_700_000_000_123_456_789) == {
            "iluvatar.ai/gpu-assigned": "false",
            "iluvatar.ai/predicate-time": "1700000000123456789",
            "iluvatar.ai/predicate-gpu-idx-0": "3",
            "iluvatar.ai/predicate-gpu-idx-2": "0,1",
        }

    def test_a_pod_without_cards_does_not_wait_for_the_vendors_agent(self) -> None:
        assert vendor_annotations([[], []], 1) == {}

    def test_the_older_generation_writes_hamis_and_the_vendors_annotations(self) -> None:
        placement = Placement("n1", (Grant(LEGACY.name, (0,), Role.APP, (share(3),)),))
        written = LEGACY.write(pod_of(DOCUMENT), placement, Node("n1"), 1_700_000_000_123_456_789)
        assert written == {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-phase": "allocating",
            "hami.io/bind-time": "1700000000",
            "hami.io/iluvatar-vgpu-devices-to-allocate": "n1-iluvatar-3,Iluvatar,16384,50:;",
            "hami.io/iluvatar-vgpu-devices-allocated": "n1-iluvatar-3,Iluvatar,16384,50:;",
            "iluvatar.ai/gpu-assigned": "false",
            "iluvatar.ai/predicate-time": "1700000000123456789",
            "iluvatar.ai/predicate-gpu-idx-0": "3",
        }

    def test_the_newer_generation_writes_both_sets_too(self) -> None:
        placement = Placement("n1", (Grant(MR_V100.name, (0,), Role.APP, (share(1, id="GPU-b"),)),))
        written = MR_V100.write(pod({MR_VGPU: 1}), placement, Node("n1"), 5)
        assert written["hami.io/MR-V100-devices-to-allocate"] == "GPU-b,MR-V100,16384,50:;"
        assert written["hami.io/MR-V100-devices-allocated"] == "GPU-b,MR-V100,16384,50:;"
        assert written["iluvatar.ai/predicate-gpu-idx-0"] == "1"
        assert MR_V100.owned >= {key for key in written if "predicate-gpu-idx" not in key}

    def test_the_vendor_counts_app_containers_only(self) -> None:
        asking = pod({VGPU: 1}, init=[{}])
        placement = Placement("n1", (Grant(LEGACY.name, (1,), Role.APP, (share(2),)),))
        written = LEGACY.write(asking, placement, Node("n1"), 5)
        assert written["hami.io/iluvatar-vgpu-devices-allocated"] == ";n1-iluvatar-2,Iluvatar,16384,50:;"
        assert written["iluvatar.ai/predicate-gpu-idx-0"] == "2"
        assert "iluvatar.ai/predicate-gpu-idx-1" not in written

    @pytest.mark.parametrize(
        ("dialect", "count_name"), [(LEGACY, VGPU), (MR_V100, MR_VGPU), (BI_V150, "iluvatar.ai/BI-V150-vgpu")]
    )
    @given(data=st.data())
    def test_what_is_written_is_read_back(self, dialect: Dialect, count_name: str, data: st.DataObject) -> None:
        counts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
        asking = pod(*({count_name: count} if count else {} for count in counts), init=[{count_name: 1}])
        node = stocked(node_of("n1", {CORE: 800, MEMORY: 1024}), IluvatarLegacy(LegacyNames()))
        shares = st.builds(share, st.integers(0, 7), st.integers(1, 32768), st.integers(0, 100))
        grants = tuple(
            Grant(dialect.name, (position,), role, tuple(data.draw(st.lists(shares, min_size=n, max_size=n))))
            for position, (role, n) in enumerate(zip(asking.roles, [1, *counts], strict=True))
            if n
        )
        written = dialect.write(asking, Placement("n1", grants), node, 1)
        assert dialect.read(annotated(asking, written), node) == grants

    def test_two_models_in_one_pod_keep_their_records_apart(self) -> None:
        asking = pod({MR_VGPU: 1}, {"iluvatar.ai/BI-V150-vgpu": 1})
        grants = (
            Grant(MR_V100.name, (0,), Role.APP, (share(0, id="GPU-m"),)),
            Grant(BI_V150.name, (1,), Role.APP, (share(1, id="GPU-b"),)),
        )
        written: dict[str, str] = {}
        for dialect in (MR_V100, BI_V150):
            written |= dialect.write(asking, Placement("n1", grants), Node("n1"), 1)
        bound = annotated(asking, written)
        assert [dialect.read(bound, Node("n1"))[0].shares[0].id for dialect in (MR_V100, BI_V150)] == ["GPU-m", "GPU-b"]
        assert written["iluvatar.ai/predicate-gpu-idx-1"] == "1"

    def test_a_pod_without_records_holds_nothing(self) -> None:
        assert LEGACY.read(pod_of(DOCUMENT), Node("n1")) == ()
        assert LEGACY.read(pod({VGPU: "many"}), Node("n1")) == ()

    @pytest.mark.parametrize("text", ["n1-iluvatar-3,Iluvatar,16384:;", "n1-iluvatar-3,Iluvatar,much,50:;"])
    def test_malformed_records_are_an_error(self, text: str) -> None:
        bound = annotated(pod({VGPU: 1}), {"hami.io/iluvatar-vgpu-devices-allocated": text})
        with pytest.raises(ValueError, match="device string"):
            LEGACY.read(bound, Node("n1"))

    def test_records_of_more_containers_than_the_pod_has_are_an_error(self) -> None:
        text = "a,Iluvatar,1,1:;b,Iluvatar,1,1:;"
        bound = annotated(pod({VGPU: 1}), {"hami.io/iluvatar-vgpu-devices-allocated": text})
        with pytest.raises(ValueError, match="speaks of 2 containers, the pod has 1"):
            LEGACY.read(bound, Node("n1"))

    def test_the_container_of_the_newer_generation_learns_its_name(self) -> None:
        grant = Grant(MR_V100.name, (0,), Role.APP, (share(0),))
        injection = MR_V100.inject(pod({MR_VGPU: 1}), grant, 0, Node("n1"))
        assert injection.env == {"SOL_CONTINER_NAME": "c0"}
        assert not injection.mounts
