"""The simulated driver: what containers with a simulated NVIDIA card get in the place of NVIDIA's.

    machine ── description of its cards ──┐
                                          ├──> mounts: the driver's libraries, nvidia-smi, and one folder of the node
    native/simulated ── copies ───────────┘

The libraries lie where every dynamic loader looks, so that programs find them without any variable, and libsubak holds
them to their share as it would on a real card.  Where containers see the files of a machine that has a real driver,
they cover its libraries.  The folder of the node says which cards there are, and what is used of them is counted in a
file there: all containers of the node share it, as they would share the cards.

Running containers keep the files with which they began: new ones take their place under the same names.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from subak import __version__
from subak.dialects.vendor import vendor
from subak.local.hardware import cards
from subak.model.device import Device
from subak.model.mount import Mount
from subak.node.machine import Machine

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
PROGRAMS = ("nvidia-smi", "subak-allocate")

PACKAGED = Path(__file__).with_name("cuda")
BUILT = Path(__file__).parents[4] / "native" / "build" / "simulated"

LOADER = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
"""Where the dynamic loaders of distributions look: Debian's and its kin, all others'."""

FOLDER = "/run/subak/simulated"
"""Where the driver finds the folder of its node (`native/simulated/node.c`)."""

DESCRIPTION, MACHINE = "cards", "machine.1"
MOST_CARDS = 64
"""The most cards of a node that the driver knows."""


_LOADED = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


class NoDriver(Exception):
    """The driver's files are not there; the text says what to do about it."""


def installed(directory: Path, machine: Machine, covered: Iterable[str] = ()) -> Machine:
    """The machine with its simulated driver, whose files are now in `directory`, where they must stay.

    Only what NVIDIA's driver would serve gets one; a machine with more cards than the driver knows gets none, and then
    no program can use them.  `covered` are libraries of another driver that containers would find first.  Raises
    NoDriver, and OSError if the files cannot be written.
    """
    if not vendor(machine.devices[0].family).cuda or len(machine.devices) > MOST_CARDS:
        return machine
    source, programs, node = _find(), directory / __version__, directory / "nodes" / machine.name
    for name in (*LIBRARIES, *PROGRAMS):
        _copy(source / name, programs / name)
    _write(node / DESCRIPTION, description(machine))
    (node / MACHINE).touch()
    (node / MACHINE).chmod(0o666)  # programs of any user count there
    places = [(name, f"{folder}/{name}") for name in LIBRARIES for folder in LOADER]
    places += [(Path(path).name, path) for path in covered]
    places += [(name, f"/usr/bin/{name}") for name in PROGRAMS]
    mounts = [Mount(destination, str(programs / name), read_only=True) for name, destination in places]
    mounts += [
        Mount(f"{FOLDER}/{DESCRIPTION}", str(node / DESCRIPTION), read_only=True),
        Mount(f"{FOLDER}/{MACHINE}", str(node / MACHINE)),
    ]
    return replace(machine, driver=tuple(mounts))


def of_this_machine() -> list[str]:
    """The libraries of another driver that the loader of this machine finds, in whatever folder it was told to look in.

    Containers that see this machine's files have the same loader, which finds them before those in its own folders.
    The loader itself is asked what our programs would load.
    """
    said = ""
    with suppress(NoDriver, OSError):  # where our programs cannot run, it does not matter what they find
        for name in PROGRAMS:
            asked = [_find() / name]
            said += subprocess.run(asked, env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True).stdout
    return [path for name, path in _LOADED.findall(said) if name in LIBRARIES]


def description(machine: Machine) -> str:
    """The machine's cards as the driver reads them: a line each."""
    head = f"# The simulated cards of node {machine.name}: UUID, minor number, bytes of memory, bus address, name.\n"
    return head + "".join(f"{_line(machine, each)}\n" for each in machine.devices)


def _line(machine: Machine, card: Device) -> str:
    # Where no agent tells UUIDs the cards have none in Subak; their driver has them all the same.
    uuid = card.id if card.id.startswith("GPU-") else cards.card_id(machine.name, card.index)
    bus = f"00000000:{0x10 + card.index:02X}:00.0"
    model = card.model.removeprefix(f"{vendor(card.family).brand}-")
    return f"{uuid} {card.index} {card.memory_bytes} {bus} {model} (simulated)"


def _find() -> Path:
    """The folder of this installation that has all files."""
    for folder in (PACKAGED, BUILT):
        if all((folder / name).is_file() for name in (*LIBRARIES, *PROGRAMS)):
            return folder
    raise NoDriver(
        f"the simulated driver is neither in {PACKAGED} nor in {BUILT}: "
        "install subak again, or run `make -C native` in a checkout"
    )


def _copy(source: Path, path: Path) -> None:
    """Copy a program, unless it is there already: of the same size and date, so that many nodes cost little."""
    if not path.is_file() or not filecmp.cmp(source, path):
        with _begun(path) as file:
            shutil.copyfile(source, file)
            file.chmod(0o755)
            os.utime(file, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))


def _write(path: Path, text: str) -> None:
    """Write a file that nobody changes, unless it is there already."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with _begun(path) as file:
            file.write_text(text, encoding="utf-8")
            file.chmod(0o444)


@contextmanager
def _begun(path: Path) -> Iterator[Path]:
    """A file that takes the place of `path` once it is complete: a full disk leaves a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f".{path.name}")
    begun.unlink(missing_ok=True)
    yield begun
    begun.replace(path)
