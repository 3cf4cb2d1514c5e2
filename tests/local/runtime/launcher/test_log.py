from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subak.local.runtime.launcher.log import PIECE, Log, Stream
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import LOG_LIMIT
from tests.local.runtime.containers import printed, shell

ENTRY = re.compile(rb"(?s)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([FP]) (.*)")


def entries(path: Path) -> list[tuple[str, str, bytes]]:
    found = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        match = ENTRY.fullmatch(line)
        assert match, line[:80]
        found.append((match[1].decode(), match[2].decode(), match[3]))
    return found


async def log_of(runtime: Namespaces, script: str, log: Path) -> list[tuple[str, str, bytes]]:
    container = await runtime.start(shell(script, log=log))
    await container.wait()
    return entries(log)


async def test_each_line_has_its_stream_and_time(runtime: Namespaces, tmp_path: Path) -> None:
    began = datetime.now(UTC)
    log = tmp_path / "log"
    found = await log_of(runtime, "echo one; echo two >&2; echo; echo 'a  b '", log)
    assert [entry for entry in found if entry[0] == "stdout"] == [
        ("stdout", "F", text) for text in (b"one", b"", b"a  b ")
    ]
    assert [entry for entry in found if entry[0] == "stderr"] == [("stderr", "F", b"two")]
    time = datetime.fromisoformat(log.read_text().split(" ")[0][:26] + "+00:00")
    assert began - timedelta(seconds=1) <= time <= datetime.now(UTC)


async def test_output_without_a_newline_at_its_end_is_partial(runtime: Namespaces, tmp_path: Path) -> None:
    assert await log_of(runtime, "printf 'one\\ntw'; sleep 0.05; printf o", tmp_path / "log") == [
        ("stdout", "F", b"one"),
        ("stdout", "P", b"two"),
    ]


async def test_a_huge_line_is_cut_into_pieces(runtime: Namespaces, tmp_path: Path) -> None:
    found = await log_of(runtime, "head -c 100000 /dev/zero | tr '\\0' x; echo", tmp_path / "log")
    assert [tag for _, tag, _ in found] == ["P"] * 6 + ["F"]
    assert b"".join(content for _, _, content in found) == b"x" * 100000
    assert max(len(content) for _, _, content in found) == PIECE


async def test_bytes_that_are_no_text_stay_as_they_are(runtime: Namespaces, tmp_path: Path) -> None:
    script = "printf '\\377\\000\\r\\033[0m\\n'"
    assert await log_of(runtime, script, tmp_path / "log") == [("stdout", "F", b"\xff\x00\r\x1b[0m")]


async def test_a_command_may_close_its_output_and_live_on(runtime: Namespaces, tmp_path: Path) -> None:
    script = "echo one; exec >&-; sleep 0.1; echo two >&2; exit 5"
    container = await runtime.start(shell(script, log=tmp_path / "log"))
    assert await container.wait() == 5
    assert entries(tmp_path / "log") == [("stdout", "F", b"one"), ("stderr", "F", b"two")]


async def test_the_last_words_before_a_kill_are_kept(runtime: Namespaces, tmp_path: Path) -> None:
    for number in range(5):
        log = tmp_path / f"log{number}"
        container = await runtime.start(shell("echo last words; kill -9 $$", log=log))
        assert await container.wait() == 137
        assert printed(log, "stdout") == "last words\n"


async def test_a_restarted_container_goes_on_in_the_same_file(runtime: Namespaces, tmp_path: Path) -> None:
    for word in ("one", "two"):
        await log_of(runtime, f"echo {word}", tmp_path / "log")
    assert printed(tmp_path / "log", "stdout") == "one\ntwo\n"


async def test_a_chatty_container_does_not_fill_the_disk(runtime: Namespaces, tmp_path: Path) -> None:
    text = "x" * 999
    container = await runtime.start(shell(f"yes {text} | head -n 30000; echo end", log=tmp_path / "log"))
    assert await container.wait() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"]
    assert LOG_LIMIT <= (tmp_path / "log.1").stat().st_size <= LOG_LIMIT + (1 << 18)
    assert entries(tmp_path / "log")[-1] == ("stdout", "F", b"end")
    kept = entries(tmp_path / "log.1") + entries(tmp_path / "log")
    assert {content for _, _, content in kept} == {text.encode(), b"end"}


async def test_a_log_that_cannot_be_written_does_not_end_the_container(runtime: Namespaces) -> None:
    container = await runtime.start(shell("yes | head -n 100000 && exit 6", log=Path("/dev/full")))
    assert await container.wait() == 6


@settings(database=None)
@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 3 * PIECE))
def test_nothing_is_lost_or_added_however_output_is_chopped(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], long: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    stream = Stream(Log(str(path), LOG_LIMIT), b"stdout")
    chunks = [*chunks, b"y" * long, *chunks]
    for chunk in chunks:
        stream.feed(chunk)
    stream.end()
    text = b"".join(content + (b"\n" if tag == "F" else b"") for _, tag, content in entries(path))
    assert text == b"".join(chunks)
