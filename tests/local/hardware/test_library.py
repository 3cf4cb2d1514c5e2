"""The library that does nothing."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from subak.local.hardware import library


def test_programs_run_with_it_preloaded_as_without(tmp_path: Path) -> None:
    path = tmp_path / "libvgpu.so"
    path.write_bytes(library.empty())
    environment = {**os.environ, "LD_PRELOAD": str(path)}
    done = subprocess.run(["/bin/sh", "-c", "echo done"], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_broken_library_would_have_been_noticed(tmp_path: Path) -> None:
    path = tmp_path / "libvgpu.so"
    path.write_bytes(library.empty()[:100])
    environment = {**os.environ, "LD_PRELOAD": str(path)}
    done = subprocess.run(["/bin/sh", "-c", "echo done"], env=environment, capture_output=True, text=True, check=True)
    assert "cannot be preloaded" in done.stderr


def test_it_can_be_opened_and_exports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(library.empty())
    assert not hasattr(ctypes.CDLL(str(path)), "cuInit")
