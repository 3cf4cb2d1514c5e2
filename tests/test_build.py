"""What is built for users: a wheel with the library in it, and an archive of sources from which the same wheel comes.

hatchling is called as an installer calls it, in this environment: nothing is fetched.  What is installed is then used
as the README says, in shells that nobody has prepared (`python -m tests.readme` does that with all the rest).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from subak.local.hardware import driver
from tests import readme

pytestmark = pytest.mark.long

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
    place = tmp_path_factory.mktemp("sources")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(place)], check=True)
    (folder,) = place.iterdir()
    assert not (folder / "native" / "build").exists()
    return folder


@pytest.fixture(scope="module")
def site(libsubak: Path, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a wheel that was built from the sources is installed."""
    temporary, place = tmp_path_factory.mktemp("a folder with spaces"), tmp_path_factory.mktemp("site")
    # Variables that mean something to our Makefile mean something else to whoever has set them.
    variables = {"BUILD": "out", "VARIANT": "asan", "CFLAGS": "-O0", "TMPDIR": str(temporary)}
    wheel = build("wheel", sources, tmp_path_factory.mktemp("wheel"), **variables)
    assert not (sources / "native" / "build").exists()
    assert not list(temporary.iterdir())
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
        description = next(name for name in packed.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in packed.read(description).decode().splitlines()
    return place


def test_a_wheel_from_the_sources_carries_the_library(site: Path) -> None:
    code = "import ctypes; from subak.node import library; ctypes.CDLL(str(library.find())); print(library.find())"
    env = {**os.environ, "PYTHONPATH": str(site)}
    found = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(site / "subak/node/libsubak.so")


def test_a_wheel_from_the_sources_carries_the_manifests(site: Path) -> None:
    ours = ROOT / "deploy" / "manifests"
    assert {path.name for path in (site / "subak" / "manifests").iterdir()} == {path.name for path in ours.iterdir()}


def test_a_wheel_from_the_sources_carries_the_simulated_driver(site: Path) -> None:
    folder = site / "subak/local/hardware/cuda"
    env = {"LD_LIBRARY_PATH": str(folder), "SUBAK_SIMULATED": "/nowhere"}
    (folder / "nvidia-smi").chmod(0o755)  # a zip file does not tell; whoever installs it does
    ran = subprocess.run([folder / "nvidia-smi"], env=env, capture_output=True, text=True)
    assert "no simulated cards are described here" in ran.stderr
    assert sorted(each.name for each in folder.iterdir()) == sorted((*driver.LIBRARIES, *driver.PROGRAMS))


@pytest.fixture
def home(site: Path, tmp_path: Path) -> Path:
    """A new home where `make install` has been: what uv would fetch is that of this environment."""
    command = tmp_path / ".local" / "bin" / "subak"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" -P -m subak.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def test_the_demo_runs_from_a_wheel(home: Path) -> None:
    env = readme.shell(home)
    done = subprocess.run([home / ".local/bin/subak", "demo"], cwd=home, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "All as expected" in done.stdout


def test_the_readmes_commands_work_word_for_word(home: Path) -> None:
    if shutil.which("kubectl", path=readme.PATH) is None:
        pytest.skip("kubectl is not installed")
    first, *terminals = readme.blocks()
    assert first == ["make demo", "make install", "make test"]
    said = readme.follow(terminals, ROOT, readme.shell(home))
    assert "  kubectl apply -f examples/volcano  (or: subak apply -f examples/volcano)\n" in said
    assert f"export KUBECONFIG={home}/.cache/subak/kubeconfig\n" in said
    assert "pod/gpu-pod1 condition met" in said
    assert "default/gpu-pod1 is Running on gtx1080ti" in said


@pytest.mark.parametrize(("tools", "named"), [(["make"], "no cc"), (["cc"], "no make"), ([], "no cc and no make")])
def test_without_a_compiler_a_sentence_says_so(sources: Path, tmp_path: Path, tools: list[str], named: str) -> None:
    for tool in tools:
        (tmp_path / tool).touch(0o755)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out")]
    env = {key: value for key, value in os.environ.items() if key != "CC"} | {"PATH": str(tmp_path)}
    failed = subprocess.run(command, cwd=sources, env=env, capture_output=True, text=True)
    assert failed.returncode != 0
    assert f"libsubak is built with a C compiler and make; {named}: install them" in failed.stdout + failed.stderr
