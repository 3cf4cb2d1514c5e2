from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet import logs
from tinykube.server.kubelet import LogOptions
from tinykube.status import ApiError


def line(second: int, text: str, tag: str = "F", stream: str = "stdout") -> str:
    return f"2026-11-15T08:00:{second:02d}.000000000Z {stream} {tag} {text}\n"


FOUR = "".join(line(second, f"line {second}") for second in range(1, 5))


async def read(path: Path, **options: Any) -> bytes:
    return b"".join([chunk async for chunk in logs.read(path, LogOptions(**options), lambda: True)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_text(FOUR)
    return path


async def test_a_log_is_what_was_printed(log: Path) -> None:
    assert await read(log) == b"line 1\nline 2\nline 3\nline 4\n"


async def test_pieces_of_a_line_are_put_together_and_stamped_once(log: Path) -> None:
    log.write_text(line(1, "one ", "P") + line(2, "two") + line(3, "three", stream="stderr"))
    assert await read(log) == b"one two\nthree\n"
    stamped = await read(log, timestamps=True)
    assert stamped == b"2026-11-15T08:00:01.000000000Z one two\n2026-11-15T08:00:03.000000000Z three\n"


@pytest.mark.parametrize(
    ("tail", "expected"), [(0, b""), (1, b"line 4\n"), (3, b"line 2\nline 3\nline 4\n"), (9, None)]
)
async def test_the_last_lines(log: Path, tail: int, expected: bytes | None) -> None:
    assert await read(log, tail_lines=tail) == (await read(log) if expected is None else expected)


async def test_lines_since_a_moment(log: Path) -> None:
    assert await read(log, since=1794729603.0) == b"line 3\nline 4\n"


@pytest.mark.parametrize(
    ("since", "all_of_it"), [(-1e19, True), (-4e10, True), (253_402_387_139.0, False), (1e19, False)]
)
async def test_lines_since_a_moment_that_no_calendar_has(log: Path, since: float, all_of_it: bool) -> None:
    assert await read(log, since=since) == (await read(log) if all_of_it else b"")


async def test_so_many_bytes_and_no_more(log: Path) -> None:
    assert await read(log, limit_bytes=10) == b"line 1\nlin"
    assert await read(log, limit_bytes=100) == await read(log)


async def test_the_older_part_of_a_long_log_comes_first(log: Path) -> None:
    log.with_name("0.log.1").write_text(line(0, "line 0"))
    assert await read(log, tail_lines=5) == b"line 0\n" + await read(log, tail_lines=4)
    assert (await read(log)).startswith(b"line 0\nline 1\n")


async def test_a_container_that_printed_nothing_has_an_empty_log(tmp_path: Path) -> None:
    assert await read(tmp_path / "0.log") == b""


@given(st.lists(st.text(alphabet="ab ", max_size=30), max_size=20), st.integers(0, 25))
def test_the_tail_of_a_log_is_the_end_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], n: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "0.log"
    path.write_text("".join(line(1, text) for text in texts))
    whole = asyncio.run(read(path)).splitlines()
    assert asyncio.run(read(path, tail_lines=n)).splitlines() == whole[max(len(whole) - n, 0) :]


async def test_a_log_is_followed_until_its_container_ends(tmp_path: Path) -> None:
    path, ended, got = tmp_path / "0.log", asyncio.Event(), asyncio.Queue[bytes]()

    async def follow() -> None:
        async for chunk in logs.read(path, LogOptions(follow=True), ended.is_set):
            got.put_nowait(chunk)

    task = asyncio.create_task(follow())
    with path.open("a") as file:
        file.write(line(1, "one"))
        file.flush()
        assert await asyncio.wait_for(got.get(), 60) == b"one\n"
        whole = line(2, "two")
        file.write(whole[:20])
        file.flush()
        file.write(whole[20:])
        file.flush()
        assert await asyncio.wait_for(got.get(), 60) == b"two\n"
    path.rename(tmp_path / "0.log.1")
    path.write_text(line(3, "three"))
    assert await asyncio.wait_for(got.get(), 60) == b"three\n"
    with path.open("a") as file:
        file.write(line(4, "last words"))
    ended.set()
    await asyncio.wait_for(task, 60)
    assert await got.get() == b"last words\n"


END = {"terminated": {"exitCode": 1, "containerID": "subak://1"}}


def pod(**status: Any) -> dict[str, Any]:
    found = {"name": "main", "restartCount": 3, **status}
    return {"metadata": {"name": "web"}, "status": {"containerStatuses": [found]}}


@pytest.mark.parametrize(
    ("status", "previous", "expected"),
    [
        ({"state": {"running": {}}, "lastState": END}, False, 3),
        ({"state": {"running": {}}, "lastState": END}, True, 2),
        ({"state": END, "lastState": END}, False, 3),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": END}, False, 3),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": END}, True, 3),
    ],
)
def test_the_log_is_that_of_the_attempt_that_is_meant(status: dict[str, Any], previous: bool, expected: int) -> None:
    assert logs.attempt(pod(**status), "main", previous) == expected


@pytest.mark.parametrize(
    ("status", "container", "previous", "message"),
    [
        (
            {"state": {"waiting": {"reason": "ContainerCreating"}}},
            "main",
            False,
            "is waiting to start: ContainerCreating",
        ),
        ({"state": {}}, "main", False, "is waiting to start - no logs yet"),
        ({"state": {"running": {}}}, "main", True, 'previous terminated container "main" in pod "web" not found'),
        ({"state": {"running": {}}}, "other", False, 'container "other" in pod "web" is not available'),
    ],
)
def test_who_asks_for_a_log_that_is_not_there_is_told_so(
    status: dict[str, Any], container: str, previous: bool, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        logs.attempt(pod(**status), container, previous)
    assert caught.value.code == 400
    assert message in caught.value.message
