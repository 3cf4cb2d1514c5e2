"""The servers, and a namespace for each test."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.contracts.client import Client, eventually
from tests.contracts.embedded import HISTORY, Embedded
from tests.contracts.space import Space, fresh
from tests.e2e import PARTS
from tests.e2e.cluster import ADDRESS, ETCD
from tests.e2e.identities import TOKEN

CRDS = Path(__file__).parents[2] / "src/subak/local/api/crds"
SERVERS = ("embedded", "real") if PARTS in os.environ else ("embedded",)


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Which one: `embedded` or `real`."""
    return str(request.param)


@pytest.fixture(scope="session")
def client(server: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Speaks to the server as somebody who may do everything."""
    found = _real(request) if server == "real" else _embedded(request)
    yield found
    found.close()


@pytest.fixture
def space(client: Client) -> Iterator[Space]:
    """A namespace of the test's own."""
    with fresh(client) as made:
        yield made


@pytest.fixture
def forget(server: str) -> Callable[[Space], None]:
    """Makes the server forget the past of config maps, as it does in time."""
    return _compact if server == "real" else _outlive


def _compact(space: Space) -> None:
    """Etcd has a door for JSON; the API server has none for this."""
    revision = space.get("configmaps").must(200)["metadata"]["resourceVersion"]
    body = json.dumps({"revision": revision}).encode()
    with urllib.request.urlopen(f"{ETCD}/v3/kv/compaction", data=body, timeout=10) as answer:
        assert answer.status == 200


def _outlive(space: Space) -> None:
    """More changes than the embedded server remembers."""
    space.post("configmaps", {"metadata": {"name": "outlive"}}).must(201)
    for index in range(HISTORY + 1):
        space.merge("configmaps/outlive", {"data": {"x": str(index)}}).must(200)


def _real(request: pytest.FixtureRequest) -> Client:
    client = Client(ADDRESS, request.getfixturevalue("cluster").certificate.read_text(), TOKEN)
    for path in sorted(CRDS.glob("*.yaml")):
        define(client, yaml.safe_load(path.read_text()))
    return client


def _embedded(request: pytest.FixtureRequest) -> Client:
    started = Embedded()
    request.addfinalizer(started.stop)
    return Client(started.address, started.authority, started.token)


def define(client: Client, definition: dict[str, object]) -> None:
    """Teach a real server a kind of ours, and wait until it serves it."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = client.send("POST", path, definition)
    assert answer.code in (201, 409), answer.body
    spec = definition["spec"]
    assert isinstance(spec, dict)
    served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    eventually(lambda: client.send("GET", served).code == 200)
