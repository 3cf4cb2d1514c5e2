from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import kubernetes
from subak.model import manifest
from subak.model.manifest import Expression, Toleration
from subak.model.reason import Refusal
from subak.model.request import Needs

OWNED = frozenset({"nvidia.com/gpu"})

amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/x"]), st.integers(0, 9))
early = st.lists(st.tuples(amounts, st.booleans()), max_size=4)
apps = st.lists(amounts, min_size=1, max_size=3)


def needs(**spec: Any) -> Needs:
    """What a pod with this spec asks of a node; its container asks for nothing unless the spec has one."""
    content = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}
    return kubernetes.needs(msgspec.convert(content, manifest.Pod), OWNED)


def container(name: str, requests: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": dict(requests)}, **fields}


def resources(**spec: Any) -> dict[str, int]:
    return dict(needs(**spec).resources)


def by_acting_it_out(early: list[tuple[dict[str, int], bool]], apps: list[dict[str, int]]) -> dict[str, int]:
    """The most that runs at any time: containers start one after the other, and init containers end before the next."""
    moments: list[list[dict[str, int]]] = []
    sidecars: list[dict[str, int]] = []
    for requests, stays in early:
        moments.append([*sidecars, requests])
        if stays:
            sidecars.append(requests)
    moments.append([*sidecars, *apps])
    names = {name for moment in moments for requests in moment for name in requests}
    most = {name: max(sum(each.get(name, 0) for each in moment) for moment in moments) for name in names}
    return {name: amount for name, amount in most.items() if amount}


class TestPeak:
    @given(early, apps)
    def test_a_pod_takes_what_runs_at_its_fullest_moment(
        self, early: list[tuple[dict[str, int], bool]], apps: list[dict[str, int]]
    ) -> None:
        spec = {
            "initContainers": [
                container(f"i{i}", requests, **({"restartPolicy": "Always"} if stays else {}))
                for i, (requests, stays) in enumerate(early)
            ],
            "containers": [container(f"c{i}", requests) for i, requests in enumerate(apps)],
        }
        expected = by_acting_it_out(early, apps)
        if "cpu" in expected:
            expected["cpu"] *= 1000
        assert resources(**spec) == {**expected, "pods": 1}

    def test_a_late_init_container_runs_beside_the_sidecars_before_it(self) -> None:
        spec = {
            "initContainers": [
                container("first", {"memory": 70}),
                container("side", {"memory": 50}, restartPolicy="Always"),
                container("last", {"memory": 30}),
            ],
            "containers": [container("app", {"memory": 10})],
        }
        assert resources(**spec)["memory"] == 80

    def test_two_containers_run_at_the_same_time(self) -> None:
        assert resources(containers=[container("a", {"cpu": 1}), container("b", {"cpu": 2})])["cpu"] == 3000


class TestAmounts:
    @pytest.mark.parametrize(
        ("text", "thousandths"),
        [("1", 1000), ("500m", 500), ("0.1", 100), ("1m", 1), ("1u", 1), ("1.0001", 1001), (2, 2000)],
    )
    def test_cpu_counts_in_thousandths_rounded_up(self, text: str | int, thousandths: int) -> None:
        assert resources(containers=[container("c", {"cpu": text})])["cpu"] == thousandths

    @pytest.mark.parametrize(("text", "units"), [("1Gi", 2**30), ("1k", 1000), ("100m", 1), ("1500m", 2), (7, 7)])
    def test_all_else_counts_in_whole_units_rounded_up(self, text: str | int, units: int) -> None:
        assert resources(containers=[container("c", {"memory": text})])["memory"] == units

    def test_what_has_only_a_limit_counts_as_requested(self) -> None:
        limited = {"name": "c", "resources": {"limits": {"cpu": 2, "memory": 5}, "requests": {"cpu": 1}}}
        assert resources(containers=[limited]) == {"cpu": 1000, "memory": 5, "pods": 1}

    def test_overhead_is_added(self) -> None:
        spec = {"containers": [container("c", {"cpu": 1})], "overhead": {"cpu": "250m", "memory": "1Ki"}}
        assert resources(**spec) == {"cpu": 1250, "memory": 1024, "pods": 1}

    def test_what_dialects_account_for_is_not_counted_again(self) -> None:
        asking = container("c", {"nvidia.com/gpu": 1, "example.com/x": 1})
        assert resources(containers=[asking], overhead={"nvidia.com/gpu": 1}) == {"example.com/x": 1, "pods": 1}

    def test_a_pod_that_asks_for_nothing_takes_a_place(self) -> None:
        assert resources() == {"pods": 1}

    @pytest.mark.parametrize(
        ("spec", "field", "value", "message"),
        [
            (
                {"containers": [container("c", {"cpu": "much"})]},
                "spec.containers[0].resources.requests[cpu]",
                "much",
                "'much' is not a quantity",
            ),
            (
                {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gib"}}}]},
                "spec.containers[0].resources.limits[memory]",
                "1Gib",
                "'1Gib' is not a quantity",
            ),
            (
                {"initContainers": [container("i", {"memory": -1})]},
                "spec.initContainers[0].resources.requests[memory]",
                "-1",
                "memory of -1 must not be negative",
            ),
            (
                {"containers": [container("c", {"memory": "1e30"})]},
                "spec.containers[0].resources.requests[memory]",
                "1e30",
                "memory of 1e30 is more than any node can have",
            ),
            ({"overhead": {"cpu": "a bit"}}, "spec.overhead[cpu]", "a bit", "'a bit' is not a quantity"),
        ],
    )
    def test_an_amount_that_cannot_be_is_refused_by_field(
        self, spec: dict[str, Any], field: str, value: str, message: str
    ) -> None:
        with pytest.raises(Refusal, match=message) as caught:
            needs(**spec)
        assert (caught.value.field, caught.value.value) == (field, value)


class TestDemands:
    def test_selectors_and_tolerations_are_handed_on(self) -> None:
        toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
        found = needs(nodeSelector={"zone": "b", "arch": "arm64"}, tolerations=[toleration])
        assert found.selector == (("arch", "arm64"), ("zone", "b"))
        assert found.tolerations == (Toleration(key="gpu", operator="Exists", effect="NoSchedule"),)

    def test_one_of_the_affinity_terms_must_hold(self) -> None:
        terms: list[dict[str, Any]] = [
            {
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            },
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        ]
        assert needs(affinity=required_of_nodes(terms)).terms == (
            (
                (Expression(key="zone", operator="In", values=("a", "b")),),
                (Expression(key="metadata.name", operator="In", values=("n1",)),),
            ),
            ((Expression(key="gpu", operator="Exists"),), ()),
        )

    def test_a_preference_restricts_nothing(self) -> None:
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
        assert needs(affinity={"nodeAffinity": preferred}).terms is None
        assert needs(affinity={}).terms is None
        assert needs().terms is None

    def test_a_list_of_terms_without_a_term_admits_no_node(self) -> None:
        assert needs(affinity=required_of_nodes([])).terms == ()

    @pytest.mark.parametrize(
        ("spec", "name"),
        [
            ({"schedulingGates": [{"name": "g"}]}, "scheduling gates"),
            ({"resourceClaims": [{"name": "r"}]}, "resource claims"),
        ],
    )
    def test_a_demand_that_we_cannot_meet_yet_is_named(self, spec: dict[str, Any], name: str) -> None:
        assert needs(**spec).unsupported == (name,)

    def test_all_of_them_are_named(self) -> None:
        spec = {
            "schedulingGates": [{"name": "g"}],
            "resourceClaims": [{"name": "r"}],
        }
        assert needs(**spec).unsupported == ("scheduling gates", "resource claims")

    @pytest.mark.parametrize(
        "spec",
        [
            {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            {"topologySpreadConstraints": [{"maxSkew": 1}, {"whenUnsatisfiable": "ScheduleAnyway"}]},
            {"schedulingGates": []},
            {"volumes": [{"name": "v", "configMap": {"name": "x"}}, {"name": "e", "emptyDir": {}}]},
            {"containers": [{"name": "c", "ports": [{"containerPort": 80}, {"hostPort": 80}]}]},
        ],
    )
    def test_what_policies_honour_is_not_named(self, spec: dict[str, Any]) -> None:
        assert not needs(**spec).unsupported


def required_of_nodes(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


class TestNodes:
    def node(self, **content: Any) -> manifest.Node:
        return msgspec.convert({"metadata": {"name": "n1"}, **content}, manifest.Node)

    def test_a_node_has_what_is_allocatable_and_not_its_capacity(self) -> None:
        status = {"capacity": {"cpu": 8, "memory": "2Ki"}, "allocatable": {"cpu": "7500m", "nvidia.com/gpu": 1}}
        assert kubernetes.allocatable(self.node(status=status), OWNED) == ({"cpu": 7500}, [])

    def test_a_hand_written_node_may_have_a_capacity_only(self) -> None:
        assert kubernetes.allocatable(self.node(status={"capacity": {"pods": "110"}}), OWNED) == ({"pods": 110}, [])

    def test_an_amount_that_cannot_be_read_is_none_and_a_warning(self) -> None:
        status = {"allocatable": {"cpu": "many", "memory": -5, "pods": 10}}
        counted, warnings = kubernetes.allocatable(self.node(status=status), OWNED)
        assert counted == {"cpu": 0, "memory": 0, "pods": 10}
        (warning,) = warnings
        assert warning.startswith("node n1: allocatable cpu: 'many' is not a quantity")
        assert warning.endswith("; counted as 0")

    @pytest.mark.parametrize(
        ("conditions", "ready"),
        [
            (None, True),
            ([], True),
            ([{"type": "Ready", "status": "True"}], True),
            ([{"type": "Ready", "status": "False"}], False),
            ([{"type": "Ready", "status": "Unknown"}], False),
            ([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}], True),
        ],
    )
    def test_a_node_is_ready_unless_it_says_otherwise(self, conditions: Any, ready: bool) -> None:
        assert kubernetes.ready(self.node(status={"conditions": conditions})) is ready
