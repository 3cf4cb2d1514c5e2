"""The library that the package brings."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from subak.node import library


def test_the_packaged_library_comes_before_that_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(library, "BUILT", tmp_path / "built")
    (tmp_path / "built").touch()
    assert library.find() == tmp_path / "built"
    (tmp_path / "packaged").touch()
    assert library.find() == tmp_path / "packaged"


def test_where_there_is_none_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(library, "BUILT", tmp_path)  # a directory is none
    with pytest.raises(library.NoLibrary, match=r"libsubak.so, .* is neither at .*packaged nor at .*: install subak"):
        library.find()


def test_this_installation_has_one_that_loads(libsubak: Path) -> None:
    assert library.find().samefile(libsubak)
    ctypes.CDLL(str(libsubak))
