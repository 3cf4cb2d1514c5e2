"""What libsubak meets in other people's containers, as Debian packages it: drivers, another C library, other preloads.

Also what a real node needs beside kubelet and containerd: runc, plugins for its network, and a shell for images.

NVIDIA's `libcuda` and `libnvidia-ml` say without a card that there is none, but all their functions can be looked up,
which is where libsubak comes in.  The packages are fetched once per machine, from the archive that the machine's apt
knows, and are not installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

PACKAGES = "SUBAK_E2E_PACKAGES"
"""The environment variable that says where they are, or why there are none."""

DRIVERS = {
    "470": ("libnvidia-tesla-470-cuda1/bookworm", "libnvidia-tesla-470-ml1/bookworm"),
    "535": ("libcuda1/bookworm", "libnvidia-ml1/bookworm"),
    "550": ("libcuda1/trixie", "libnvidia-ml1/trixie"),
    "555": ("libcuda1/experimental", "libnvidia-ml1/experimental"),
}
"""Versions of NVIDIA's driver, each with the packages of its libraries."""

NODE = "node"
_NODE = ("runc", "containernetworking-plugins", "busybox-static")
_PRELOADS = ("libjemalloc2", "libgoogle-perftools4", "libunwind8", "libmimalloc2.0", "libtbbmalloc2", "libfaketime")
_WANTED = DRIVERS | {
    "musl": ("musl/bookworm", "musl-dev/bookworm"),
    "preloads": tuple(f"{name}/bookworm" for name in _PRELOADS),
    NODE: tuple(f"{name}/bookworm" for name in _NODE),
}
_SUITES = {"bookworm": "main non-free", "trixie": "non-free", "experimental": "non-free"}


class CannotFetch(Exception):
    """There are none here; the message says why."""


def fetch(cache: Path) -> Path:
    """The directory that has a directory for each; they are downloaded first if they are not there."""
    directory = cache / f"debian-{hashlib.sha256(repr(_WANTED).encode()).hexdigest()[:16]}"
    if directory.exists():
        return directory
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotFetch("packages of Debian are fetched with apt-get, and there is none")
    cache.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="debian.", dir=cache))
    try:
        options = _apt(beside / "apt")
        _run(["apt-get", *options, "update"], beside)
        for name, packages in _WANTED.items():
            _unpack(options, packages, beside / name)
        shutil.rmtree(beside / "apt")
        if not directory.exists():  # or somebody else was faster
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return directory


def found(name: str) -> Path | str:
    """Where one of them is, or why it is not there."""
    directory = Path(os.environ[PACKAGES])
    return directory / name if directory.is_dir() else os.environ[PACKAGES]


def _apt(state: Path) -> list[str]:
    """Options with which apt has lists and a cache of its own, and looks at what is not free, too."""
    for each in ("lists/partial", "cache/archives/partial"):
        (state / each).mkdir(parents=True)
    asked = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], state)
    archive = next((uri for uri in asked.split() if uri.endswith("/debian/")), None)
    if archive is None:
        raise CannotFetch("packages of Debian are wanted, and this machine's apt does not know it")
    (state / "sources.list").write_text("".join(f"deb {archive} {suite} {parts}\n" for suite, parts in _SUITES.items()))
    return [
        f"-oDir::Etc::sourcelist={state / 'sources.list'}",
        "-oDir::Etc::sourceparts=/dev/null",
        f"-oDir::State::lists={state / 'lists'}",
        f"-oDir::Cache={state / 'cache'}",
        "-oAcquire::Retries=2",
        "-oAcquire::http::Timeout=30",
        f"-oAPT::Sandbox::User={'root' if os.geteuid() == 0 else ''}",
    ]


def _unpack(options: Sequence[str], packages: Sequence[str], directory: Path) -> None:
    directory.mkdir()
    _run(["apt-get", *options, "download", *packages], directory)
    for package in directory.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(directory)], directory)
        package.unlink()


def _run(command: Sequence[str], directory: Path) -> str:
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()
        raise CannotFetch(f"`{' '.join(command)}` ended with {ran.returncode}: {said}")
    return ran.stdout
