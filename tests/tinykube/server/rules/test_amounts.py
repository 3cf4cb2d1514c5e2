"""Objects with very many items are looked at in no time, and what is wrong with them is told in few words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tinykube.server.rules.objects import changed, named, pod, service
from tests.tinykube.server.rules.world import World, with_system_fields
from tinykube.server import errors, kinds, rules
from tinykube.server.kinds import Kind
from tinykube.server.rules import problem
from tinykube.server.rules.service import PORTS
from tinykube.status import ApiError

Json = dict[str, Any]

MANY = 40_000  # compared one by one, each of these tests would take minutes
ARMOR = "container.apparmor.security.beta.kubernetes.io"


def made(kind: Kind, given: Json) -> Json:
    object, _ = rules.read(kind, given, "Strict")
    return rules.create(kind, with_system_fields(object, kind), World())


def refused(kind: Kind, given: Json) -> ApiError:
    with pytest.raises(ApiError) as caught:
        made(kind, given)
    return caught.value


def owners(count: int) -> Json:
    references = [
        {"apiVersion": "v1", "kind": "Pod", "name": f"p{turn}", "uid": f"{turn}", "controller": True}
        for turn in range(count)
    ]
    return named("ConfigMap", {"metadata.ownerReferences": references})


def test_many_owners_that_control_are_shown_once() -> None:
    error = refused(kinds.CONFIG_MAP, owners(2000))
    assert len(error.details["causes"]) == 1
    assert error.message.endswith('Found "true" in references for Pod/p0 and Pod/p1')
    assert len(error.message) < 300_000


def test_what_is_wrong_is_told_up_to_a_megabyte() -> None:
    causes = [problem.invalid(f"f{turn}", "x" * 100_000, "is wrong") for turn in range(100)]
    error = errors.invalid(kinds.POD, "p", causes)
    assert len(error.message) < errors.MOST_TOLD + 1000
    assert error.message.endswith("is wrong, and 90 more]")
    assert error.details["causes"][-1] == {"reason": "FieldValueInvalid", "message": "and 90 more"}
    assert len(error.details["causes"]) == 11


def test_a_single_large_problem_is_told_all_the_same() -> None:
    error = errors.invalid(kinds.POD, "p", [problem.invalid("f", "x" * errors.MOST_TOLD, "is wrong")])
    assert error.message.endswith("is wrong")
    assert len(error.details["causes"]) == 1


def test_many_spread_constraints() -> None:
    constraints = [
        {"maxSkew": 1, "topologyKey": f"k{turn}", "whenUnsatisfiable": "DoNotSchedule"} for turn in range(MANY)
    ]
    assert made(kinds.POD, pod({"spec.topologySpreadConstraints": constraints}))
    error = refused(kinds.POD, pod({"spec.topologySpreadConstraints": [*constraints, constraints[7], constraints[7]]}))
    place = "spec.topologySpreadConstraints[{}].{{topologyKey, whenUnsatisfiable}}"
    assert [each["field"] for each in error.details["causes"]] == [place.format(7), place.format(MANY)]


def test_many_label_keys_that_match_and_do_not() -> None:
    term = {
        "topologyKey": "a",
        "labelSelector": {},
        "matchLabelKeys": [f"a{turn}" for turn in range(MANY)],
        "mismatchLabelKeys": [*(f"b{turn}" for turn in range(MANY)), "a3"],
    }
    path = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    error = refused(kinds.POD, pod({path: [term]}))
    assert [each["field"] for each in error.details["causes"]] == [f"{path}[0].matchLabelKeys[3]"]


def test_many_mounts_beside_many_devices() -> None:
    mounts = [{"name": "v", "mountPath": f"/{turn}"} for turn in range(MANY)]
    devices = [{"name": f"d{turn}", "devicePath": f"/d{turn}"} for turn in range(MANY)]
    devices.append({"name": "d", "devicePath": "/5"})
    changes = {"spec.volumes": [{"name": "v", "emptyDir": {}}], "spec.containers[0].volumeMounts": mounts}
    error = refused(kinds.POD, pod(changes | {"spec.containers[0].volumeDevices": devices}))
    said = [each["message"] for each in error.details["causes"]]
    assert 'Invalid value: "/5": must not already exist as a path in volumeDevices' in said


def test_many_variables_from_files_beside_many_volumes() -> None:
    source = {"fileKeyRef": {"volumeName": "w", "path": "a", "key": "k"}}
    env = [{"name": f"v{turn}", "valueFrom": source} for turn in range(MANY // 2)]
    volumes = [{"name": f"w{turn}", "emptyDir": {}} for turn in range(MANY // 2)]
    error = refused(kinds.POD, pod({"spec.containers[0].env": env, "spec.volumes": volumes}))
    assert error.details["causes"][0]["message"] == 'Not found: "w"'


def test_many_profiles_beside_many_containers() -> None:
    count = 4000  # annotations have a limit
    containers = [{"name": f"c{turn}", "image": "x"} for turn in range(MANY)]
    annotations = {f"{ARMOR}/c{turn}": "unconfined" for turn in range(MANY - count, MANY)}
    given = pod({"spec.containers": containers, "metadata.annotations": annotations | {f"{ARMOR}/d": "unconfined"}})
    error = refused(kinds.POD, given)
    assert [each["field"] for each in error.details["causes"]] == [f"metadata.annotations[{ARMOR}/d]"]


def updated(changes: Json, base: Json) -> ApiError | None:
    old = made(kinds.POD, base)
    old["metadata"]["resourceVersion"] = "1"
    given, _ = rules.read(kinds.POD, changed(old, changes), "Strict")
    try:
        rules.update(kinds.POD, given, old, World())
    except ApiError as error:
        return error
    return None


def test_of_a_long_change_is_said_only_that_there_is_one() -> None:
    args = [str(turn % 101) for turn in range(MANY)]
    error = updated({"spec.containers[0].args": args[::-1]}, pod({"spec.containers[0].args": args}))
    assert error is not None
    assert "pod updates may not change fields other than" in error.message
    assert "the differences are not shown" in error.message
    assert len(error.message) < 1000


def test_many_tolerations_may_be_added_to_many() -> None:
    before = [{"key": f"k{turn}", "operator": "Exists"} for turn in range(MANY // 2)]
    more = [{"key": f"j{turn}", "operator": "Exists"} for turn in range(MANY // 2)]
    assert updated({"spec.tolerations": more + before}, pod({"spec.tolerations": before})) is None


def test_a_service_takes_all_node_ports_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range was sorted for each of them."""
    sorted_lists: list[object] = []
    monkeypatch.setattr("tinykube.server.rules.service.sorted", sorted_lists.append, raising=False)
    ports = [{"name": f"p{turn}", "port": turn + 1} for turn in range(len(PORTS))]
    found = made(kinds.SERVICE, service({"spec.type": "NodePort", "spec.ports": ports}))["spec"]["ports"]
    assert [each["nodePort"] for each in found] == [*PORTS[86:], *PORTS[:86]]
    assert not sorted_lists
    with pytest.raises(ApiError, match="failed to allocate a nodePort: range is full"):
        made(kinds.SERVICE, service({"spec.type": "NodePort", "spec.ports": [*ports, {"name": "z", "port": 65535}]}))


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_a_time_beyond_all_years_is_refused_as_any_that_is_wrong(text: str) -> None:
    for field in ("startTime", "conditions[0].lastTransitionTime"):
        with pytest.raises(ApiError) as caught:
            rules.read(kinds.POD, pod({f"status.{field}": text}), "Strict")
        assert caught.value.code == 400
        assert f'parsing time "{text}": year out of range' in caught.value.message
