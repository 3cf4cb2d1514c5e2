"""Refusals are counted by verb and code, and a missing right is told once, with the role that lacks it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from subak.scheduler.observed import Observed, asked
from tests.tinykube.scripted import Scripted, answer, refusal
from tinykube.transport import Request

POD = "/api/v1/namespaces/a/pods/b"


@pytest.mark.parametrize(
    ("request_", "verb", "resource"),
    [
        (Request("GET", "/api/v1/pods"), "list", "pods"),
        (Request("GET", "/api/v1/pods", {"watch": "true"}), "watch", "pods"),
        (Request("GET", POD), "get", "pods"),
        (Request("POST", f"{POD}/binding"), "create", "pods/binding"),
        (Request("PATCH", f"{POD}/status"), "patch", "pods/status"),
        (Request("GET", "/api/v1/namespaces"), "list", "namespaces"),
        (Request("GET", "/api/v1/namespaces/a"), "get", "namespaces"),
        (Request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"), "delete", "leases"),
        (Request("PUT", "/api/v1/nodes/n"), "update", "nodes"),
    ],
)
def test_a_request_has_the_verb_and_the_resource_of_rbac(request_: Request, verb: str, resource: str) -> None:
    assert asked(request_) == (verb, resource)


def test_refusals_and_missing_answers_are_counted() -> None:
    async def story() -> Observed:
        observed = Observed(
            Scripted(answer({}), refusal(409, "Conflict", ""), ConnectionError(), TimeoutError()), "role"
        )
        for _ in range(2):
            await observed.send(Request("GET", POD))
        for _ in range(2):
            with pytest.raises((ConnectionError, TimeoutError)):
                await observed.send(Request("POST", f"{POD}/binding"))
        return observed

    assert asyncio.run(story()).errors == {("get", "409"): 1, ("create", "none"): 2}


def test_a_missing_right_is_told_once_with_its_role(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        observed = Observed(Scripted(refusal(403, "Forbidden", "")), "subak-controller")
        for _ in range(3):
            await observed.send(Request("POST", f"{POD}/binding"))

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    (line,) = caplog.messages
    assert "forbids to create pods/binding" in line
    assert "Role subak-controller lacks" in line


def test_the_file_that_gives_the_right_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        observed = Observed(Scripted(refusal(403, "Forbidden", "")), "subak-agent", "agent-rbac.yaml")
        await observed.send(Request("PATCH", "/api/v1/nodes/n/status"))

    with caplog.at_level(logging.ERROR):
        asyncio.run(story())
    (line,) = caplog.messages
    assert line == (
        "the API server forbids to patch nodes/status: the ClusterRole or Role subak-agent lacks that right "
        "(kubectl apply -f deploy/manifests/agent-rbac.yaml)"
    )
