"""What a container reads of what the agent says, and what is left when the agent is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.monitor import state
from subak.node.monitor.words import Word

NOW = 1_000_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "state").write_bytes(state.EMPTY)
    return tmp_path / "state"


def test_the_layout_is_what_libsubak_maps(path: Path) -> None:
    state.write(path, {0: Word.BLOCKED, 2: Word.LIFTED}, NOW)
    content = path.read_bytes()
    assert len(content) == 4096
    assert content[:8] == b"skstate1"
    assert content[8:16] == NOW.to_bytes(8, "little")
    assert content[16:28] == bytes([2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
    assert not any(content[28:])


def test_before_the_agent_has_spoken_nothing_is_said(path: Path) -> None:
    assert state.read(path, NOW) == {}


def test_words_of_an_agent_that_is_silent_do_not_count(path: Path) -> None:
    """So nobody stays blocked, and no share stays lifted."""
    state.write(path, {0: Word.LIFTED, 1: Word.BLOCKED}, NOW)
    assert state.read(path, NOW + state.STALE_NS - 1)[1] is Word.BLOCKED
    assert state.read(path, NOW + state.STALE_NS) == {}
    assert state.read(path, NOW - state.STALE_NS) == {}  # of before the machine was started anew


def test_it_is_written_in_place_because_it_is_mounted(path: Path) -> None:
    inode = path.stat().st_ino
    state.write(path, {0: Word.LIFTED}, NOW)
    state.write(path, {}, NOW + 1)
    assert (path.stat().st_ino, path.stat().st_size) == (inode, state.SIZE)
    assert set(state.read(path, NOW).values()) == {Word.NOTHING}


def test_a_container_that_is_gone_has_no_state(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        state.write(tmp_path / "gone", {}, NOW)
    assert not (tmp_path / "gone").exists()


@given(st.dictionaries(st.integers(0, 15), st.sampled_from(Word)), st.integers(1, 2**63))
def test_what_is_said_is_read(tmp_path_factory: pytest.TempPathFactory, words: dict[int, Word], now: int) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    path.write_bytes(state.EMPTY)
    state.write(path, words, now)
    assert {number: word for number, word in state.read(path, now).items() if word} == {
        number: word for number, word in words.items() if word
    }
