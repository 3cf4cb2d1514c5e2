"""What `kubectl get` prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.custom import POD_GROUP
from tests.support.talk import CONFIG_MAPS, PODS, TABLE, Talk, config_map, pod
from tinykube.server import columns, kinds
from tinykube.server.columns import duration
from tinykube.server.pod_summary import summary

NOW = 1_767_225_600.0  # 2026-01-01
EARLIER = "2025-12-31T23:55:00Z"
Json = dict[str, Any]

RUNNING: Json = {"state": {"running": {}}, "ready": True}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (600, "10m"),
        (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (26 * 3600, "26h"), (50 * 3600, "2d2h"), (10 * 86400, "10d"),
        (800 * 86400, "2y70d"), (3000 * 86400, "8y"),
    ],
)  # fmt: skip
def test_durations_are_short(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def status(phase: str = "Running", **fields: Any) -> Json:
    return {"phase": phase, **fields}


def container(name: str = "c", **fields: Any) -> Json:
    return {"name": name, "restartCount": 0, **fields}


def ended(name: str = "c", **how: Any) -> Json:
    return container(name, state={"terminated": how})


READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("spec", "state", "line"),
    [
        ({}, status("Pending"), (0, 1, "Pending")),
        ({}, status(containerStatuses=[container(**RUNNING)]), (1, 1, "Running")),
        ({}, status("Pending", reason="Evicted"), (0, 1, "Evicted")),
        (
            {},
            status("Pending", containerStatuses=[container(state={"waiting": {"reason": "ErrImagePull"}})]),
            (0, 1, "ErrImagePull"),
        ),
        ({}, status("Failed", containerStatuses=[ended(exitCode=3)]), (0, 1, "ExitCode:3")),
        (
            {},
            status("Failed", containerStatuses=[ended(exitCode=137, signal=9)]),
            (0, 1, "Signal:9"),
        ),
        (
            {"containers": [{"name": "c"}, {"name": "d"}]},
            status(
                conditions=READY,
                containerStatuses=[
                    ended(exitCode=0, reason="Completed"), container("d", **RUNNING)
                ],
            ),
            (1, 2, "Running"),
        ),
        (
            {"initContainers": [{"name": "i"}, {"name": "j"}]},
            status(
                "Pending",
                initContainerStatuses=[ended("i", exitCode=0), container("j")],
            ),
            (0, 1, "Init:1/2"),
        ),
        (
            {"initContainers": [{"name": "i"}]},
            status("Pending", initContainerStatuses=[ended("i", exitCode=1, reason="Error")]),
            (0, 1, "Init:Error"),
        ),
        (
            {"initContainers": [{"name": "i", "restartPolicy": "Always"}]},
            status(
                initContainerStatuses=[container("i", started=True, **RUNNING)],
                containerStatuses=[container(**RUNNING)],
            ),
            (2, 2, "Running"),
        ),
        (
            {},
            status("Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            (0, 1, "SchedulingGated"),
        ),
    ],
)  # fmt: skip
def test_a_pod_in_one_line(spec: Json, state: Json, line: tuple[int, int, str]) -> None:
    found = summary({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}, "status": state})
    assert (found.ready, found.total, found.state) == line


def test_a_pod_that_goes_is_terminating() -> None:
    going = {"metadata": {"name": "p", "deletionTimestamp": EARLIER}, "spec": {}, "status": status()}
    assert summary(going).state == "Terminating"
    assert summary({**going, "status": status("Succeeded")}).state == "Succeeded"


def test_restarts_say_when_the_last_was() -> None:
    before = {"terminated": {"finishedAt": EARLIER, "exitCode": 1}}
    restarted = container(**RUNNING) | {"restartCount": 2, "lastState": before}
    made = {"metadata": {"name": "p"}, "spec": {}, "status": status(containerStatuses=[restarted])}
    _, cells = columns.of(kinds.POD)
    assert cells(made, NOW)[3] == "2 (5m ago)"


def test_nodes_services_events_and_quotas() -> None:
    def cells(kind: kinds.Kind, **fields: Any) -> list[Any]:
        metadata = {"name": "x", "creationTimestamp": EARLIER, **fields.pop("metadata", {})}
        return columns.of(kind)[1]({"metadata": metadata, **fields}, NOW)

    roles = {"node-role.kubernetes.io/gpu": "", "node-role.kubernetes.io/control-plane": ""}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}}
    node = cells(kinds.NODE, metadata={"labels": roles}, spec={"unschedulable": True}, status=ready)
    assert node[:5] == ["x", "Ready,SchedulingDisabled", "control-plane,gpu", "5m", "v1"]
    ports = [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]
    service = cells(kinds.SERVICE, spec={"type": "NodePort", "clusterIPs": ["10.96.0.1"], "ports": ports})
    assert service[1:6] == ["NodePort", "10.96.0.1", "<none>", "80:30080/TCP,53/UDP", "5m"]
    about = {"kind": "Pod", "name": "p"}
    event = cells(kinds.EVENT, involvedObject=about, lastTimestamp=EARLIER, message="hi\n", type="Normal", reason="R")
    assert (event[0], event[3], event[6], event[8]) == ("5m", "pod/p", "hi", 1)
    used = {"hard": {"pods": "5", "limits.cpu": "2"}, "used": {"pods": "1"}}
    assert cells(kinds.RESOURCE_QUOTA, status=used)[1:3] == ["pods: 1/5", "limits.cpu: 0/2"]
    group = cells(POD_GROUP, spec={"minMember": 2, "queue": "q"}, status={"phase": "Running"})
    assert group == ["x", "Running", 2, None, "5m", "q"]


@pytest.mark.parametrize(
    ("include", "kind"), [("Metadata", "PartialObjectMetadata"), ("Object", "Pod"), ("None", None)]
)
async def test_rows_carry_as_much_of_the_object_as_asked(include: str, kind: str | None) -> None:
    talk = Talk()
    await talk.create(PODS, pod())
    table = await talk.get(PODS, headers={"accept": TABLE}, includeObject=include)
    (row,) = table["rows"]
    assert (row["object"] or {}).get("kind") == kind
    assert row["cells"][:4] == ["p", "0/1", "Pending", "0"]


async def test_metadata_alone() -> None:
    talk = Talk()
    await talk.create(CONFIG_MAPS, config_map("a", x="1"))
    partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    one = await talk.get(f"{CONFIG_MAPS}/a", headers={"accept": partial})
    assert (one["kind"], "data" in one) == ("PartialObjectMetadata", False)
    many = await talk.get(CONFIG_MAPS, headers={"accept": partial.replace("Metadata;", "MetadataList;")})
    assert [each["metadata"]["name"] for each in many["items"]] == ["a"]
