"""Whatever is asked, the embedded API server answers as a real one does, and tells its watchers the same."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contracts import servers
from tests.contracts.client import Client, Watch
from tests.contracts.space import Space, fresh, plain
from tests.contracts.transcript import normal, sent, steady
from tests.e2e.cluster import Cluster
from tests.e2e.requests import requests

SEEDS = int(os.environ.get("SUBAK_SEEDS", "20"))
LENGTH = 40
END = "zz-end"
DUMP = re.compile(r'"\{.*\}"(?=: [a-z])|\{.*"[Cc]ontainers":.*\}(?=: field is immutable)', re.DOTALL)
"""A whole object in a message, whose keys a real server sorts where a patch has touched it, and a template of pods in
one, which it shows with Go's names."""
UNKNOWN = re.compile(r'(?:unknown field "[^"]*"(?:, )?){2,}')
"""Fields of a patch that nobody knows, which a real server has in a map."""
WATCHES: dict[str, dict[str, str]] = {
    "pods": {},
    "configmaps": {"labelSelector": "x!=2"},
    "services": {"labelSelector": "y"},
    "podgroups": {},
    "deployments": {},
}
LAST: dict[str, Any] = {
    "pods": {"spec": plain()},
    "configmaps": {},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "podgroups": {"spec": {"minMember": 1}},
    "deployments": {
        "spec": {
            "selector": {"matchLabels": {"x": "1"}},
            "template": {"metadata": {"labels": {"x": "1"}}, "spec": plain()},
        }
    },
}


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[tuple[Client, Client]]:
    """The embedded server and the real one."""
    with servers.embedded() as embedded, servers.real(cluster.certificate) as real:
        yield embedded, real


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_servers_answer_alike(seed: int, pair: tuple[Client, Client]) -> None:
    with ExitStack() as stack:
        spaces = [stack.enter_context(fresh(client)) for client in pair]
        watches = [
            {plural: stack.enter_context(space.watch(plural, **query)) for plural, query in WATCHES.items()}
            for space in spaces
        ]
        for number, request in enumerate(requests(seed, LENGTH)):
            step = {f"{request.method} {request.path}": request.body, "headers": request.headers}
            ours, theirs = (comparable(normal(sent(step, space), space)) for space in spaces)
            assert ours == theirs or known(theirs), f"request {number}: {json.dumps(step)}"
        for plural in WATCHES:
            ours, theirs = (told(space, watch[plural], plural) for space, watch in zip(spaces, watches, strict=True))
            assert ours == theirs, f"what those who watch {plural} are told"


def told(space: Space, watch: Watch, plural: str) -> list[Any]:
    """All events of a watch, less what differs from run to run."""
    last = {"metadata": {"name": END, "labels": {"y": "1"}}, **LAST[plural]}
    space.post(plural, last).must(201)
    found: list[Any] = []
    while not found or found[-1]["object"]["metadata"]["name"] != END:
        found.append(watch.next())
    return [steady(each, space) for each in found[:-1]]


def known(theirs: Any) -> bool:
    """Whether docs/decisions/0004-embedded-api-server.md speaks of it: a service without a good name."""
    return isinstance(theirs["body"], dict) and "parentRef.name: " in theirs["body"].get("message", "")


def comparable(answer: Any) -> Any:
    """An answer, with what a real server takes from Go's maps, in no order, put in order."""
    answer.get("warnings", []).sort()
    body = answer["body"]
    if isinstance(body, dict):
        for key in ("items", "rows"):  # a real server tells of its own repairs at any time
            if body.get(key):
                body[key] = [each for each in body[key] if "ClusterIPNotAllocated" not in json.dumps(each)]
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return answer
    body["message"] = _in_order(body.get("message", ""))
    causes = body.get("details", {}).get("causes", [])
    for cause in causes:
        cause["message"] = _in_order(cause["message"])
    if len(causes) > 1:
        causes.sort(key=json.dumps)
        body["message"] = body["message"].split(" is invalid: [")[0]
    if body["message"].startswith("failed to create typed patch object"):
        body["message"] = body["message"].split("): ")[0]  # it stops at some of the problems, or goes on
    return answer


def _in_order(message: str) -> str:
    return UNKNOWN.sub(lambda found: ", ".join(sorted(found[0].split(", "))), DUMP.sub("OBJECT", message))
