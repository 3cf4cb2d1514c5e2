"""Builds libsubak with the package: a wheel carries the library beside `subak.node.library`, which says where it is.
So it does with the simulated driver, beside `subak.local.hardware.driver`, with the examples, which `subak demo` runs,
and with the manifests, whose rights `subak doctor` checks.

It takes a C compiler and make, no CUDA.  The library is C for one system and processor, and not for one Python: so the
wheel is tagged `py3-none-linux_x86_64`.  An editable install leaves the library in native/build, where the checkout's
own `make` keeps it fresh; a wheel's is made from a copy, so that what was built in the tree has no part in it.
A source distribution only carries the sources.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLATFORM = "linux-x86_64"
SIMULATED = ("libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi", "subak-allocate")
REMEDY = "install them (Debian and Ubuntu: apt install gcc make; Fedora: dnf install gcc make) and try again"


class NativeLibrary(BuildHookInterface[Any]):
    """Compiles native/ before a wheel is put together."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library; `version` is `editable` or `standard`."""
        native, examples = Path(self.root) / "native", Path(self.root) / "examples"
        manifests = Path(self.root) / "deploy" / "manifests"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{PLATFORM.replace('-', '_')}"
        if version == "editable":
            built(native)
            return
        build_data["force_include"][str(examples)] = "subak/examples"
        build_data["force_include"][str(manifests)] = "subak/manifests"
        directory = tempfile.mkdtemp(prefix="libsubak-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)  # also if nothing comes of it
        copy = shutil.copytree(native, Path(directory) / "native", ignore=shutil.ignore_patterns("build"))
        build = built(copy)
        build_data["force_include"][str(build / "libsubak.so")] = "subak/node/libsubak.so"
        for name in SIMULATED:
            build_data["force_include"][str(build / "simulated" / name)] = f"subak/local/hardware/cuda/{name}"


def built(native: Path) -> Path:
    """The folder of what is made beside the sources.  Ends the build with a sentence if that cannot be."""
    here = sysconfig.get_platform()
    if here != PLATFORM:
        raise SystemExit(f"error: libsubak is for {PLATFORM} only, and this is {here}")
    compiler = (os.environ.get("CC") or "cc").split()[0]  # as make has it
    missing = [tool for tool in (compiler, "make") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(
            f"error: libsubak is built with a C compiler and make; no {' and no '.join(missing)}: {REMEDY}"
        )
    # What the caller's environment says of our variables is not meant for this; what a newer compiler warns of is no
    # reason to have no library.  A path of its own would be taken apart by make where it has spaces.
    settings = ["BUILD=build", "VARIANT=plain", "SANITIZE=", "WARNINGS="]
    command = ["make", "-s", f"-j{os.cpu_count() or 1}", "-C", str(native), *settings, "all"]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode:
        raise SystemExit(f"{made.stdout}\nerror: libsubak could not be built; what make said is above")
    return native / "build"
