from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from subak.local.runtime.capability import obstacle
from subak.local.runtime.namespaces import Namespaces
from tests.local.runtime.containers import own_children


@pytest.fixture(scope="session")
def able() -> None:
    """Confined containers can be made here, or else the reason why not."""
    why_not = asyncio.run(obstacle())
    if why_not:
        pytest.skip(why_not)


@pytest.fixture
async def runtime(able: None) -> AsyncIterator[Namespaces]:
    before = own_children()
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    runtime = Namespaces()
    yield runtime
    await runtime.close()
    assert own_children() == before
    assert troubles == []


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A directory as volumes are: under root, the users of containers are strangers to the machine."""
    tmp_path.chmod(0o777)
    return tmp_path
