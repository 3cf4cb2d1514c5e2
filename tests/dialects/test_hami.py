from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import hami
from subak.dialects.amounts import Asked, asked
from subak.dialects.hami import Held, decode_devices, decode_register, encode_devices, encode_register
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import MIB, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, MUTEX, NUMA, SPREAD, CardPolicy, Pick, Selection, Weights
from tests.dialects.manifests import Limits, pod

NODE_POLICY, CARD_POLICY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
KEY = "hami.io/vgpu-devices-allocated"
NODE = Node("n1", (Device("GPU-a", 0, "nvidia"), Device("GPU-b", 3, "nvidia")))
NOW = datetime(2026, 8, 21, 10, 0, 0)

words = st.text("abcXYZ019-._[] /", min_size=1)
cards = st.builds(Held, words, words, st.integers(0, 2**40), st.integers(0, 100))


def chosen(**annotations: str) -> Selection:
    """The selection of a pod whose annotations are `use`, `nouse`, `types`, `notypes` and `modes`."""
    return hami.selection(
        annotations, use_ids="use", nouse_ids="nouse", use_types="types", nouse_types="notypes", modes="modes"
    )


class TestDeviceStrings:
    @pytest.mark.parametrize(
        ("containers", "text"),
        [
            (
                [[("GPU-a", "NVIDIA", 3000, 0)], [("GPU-a", "NVIDIA", 5000, 0)]],
                "GPU-a,NVIDIA,3000,0:;GPU-a,NVIDIA,5000,0:;",
            ),
            (
                [[("GPU-a", "NVIDIA", 3000, 30), ("GPU-b", "NVIDIA", 3000, 30)]],
                "GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;",
            ),
            ([[], [("GPU-a", "NVIDIA", 3000, 30)]], ";GPU-a,NVIDIA,3000,30:;"),
            ([[("n1-mthreads-1", "Mthreads", 16384, 8)], []], "n1-mthreads-1,Mthreads,16384,8:;;"),
            ([], ""),
        ],
    )
    def test_every_container_has_its_place(self, containers: list[list[tuple[str, str, int, int]]], text: str) -> None:
        held = [[Held(*card) for card in cards] for cards in containers]
        assert encode_devices(held) == text
        while held and not held[-1]:
            held.pop()
        assert decode_devices(text) == held

    @given(st.lists(st.lists(cards, max_size=3), max_size=4))
    def test_what_is_written_is_read_back(self, containers: list[list[Held]]) -> None:
        kept = decode_devices(encode_devices(containers))
        assert kept == containers[: len(kept)]
        assert not any(containers[len(kept) :])

    @pytest.mark.parametrize("text", ["", ";", ";;", ";;;;", ",,0,0:;", ",,0,0:;,,0,0:;"])
    def test_a_string_that_an_agent_consumed_holds_nothing(self, text: str) -> None:
        assert not any(decode_devices(text))

    def test_a_container_without_card_in_the_form_of_hami_2_5_keeps_its_place(self) -> None:
        assert decode_devices(",,0,0:;GPU-a,NVIDIA,1,2:;") == [[], [Held("GPU-a", "NVIDIA", 1, 2)]]

    def test_fields_that_a_later_version_may_append_are_passed_over(self) -> None:
        assert decode_devices("GPU-a,NVIDIA,1,2,new,fields:;") == [[Held("GPU-a", "NVIDIA", 1, 2)]]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("uuid,type,100:;", "'uuid,type,100' in a device string has 3 fields: need UUID,Type,MiB,Cores"),
            ("GPU-a,NVIDIA,1Gi,0:;", "'GPU-a,NVIDIA,1Gi,0' in a device string: memory and cores must be whole numbers"),
            ("GPU-a,NVIDIA,1,:;", "memory and cores must be whole numbers"),
            (f"GPU-a,NVIDIA,{'9' * 5000},0:;", "memory and cores must be whole numbers"),
            # Room that nobody gave back must not appear from a sign.
            ("GPU-a,NVIDIA,-1,0:;", "'GPU-a,NVIDIA,-1,0' in a device string: memory and cores must not be negative"),
            ("GPU-a,NVIDIA,1,-1:;", "must not be negative"),
        ],
    )
    def test_a_malformed_string_is_an_error_that_quotes_the_piece(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            decode_devices(text)

    @given(st.text("GPU-a1,:;[] ") | st.text())
    def test_no_text_does_worse_than_an_error(self, text: str) -> None:
        try:
            containers = decode_devices(text)
        except ValueError:
            return
        assert all(held.uuid and held.memory_mib >= 0 and held.cores >= 0 for cards in containers for held in cards)


class TestRegisters:
    def test_seven_fields_mean_index_0_and_hami_core(self) -> None:
        (card,) = decode_register("GPU-a,10,8192,100,MR-V100,1,true:", "iluvatar")
        assert (card.family, card.index, card.id, card.model) == ("iluvatar", 0, "GPU-a", "MR-V100")
        assert (card.slots, card.memory_bytes, card.cores, card.numa) == (10, 8192 * MIB, 100, 1)
        assert (card.healthy, card.mode, card.cordoned) == (True, "hami-core", False)

    def test_nine_fields_tell_index_and_mode(self) -> None:
        text = "GPU-a,10,7680,100,NVIDIA-Tesla P4,1,false,3,mig:GPU-b,1,2,3,T4,-1,True,4,mps:"
        cards = decode_register(text, "nvidia", frozenset({"GPU-b"}))
        assert [(each.id, each.index, each.mode, each.healthy, each.cordoned) for each in cards] == [
            ("GPU-a", 3, "mig", False, False),
            ("GPU-b", 4, "mps", True, True),
        ]

    def test_a_node_that_lost_all_its_cards_lists_none(self) -> None:
        assert decode_register(":", "nvidia") == ()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "'' is no register: each card must end with ':'"),
            ("GPU-a,10,8192,100,T4,0,true", "is no register: each card must end with ':'"),
            (",:", "',' in a register has 2 fields: need 7, or 9 with index and mode"),
            ("GPU-a:", "'GPU-a' in a register has 1 fields"),
            ("GPU-a,10,8192,100,T4,0,true,0:", "has 8 fields"),
            ("GPU-a,10,8192,100,T4,0,true,0,mig,more:", "has 10 fields"),
            (
                "GPU-a,ten,8192,100,T4,0,true:",
                "'GPU-a,ten,8192,100,T4,0,true' in a register: count, MiB, cores, numa and",
            ),
            ("GPU-a,10,8Gi,100,T4,0,true:", "must be numbers"),
            ("GPU-a,10,8192,100,T4,0,true,first,mig:", "must be numbers"),
        ],
    )
    def test_a_malformed_register_is_an_error_that_quotes_the_card(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            decode_register(text, "nvidia")

    @given(st.lists(st.builds(Device, words, st.just(0), st.just("x"), words, *[st.integers(0, 2**31)] * 3)))
    def test_every_card_of_a_well_formed_register_is_read(self, cards: list[Device]) -> None:
        register = encode_register(cards, "T4") or ":"
        assert [(each.id, each.memory_bytes, each.cores, each.slots) for each in decode_register(register, "x")] == [
            (each.id, each.memory_bytes // MIB * MIB, each.cores, each.slots) for each in cards
        ]


class TestPolicies:
    @pytest.mark.parametrize(
        ("text", "policy"),
        [
            (None, CardPolicy((SPREAD,))),
            ("", CardPolicy((SPREAD,))),
            ("binpack", CardPolicy((BINPACK,))),
            (" binpack , numa ", CardPolicy((BINPACK, NUMA))),
            ("numa,binpack", CardPolicy((NUMA, BINPACK))),
            ("mutex", CardPolicy((MUTEX,), mutex=True)),
            ("mutex,binpack", CardPolicy((BINPACK,), mutex=True)),
            ("topology-aware", CardPolicy((SPREAD,), Pick.LINKS)),
            ("mutex,topology-aware", CardPolicy((MUTEX,), Pick.LINKS, mutex=True)),
        ],
    )
    def test_the_words_of_the_card_policy(self, text: str | None, policy: CardPolicy) -> None:
        annotations = {} if text is None else {CARD_POLICY: text}
        hami.check_policies(annotations)
        assert hami.card_policy(annotations) == policy

    def test_another_dialects_default_gives_way_to_the_pods_word(self) -> None:
        assert hami.card_policy({}, default=("lowest-index",)).order == ("lowest-index",)
        assert hami.card_policy({CARD_POLICY: "spread"}, default=("lowest-index",)).order == (SPREAD,)

    def test_nodes_are_filled_unless_the_pod_wants_them_spread(self) -> None:
        assert hami.node_policy({}) == BINPACK
        assert hami.node_policy({NODE_POLICY: " "}) == BINPACK
        assert hami.node_policy({NODE_POLICY: "spread"}) == SPREAD
        assert hami.node_policy({}, default="LeastAllocated") == "LeastAllocated"

    @pytest.mark.parametrize(
        ("key", "text", "message"),
        [
            (
                CARD_POLICY,
                "binpack,tightest",
                "'tightest' is no policy: use binpack, spread, mutex, topology-aware, numa",
            ),
            (CARD_POLICY, "Binpack", "'Binpack' is no policy: use binpack, spread, mutex, topology-aware, numa"),
            (NODE_POLICY, "mutex", "'mutex' is no policy: use binpack, spread"),
            (NODE_POLICY, "binpack,spread", "'binpack,spread' is no policy: use binpack, spread"),
        ],
    )
    def test_a_word_that_nobody_knows_is_refused_with_those_that_are_known(
        self, key: str, text: str, message: str
    ) -> None:
        with pytest.raises(Refusal) as caught:
            hami.check_policies({key: text})
        refusal = caught.value
        assert (refusal.field, refusal.value, refusal.message) == (f"metadata.annotations[{key}]", text, message)


class TestWeights:
    def test_slots_cores_and_memory_count_alike_unless_the_pod_weighs_them(self) -> None:
        assert hami.weights(None) == Weights(1, 1, 1)
        assert hami.weights("slot=1,core=2,memory=3") == Weights(1, 2, 3)
        assert hami.weights(" memory=0, slot= 7 ,core=0") == Weights(7, 0, 0)
        policy = hami.card_policy({WEIGHTS: "slot=4,core=5,memory=6"})
        assert policy.weights == Weights(4, 5, 6)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "slot=1,core=1",
            "slot=1,core=1,memory=1,disk=1",
            "slot=1,core=1,memory=1,",
            "slot=1,slot=1,memory=1",
            "slot=0,core=0,memory=0",
            "slot=-1,core=1,memory=1",
            "slot=1.5,core=1,memory=1",
            "slot=,core=1,memory=1",
            "slot:1,core:1,memory:1",
            f"slot={'9' * 5000},core=1,memory=1",
        ],
    )
    def test_weights_that_mean_nothing_are_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(Refusal, match="give each of slot, core and memory once.*slot=1,core=1,memory=3") as caught:
            hami.check_policies({WEIGHTS: text})
        assert caught.value.field == "metadata.annotations[hami.io/device-scoring-weights]"
        assert caught.value.value == text

    @given(st.text("slotcremy=,01 ") | st.text())
    def test_any_text_is_weights_or_refused(self, text: str) -> None:
        try:
            weights = hami.weights(text)
        except Refusal:
            return
        assert weights.slot + weights.core + weights.memory > 0


class TestSelection:
    @pytest.mark.parametrize(
        ("use", "nouse", "admitted"),
        [
            ("", "", "abc"),
            ("   ", " , ", "abc"),
            ("a", "", "a"),
            (" a , b ", "", "ab"),
            ("", "a,b", "c"),
            ("a,b", "b", "a"),
            ("a", "a", ""),
            ("A", "", ""),
        ],
    )
    def test_ids_match_exactly_and_a_deny_wins(self, use: str, nouse: str, admitted: str) -> None:
        selection = chosen(use=use, nouse=nouse)
        assert "".join(id for id in "abc" if selection.admits_id(id)) == admitted

    @pytest.mark.parametrize(
        ("types", "notypes", "admitted"),
        [
            ("", "", True),
            ("a100", "", True),
            ("V100,A100", "", True),
            (" ,A100, ", "", True),
            ("V100", "", False),
            ("", "nvidia", False),
            ("A100", "a100", False),
        ],
    )
    def test_types_are_parts_of_the_models_name_in_any_case(self, types: str, notypes: str, admitted: bool) -> None:
        assert chosen(types=types, notypes=notypes).admits_type("NVIDIA-A100-SXM4") is admitted

    def test_the_mode_of_a_card_must_be_among_those_of_the_pod(self) -> None:
        assert chosen(modes="mig").admits_mode("mig")
        assert chosen(modes="hami-core,mig").admits_mode("mig")
        assert not chosen(modes="hami-core").admits_mode("mig")
        assert chosen().admits_mode("mig")

    def test_without_annotations_every_card_is_admitted(self) -> None:
        assert chosen() == Selection()


class TestClaims:
    def claim(self, amounts: hami.Amounts, clamp: bool = True) -> tuple[int, int, int]:
        claim = hami.claim(
            "hami-nvidia", "nvidia", 0, Role.APP, selection=Selection(), policy=CardPolicy(), clamp=clamp, **amounts
        )
        return claim.memory_bytes, claim.memory_percent, claim.cores

    def test_an_amount_of_memory_beats_a_percentage(self) -> None:
        assert self.claim({"count": 1, "memory_bytes": 5, "percent": 50, "cores": 0}) == (5, 0, 0)
        assert self.claim({"count": 1, "memory_bytes": 0, "percent": 50, "cores": 0}) == (0, 50, 0)

    def test_nobody_gets_more_than_one_cards_worth_of_a_card(self) -> None:
        assert self.claim({"count": 1, "memory_bytes": 0, "percent": 150, "cores": 250}) == (0, 100, 100)
        # MetaX alone does not cut cores, see its dialect.
        assert self.claim({"count": 1, "memory_bytes": 0, "percent": 1, "cores": 250}, clamp=False) == (0, 1, 250)

    def test_a_byte_suffix_where_mib_are_counted_is_refused_with_what_it_means(self) -> None:
        (ask,) = asked(pod({"x/mem": "16Gi"}))
        with pytest.raises(Refusal) as caught:
            hami.check_mib(16 << 30, 1, ask, "x/mem", "MiB")
        assert caught.value.field == "spec.containers[0].resources.limits[x/mem]"
        assert caught.value.value == "16Gi"
        assert caught.value.message == ("x/mem counts MiB, so 16Gi means 17,179,869,184 MiB; for 16Gi give 16384")

    @pytest.mark.parametrize(("text", "factor", "remedy"), [("1Mi", 1, "give 1"), ("512Mi", 256, "give 2")])
    def test_a_byte_suffix_is_a_mistake_even_where_a_card_could_be_so_large(
        self, text: str, factor: int, remedy: str
    ) -> None:
        (ask,) = asked(pod({"x/mem": text}))
        with pytest.raises(Refusal, match=f"for {text} {remedy}$"):
            hami.check_mib(ask("x/mem") or 0, factor, ask, "x/mem", "units")

    def test_the_largest_amount_that_a_card_may_have_is_taken(self) -> None:
        (ask,) = asked(pod({"x/mem": 1}))
        assert hami.check_mib(1 << 24, 1, ask, "x/mem", "MiB") == 1 << 44
        with pytest.raises(Refusal, match="give the plain number of units"):
            hami.check_mib((1 << 16) + 1, 256, ask, "x/mem", "units")


class TestWriting:
    def test_a_placement_is_written_as_hami_writes_it(self) -> None:
        asking = pod({}, {"nvidia.com/gpu": 1}, init=[{"nvidia.com/gpu": 1}])
        share = Share("GPU-a", 0, 3000 * MIB + 5, 30)
        placement = Placement(
            "n1",
            (
                Grant("hami-nvidia", (0,), Role.INIT, (share,)),
                Grant("hami-nvidia", (2,), Role.APP, (share, Share("GPU-b", 3, MIB, 0))),
                Grant("another", (1,), Role.APP, (share,)),
            ),
        )
        text = "GPU-a,NVIDIA,3000,30:;;GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,1,0:;"
        assert hami.write(asking, placement, 1_700_000_000_999_999_999, "hami-nvidia", "NVIDIA", "one", "other") == {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-phase": "allocating",
            "hami.io/bind-time": "1700000000",
            "one": text,
            "other": text,
        }


def these(asking: Iterable[int]) -> Callable[[Asked], bool]:
    """Whether a container asks for cards: those at these positions do."""
    positions, wanted = count(), frozenset(asking)
    return lambda _: next(positions) in wanted


class TestReading:
    def read(self, text: str, asking: list[int], containers: int = 3) -> dict[int, list[Share]]:
        running = pod(*[{}] * containers, annotations={KEY: text})
        return {
            grant.containers[0]: list(grant.shares)
            for grant in hami.read(running, NODE, "hami-nvidia", KEY, these(asking))
        }

    def test_the_cards_indices_come_from_the_node(self) -> None:
        text = "GPU-b,NVIDIA,10,20:GPU-gone,NVIDIA,30,0:;"
        assert self.read(text, [0]) == {0: [Share("GPU-b", 3, 10 * MIB, 20), Share("GPU-gone", -1, 30 * MIB, 0)]}

    def test_a_pod_without_the_annotation_holds_nothing(self) -> None:
        assert hami.read(pod({}), NODE, "hami-nvidia", KEY, these([])) == ()
        assert self.read("", [0]) == {}
        assert self.read(";;", [0]) == {}

    @pytest.mark.parametrize(
        ("text", "asking", "places"),
        [
            (";GPU-a,NVIDIA,1,0:;", [1], [1]),
            ("GPU-a,NVIDIA,1,0:;", [1], [1]),
            ("GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,2,0:;", [0, 2], [0, 2]),
            ("GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,2,0:;", [1, 2], [1, 2]),
            (",,0,0:;GPU-a,NVIDIA,1,0:;", [2], [2]),
            # A container that asks for cards and got none: there is nothing to align by.
            (";GPU-a,NVIDIA,1,0:;", [0, 1], [1]),
        ],
    )
    def test_places_that_hami_lost_are_found_again(self, text: str, asking: list[int], places: list[int]) -> None:
        held = self.read(text, asking)
        assert list(held) == places
        assert [share.id for shares in held.values() for share in shares][:1] == ["GPU-a"]

    def test_more_containers_than_the_pod_has_are_an_error(self) -> None:
        with pytest.raises(ValueError, match=f"{KEY} speaks of 2 containers, the pod has 1"):
            self.read(";GPU-a,NVIDIA,1,0:;", [], containers=1)

    def test_a_mig_instance_in_the_old_form_is_charged_to_its_card(self) -> None:
        assert self.read("GPU-b[1g.10gb-0],NVIDIA,9856,14:;", [0]) == {0: [Share("GPU-b", 3, 9856 * MIB, 14)]}

    def test_init_containers_come_first_and_keep_their_role(self) -> None:
        running = pod({}, init=[{}], annotations={KEY: "GPU-a,NVIDIA,1,0:;GPU-a,NVIDIA,2,0:;"})
        grants = hami.read(running, NODE, "hami-nvidia", KEY, these([0, 1]))
        assert [(grant.containers, grant.role) for grant in grants] == [((0,), Role.INIT), ((1,), Role.APP)]

    @given(st.dictionaries(st.integers(0, 3), st.lists(st.sampled_from(["GPU-a", "GPU-b"]), min_size=1, max_size=2)))
    def test_what_is_written_is_read_back(self, held: Mapping[int, list[str]]) -> None:
        shares = {
            position: tuple(Share(id, 0 if id == "GPU-a" else 3, 7 * MIB, 5) for id in ids)
            for position, ids in sorted(held.items())
        }
        grants = tuple(Grant("d", (position,), Role.APP, cards) for position, cards in shares.items())
        running = pod({}, {}, {}, {})
        written = hami.write(running, Placement("n1", grants), 0, "d", "NVIDIA", KEY)
        bound = pod({}, {}, {}, {}, annotations=written)
        assert hami.read(bound, NODE, "d", KEY, these(held)) == grants


class TestPrivileged:
    def privileged(self, limits: Limits, privileged: bool | None = True) -> manifest.Pod:
        content = {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [
                    {"name": "main", "resources": {"limits": dict(limits)}},
                    {"name": "side", "securityContext": {"privileged": privileged}},
                ]
            },
        }
        return msgspec.convert(content, manifest.Pod)

    @pytest.mark.parametrize(
        "resource",
        [
            "nvidia.com/gpu",
            "iluvatar.ai/vgpu",
            "iluvatar.ai/MR-V100-vgpu",
            "mthreads.com/vgpu",
            "metax-tech.com/sgpu",
            "metax-tech.com/gpu",
        ],
    )
    def test_a_privileged_container_beside_cards_is_refused(self, resource: str) -> None:
        with pytest.raises(Refusal, match="container side is privileged, so that no limit would hold") as caught:
            Interpreter().admit(self.privileged({resource: 1}))
        assert caught.value.field == "spec.containers[1].securityContext.privileged"
        assert caught.value.value == "true"

    def test_a_privileged_pod_without_cards_is_no_concern_of_ours(self) -> None:
        Interpreter().admit(self.privileged({"cpu": 1}))

    @pytest.mark.parametrize("privileged", [False, None])
    def test_an_unprivileged_pod_is_admitted(self, privileged: bool | None) -> None:
        Interpreter().admit(self.privileged({"nvidia.com/gpu": 1}, privileged))
