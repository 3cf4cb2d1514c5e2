from __future__ import annotations

import os
from pathlib import Path

import pytest

from subak.local.kubelet.payload import BadVolume, Content
from subak.local.kubelet.snapshots import write


def content(text: str, mode: int = 0o644) -> Content:
    return Content(text.encode(), mode)


def shown(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if not path.name.startswith("..")}


def test_all_files_change_at_once_and_only_if_they_differ(tmp_path: Path) -> None:
    assert write(tmp_path, {"a": content("1"), "b": content("1")})
    first = os.readlink(tmp_path / "..data")
    assert not write(tmp_path, {"b": content("1"), "a": content("1")})
    assert write(tmp_path, {"a": content("2"), "c": content("1")})
    assert shown(tmp_path) == {"a": "2", "c": "1"}
    assert os.readlink(tmp_path / "..data") != first
    assert not (tmp_path / first).exists()


@pytest.mark.parametrize("changed", [{"a": content("1", 0o600)}, {"a": content("2")}, {"b": content("1")}, {}])
def test_modes_names_and_contents_count(tmp_path: Path, changed: dict[str, Content]) -> None:
    write(tmp_path, {"a": content("1")})
    assert write(tmp_path, changed)
    assert not write(tmp_path, changed)
    assert set(shown(tmp_path)) == set(changed)


def test_a_path_of_many_directories_comes_and_goes(tmp_path: Path) -> None:
    deep = "a/" * 1_100 + "key"  # more than Python recurses
    write(tmp_path, {deep: content("1")})
    assert (tmp_path / deep).read_text() == "1"
    assert not write(tmp_path, {deep: content("1")})
    write(tmp_path, {"key": content("2")})
    assert shown(tmp_path) == {"key": "2"}
    assert len(list(tmp_path.iterdir())) == 3, "what was shown before is gone"


@pytest.mark.parametrize("name", ["..", "../x", "/x", "a/../../x", "..data", "a/..", "a\0b", ""])
def test_no_name_leads_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadVolume, match="is no path inside a volume"):
        write(tmp_path / "volume", {name: content("1")})
    assert not (tmp_path / "x").exists()
