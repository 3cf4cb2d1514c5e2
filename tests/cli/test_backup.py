"""`subak backup` and `subak restore`: what they print, and how they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import subak
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store


@pytest.fixture
def state(tmp_path: Path) -> Path:
    store, journal = open_store(tmp_path / "state")
    for name in ("a", "b"):
        store.create(POD, {"metadata": {"namespace": "default", "name": name}})
    journal.close()
    return tmp_path / "state"


def test_a_backup_is_made_and_restored(state: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "file", tmp_path / "a new one"
    done = subak("backup", "--state", state, file)
    assert (done.code, done.out) == (0, f"{file}: {state} as of revision 3, 2 objects\n")
    done = subak("restore", file, "--state", new)
    assert (done.code, done.out) == (0, f"{new}: {file} as of revision 3, 2 objects\n  subak up --state '{new}'\n")


def test_refusals_name_the_file_and_say_what_to_do(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert subak("backup", "--state", state, file).code == 0
    for arguments, said in (
        (
            ("backup", "--state", state, file),
            f"{file}: it is there already: name another file, or replace it with --force",
        ),
        (("backup", "--state", tmp_path / "none", file, "--force"), f"{tmp_path}/none: no state is kept here"),
        (("backup", "--state", state, tmp_path / "no" / "file"), "No such file or directory"),
        (("restore", tmp_path / "none", "--state", tmp_path / "new"), f"{tmp_path}/none: No such file or directory"),
        (("restore", state / "state.db", "--state", tmp_path / "new"), "it is no backup"),
        (("restore", file, "--state", state), f"{state}: not empty"),
        (("restore", file, "--state", file), "cannot keep state here"),
    ):
        done = subak(*arguments)
        assert done.code == 2
        assert said in done.err
        assert done.err.startswith("error: ")
    assert subak("backup", "--state", state, file, "--force").code == 0
    (state / "state.db").write_bytes(b"")
    done = subak("backup", "--state", state, file, "--force")
    assert (done.code, "it is empty: a backup would be damaged too" in done.err) == (2, True)
    assert subak("restore", file, "--state", tmp_path / "new").code == 0, "the one before is still there"
    file.write_bytes(b"")
    done = subak("restore", file, "--state", tmp_path / "newer")
    assert (done.code, "nothing can be restored from it" in done.err) == (2, True)
