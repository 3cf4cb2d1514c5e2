"""What is built for users: a wheel with the library in it, and an archive of sources from which the same wheel comes.

hatchling is called as an installer calls it, in this environment: nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def build(target: str, source: Path, into: Path, **env: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    made = subprocess.run(command, cwd=source, env=os.environ | env, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    (found,) = into.iterdir()
    return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive of sources, with nothing that was built before."""
    archive = build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    with tarfile.open(archive) as packed:
        place = tmp_path_factory.mktemp("sources")
        packed.extractall(place, filter="data")
    (folder,) = place.iterdir()
    assert not (folder / "native" / "build").exists()
    return folder


def test_a_wheel_from_the_sources_carries_the_library(libsubak: Path, sources: Path, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    # Variables that mean something to our Makefile mean something else to whoever has set them.
    wheel = build("wheel", sources, tmp_path / "wheel", BUILD="out", VARIANT="asan", TMPDIR=str(tmp_path / "temporary"))
    assert not (sources / "native" / "build").exists()
    assert not list((tmp_path / "temporary").iterdir())
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
        description = next(name for name in packed.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in packed.read(description).decode().splitlines()
    code = "import ctypes; from subak.node import library; ctypes.CDLL(str(library.find())); print(library.find())"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    found = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(tmp_path / "site/subak/node/libsubak.so")


@pytest.mark.parametrize(("tools", "named"), [(["make"], "no cc"), (["cc"], "no make"), ([], "no cc and no make")])
def test_without_a_compiler_a_sentence_says_so(sources: Path, tmp_path: Path, tools: list[str], named: str) -> None:
    for tool in tools:
        (tmp_path / tool).touch(0o755)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out")]
    env = {key: value for key, value in os.environ.items() if key != "CC"} | {"PATH": str(tmp_path)}
    failed = subprocess.run(command, cwd=sources, env=env, capture_output=True, text=True)
    assert failed.returncode != 0
    assert f"libsubak is built with a C compiler and make; {named}: install them" in failed.stdout + failed.stderr
