from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from subak.local.kubelet.content import ConfigMap, Contents, Secret
from subak.local.kubelet.payload import BadVolume
from subak.local.kubelet.pod import Pod
from subak.local.kubelet.volumes import Volumes, plan, wanted
from subak.model.mount import Mount
from tests.support.kubelet.pods import container, pod

CONTENTS: Contents = {
    (ConfigMap, "settings"): ConfigMap(data={"level": "info", "deep": "x"}, binary_data={"logo": b"\x00\xff"}),
    (Secret, "keys"): Secret(data={"token": b"s3cret"}),
}


def made(volume: dict[str, Any], *mounts: dict[str, Any], **rest: Any) -> Pod:
    volume_mounts = [{"name": "v", "mountPath": "/data", **each} for each in mounts or ({},)]
    return pod(container(volumeMounts=volume_mounts), volumes=[{"name": "v", **volume}], **rest)


def mount_all(directory: Path, each: Pod, contents: Contents = CONTENTS, **env: str) -> list[Mount]:
    volumes = Volumes(directory)
    for volume in each.spec.volumes:
        volumes.set_up(volume, plan(volume, each, contents, {"cpu": "8"}))
    return volumes.mounts(each, each.spec.containers[0], env)


def show(directory: Path, volume: dict[str, Any], **rest: Any) -> dict[str, bytes]:
    """The files that the container would see under /data."""
    (mount,) = mount_all(directory, made(volume, **rest))
    assert mount.destination == "/data"
    root = Path(mount.source)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).parts[0].startswith("..")
    }


def mode(directory: Path, name: str) -> int:
    return (directory / "v" / name).stat().st_mode & 0o7777


def test_a_config_map_is_shown_with_all_its_keys(tmp_path: Path) -> None:
    assert show(tmp_path, {"configMap": {"name": "settings", "defaultMode": 0o600}}) == {
        "level": b"info",
        "deep": b"x",
        "logo": b"\x00\xff",
    }
    assert mode(tmp_path, "level") == 0o600


def test_chosen_keys_become_the_files_that_are_asked_for(tmp_path: Path) -> None:
    items = [{"key": "level", "path": "etc/app/level", "mode": 0o400}]
    assert show(tmp_path, {"configMap": {"name": "settings", "items": items}}) == {}
    assert (tmp_path / "v/etc/app/level").read_text() == "info"
    assert mode(tmp_path, "etc/app/level") == 0o400


def test_a_secret_is_shown_read_only(tmp_path: Path) -> None:
    (mount,) = mount_all(tmp_path, made({"secret": {"secretName": "keys"}}))
    assert mount.read_only
    assert (Path(mount.source) / "token").read_bytes() == b"s3cret"


def test_several_sources_share_a_directory(tmp_path: Path) -> None:
    fields = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "level", "path": "level"}]}},
        {"secret": {"name": "keys"}},
        {"downwardAPI": {"items": fields}},
    ]
    found = show(tmp_path, {"projected": {"sources": sources}}, metadata={"labels": {"a": "b"}})
    assert found == {"level": b"info", "token": b"s3cret", "labels": b'a="b"'}


def test_fields_of_the_pod_are_shown(tmp_path: Path) -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    ]
    assert show(tmp_path, {"downwardAPI": {"items": items}}) == {"name": b"web", "cpu": b"8"}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "nope"}}, 'configmap "nope" not found'),
        ({"secret": {"secretName": "nope"}}, 'secret "nope" not found'),
        (
            {"configMap": {"name": "settings", "items": [{"key": "nope", "path": "x"}]}},
            "configmap references non-existent config key: nope",
        ),
        (
            {"secret": {"secretName": "keys", "items": [{"key": "nope", "path": "x"}]}},
            "references non-existent secret key: nope",
        ),
        ({"persistentVolumeClaim": {"claimName": "disk"}}, "volume v: this kind of volume is not served here"),
        (
            {"nfs": {"server": "s", "path": "/"}},
            "only emptyDir, configMap, secret, downwardAPI, projected and hostPath",
        ),
    ],
)
def test_a_volume_that_cannot_be_set_up_says_why(tmp_path: Path, volume: dict[str, Any], message: str) -> None:
    with pytest.raises(BadVolume, match=message):
        mount_all(tmp_path, made(volume))


def test_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    assert show(tmp_path, {"configMap": {"name": "nope", "optional": True}}) == {}
    items = [{"key": "nope", "path": "x"}]
    assert show(tmp_path / "2", {"configMap": {"name": "settings", "optional": True, "items": items}}) == {}


def test_keys_change_all_at_once_and_links_follow(tmp_path: Path) -> None:
    each = made({"configMap": {"name": "settings"}})
    mount_all(tmp_path, each)
    root = tmp_path / "v"
    before = os.readlink(root / "..data")
    mount_all(tmp_path, each)
    assert os.readlink(root / "..data") == before, "nothing changed, so nothing is written"
    mount_all(tmp_path, each, {(ConfigMap, "settings"): ConfigMap(data={"level": "debug", "new": "1"})})
    assert os.readlink(root / "level") == "..data/level"
    assert ((root / "level").read_text(), (root / "new").read_text()) == ("debug", "1")
    assert not (root / "deep").is_symlink()
    assert sum(path.name.startswith("..2") for path in root.iterdir()) == 1, "the old content is gone"


def test_the_objects_behind_volumes_are_named() -> None:
    each = pod(
        volumes=[
            {"name": "a", "configMap": {"name": "one"}},
            {"name": "b", "secret": {"secretName": "two"}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "three"}}]}},
            {"name": "d", "emptyDir": {}},
        ]
    )
    assert wanted(each) == {(ConfigMap, "one"), (Secret, "two"), (Secret, "three")}


def test_an_empty_directory_is_everybodys(tmp_path: Path) -> None:
    (mount,) = mount_all(tmp_path, made({"emptyDir": {}}))
    assert not mount.read_only
    assert Path(mount.source).stat().st_mode & 0o777 == 0o777


def test_memory_of_one_container_is_a_tmpfs_with_its_size(tmp_path: Path) -> None:
    volume = {"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    assert mount_all(tmp_path, made(volume)) == [Mount("/data", size=64 << 20)]


def test_memory_that_two_containers_share_is_one_directory(tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": "/dev/shm"}]
    each = pod(
        container("a", volumeMounts=mounts),
        container("b", volumeMounts=mounts),
        volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}],
    )
    (mount,) = mount_all(tmp_path, each)
    assert mount.source == str(tmp_path / "v")


def test_a_part_of_a_volume_is_named_and_left_to_the_runtime(tmp_path: Path) -> None:
    each = made({"emptyDir": {}}, {"subPath": "a/b"}, {"subPathExpr": "logs/$(POD)", "readOnly": True})
    first, second = mount_all(tmp_path, each, POD="web")
    assert (Path(first.source), first.beneath) == (tmp_path / "v", "a/b")
    assert (Path(second.source), second.beneath, second.read_only) == (tmp_path / "v", "logs/web", True)


@pytest.mark.parametrize(("part", "beneath"), [("a//b/", "a/b"), ("./a", "a"), (".", ""), ("", "")])
def test_a_part_is_written_in_one_way(tmp_path: Path, part: str, beneath: str) -> None:
    (mount,) = mount_all(tmp_path, made({"emptyDir": {}}, {"subPath": part}))
    assert mount.beneath == beneath


@pytest.mark.parametrize("part", ["../other", "/etc", "a/../../b", "a\0b"])
def test_a_part_must_be_inside_its_volume(tmp_path: Path, part: str) -> None:
    with pytest.raises(BadVolume, match="must be a path inside the volume"):
        mount_all(tmp_path, made({"emptyDir": {}}, {"subPath": part}))


@pytest.mark.parametrize("place", ["/", "//", "/a/.."])
def test_no_volume_takes_the_place_of_the_root(tmp_path: Path, place: str) -> None:
    """A program that is run in the container later would have another root than its command."""
    with pytest.raises(BadVolume, match="cannot be mounted over the root"):
        mount_all(tmp_path, made({"emptyDir": {}}, {"mountPath": place}))


def test_a_missing_variable_in_a_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadVolume, match="missing value for POD"):
        mount_all(tmp_path, made({"emptyDir": {}}, {"subPathExpr": "$(POD)"}))


def test_a_path_that_becomes_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadVolume, match="becomes longer than 128 KiB"):
        mount_all(tmp_path, made({"emptyDir": {}}, {"subPathExpr": "$(POD)" * 3}), POD="x" * 50_000)


def test_a_path_of_the_machine_is_what_it_says(tmp_path: Path) -> None:
    host = tmp_path / "host"
    (host / "dir").mkdir(parents=True)
    (host / "file").write_text("x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(host / "socket"))
        good = {"dir": "Directory", "file": "File", "socket": "Socket", "new": "DirectoryOrCreate", "f": "FileOrCreate"}
        for name, type in good.items():
            (mount,) = mount_all(tmp_path / "volumes", made({"hostPath": {"path": str(host / name), "type": type}}))
            assert (mount.source, mount.true_ids) == (str(host / name), True)
    assert (host / "new").is_dir()
    assert (host / "f").is_file()


@pytest.mark.parametrize(
    ("type", "what"),
    [
        ("Directory", "a directory"),
        ("File", "a file"),
        ("Socket", "a socket file"),
        ("CharDevice", "a character device"),
    ],
)
def test_a_path_of_the_machine_that_is_not_there_is_refused(tmp_path: Path, type: str, what: str) -> None:
    path = tmp_path / "nope"
    with pytest.raises(BadVolume, match=f"hostPath type check failed: {path} is not {what}"):
        mount_all(tmp_path / "volumes", made({"hostPath": {"path": str(path), "type": type}}))


def test_a_missing_path_of_no_type_is_an_empty_directory_of_the_pods_own(tmp_path: Path) -> None:
    path = tmp_path / "nope"
    each = made({"hostPath": {"path": str(path)}})
    (mount,) = mount_all(tmp_path / "volumes", each)
    assert Path(mount.source) == tmp_path / "volumes" / "v"
    (remark,) = Volumes(tmp_path / "volumes").set_up(each.spec.volumes[0], {})
    assert f"{path} is not on this machine" in remark
    assert not path.exists(), "the machine itself is left alone"
