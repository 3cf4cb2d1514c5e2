from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import shutil
import struct
import sys
from pathlib import Path

import pytest

from subak.local.runtime import filter
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec
from subak.model.mount import Mount
from tests.local.runtime.containers import complete, execute, run, running

MACHINES = ("x86_64", "aarch64")
CODES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
HERE = os.uname().machine

known = pytest.mark.skipif(HERE not in MACHINES, reason=f"the calls of {HERE} are not known")

ALLOWED = "allowed"
KILLED = "killed"

CREATE, TEMPORARY = os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY
USER_NAMESPACE, TIME_NAMESPACE, SHARED_FILES = 0x10000000, 0x80, 0x400
AT_CWD = -100
TYPE, PASTE, WINDOW_SIZE = 0x5412, 0x541C, 0x5413
INET, ALG, VSOCK, PACKET = 2, 38, 40, 17

Call = tuple[str, tuple[int, ...]]

SEEN: dict[Call, int | str] = {
    ("chmod", (0, 0o4755)): errno.EPERM,
    ("chmod", (0, 0o2755)): errno.EPERM,
    ("chmod", (0, 0o1777)): ALLOWED,
    ("fchmod", (0, 0o4755)): errno.EPERM,
    ("fchmodat", (AT_CWD, 0, 0o4755)): errno.EPERM,
    ("fchmodat2", (AT_CWD, 0, 0o2755, 0)): errno.EPERM,
    ("fchmodat2", (AT_CWD, 0, 0o755, 0)): ALLOWED,
    ("creat", (0, 0o4755)): errno.EPERM,
    ("mknod", (0, 0o104755, 0)): errno.EPERM,
    ("mknodat", (AT_CWD, 0, 0o104755, 0)): errno.EPERM,
    ("mknodat", (AT_CWD, 0, 0o100755, 0)): ALLOWED,
    ("open", (0, CREATE, 0o4755)): errno.EPERM,
    ("open", (0, CREATE, 0o755)): ALLOWED,
    ("openat", (AT_CWD, 0, CREATE, 0o4755)): errno.EPERM,
    ("openat", (AT_CWD, 0, TEMPORARY, 0o6755)): errno.EPERM,
    ("openat", (AT_CWD, 0, os.O_RDONLY, 0o4755)): ALLOWED,
    ("openat2", (AT_CWD, 0, 0, 0)): errno.ENOSYS,
    ("clone3", (0, 0)): errno.ENOSYS,
    ("io_setup", (1, 0)): errno.ENOSYS,
    ("clone", (USER_NAMESPACE,)): errno.EPERM,
    ("clone", (17,)): ALLOWED,
    ("unshare", (USER_NAMESPACE,)): errno.EPERM,
    ("unshare", (TIME_NAMESPACE,)): errno.EPERM,
    ("unshare", (SHARED_FILES,)): ALLOWED,
    ("ioctl", (0, TYPE, 0)): errno.EPERM,
    ("ioctl", (0, 1 << 32 | TYPE, 0)): errno.EPERM,
    ("ioctl", (0, PASTE, 0)): errno.EPERM,
    ("ioctl", (0, WINDOW_SIZE, 0)): ALLOWED,
    ("fcntl", (0, 1024, 1)): errno.EPERM,
    ("fcntl", (0, 1 << 32 | 1040, 0)): errno.EPERM,
    ("fcntl", (0, fcntl.F_DUPFD_CLOEXEC, 0)): ALLOWED,
    ("socket", (INET, 1, 0)): ALLOWED,
    ("socket", (ALG, 5, 0)): errno.EAFNOSUPPORT,
    ("socket", (VSOCK, 1, 0)): errno.EAFNOSUPPORT,
    ("socket", (PACKET, 3, 0)): errno.EAFNOSUPPORT,
    ("socketpair", (1, 1, 0, 0)): ALLOWED,
    ("socketpair", (30, 1, 0, 0)): errno.EAFNOSUPPORT,
}
"""Calls whose answer depends on their arguments."""

PLAIN: dict[Call, int | str] = {
    (name, (0, 0, 0, 0, 0)): errno.EPERM for name in filter.NUMBERS.keys() - {name for name, _ in SEEN}
}

CALL = """
import ctypes, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, *arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    answers.append(ctypes.get_errno() if result < 0 else 0)
print(json.dumps(answers))
"""


def judge(program: bytes, code: int, number: int, *arguments: int) -> object:
    """What the kernel would do with a call, according to the program."""
    words = [value & (1 << 64) - 1 for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number, code, 0, *words)
    instructions = list(struct.iter_unpack("=HBBI", program))
    position, value = 0, 0
    while True:
        kind, true, false, operand = instructions[position]
        position += 1
        if kind == 0x06:
            break
        if kind == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        else:
            holds = {0x15: value == operand, 0x25: value > operand, 0x45: bool(value & operand)}[kind]
            position += true if holds else false
    return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(operand, operand & 0xFFFF)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_is_judged_by_its_number_and_its_arguments(machine: str) -> None:
    program = filter.program(machine)
    for (name, arguments), answer in (SEEN | PLAIN).items():
        number = filter.NUMBERS[name][MACHINES.index(machine)]
        if number >= 0:
            assert judge(program, CODES[machine], number, *arguments) == answer, (name, arguments)
    listed = {numbers[MACHINES.index(machine)] for numbers in filter.NUMBERS.values()}
    for number in set(range(470)) - listed:
        assert judge(program, CODES[machine], number, -1, -1, -1, -1, -1, -1) == ALLOWED, number


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_other_architectures_or_of_later_kernels_get_nowhere(machine: str) -> None:
    program = filter.program(machine)
    x32_open = 0x40000002
    for number in (470, x32_open, 0xFFFFFFFF):
        assert judge(program, CODES[machine], number) == errno.ENOSYS
    assert judge(program, I386, 5) == KILLED


def test_the_calls_of_other_machines_are_not_known() -> None:
    assert filter.program("riscv64") == b""


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_are_the_kernels(column: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"there is no {header}")
    numbers = {
        name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", Path(header).read_text())
    }
    compared = [name for name in filter.NUMBERS if name in numbers]
    assert {name: filter.NUMBERS[name][column] for name in compared} == {name: numbers[name] for name in compared}
    assert len(compared) > 40


@known
@pytest.mark.parametrize("further", [False, True])
async def test_the_kernel_answers_so_inside(runtime: Namespaces, further: bool) -> None:
    calls = [each for each in (SEEN | PLAIN) if filter.NUMBERS[each[0]][MACHINES.index(HERE)] >= 0]
    refused = {each: answer for each in calls if (answer := (SEEN | PLAIN)[each]) != ALLOWED}
    numbered = json.dumps([[filter.NUMBERS[name][MACHINES.index(HERE)], *rest] for name, rest in refused])
    if further:
        async with running(runtime) as container:
            session = await execute(container, shlex.join([sys.executable, "-c", CALL, numbered]))
    else:
        session = await complete(runtime, Spec("a", [sys.executable, "-c", CALL, numbered]))
    assert session.stdout, session.stderr
    assert dict(zip(refused, json.loads(session.stdout), strict=True)) == refused


@known
async def test_all_processes_inside_are_filtered(runtime: Namespaces) -> None:
    async with running(runtime) as container:
        outcome = await execute(container, "grep -hE '^(Seccomp|NoNewPrivs):' /proc/[12]/status /proc/self/status")
    assert outcome.stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"] * 3


async def test_a_setuid_bit_can_be_set_in_no_way(runtime: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "present").touch()
    script = (
        "cp /bin/sh /v/sh; for mode in 4755 2755 6755 u+s g+s; do chmod $mode /v/sh /v/present; done; chmod 1755 /v/sh;"
        "install -m 4755 /bin/sh /v/installed; cp -p /usr/bin/passwd /v/passwd; mkdir -m 2777 /v/directory; true"
    )
    outcome = await run(runtime, script, mounts=[Mount("/v", str(tmp_path))])
    assert "Operation not permitted" in outcome.stderr
    assert (tmp_path / "sh").stat().st_mode & 0o7777 == 0o1755
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o6000] == []


PROGRAMS = {
    "python": (
        sys.executable,
        "import multiprocessing as m, threading, subprocess, socket, tempfile, asyncio\n"
        "if __name__ == '__main__':\n"
        "    thread = threading.Thread(target=socket.socketpair); thread.start(); thread.join()\n"
        "    with m.Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]\n"
        "    asyncio.run(asyncio.sleep(0)); tempfile.TemporaryFile().write(b'x')\n"
        "    print(subprocess.run(['echo', 'well'], capture_output=True, text=True).stdout, end='')\n",
    ),
    "sh": ("sh", "set -m; sleep 0 & wait; (echo well) | cat"),
    "bash": ("bash", "set -m; sleep 1000 & kill %1; wait; echo well"),
    "cc": (
        "sh",
        "cd /tmp; printf '#include <stdio.h>\\nint main(void) { puts(\"well\"); }' > a.c && cc -o a a.c && ./a",
    ),
    "perl": ("perl", "fork // die; print 'well', chr 10 if wait > 0"),
    "node": ("node", "require('fs').promises.readFile('/etc/passwd').then(() => console.log('well'))"),
}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_ordinary_programs_notice_nothing(runtime: Namespaces, name: str) -> None:
    program, text = PROGRAMS[name]
    if not shutil.which(name) and name != "python":
        pytest.skip(f"there is no {name}")
    option = "-e" if name in ("perl", "node") else "-c"
    outcome = await complete(runtime, Spec("a", [program, option, text], {"PATH": os.environ["PATH"], "HOME": "/tmp"}))
    assert (outcome.code, outcome.stdout) == (0, "well\n"), outcome
