from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from subak.local.runtime.container import Confined
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec, StartError
from subak.local.runtime.stand_in import StandIns
from tests.local.runtime.containers import execute, until
from tests.support.processes import children


async def test_the_users_command_is_never_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    runtime = StandIns()
    container = await runtime.start(Spec("a", ["touch", str(trace)], log=tmp_path / "log"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(container.wait(), 0.1)
    assert container.pid in children(os.getpid())
    await container.stop(30)
    assert await container.wait() == 143
    assert not trace.exists()
    assert (tmp_path / "log").read_text() == ""
    assert container.pid not in children(os.getpid())


async def test_nothing_is_run_in_it_unconfined() -> None:
    runtime = StandIns()
    container = await runtime.start(Spec("default/a/main", []))
    with pytest.raises(StartError, match="default/a/main is a stand-in"):
        await container.execute(["true"], {}, stdin=False, tty=False)
    await runtime.close()
    assert await container.wait() == 143


async def test_where_containers_can_be_confined_so_is_it(runtime: Namespaces) -> None:
    container = await StandIns(runtime).start(Spec("a", [], {"GREETING": "hello"}, host_name="there"))
    assert isinstance(container, Confined)
    assert (await execute(container, "uname -n; cat /proc/2/comm")).stdout == "there\nsleep\n"
    await container.stop(30)
    assert await container.wait() == 143


async def test_it_ends_with_us() -> None:
    program = (
        "import asyncio\n"
        "from subak.local.runtime.spec import Spec\n"
        "from subak.local.runtime.stand_in import StandIns\n"
        "async def main():\n"
        "    print((await StandIns().start(Spec('a', []))).pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    stand_in = Path("/proc", process.stdout.readline().decode().strip())
    assert stand_in.exists()
    process.kill()
    process.wait()
    process.stdout.close()
    await until(lambda: not stand_in.exists())
