"""The programs of a real Kubernetes, built once per machine: its control plane, kubelet, and containerd.

Each folder of `MODULES` has a `go.mod` and a `go.sum` that name the programs and every module they are made of.  What
is built lies outside the tree, in a directory named after all that decides how it comes out: those files, the version
of Go, and the flags.  `python -m tests.e2e.parts` builds them and prints that directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KUBERNETES, CONTAINERD = (Path(__file__).parent / name for name in ("kubernetes", "containerd"))
MODULES = (KUBERNETES, CONTAINERD)

_KUBERNETES_VERSION = "k8s.io/component-base/version"
_CONTAINERD = "github.com/containerd/containerd/v2"


class CannotBuild(Exception):
    """The parts cannot be built here; the message says what is missing."""


def kubernetes_version() -> str:
    """The version that `go.mod` asks for, such as `1.36.3`."""
    return _line(KUBERNETES, r"^\s*k8s\.io/kubernetes v([0-9.]+)\b")


def containerd_version() -> str:
    """The version that `go.mod` asks for, such as `2.3.7`."""
    return _line(CONTAINERD, rf"^\s*(?:require )?{re.escape(_CONTAINERD)} v([0-9.]+)\b")


def parts() -> Path:
    """The directory of the programs; they are built first if they are not there."""
    versions = [_go(module) for module in MODULES]
    directory = cache() / _key(versions)
    if not directory.exists():
        _build(directory)
    return directory


def _line(module: Path, pattern: str) -> str:
    found = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"{module / 'go.mod'} has no line that matches {pattern}")
    return found[1]


def cache() -> Path:
    """Where all that is made or fetched once per machine lies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subak" / "e2e"


def _go(module: Path) -> str:
    """The version of Go that would build a module, such as `go1.26.8 linux amd64`."""
    needed = _line(module, r"^go ([0-9.]+)$")
    advice = f"Install Go {needed} or newer and put it on PATH."
    if shutil.which("go") is None:
        raise CannotBuild(f"Real Kubernetes is built with Go, and there is no `go` on PATH. {advice}")
    asked = subprocess.run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], cwd=module, capture_output=True, text=True)
    if asked.returncode:
        raise CannotBuild(f"{asked.stderr.strip()}\n{advice}")
    version = asked.stdout.split()[0].removeprefix("go")
    if _numbers(version) < _numbers(needed):
        raise CannotBuild(f"Real Kubernetes needs Go {needed}, and the `go` on PATH is {version}. {advice}")
    return " ".join(asked.stdout.split())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"[0-9]+", version)[:3])


def _flags(module: Path) -> list[str]:
    """How a module is built: the programs say their versions, and do not depend on where the tree lies."""
    if module == CONTAINERD:
        named = {f"{_CONTAINERD}/version.Version": f"v{containerd_version()}"}
    else:
        version = kubernetes_version()
        major, minor, _ = version.split(".")
        stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        named = {f"{_KUBERNETES_VERSION}.{name}": value for name, value in stamps.items()}
    written = " ".join(f"-X {name}={value}" for name, value in named.items())
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {written}"]


def _key(go: list[str]) -> str:
    content = [each.encode() for each in go]
    for module in MODULES:
        content += [each.encode() for each in _flags(module)]
        content += [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join(content)).hexdigest()[:16]


def _build(directory: Path) -> None:
    """Build beside the directory and rename at the end, so that it is there as a whole or not at all."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    _say(f"Building a real Kubernetes for {directory}: minutes, once per machine")
    try:
        _compile(f"Kubernetes {kubernetes_version()} and etcd", KUBERNETES, beside)
        _compile(f"containerd {containerd_version()}", CONTAINERD, beside)
        (beside / "server").rename(beside / "etcd")  # etcd's main package is called so
        with contextlib.suppress(OSError):  # somebody else was faster
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _compile(what: str, module: Path, into: Path) -> None:
    started = time.monotonic()
    command = ["go", "build", *_flags(module), "-o", f"{into}/", "tool"]
    with subprocess.Popen(command, cwd=module, env=os.environ | {"CGO_ENABLED": "0"}) as building:
        while True:
            try:
                code = building.wait(timeout=30)
                break
            except subprocess.TimeoutExpired:
                _say(f"  still building {what} after {time.monotonic() - started:.0f} s")
    if code:
        raise CannotBuild(f"`{' '.join(command)}` in {module} ended with {code}; what it said is above.")
    _say(f"Built {what} in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(parts())
    except CannotBuild as problem:
        sys.exit(str(problem))
