"""What of the machine is seen: decided from a machine that is made of temporary directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from subak.local.runtime import machine
from subak.local.runtime.launcher.tree import EMPTY, OPEN, SHOWN
from subak.local.runtime.spec import USUAL_PATH


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home.resolve()


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def shown(home: Path, *path: Path) -> list[str]:
    """What is seen in the home directory with this PATH."""
    marks = machine.look(environment={"HOME": str(home), "PATH": ":".join(map(str, path))})
    assert marks[str(home)] == EMPTY
    return [
        str(Path(place).relative_to(home))
        for place, mark in marks.items()
        if mark == SHOWN and Path(place).is_relative_to(home)
    ]


def test_a_home_directory_starts_empty(home: Path) -> None:
    (home / ".ssh").mkdir()
    assert shown(home) == []


def test_a_directory_of_programs_is_seen_without_what_lies_beside_it(home: Path) -> None:
    program(home / ".cargo/bin/cargo")
    (home / ".cargo/credentials.toml").write_text("secret")
    assert shown(home, home / ".cargo/bin") == [".cargo/bin"]


def test_an_installation_is_seen_as_a_whole(home: Path) -> None:
    program(home / "miniconda3/bin/python")
    (home / "miniconda3/lib").mkdir()
    assert shown(home, home / "miniconda3/bin") == ["miniconda3"]


def test_of_the_local_directory_only_programs_and_libraries_are_seen(home: Path) -> None:
    program(home / ".local/bin/tool")
    (home / ".local/lib").mkdir()
    (home / ".local/share/keyrings").mkdir(parents=True)
    assert shown(home, home / ".local/bin") == [".local/bin", ".local/lib"]


def test_a_link_brings_the_installation_that_it_leads_to(home: Path) -> None:
    real = home / ".local/share/uv/python/cpython-3.11.9"
    program(real / "bin/python3.11")
    (real / "lib").mkdir()
    (home / ".local/share/uv/python/cpython-3.11").symlink_to("cpython-3.11.9")
    (home / ".local/bin").mkdir()
    (home / ".local/bin/python3.11").symlink_to(home / ".local/share/uv/python/cpython-3.11/bin/python3.11")
    assert shown(home, home / ".local/bin") == [
        ".local/bin",
        ".local/share/uv/python/cpython-3.11",
        ".local/share/uv/python/cpython-3.11.9",
    ]


def test_the_home_itself_is_never_an_installation(home: Path) -> None:
    program(home / "bin/tool")
    (home / "lib").mkdir()
    assert shown(home, home / "bin") == []


def test_where_containers_write_directories_are_open() -> None:
    marks = machine.look()
    assert {marks[path] for path in ("/etc", "/opt", "/usr/local")} == {OPEN}
    assert {marks[path] for path in ("/root", "/home", "/var", "/tmp", "/run", "/srv", "/mnt", "/media")} == {EMPTY}


def test_of_the_root_only_places_of_programs_are_seen() -> None:
    marks = machine.look(environment={"HOME": "/root", "PATH": "/usr/bin:/bin"})
    tops = {path for path, mark in marks.items() if path.count("/") == 1 and mark in (OPEN, SHOWN)}
    places = {"/bin", "/etc", "/gnu", "/nix", "/opt", "/sbin", "/usr"}
    assert {path for path in tops if not path.startswith("/lib")} <= places


def test_a_place_of_programs_may_be_a_link_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk/opt").mkdir(parents=True)
    (tmp_path / "opt").symlink_to("disk/opt")
    monkeypatch.setattr(machine, "_OPEN", (str(tmp_path / "opt"),))
    assert machine.look()[str((tmp_path / "disk/opt").resolve())] == OPEN


def test_the_path_of_containers_is_the_usual_one_whatever_the_operator_s_is(tmp_path: Path) -> None:
    environment = {"PATH": f"{tmp_path}:/no/such/place:relative:{tmp_path}:/usr/bin"}
    assert machine.search_path(environment) == USUAL_PATH


def test_where_the_usual_places_hold_no_programs_the_path_is_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "USUAL_PATH", "/no/such/place")
    environment = {"PATH": f"{tmp_path}:/no/such/place:relative:{tmp_path}:/usr/bin"}
    assert machine.search_path(environment) == f"{tmp_path}:/usr/bin"
