from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from subak.local.runtime.launcher import init
from tests.support.users import FIRST


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_working_directory_that_leads_elsewhere_meanwhile_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another container of the pod can have it, in a volume with files of the machine's root."""
    kept = tmp_path / "kept" / "here"
    kept.parent.mkdir()
    kept.write_text("root's")
    (tmp_path / "there").mkdir()
    mkdir = os.mkdir

    def swapping(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        mkdir(path, mode, dir_fd=dir_fd)
        if path.endswith("here"):
            (tmp_path / "there").rename(tmp_path / "away")
            (tmp_path / "there").symlink_to("kept")

    monkeypatch.setattr(os, "mkdir", swapping)
    what = {"working_directory": str(tmp_path / "there" / "here"), "uid": FIRST, "gid": FIRST}
    init._make_working_directory(cast("Any", what))
    assert kept.stat().st_uid == 0
    assert (tmp_path / "away" / "here").stat().st_uid == FIRST
