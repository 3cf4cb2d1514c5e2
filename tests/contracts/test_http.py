"""What is beside the objects: sizes, compression, headers, connections, upgrades."""

from __future__ import annotations

from typing import Any

from tests.contracts.client import Answer, Client
from tests.contracts.space import Space, plain

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}


def refused(space: Space, **query: Any) -> Answer:
    """What an exec over a WebSocket is told."""
    return space.send("GET", "pods/a/exec", headers=UPGRADE, **query)


def test_a_body_that_is_too_large(space: Space) -> None:
    answer = space.send("POST", "configmaps", b'{"data": {"x": "' + b"a" * (3 * 2**20) + b'"}}')
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


def test_content_that_is_too_large(space: Space) -> None:
    large = "a" * (2**20 + 1)
    told = [
        space.post("configmaps", {"metadata": {"name": "a"}, "data": {"x": large}}).message,
        space.post("secrets", {"metadata": {"name": "a"}, "stringData": {"x": large}}).message,
        space.post("configmaps", {"metadata": {"name": "a", "annotations": {"x": large}}}).message,
    ]
    assert told == [
        'ConfigMap "a" is invalid: []: Too long: may not be more than 1048576 bytes',
        'Secret "a" is invalid: data: Too long: may not be more than 1048576 bytes',
        'ConfigMap "a" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes',
    ]


def test_answers_are_not_to_be_kept(space: Space) -> None:
    answer = space.get("configmaps")
    assert answer.headers["Cache-Control"] == "no-cache, private"
    assert answer.headers["Content-Type"] == "application/json"


def test_a_head_is_not_allowed(space: Space) -> None:
    assert space.send("HEAD", "configmaps").code == 405


def test_nobody_gets_in_without_a_token(client: Client) -> None:
    for header in ("", "Bearer ", "Bearer nonsense", "bearer", client.token):
        answer = client.send("GET", "/api/v1/namespaces", headers={"Authorization": header})
        assert (answer.code, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")


def test_an_exec_over_a_websocket_is_refused_before_it_begins(space: Space) -> None:
    space.post("pods", {"metadata": {"name": "a"}, "spec": plain()}).must(201)
    answer = refused(space, command="ls", stdout="true")
    assert (answer.code, answer.message) == (400, "pod a does not have a host assigned")
    answer = refused(space, command="ls", stdout="true", container="x")
    assert (answer.code, answer.message) == (400, "container x is not valid for pod a")


def test_an_exec_in_a_pod_that_is_not_there(space: Space) -> None:
    answer = refused(space, command="ls", stdout="true")
    assert (answer.code, answer.message) == (404, 'pods "a" not found')


def test_answers_in_yaml(space: Space) -> None:
    space.post("configmaps", {"metadata": {"name": "a", "labels": {"b": "1", "a": "yes"}}, "data": {"x": "l1\nl2\n"}})
    answer = space.send("GET", "configmaps/a", headers={"Accept": "application/yaml"})
    assert answer.headers["Content-Type"] == "application/yaml"
    lines = answer.body.decode().splitlines()
    assert lines[:5] == ["apiVersion: v1", "data:", "  x: |", "    l1", "    l2"]
    assert [each for each in lines if each.startswith(("    a:", "    b:"))] == ['    a: "yes"', '    b: "1"']
