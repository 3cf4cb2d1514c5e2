"""The programs of a real Kubernetes, built once per machine.

`kubernetes/go.mod` and `go.sum` name them and every module they are made of.  What is built lies outside the tree, in a
directory named after all that decides how it comes out: those two files, the version of Go, and the flags.
`python -m tests.e2e.parts` builds them and prints that directory.
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

MODULE = Path(__file__).parent / "kubernetes"

_VERSION = "k8s.io/component-base/version"


class CannotBuild(Exception):
    """The parts cannot be built here; the message says what is missing."""


def kubernetes_version() -> str:
    """The version that `go.mod` asks for, such as `1.36.3`."""
    return _line(r"^\s*k8s\.io/kubernetes v([0-9.]+)\b")


def parts() -> Path:
    """The directory of the programs; they are built first if they are not there."""
    go = _go()
    directory = cache() / _key(go)
    if not directory.exists():
        _build(directory)
    return directory


def _line(pattern: str) -> str:
    found = re.search(pattern, (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"{MODULE / 'go.mod'} has no line that matches {pattern}")
    return found[1]


def cache() -> Path:
    """Where all that is made or fetched once per machine lies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subak" / "e2e"


def _go() -> str:
    """The version of Go that would build the parts, such as `go1.26.8 linux amd64`."""
    needed = _line(r"^go ([0-9.]+)$")
    advice = f"Install Go {needed} or newer and put it on PATH."
    if shutil.which("go") is None:
        raise CannotBuild(f"Real Kubernetes is built with Go, and there is no `go` on PATH. {advice}")
    asked = subprocess.run(["go", "env", "GOVERSION", "GOOS", "GOARCH"], cwd=MODULE, capture_output=True, text=True)
    if asked.returncode:
        raise CannotBuild(f"{asked.stderr.strip()}\n{advice}")
    version = asked.stdout.split()[0].removeprefix("go")
    if _numbers(version) < _numbers(needed):
        raise CannotBuild(f"Real Kubernetes needs Go {needed}, and the `go` on PATH is {version}. {advice}")
    return " ".join(asked.stdout.split())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"[0-9]+", version)[:3])


def _flags() -> list[str]:
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    named = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = " ".join(f"-X {_VERSION}.{name}={value}" for name, value in named.items())
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamps}"]


def _key(go: str) -> str:
    content = [go.encode(), *(each.encode() for each in _flags())]
    content += [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join(content)).hexdigest()[:16]


def _build(directory: Path) -> None:
    """Build beside the directory and rename at the end, so that it is there as a whole or not at all."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        _compile(beside, directory)
        (beside / "server").rename(beside / "etcd")  # etcd's main package is called so
        with contextlib.suppress(OSError):  # somebody else was faster
            beside.rename(directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _compile(into: Path, directory: Path) -> None:
    _say(f"Building Kubernetes {kubernetes_version()} and etcd for {directory}: minutes, once per machine")
    started = time.monotonic()
    command = ["go", "build", *_flags(), "-o", f"{into}/", "tool"]
    with subprocess.Popen(command, cwd=MODULE, env=os.environ | {"CGO_ENABLED": "0"}) as building:
        while True:
            try:
                code = building.wait(timeout=30)
                break
            except subprocess.TimeoutExpired:
                _say(f"  still building after {time.monotonic() - started:.0f} s")
    if code:
        raise CannotBuild(f"`{' '.join(command)}` in {MODULE} ended with {code}; what it said is above.")
    _say(f"Built in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(parts())
    except CannotBuild as problem:
        sys.exit(str(problem))
