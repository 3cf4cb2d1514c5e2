"""The images of a real node, made of files of this machine: there is no registry.

    PAUSE    the sandbox of every pod
    STATIC   a shell that needs no C library, so that nothing can be preloaded into it
    PLAIN    a shell and the usual small programs on this machine's C library, and `allocate`, which asks a driver for
             memory (`programs/allocate.c`)
    CUDA     the same, but as NVIDIA's images are: its environment says `NVIDIA_VISIBLE_DEVICES=all`

Each is an OCI archive that `ctr images import` takes; the names of the documents in `examples/` are theirs too.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAUSE = "registry.local/pause:3.10"
STATIC = "registry.local/busybox:1.36"
PLAIN = "docker.io/library/ubuntu:22.04"
CUDA = "docker.io/nvidia/cuda:9.0-devel"
ALSO_PLAIN = "docker.io/library/busybox:latest"
"""Koordinator's document runs `bash` in it, so it is none."""

PROGRAMS = Path(__file__).parent / "programs"

_USUAL = ("bash", "sh", "cat", "chmod", "cp", "env", "grep", "ls", "mkdir", "printenv", "rm", "sleep", "true")
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OCI = "application/vnd.oci.image"


def compiled(name: str, into: Path, *options: str) -> Path:
    """One of `programs/`, compiled into a directory."""
    program = into / name
    command = ["cc", "-O2", "-Wall", "-Werror", "-o", str(program), str(PROGRAMS / f"{name}.c"), *options]
    subprocess.run(command, check=True)
    return program


def write(directory: Path, busybox: Path) -> list[Path]:
    """Write all images into a directory, as archives."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        roots = [Path(scratch) / name for name in ("pause", "static", "plain")]
        for root in roots:
            root.mkdir()
        pause, static, plain = roots
        compiled("pause", pause, "-static")
        _fill_static(static, busybox)
        _fill_plain(plain)
        return [
            _archive(directory / "pause.tar", pause, [PAUSE], {"Entrypoint": ["/pause"]}),
            _archive(directory / "static.tar", static, [STATIC], {"Env": [_PATH]}),
            _archive(directory / "plain.tar", plain, [PLAIN, ALSO_PLAIN], {"Env": [_PATH]}),
            _archive(directory / "cuda.tar", plain, [CUDA], {"Env": [_PATH, "NVIDIA_VISIBLE_DEVICES=all"]}),
        ]


def _fill_static(root: Path, busybox: Path) -> None:
    _make_folders(root)
    (root / "bin").mkdir()
    shutil.copy2(busybox, root / "bin" / "busybox")
    for name in ("sh", "cat", "env", "ls", "printenv", "ps", "sleep", "true"):
        (root / "bin" / name).symlink_to("busybox")


def _fill_plain(root: Path) -> None:
    """Copy programs of this machine, each with the libraries that it loads."""
    _make_folders(root)
    for folder in ("bin", "lib", "lib64"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    programs = [compiled("allocate", root / "usr" / "bin", "-ldl")]
    for name in _USUAL:
        found = shutil.which(name)
        assert found, f"the image needs {name}, which is not on PATH"
        shutil.copy2(found, root / "usr" / "bin" / name)
        programs.append(Path(found))
    listed = subprocess.run(["ldd", *map(str, programs)], check=True, capture_output=True, text=True).stdout
    for library in set(re.findall(r"(/\S+\.so\S*) \(0x", listed)):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, place)


def _make_folders(root: Path) -> None:
    for folder in _FOLDERS:
        (root / folder).mkdir()


def _archive(path: Path, root: Path, names: Sequence[str], run: Mapping[str, Sequence[str]]) -> Path:
    """Write a directory as an image of one layer."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = blob(_packed(root), "layer.v1.tar")
    platform = {"architecture": "amd64", "os": "linux"}
    config = {**platform, "config": run, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    about = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    manifest = blob(json.dumps(about).encode(), "manifest.v1+json") | {"platform": platform}
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.index.v1+json",
        "manifests": [manifest | {"annotations": {"io.containerd.image.name": name}} for name in names],
    }
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def _packed(root: Path) -> bytes:
    """The files of a directory, all of them root's."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = "root"
        if info.name == "./tmp":
            info.mode = 0o1777
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(root, arcname=".", filter=anonymous)
    return buffer.getvalue()
