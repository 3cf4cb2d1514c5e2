from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from subak.local.runtime.capability import obstacle
from subak.local.runtime.namespaces import Namespaces
from tests.local.runtime.containers import children
from tests.nobody import CHECKOUT, NOBODY, as_nobody, possible
from tests.orphan import Orphan


@dataclass(frozen=True)
class OnceMore:
    """These tests, run by nobody: what it prints, and its exit code when it has ended."""

    program: Orphan
    output: Path
    code: Path


@pytest.fixture(scope="session", autouse=True)
def once_more(request: pytest.FixtureRequest) -> Iterator[OnceMore | None]:
    """Begun with the first of these tests, so that it is done when the last one asks for it."""
    asked = any(item.path.name == "test_without_root.py" for item in request.session.items)
    if not asked or os.geteuid() != 0 or not possible():
        yield None
        return
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        output, code = Path(directory, "output"), Path(directory, "code")
        tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={directory}/tests"]
        command = shlex.join(as_nobody(*tests, "--durations=8", str(Path(__file__).parent)))
        script = f"{command} > {output} 2>&1; echo $? > {code}.part; mv {code}.part {code}"
        env = {"PATH": os.environ["PATH"], "HOME": directory, "TMPDIR": directory}
        program = Orphan(["sh", "-c", script], CHECKOUT, env)
        yield OnceMore(program, output, code)
        program.end()


@pytest.fixture(scope="session")
def able() -> None:
    """Confined containers can be made here, or else the reason why not."""
    why_not = asyncio.run(obstacle())
    if why_not:
        pytest.skip(why_not)


@pytest.fixture
async def runtime(able: None) -> AsyncIterator[Namespaces]:
    before = children()
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    runtime = Namespaces()
    yield runtime
    await runtime.close()
    assert children() == before
    assert troubles == []
