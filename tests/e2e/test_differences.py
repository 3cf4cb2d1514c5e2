"""Whatever is asked, the embedded API server answers as a real one does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.contracts import servers
from tests.contracts.client import Client
from tests.contracts.space import fresh
from tests.contracts.transcript import normal, sent
from tests.e2e.cluster import Cluster
from tests.e2e.requests import requests

SEEDS = int(os.environ.get("SUBAK_SEEDS", "20"))
LENGTH = 40


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[tuple[Client, Client]]:
    """The embedded server and the real one."""
    with servers.embedded() as embedded, servers.real(cluster.certificate) as real:
        yield embedded, real


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_servers_answer_alike(seed: int, pair: tuple[Client, Client]) -> None:
    with ExitStack() as stack:
        spaces = [stack.enter_context(fresh(client)) for client in pair]
        for number, request in enumerate(requests(seed, LENGTH)):
            step = {f"{request.method} {request.path}": request.body, "headers": request.headers}
            ours, theirs = (comparable(normal(sent(step, space), space)) for space in spaces)
            assert ours == theirs or known(theirs), f"request {number}: {json.dumps(step)}"


def known(theirs: Any) -> bool:
    """Whether docs/decisions/0004-embedded-api-server.md speaks of it: a service without a name."""
    return isinstance(theirs["body"], dict) and "parentRef.name: Required" in theirs["body"].get("message", "")


def comparable(answer: Any) -> Any:
    """An answer, with what a real server takes from Go's maps, in no order, put in order."""
    body = answer["body"]
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return answer
    causes = body.get("details", {}).get("causes", [])
    if len(causes) > 1:
        causes.sort(key=json.dumps)
        body["message"] = body["message"].split(" is invalid: [")[0]
    if body.get("message", "").startswith("failed to create typed patch object"):
        body["message"] = body["message"].split("): ")[0]  # it stops at some of the problems, or goes on
    return answer
