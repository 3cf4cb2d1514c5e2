"""The servers, and a namespace for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.contracts.client import Client, eventually
from tests.contracts.embedded import Embedded
from tests.contracts.space import Space, fresh
from tests.e2e import PARTS
from tests.e2e.cluster import ADDRESS
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
