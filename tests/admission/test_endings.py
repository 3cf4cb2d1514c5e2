"""Only a node says that a pod of it has ended: who else may not, and what he is told."""

from __future__ import annotations

from typing import Any

import pytest

from subak.admission.endings import guard
from tinykube.admission import UPDATE, Review
from tinykube.status import ApiError
from tinykube.user import AUTHENTICATED, MASTERS, NODES, User

Json = dict[str, Any]

ADMIN = User("admin", (MASTERS, AUTHENTICATED))
NODE = User("system:node:n", (NODES, AUTHENTICATED))


def running(**state: Any) -> Json:
    return {"containerStatuses": [{"name": "main", "state": state}]}


def write(old: Json, new: Json, user: User = ADMIN, door: str = "status", node: str = "n") -> Review:
    both = {"metadata": {"name": "p", "namespace": "team"}, "spec": {"nodeName": node} if node else {}}
    return Review(UPDATE, "pods", door, "team", user, {**both, "status": new}, {**both, "status": old})


LIES: list[tuple[Json, Json, str]] = [
    ({"phase": "Running"}, {"phase": "Failed"}, 'change status.phase from "Running" to "Failed"'),
    ({"phase": "Pending"}, {"phase": "Succeeded"}, 'change status.phase from "Pending" to "Succeeded"'),
    ({"phase": "Succeeded"}, {"phase": "Failed"}, 'change status.phase from "Succeeded" to "Failed"'),
    ({"phase": "Failed"}, {"phase": "Running"}, 'change status.phase from "Failed" to "Running"'),
    ({"phase": "Failed"}, {}, 'change status.phase from "Failed" to ""'),
    (running(running={}), running(terminated={"exitCode": 0}), "set status.containerStatuses[0].state.terminated of"),
    ({}, {"initContainerStatuses": running(terminated={})["containerStatuses"]}, "set status.initContainerStatuses[0]"),
]


@pytest.mark.parametrize(("old", "new", "deed"), LIES)
def test_a_user_is_told_what_he_may_not_write_and_what_to_do(old: Json, new: Json, deed: str) -> None:
    with pytest.raises(ApiError) as caught:
        guard(write(old, new))
    assert caught.value.code == 403
    assert f'pod team/p: user "admin" may not {deed}' in caught.value.message
    assert caught.value.message.endswith("to end it, delete the pod")


@pytest.mark.parametrize(("old", "new", "_deed"), LIES)
def test_a_node_may_and_nobody_is_asked_about_a_pod_on_no_node(old: Json, new: Json, _deed: str) -> None:
    guard(write(old, new, NODE))
    guard(write(old, new, node=""))
    guard(write(old, new, door=""))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"phase": "Running"}, {"phase": "Pending"}),
        ({"phase": "Failed"}, {"phase": "Failed", "message": "so it is"}),
        (running(terminated={"exitCode": 0}), running(terminated={"exitCode": 1})),
        (running(running={}), {}),
        ({}, {"conditions": [{"type": "example.com/fed", "status": "True"}]}),
    ],
)
def test_all_else_is_for_the_kubelet_to_put_right(old: Json, new: Json) -> None:
    guard(write(old, new))
