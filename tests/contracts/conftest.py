"""The servers, and a namespace for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.contracts import servers
from tests.contracts.client import Client
from tests.contracts.space import Space, fresh
from tests.e2e import PARTS

SERVERS = ("embedded", "real") if PARTS in os.environ else ("embedded",)


@pytest.fixture(scope="session", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    """Which one: `embedded` or `real`."""
    return str(request.param)


@pytest.fixture(scope="session")
def client(server: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Speaks to the server as somebody who may do everything."""
    if server == "real":
        with servers.real(request.getfixturevalue("cluster").certificate) as found:
            yield found
    else:
        with servers.embedded() as found:
            yield found


@pytest.fixture
def space(client: Client) -> Iterator[Space]:
    """A namespace of the test's own."""
    with fresh(client) as made:
        yield made


@pytest.fixture(scope="session")
def forget(server: str, client: Client, request: pytest.FixtureRequest) -> Callable[[Space], None]:
    """Makes the server forget the past of config maps, as it does in time."""
    if server == "embedded":
        return servers.outlive
    servers.compact(client, request.getfixturevalue("cluster"))
    return lambda space: None
