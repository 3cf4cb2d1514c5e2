from __future__ import annotations

from pathlib import Path

from subak.local.kubelet.sandbox import Sandbox, hosts, strangers
from tests.support.kubelet.pods import UID, container, pod


def test_a_pod_finds_itself_and_its_aliases_in_its_hosts() -> None:
    lines = hosts(pod(hostname="me", hostAliases=[{"ip": "10.0.0.5", "hostnames": ["db", "cache"]}])).splitlines()
    assert "127.0.0.1\tme" in lines
    assert "10.0.0.5\tdb cache" in lines


def test_the_logs_of_the_last_two_attempts_are_kept(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, pod().metadata)
    for attempt in range(4):
        sandbox.log("main", attempt).touch()
    assert {path.name for path in (sandbox.logs / "main").iterdir()} == {"2.log", "3.log"}


def test_nobody_else_looks_into_a_pods_directory(tmp_path: Path) -> None:
    Sandbox(tmp_path, pod().metadata).make(pod())
    assert (tmp_path / "pods" / UID).stat().st_mode & 0o777 == 0o700


def test_a_container_that_mounts_its_own_hosts_gets_no_other(tmp_path: Path) -> None:
    each = pod(container(volumeMounts=[{"name": "v", "mountPath": "/etc/hosts"}])).spec.containers[0]
    assert Sandbox(tmp_path, pod().metadata).own_mounts(each, 0) == []


def test_what_was_left_behind_is_found(tmp_path: Path) -> None:
    for path in (f"pods/{UID}", "pods/old", f"logs/default_web_{UID}", "logs/default_web_old"):
        (tmp_path / path).mkdir(parents=True)
    assert {path.relative_to(tmp_path).as_posix() for path in strangers(tmp_path, {UID})} == {
        "pods/old",
        "logs/default_web_old",
    }


def test_a_link_in_the_place_of_all_pods_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious" / "file").mkdir(parents=True)
    for name in ("pods", "logs"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    assert strangers(tmp_path, set()) == []
