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


async def test_what_a_container_gives_up_no_program_of_it_has(runtime: Namespaces) -> None:
    for user, rights in ((0, 1 << 5), (1234, 0)):
        async with running(runtime, capabilities=["KILL"], uid=user) as container:
            for process in ("2", "self"):
                outcome = await execute(container, f"grep -E '^Cap(Bnd|Prm|Eff)' /proc/{process}/status")
                status = {name: int(bits, 16) for name, bits in map(str.split, outcome.stdout.splitlines())}
                assert status == {"CapBnd:": 1 << 5, "CapPrm:": rights, "CapEff:": rights}, (user, process)


async def test_a_root_that_is_read_only_leaves_volumes_as_they_are(runtime: Namespaces, tmp_path: Path) -> None:
    script = "touch /x /tmp/x /etc/x /here/x; touch /v/x /dev/shm/x && echo written; echo y > /dev/null; pwd"
    outcome = await run(runtime, script, read_only=True, mounts=[Mount("/v", str(tmp_path))], working_directory="/here")
    assert outcome.stdout == "written\n/here\n"
    assert outcome.stderr.count("Read-only file system") == 4, outcome.stderr


async def test_a_volume_over_a_file_of_the_kernel_saves_no_capability(runtime: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "last").write_text("0\n")
    mounts = [Mount("/proc/sys/kernel/cap_last_cap", str(tmp_path / "last"))]
    outcome = await run(runtime, "cat /proc/sys/kernel/cap_last_cap; grep CapBnd /proc/self/status", mounts=mounts)
    assert outcome.stdout == f"0\nCapBnd:\t{USUAL['CapBnd']:016x}\n", outcome


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
