from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subak.dialects import Patch, interpreter
from subak.dialects.interpreter import Interpreter, apply
from subak.model import manifest
from subak.model.device import MIB, MOST_AMOUNT, Device, MigProfile
from subak.model.manifest import EnvVar, Role, Taint
from subak.model.node import Node
from subak.model.placement import Grant, MigInstance, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK
from subak.model.variables import SLOT
from subak.snapshot.cluster import Snapshot
from tests.dialects.manifests import Limits, annotated, pod
from tests.support.fuzz import examples

INTERPRETER = Interpreter()

REGISTER = "hami.io/node-nvidia-register"
CARD = {"id": "GPU-a", "count": 10, "devmem": 8192, "devcore": 100, "type": "NVIDIA-T4", "health": True}
MOORE = {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 96}
"""The capacity of a node with one Moore Threads card."""

LONGEST = ".".join(["a" * 63] * 3 + ["a" * 61])
"""The longest name that a pod may have: 253 characters."""

NODE = Node(
    "n1",
    (
        Device("GPU-a", 0, "nvidia", memory_bytes=8192 * MIB),
        Device("GPU-b", 1, "nvidia", memory_bytes=8192 * MIB),
        Device("n1-mthreads-0", 0, "mthreads", memory_bytes=49152 * MIB, cores=16),
        Device("IX-0", 0, "iluvatar", model="MR-V100", memory_bytes=32768 * MIB),
    ),
)


def asking(limits: Mapping[str, Any], scheduler: str = "", **metadata: Any) -> manifest.Pod:
    """A pod of one container, for this scheduler."""
    content = {
        "metadata": {"name": "p", **metadata},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"limits": dict(limits)}}]},
    }
    return msgspec.convert(content, manifest.Pod)


def names(pod: manifest.Pod) -> list[str]:
    return [dialect.name for dialect in INTERPRETER.speaking(pod)]


def refusal_of(pod: manifest.Pod) -> Refusal:
    with pytest.raises(Refusal) as caught:
        INTERPRETER.admit(pod)
    return caught.value


class TestWhoSpeaks:
    @pytest.mark.parametrize(
        ("resource", "dialect"),
        [
            ("nvidia.com/gpu", "hami-nvidia"),
            ("nvidia.com/gpumem", "hami-nvidia"),
            ("nvidia.com/gpumem-percentage", "hami-nvidia"),
            ("nvidia.com/gpucores", "hami-nvidia"),
            ("iluvatar.ai/vgpu", "hami-iluvatar"),
            ("iluvatar.ai/BI-V150.vMem", "hami-iluvatar-BI-V150"),
            ("mthreads.com/vgpu", "hami-mthreads"),
            ("metax-tech.com/sgpu", "hami-metax-sgpu"),
            ("metax-tech.com/gpu", "hami-metax-gpu"),
            ("volcano.sh/gpu-memory", "volcano-share"),
            ("volcano.sh/gpu-number", "volcano-share"),
            ("volcano.sh/vgpu-number", "volcano-vgpu"),
            ("koordinator.sh/gpu", "koordinator"),
            ("koordinator.sh/gpu-core", "koordinator"),
            ("kubernetes.io/gpu-core", "koordinator"),
            ("koordinator.sh/rdma", "koordinator"),
        ],
    )
    def test_the_resource_tells_the_dialect(self, resource: str, dialect: str) -> None:
        assert names(asking({"cpu": 1, resource: 1})) == [dialect]

    @pytest.mark.parametrize("resource", ["cpu", "nvidia.com/priority", "nvidia.com/mig-1g.10gb", "example.com/gpu"])
    def test_resources_that_are_nobodys_concern(self, resource: str) -> None:
        assert names(asking({resource: 1})) == []

    def test_init_containers_and_requests_speak_too(self) -> None:
        assert names(pod({}, init=[{"mthreads.com/vgpu": 1}])) == ["hami-mthreads"]
        content = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"volcano.sh/gpu-memory": 1}}}]}}
        assert names(msgspec.convert(content, manifest.Pod)) == ["volcano-share"]

    @pytest.mark.parametrize(
        ("scheduler", "labels", "limits", "dialect"),
        [
            ("", {}, {"nvidia.com/gpu": 1}, "hami-nvidia"),
            ("hami-scheduler", {}, {"nvidia.com/gpu": 1}, "hami-nvidia"),
            ("koord-scheduler", {}, {"nvidia.com/gpu": 1}, "koordinator"),
            ("", {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}, {"nvidia.com/gpu": 1}, "koordinator"),
            ("", {}, {"nvidia.com/gpu": 1, "koordinator.sh/rdma": 100}, "koordinator"),
            # What Koordinator would forget is HAMi's.
            ("koord-scheduler", {}, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}, "hami-nvidia"),
        ],
    )
    def test_whole_nvidia_cards_belong_to_whom_the_pod_is_for(
        self, scheduler: str, labels: dict[str, str], limits: Limits, dialect: str
    ) -> None:
        assert names(asking(limits, scheduler, labels=labels)) == [dialect]

    def test_metax_count_beside_koordinators_amounts_is_for_the_kubelet_only(self) -> None:
        limits = {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "8Gi", "metax-tech.com/sgpu": 1}
        both = asking(limits)
        assert names(both) == ["koordinator"]
        (claim,) = INTERPRETER.request(INTERPRETER.admit(both)).claims
        assert (claim.dialect, claim.slotted) == ("koordinator", True)
        (alone,) = INTERPRETER.request(INTERPRETER.admit(asking({"koordinator.sh/gpu-memory": "8Gi"}))).claims
        assert not alone.slotted

    @pytest.mark.parametrize(
        "containers",
        [
            ({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50}, {"metax-tech.com/sgpu": 1}),
            ({"koordinator.sh/gpu": 50, "metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 30},),
        ],
    )
    def test_metax_amounts_that_koordinator_would_forget_are_refused(self, containers: tuple[Limits, ...]) -> None:
        refusal = refusal_of(pod(*containers))
        assert "as hami-metax-sgpu and as koordinator" in refusal.message

    def test_other_devices_may_be_asked_for_in_other_languages(self) -> None:
        for limits, dialects in (
            ({"koordinator.sh/rdma": 1, "metax-tech.com/sgpu": 1}, {"hami-metax-sgpu", "koordinator"}),
            ({"amd.com/gpu": 1, "mthreads.com/vgpu": 1}, {"hami-mthreads", "koordinator"}),
        ):
            request = INTERPRETER.request(INTERPRETER.admit(asking(limits)))
            assert {claim.dialect for claim in request.claims} == dialects


class TestContradictions:
    @pytest.mark.parametrize(
        ("limits", "one", "other"),
        [
            ({"nvidia.com/gpumem": 1, "volcano.sh/gpu-memory": 1}, "hami-nvidia", "volcano-share"),
            ({"nvidia.com/gpu": 1, "volcano.sh/vgpu-number": 1}, "hami-nvidia", "volcano-vgpu"),
            ({"volcano.sh/vgpu-number": 1, "volcano.sh/gpu-number": 1}, "volcano-vgpu", "volcano-share"),
            ({"volcano.sh/gpu-memory": 1, "koordinator.sh/gpu": 100}, "volcano-share", "koordinator"),
            ({"nvidia.com/gpumem": 5, "koordinator.sh/gpu": 100}, "hami-nvidia", "koordinator"),
            ({"iluvatar.ai/MR-V100-vgpu": 1, "iluvatar.ai/vgpu": 1}, "hami-iluvatar-MR-V100", "hami-iluvatar"),
            ({"metax-tech.com/sgpu": 1, "metax-tech.com/gpu": 1}, "hami-metax-sgpu", "hami-metax-gpu"),
        ],
    )
    def test_the_same_cards_in_two_languages_are_refused_with_both_names(
        self, limits: Limits, one: str, other: str
    ) -> None:
        refusal = refusal_of(asking(limits))
        assert refusal.field == "spec.containers[0].resources.limits"
        assert refusal.value == ", ".join(limits)
        assert refusal.message == (
            f"the pod asks for the same cards as {one} and as {other} ({', '.join(limits)}): keep to one of them"
        )

    def test_each_resource_is_named_once(self) -> None:
        refusal = refusal_of(asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5, "koordinator.sh/gpu": 100}))
        assert refusal.value == "nvidia.com/gpu, nvidia.com/gpumem, koordinator.sh/gpu"

    def test_two_systems_may_not_meet_in_two_containers_either(self) -> None:
        refusal = refusal_of(pod({}, {"nvidia.com/gpu": 1}, {"volcano.sh/gpu-memory": 1}))
        assert refusal.field == "spec.containers[1].resources.limits"
        assert "as hami-nvidia and as volcano-share" in refusal.message

    def test_dialects_of_one_system_may(self) -> None:
        admitted = INTERPRETER.admit(pod({"metax-tech.com/sgpu": 1}, {"metax-tech.com/gpu": 1}))
        assert names(admitted) == ["hami-metax-sgpu", "hami-metax-gpu"]


class TestAdmission:
    @pytest.mark.parametrize("key", sorted(key.replace("*", "0") for key in INTERPRETER.owned))
    def test_an_allocation_that_the_user_wrote_is_refused(self, key: str) -> None:
        refusal = refusal_of(asking({"nvidia.com/gpu": 1}, annotations={"note": "x", key: "forged"}))
        assert (refusal.field, refusal.value) == (f"metadata.annotations[{key}]", "forged")
        assert refusal.message == (
            f"{key} records an allocation, which only the scheduler may write: remove it from the pod"
        )

    def test_wishes_are_no_allocations(self) -> None:
        wishes = {"nvidia.com/use-gputype": "A100", "hami.io/gpu-scheduler-policy": "binpack"}
        assert INTERPRETER.admit(asking({"nvidia.com/gpu": 1}, annotations=wishes)).annotations == wishes

    def test_even_a_pod_without_cards_may_not_forge(self) -> None:
        assert refusal_of(asking({}, annotations={"volcano.sh/gpu-index": "0"})).value == "0"

    def test_a_pod_that_has_a_node_is_not_ours_to_place(self) -> None:
        content = {"metadata": {"name": "p"}, "spec": {"nodeName": "n7", "containers": [{"name": "c"}]}}
        refusal = refusal_of(msgspec.convert(content, manifest.Pod))
        assert (refusal.field, refusal.value) == ("spec.nodeName", "n7")
        assert refusal.message == "the pod has a node already: leave spec.nodeName empty"

    @pytest.mark.parametrize(
        ("metadata", "field", "value"),
        [
            ({}, "metadata.name", ""),
            ({"name": "Upper"}, "metadata.name", "Upper"),
            ({"name": "-a"}, "metadata.name", "-a"),
            ({"name": "a-"}, "metadata.name", "a-"),
            ({"name": "a/../b"}, "metadata.name", "a/../b"),
            ({"name": f"{LONGEST}a"}, "metadata.name", f"{LONGEST}a"),
            ({"generateName": "Train-"}, "metadata.generateName", "Train-"),
            ({"name": "a", "namespace": "Team"}, "metadata.namespace", "Team"),
        ],
    )
    def test_a_name_that_kubernetes_would_not_take_is_refused(
        self, metadata: dict[str, str], field: str, value: str
    ) -> None:
        refusal = refusal_of(
            msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}, manifest.Pod)
        )
        assert (refusal.field, refusal.value) == (field, value)
        assert "name" in refusal.message

    @pytest.mark.parametrize(
        "metadata",
        [{"name": "a"}, {"name": "my-pod.v1"}, {"name": LONGEST}, {"generateName": "train-"}, {"generateName": "a"}],
    )
    def test_a_proper_name_is_taken(self, metadata: dict[str, str]) -> None:
        INTERPRETER.admit(
            msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}, manifest.Pod)
        )

    def test_a_container_that_names_a_path_is_refused(self) -> None:
        """The name becomes part of a path on the node."""
        content = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}, {"name": "../../etc"}]}}
        refusal = refusal_of(msgspec.convert(content, manifest.Pod))
        assert (refusal.field, refusal.value) == ("spec.containers[1].name", "../../etc")

    def test_a_pod_without_containers_is_refused(self) -> None:
        refusal = refusal_of(msgspec.convert({"metadata": {"name": "p"}}, manifest.Pod))
        assert (refusal.field, refusal.message) == ("spec.containers", "the pod has no containers")

    def test_a_refusal_of_any_dialect_is_a_refusal_of_the_pod(self) -> None:
        assert refusal_of(pod({"nvidia.com/gpu": 1}, {"mthreads.com/vgpu": 0})).field == (
            "spec.containers[1].resources.limits[mthreads.com/vgpu]"
        )

    def test_an_amount_that_no_card_has_is_refused(self) -> None:
        refusal = refusal_of(asking({"koordinator.sh/gpu-memory": "17Ti"}))
        assert refusal.field == "spec.containers[0].resources"
        assert "asks for 17,825,792 MiB of a card; none has more than 16,777,216" in refusal.message

    @pytest.mark.parametrize("name", ["nvidia.com/gpu", "volcano.sh/gpu-number", "metax-tech.com/gpu", "amd.com/gpu"])
    def test_more_cards_than_any_node_has_are_refused(self, name: str) -> None:
        refusal = refusal_of(asking({name: 1025}))
        assert refusal.message == "container c asks for 1,025 cards; no node has more than 1,024: give their number"


class TestRequestsAndLimits:
    def refused(self, limit: Any, request: Any, name: str = "nvidia.com/gpu") -> Refusal | None:
        resources = {"limits": {name: limit}, "requests": {name: request}}
        content = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
        try:
            INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
        except Refusal as refusal:
            return refusal
        return None

    def test_cards_that_are_requested_and_limited_differently_are_refused(self) -> None:
        refusal = self.refused(2, 1)
        assert refusal is not None
        assert (refusal.field, refusal.value) == ("spec.containers[0].resources.requests[nvidia.com/gpu]", "1")
        assert refusal.message == "nvidia.com/gpu requests 1 but its limit is 2: they must be equal"

    @pytest.mark.parametrize(("limit", "request_"), [("1k", 1000), ("1", 1), ("1000m", 1), ("1e3", "1k")])
    def test_two_spellings_of_one_amount_are_equal(self, limit: Any, request_: Any) -> None:
        assert self.refused(limit, request_) is None

    def test_cpu_may_differ(self) -> None:
        assert self.refused(2, 1, "cpu") is None

    def test_an_unreadable_amount_is_refused_for_what_is_wrong_with_it(self) -> None:
        refusal = self.refused("many", 1)
        assert refusal is not None
        assert refusal.field == "spec.containers[0].resources.limits[nvidia.com/gpu]"
        assert "'many' is not a quantity" in refusal.message

    @pytest.mark.parametrize(
        "amounts",
        [
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100},
            {"nvidia.com/gpumem": 100},
            {"iluvatar.ai/vgpu": 1, "iluvatar.ai/vcuda-memory": 4},
            {"iluvatar.ai/MR-V100-vgpu": 1, "iluvatar.ai/MR-V100.vMem": 4},
            {"mthreads.com/vgpu": 1},
            {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4},
            {"metax-tech.com/gpu": 2},
            {"volcano.sh/gpu-memory": 100},
            {"volcano.sh/gpu-number": 2},
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 100},
            {"koordinator.sh/gpu-memory-ratio": 50},
        ],
    )
    def test_requests_without_limits_mean_the_same_in_every_dialect(self, amounts: Limits) -> None:
        """As decision 2 has it; a Kubernetes API server lets no such pod in."""
        content = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": dict(amounts)}}]},
        }
        requested = INTERPRETER.request(INTERPRETER.admit(msgspec.convert(content, manifest.Pod)))
        limited = INTERPRETER.request(INTERPRETER.admit(asking(amounts)))
        assert requested.claims
        assert requested.claims == limited.claims

    @pytest.mark.parametrize(
        ("part", "remedy"),
        [
            ("mthreads.com/sgpu-memory", "add mthreads.com/vgpu: 1"),
            ("mthreads.com/sgpu-core", "add mthreads.com/vgpu: 1"),
            ("iluvatar.ai/vcuda-memory", "add iluvatar.ai/vgpu: 1"),
            ("iluvatar.ai/MR-V100.vCore", "add iluvatar.ai/MR-V100-vgpu: 1"),
            ("metax-tech.com/vmemory", "add metax-tech.com/sgpu: 1"),
        ],
    )
    def test_a_part_of_a_card_without_a_number_of_cards_is_refused_with_the_line_to_add(
        self, part: str, remedy: str
    ) -> None:
        with pytest.raises(Refusal, match=remedy):
            INTERPRETER.admit(asking({part: 4}))


class TestPatch:
    def pod(self) -> manifest.Pod:
        content = {
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"kept": "1", "changed": "old"}},
            "spec": {
                "schedulerName": "s",
                "initContainers": [{"name": "i", "env": [{"name": "E", "value": "1"}]}],
                "containers": [
                    {"name": "limits", "resources": {"limits": {"x/a": 1, "x/b": 2}}},
                    {"name": "both", "resources": {"limits": {"x/a": 1}, "requests": {"x/a": 1, "cpu": 1}}},
                    {"name": "none"},
                ],
            },
        }
        return msgspec.convert(content, manifest.Pod)

    def test_an_empty_patch_changes_nothing(self) -> None:
        assert apply(self.pod(), Patch()) == self.pod()

    def test_limits_are_filled_in_and_requests_follow_where_there_are_any(self) -> None:
        patch = Patch()
        for position in (1, 2, 3):
            patch.set_limit(position, "x/new", 7)
        patch.set_limit(2, "x/a", 9)
        limits, both, none = apply(self.pod(), patch).spec.containers
        assert limits.resources == manifest.Resources(limits={"x/a": 1, "x/b": 2, "x/new": "7"})
        assert both.limits == {"x/a": "9", "x/new": "7"}
        assert both.resources is not None
        assert both.resources.requests == {"x/a": "9", "cpu": 1, "x/new": "7"}
        assert none.resources == manifest.Resources(limits={"x/new": "7"})

    def test_what_is_removed_goes_from_limits_and_requests(self) -> None:
        patched = apply(self.pod(), Patch(remove={1: ["x/b"], 2: ["x/a"]}, limits={2: {"x/c": "1"}}))
        limits, both, _ = patched.spec.containers
        assert limits.limits == {"x/a": 1}
        assert both.resources == manifest.Resources(limits={"x/c": "1"}, requests={"cpu": 1, "x/c": "1"})

    def test_variables_are_added_after_the_users_own(self) -> None:
        patch = Patch()
        patch.set_env(0, "NEW", "2")
        patch.set_env(3, "ONLY", "3")
        first, *_, last = apply(self.pod(), patch).containers
        assert first.env == [EnvVar(name="E", value="1"), EnvVar(name="NEW", value="2")]
        assert last.env == [EnvVar(name="ONLY", value="3")]

    def test_annotations_are_merged(self) -> None:
        patched = apply(self.pod(), Patch(annotations={"changed": "new", "added": "2"}))
        assert patched.annotations == {"kept": "1", "changed": "new", "added": "2"}

    def test_all_else_stays(self) -> None:
        before = self.pod()
        after = apply(before, Patch(limits={0: {"x/a": "1"}}, annotations={"added": "2"}))
        assert [each.name for each in after.containers] == [each.name for each in before.containers]
        assert after.roles == before.roles
        assert (after.labels, after.spec.scheduler_name) == (before.labels, before.spec.scheduler_name)
        assert after.spec.containers == before.spec.containers
        assert before == self.pod()


class TestRequest:
    def test_a_pod_without_cards_asks_for_a_node_only(self) -> None:
        request = INTERPRETER.request(INTERPRETER.admit(asking({"cpu": 1})))
        assert request.claims == ()
        assert request.node_policy == BINPACK
        assert dict(request.needs.resources) == {"cpu": 1000, "pods": 1}

    def test_cards_are_not_counted_as_plain_resources_too(self) -> None:
        request = INTERPRETER.request(asking({"nvidia.com/gpu": 1, "nvidia.com/priority": 1, "volcano.sh/other": 1}))
        assert dict(request.needs.resources) == {"pods": 1, "volcano.sh/other": 1}

    def test_equal_pods_give_the_identical_request(self) -> None:
        one = INTERPRETER.request(asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "3k"}))
        other = INTERPRETER.request(asking({"nvidia.com/gpu": "1", "nvidia.com/gpumem": 3000}, name="another", uid="u"))
        different = INTERPRETER.request(asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3001}))
        assert one is other
        assert one != different
        assert INTERPRETER.request(asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})) is one

    def test_the_memory_of_shapes_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(interpreter, "MOST_SHAPES", 3)
        own = Interpreter()
        for mib in range(1, 20):
            shape = asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib})
            assert own.request(shape) is own.request(shape)
            assert len(own._shapes) <= 3

    def test_pods_may_ask_for_cards_of_several_vendors(self) -> None:
        admitted = INTERPRETER.admit(
            pod({"nvidia.com/gpu": 1, "mthreads.com/vgpu": 1}, {"iluvatar.ai/MR-V100-vgpu": 1})
        )
        request = INTERPRETER.request(admitted)
        assert [(claim.dialect, claim.containers, *claim.families) for claim in request.claims] == [
            ("hami-nvidia", (0,), "nvidia"),
            ("hami-iluvatar-MR-V100", (1,), "iluvatar"),
            ("hami-mthreads", (0,), "mthreads"),
        ]
        first, second = admitted.spec.containers
        assert (first.limits["nvidia.com/gpucores"], first.limits["mthreads.com/sgpu-core"]) == ("100", "16")
        assert second.env == [EnvVar(name="SOL_CONTINER_NAME", value="c1")]


MIXED = Placement(
    "n1",
    (
        Grant("hami-nvidia", (0,), Role.APP, (Share("GPU-b", 1, 3000 * MIB, 30),)),
        Grant("hami-iluvatar-MR-V100", (1,), Role.APP, (Share("IX-0", 0, 256 * MIB, 10),)),
        Grant("hami-mthreads", (0,), Role.APP, (Share("n1-mthreads-0", 0, 512 * MIB, 4),)),
    ),
)


def mixed() -> manifest.Pod:
    """A pod that asks three vendors; its third container asks nobody."""
    return pod(
        {
            **{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
            **{"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 1, "mthreads.com/sgpu-core": 4},
        },
        {"iluvatar.ai/MR-V100-vgpu": 1, "iluvatar.ai/MR-V100.vMem": 1, "iluvatar.ai/MR-V100.vCore": 10},
        {},
    )


class TestRecords:
    def test_a_placement_with_three_vendors_is_written_and_read_back(self) -> None:
        written = INTERPRETER.annotations(mixed(), MIXED, NODE, 1_700_000_000_123_456_789)
        assert written["hami.io/vgpu-devices-allocated"] == "GPU-b,NVIDIA,3000,30:;;;"
        assert written["hami.io/MR-V100-devices-allocated"] == ";IX-0,MR-V100,256,10:;;"
        assert written["hami.io/mthreads-vgpu-devices-allocated"] == "n1-mthreads-0,Mthreads,512,4:;;;"
        assert written["hami.io/vgpu-time"] == "1700000000"
        assert written["mthreads.com/predicate-time"] == "1700000000123456789"
        assert written["iluvatar.ai/predicate-gpu-idx-1"] == "0"
        assert INTERPRETER.owned_among(written) == written
        assert INTERPRETER.placement(annotated(mixed(), written), NODE) == MIXED

    def test_a_pod_without_cards_has_nothing_to_record(self) -> None:
        assert INTERPRETER.annotations(asking({}), Placement("n1"), NODE, 0) == {}
        assert INTERPRETER.placement(asking({}), NODE) == Placement("n1")

    def test_an_instance_that_a_record_does_not_tell_may_be_anywhere_on_the_card(self) -> None:
        """Volcano names an instance by its own geometry, which says nothing of places."""
        profile = MigProfile("2g.10gb", 9856 * MIB, 28, ((0, 2), (2, 2), (4, 2)))
        node = Node("n1", (Device("GPU-m", 0, "nvidia", mode="mig", mig=(profile,)), Device("GPU-p", 1, "nvidia")))
        keys = {"volcano.sh/vgpu-ids-new": "GPU-m[0-1],NVIDIA,9856,28:GPU-p,NVIDIA,100,0:;"}
        ((whole, plain),) = (each.shares for each in INTERPRETER.placement(asking({}, annotations=keys), node).grants)
        assert whole.mig == MigInstance("unknown", 0, 6)
        assert plain.mig is None

    def test_a_running_pod_is_read_by_its_annotations_whatever_it_asks_for(self) -> None:
        running = asking({"cpu": 1}, annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,5,6:;"})
        assert INTERPRETER.placement(running, NODE).grants == (
            Grant("hami-nvidia", (0,), Role.APP, (Share("GPU-a", 0, 5 * MIB, 6),)),
        )

    def test_a_request_that_another_scheduler_let_pass_holds_nothing_without_annotations(self) -> None:
        running = asking({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "16Gi"})
        assert INTERPRETER.placement(running, NODE) == Placement("n1")

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("hami.io/vgpu-devices-allocated", "GPU-a,NVIDIA:;"),
            ("hami.io/vgpu-devices-allocated", "GPU-a,NVIDIA,-5,0:;"),
            ("hami.io/vgpu-devices-allocated", f"GPU-a,NVIDIA,{10**30},0:;"),
            ("hami.io/mthreads-vgpu-devices-allocated", "x,y,z,w:;"),
            ("scheduling.koordinator.sh/device-allocated", "{"),
        ],
    )
    def test_a_malformed_record_is_an_error(self, key: str, text: str) -> None:
        with pytest.raises(ValueError, match="."):
            INTERPRETER.placement(asking({"cpu": 1}, annotations={key: text}), NODE)

    def test_each_container_gets_what_its_own_grants_give(self) -> None:
        first, second, third = INTERPRETER.injections(mixed(), MIXED, NODE)
        assert first.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-b"
        assert first.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        assert first.env["MTHREADS_VISIBLE_DEVICES"] == "0"
        assert first.mounts
        assert second.env == {"SOL_CONTINER_NAME": "c1"}
        assert not second.mounts
        assert not third.env
        assert not third.mounts


def seen(capacity: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **more: Any) -> manifest.Node:
    content = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": dict(annotations or {})},
        "status": {"capacity": dict(capacity), **more.pop("status", {})},
        **more,
    }
    return msgspec.convert(content, manifest.Node)


class TestNodes:
    def test_a_node_is_what_its_manifest_says(self) -> None:
        capacity = {"cpu": "4", "memory": "1Ki", "nvidia.com/gpu": 10, "example.com/x": 3}
        taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
        manifested = seen(
            capacity,
            {REGISTER: json.dumps([CARD])},
            spec={"unschedulable": True, "taints": [taint]},
            status={"conditions": [{"type": "Ready", "status": "False"}]},
        )
        node, warnings = INTERPRETER.node(manifested)
        assert not warnings
        assert node.name == "n1"
        assert node.labels == {"zone": "a"}
        assert node.offers == {"hami-nvidia"}
        assert node.allocatable == {"cpu": 4000, "memory": 1024, "example.com/x": 3, SLOT: MOST_AMOUNT}
        assert node.taints == (Taint(key="gpu", value="yes", effect="NoSchedule"),)
        assert (node.ready, node.unschedulable) == (False, True)
        assert [each.id for each in node.devices] == ["GPU-a"]

    def test_a_plain_node_offers_no_dialect(self) -> None:
        node, warnings = INTERPRETER.node(seen({"cpu": 1}))
        assert (node.devices, node.offers, warnings) == ((), frozenset(), [])
        assert node.ready
        assert not node.unschedulable

    def test_a_node_offers_every_dialect_that_describes_or_publishes_its_cards(self) -> None:
        capacity = {"nvidia.com/gpu": 10, "volcano.sh/gpu-memory": 8192, "volcano.sh/gpu-number": 1, **MOORE}
        node, warnings = INTERPRETER.node(seen(capacity, {REGISTER: json.dumps([CARD])}))
        assert not warnings
        assert node.offers == {"hami-nvidia", "volcano-share", "hami-mthreads"}
        assert [each.id for each in node.devices] == ["n1-mthreads-0", "GPU-a"]

    def test_what_is_not_allocatable_is_not_offered(self) -> None:
        node, _ = INTERPRETER.node(seen(MOORE, status={"allocatable": dict.fromkeys(MOORE, 0)}))
        assert node.offers == frozenset()

    def test_vendors_tables_are_handed_on(self) -> None:
        scores = {"metax-tech.com/gpu.topology.scores": '{"1": 5, "2": 90}'}
        node, _ = INTERPRETER.node(seen({"metax-tech.com/gpu": 2}, scores))
        assert node.tables == {"metax.scores": {1: 5, 2: 90}}

    def test_a_malformed_amount_is_a_warning_and_costs_nothing_else(self) -> None:
        capacity = {
            "cpu": "lots",
            "memory": "1Ki",
            "nvidia.com/gpu": "ten",
            "volcano.sh/gpu-memory": "?",
            "volcano.sh/gpu-number": 1,
        }
        node, warnings = INTERPRETER.node(seen({**capacity, **MOORE}, {REGISTER: json.dumps([CARD])}))
        assert node.allocatable == {"cpu": 0, "memory": 1024, SLOT: MOST_AMOUNT}
        assert [each.id for each in node.devices] == ["n1-mthreads-0", "GPU-a"]
        assert len(warnings) == 2
        assert all("is not a quantity" in warning for warning in warnings)


KEYS = (
    REGISTER,
    "hami.io/node-nvidia-score",
    "hami.io/device-cordon",
    "hami.io/node-MR-V100-register",
    "volcano.sh/node-vgpu-register",
    "volcano.sh/gpu-unhealthy-ids",
    "metax-tech.com/node-gpu-devices",
    "metax-tech.com/gpu.topology.zones",
    "metax-tech.com/gpu.topology.scores",
    "metax-tech.com/gpu.topology.losses",
)
RESOURCES = [*sorted(INTERPRETER.resources - MOORE.keys() - {"mthreads.com/vgpu"}), "cpu", "memory"]

numbers = st.integers(-2, 9) | st.integers() | st.sampled_from([2**31, 2**63, 2**64, 10**30])
fields = st.sampled_from(
    [
        *("id", "index", "count", "devmem", "devcore", "type", "numa", "mode", "health", "migProfiles", "name"),
        *("memoryMB", "placements", "start", "size", "uuid", "score", "totalDevCount", "totalVRam", "totalCompute"),
        *("healthy", "linkZone", "zones", "capacity", "resources", "0", "2"),
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text("aZ0:,-", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=5),
    max_leaves=12,
)
colons = st.lists(
    st.lists(st.text("GPU-a01", max_size=4) | numbers.map(str) | st.just("true"), max_size=10).map(",".join), max_size=3
).map(":".join)
texts = st.text() | colons | json_values.map(json.dumps)
amounts = numbers | st.floats(allow_nan=False) | st.text(max_size=4) | st.sampled_from(["1k", "16Gi", "-1", "1e300"])
devices = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["gpu", "rdma", "fpga", "other"]), "minor": st.integers(-1, 5)},
        optional={
            "id": st.sampled_from(["", "a", "b"]),
            "health": st.booleans(),
            "resources": st.dictionaries(
                st.sampled_from(["koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"]), amounts
            ),
            "labels": st.dictionaries(
                st.just("node.koordinator.sh/gpu-vendor"), st.sampled_from(["nvidia", "metax", "?"])
            ),
        },
    ),
    max_size=3,
)


class TestMalformedNodes:
    @examples(quick=40, ci=300)
    @given(
        st.dictionaries(st.sampled_from(KEYS), texts, min_size=1),
        st.dictionaries(st.sampled_from(RESOURCES), amounts),
        devices,
    )
    @example({}, {"metax-tech.com/gpu": "-1e30"}, [])
    def test_nothing_that_a_node_says_does_worse_than_a_warning(
        self, annotations: dict[str, str], capacity: dict[str, Any], described: list[dict[str, Any]]
    ) -> None:
        device = msgspec.convert({"metadata": {"name": "n1"}, "spec": {"devices": described}}, manifest.Device)
        node, warnings = INTERPRETER.node(seen({**capacity, **MOORE}, annotations), device)
        assert all(warning.startswith(("node n1: ", "Device n1: ")) for warning in warnings)
        moore = [each for each in node.devices if each.family == "mthreads"]
        assert [(each.id, each.memory_bytes, each.cores) for each in moore] == [("n1-mthreads-0", 49152 * MIB, 16)]
        assert "hami-mthreads" in node.offers
        assert len({(each.family, each.id) for each in node.devices}) == len(node.devices)
        healthy, _ = INTERPRETER.node(seen({"cpu": 1}, {REGISTER: json.dumps([CARD])}))
        assert len(Snapshot([node, Node("n2", healthy.devices, healthy.offers)])) == 2

    @given(st.integers(1, len(json.dumps([CARD])) - 1), st.sampled_from([REGISTER, "metax-tech.com/node-gpu-devices"]))
    def test_a_register_that_was_cut_short_is_named(self, length: int, key: str) -> None:
        node, warnings = INTERPRETER.node(seen(MOORE, {key: json.dumps([CARD])[:length]}))
        (warning,) = warnings
        assert warning.startswith(f"node n1: annotation {key}: ")
        assert [each.family for each in node.devices] == ["mthreads"]

    def test_a_malformed_register_keeps_no_other_vendor_from_working(self) -> None:
        sgpu = [{"uuid": "MX-0", "totalDevCount": 4, "totalCompute": 100, "totalVRam": 100, "healthy": True}]
        annotations = {
            REGISTER: "garbage",
            "metax-tech.com/node-gpu-devices": json.dumps(sgpu),
            "hami.io/node-MR-V100-register": "IX-0,4,32768,100,MR-V100,0,true:",
        }
        node, warnings = INTERPRETER.node(seen(MOORE, annotations))
        assert len(warnings) == 1
        assert [each.id for each in node.devices] == ["IX-0", "MX-0", "n1-mthreads-0"]
        assert node.offers == {"hami-iluvatar-MR-V100", "hami-metax-sgpu", "hami-mthreads"}
