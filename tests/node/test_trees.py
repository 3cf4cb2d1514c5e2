from __future__ import annotations

from pathlib import Path

from subak.node.trees import remove


def test_a_tree_goes_even_if_a_container_locked_it(tmp_path: Path) -> None:
    locked = tmp_path / "pod" / "volume" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    (locked / "link").symlink_to("/etc/passwd")
    for path in (locked / "file", locked, locked.parent):
        path.chmod(0)
    remove(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()
    assert Path("/etc/passwd").exists()


def test_files_and_links_go_and_what_a_link_means_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    remove(tmp_path / "link", tmp_path / "file", tmp_path / "missing")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
