from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from subak.local.runtime.namespaces import Namespaces
from subak.model.mount import Mount
from tests.local.runtime.containers import execute, run, running

USUAL = {"CapInh": 0, "CapBnd": 0x401EB, "CapPrm": 0x401EB, "CapEff": 0x401EB, "CapAmb": 0}
"""CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP and SYS_CHROOT."""

GIVE_CAPABILITY = """
import os, struct
net_raw, effective, version = 1 << 13, 1, 0x02000000
try:
    os.setxattr("/v/program", "security.capability", struct.pack("=5I", version | effective, net_raw, 0, 0, 0))
except OSError as error:
    print(error.strerror)
"""


async def test_root_inside_has_few_capabilities_and_can_gain_none(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        for process in ("1", "2", "self"):
            outcome = await execute(container, f"grep -E '^(Cap|NoNewPrivs)' /proc/{process}/status")
            status = dict(line.split(":\t") for line in outcome.stdout.splitlines())
            assert status.pop("NoNewPrivs") == "1"
            assert {name: int(bits, 16) for name, bits in status.items()} == USUAL, process


async def test_a_setuid_program_inside_gains_nothing(runtime: Namespaces, tmp_path: Path) -> None:
    shutil.copy(shutil.which("id") or "/usr/bin/id", tmp_path / "id")
    (tmp_path / "id").chmod(0o6755)
    tmp_path.chmod(0o755)
    mounts = [Mount("/v", str(tmp_path))]
    assert (await run(runtime, "/v/id -u; /v/id -g", uid=1234, gid=567, mounts=mounts)).stdout == "1234\n567\n"
    async with running(runtime, uid=1234, gid=567, mounts=mounts) as container:
        assert (await execute(container, "/v/id -u; /v/id -g")).stdout == "1234\n567\n"


async def test_no_container_gives_a_file_capabilities(runtime: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "program").touch()
    give = shlex.join([sys.executable, "-c", GIVE_CAPABILITY])
    outcome = await run(runtime, give, mounts=[Mount("/v", str(tmp_path))])
    assert outcome.stdout == "Operation not permitted\n", outcome
    assert os.listxattr(tmp_path / "program") == []
