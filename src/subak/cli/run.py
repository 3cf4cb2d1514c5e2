"""`subak run`: one command with a slice of a local card, without a cluster."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import click

from subak.cli.durations import duration
from subak.cli.say import complain
from subak.dialects import PRELOAD, isolation, preloading
from subak.dialects.interpreter import Interpreter
from subak.dialects.nvidia import FAMILY
from subak.local.hardware import profiles
from subak.local.hardware.description import BadDescription
from subak.local.slices import CardsTaken, Slice, Slices, directory
from subak.model import manifest
from subak.model.device import MIB, MOST_CARD_BYTES
from subak.model.node import Node
from subak.model.reason import Refusal
from subak.node import library, nvml, turns
from subak.node.machine import Machine
from subak.policy.explain import Explanation
from tinykube.quantity import Quantity, QuantityError

EVERY = 0.1
GRACE = 5.0
"""Seconds beyond --timeout that finding the cards may take, and whatever hangs on the way."""
LONGEST = 1_000
BAD_INPUT, GAVE_UP, CANNOT_RUN, NOT_FOUND, INTERRUPTED = 2, 75, 126, 127, 130


@dataclass(frozen=True, slots=True)
class Isolation:
    """What enforces limits on real cards."""

    library: Path
    turns: Path | None
    """None if a stranger has spoiled the directory where all take turns."""


@click.command(context_settings={"allow_interspersed_args": False})  # what follows the command's name is its own
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
@click.option("--memory", metavar="AMOUNT", help="Memory of the card, such as 8Gi; a whole card if not said.")
@click.option(
    "--cores", type=click.IntRange(0, 100), default=0, metavar="PERCENT", help="Share of its time; 0: no limit."
)
@click.option("--cards", type=click.IntRange(1), default=1, show_default=True, help="On how many cards.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up waiting after so long; 0 does not wait.")
@click.option("--hardware", metavar="FILE", help="Simulated cards instead of the machine's, to try it out.")
def run(
    command: tuple[str, ...],
    memory: str | None,
    cores: int,
    cards: int,
    timeout: float | None,
    hardware: str | None,
) -> None:
    """Run COMMAND with a slice of a local NVIDIA card; it waits in line while the cards are full.

    The command finds its cards and limits in its environment (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_MEMORY_LIMIT_0,
    CUDA_DEVICE_SM_LIMIT), and libsubak, which is preloaded, holds it to them.  The slice is its own until it and all
    programs that it started have ended; of those that closed the files they inherited, those that use the card count.

    \b
    Examples:
      subak run --memory 8Gi --cores 30 -- python train.py
      subak run --cards 2 -- torchrun train.py
      subak run --memory 8Gi --timeout 1h30m -- python train.py

    \b
    Exit codes:
      the command's own, or
        2  bad input, or more than the cards have
       75  no slice was free within --timeout
      126, 127  the command cannot be run, is not there
      130  interrupted while it waited
    """
    if outer := os.environ.get(isolation.LIMITS_BY_NAME):
        _stop(f"this is inside a slice already, whose limits are in {outer}: run the command as it is")
    watch = _watch(timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    pod = _pod(command, memory, cores, cards)
    interpreter = Interpreter()
    machine = _machine(interpreter, hardware)
    isolated = _isolated() if machine.real else None
    if isolated and (chosen := os.environ.get(isolation.CUDA_CARDS)):
        complain((), (), [f"{isolation.CUDA_CARDS}={chosen} is not heeded: the slice is of whichever card has room"])
    digest, _ = machine.digest(interpreter)
    node = replace(digest, taints=())  # they are for pods
    try:
        slices = Slices(_directory(hardware), interpreter, node)
        slice = slices.enter(pod)
        placed = _wait(slices, slice, timeout, deadline)
        _say_what_it_has(interpreter, placed, node)
        environment = {**os.environ, **_environment(interpreter, placed, node, slice, isolated)}
    except Refusal as refusal:
        _stop(refusal.message)
    except (CardsTaken, OSError) as taken:
        _stop(f"the cards cannot be had: {taken}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    os.set_inheritable(slice.notice.pipe, True)
    watch.cancel()
    _become(command, environment)


def _watch(timeout: float | None) -> threading.Timer:
    """A watch that ends the program some seconds after the timeout, whatever hangs: the driver, or a full pipe."""

    def give_up() -> None:
        why = f"no slice was free within {timeout:g} s: the driver or the ledger of slices does not answer"
        saying = threading.Thread(target=complain, args=([why],), daemon=True)
        saying.start()
        saying.join(1)  # nobody may be reading
        os._exit(GAVE_UP)

    watch = threading.Timer(min((timeout or 0) + GRACE, threading.TIMEOUT_MAX), give_up)
    watch.daemon = True
    if timeout is not None:
        watch.start()
    return watch


def _machine(interpreter: Interpreter, hardware: str | None) -> Machine:
    """The machine with its cards.  Ends the program if there are none."""
    if hardware is None:
        found = nvml.find(interpreter)
        if found.machine is None:
            _stop("; ".join(found.notes) + "; to try it out without a card, describe one in a file: --hardware FILE")
        complain((), (), found.notes)
        return found.machine
    try:
        machines = profiles.read(Path(hardware), interpreter)
    except BadDescription as error:
        _stop(str(error))
    for machine in machines:
        if any(device.family == FAMILY for device in machine.devices):
            return machine
    _stop(f"{hardware}: no node has NVIDIA cards: describe one, such as nodes: [{{profile: volcano}}]")


def _isolated() -> Isolation:
    """What enforces a command's share of a real card.  Ends the program if nothing can."""
    try:
        found = Isolation(library.find(), _turns())
    except (library.NoLibrary, turns.NoTurns) as error:
        _stop(f"no limit would hold: {error}")
    if {" ", ":", "$"} & set(str(found.library)):  # special characters to the dynamic loader
        _stop(
            f"no limit would hold: {found.library} cannot be preloaded: install subak at a path without ' ', ':', '$'"
        )
    return found


def _turns() -> Path | None:
    try:
        return turns.directory()
    except turns.Spoiled as error:
        complain((), (), [f"{error}; until then the card's time is shared with other users as its hardware does it"])
        return None


def _directory(hardware: str | None) -> Path:
    """The directory of slices; slices of simulated cards have another one."""
    real = directory()
    return real if hardware is None else real.with_name(f"{real.name}-simulated-{os.getuid()}")


def _pod(command: tuple[str, ...], memory: str | None, cores: int, cards: int) -> manifest.Pod:
    """The request in HAMi's words."""
    limits: manifest.Amounts = {"nvidia.com/gpu": cards}
    if memory is not None:
        limits["nvidia.com/gpumem"] = _mebibytes(memory)
    if cores:
        limits["nvidia.com/gpucores"] = cores
    name = re.sub(r"[^a-z0-9]+", "-", Path(command[0]).name.lower())[:40].strip("-") or "command"
    # The command itself is not stored: arguments are bytes, unlike annotations, and may be very long.
    written = shlex.join(command)[:LONGEST].encode(errors="backslashreplace").decode()
    container = manifest.Container(name="command", resources=manifest.Resources(limits=limits))
    return manifest.Pod(
        metadata=manifest.Metadata(name=name, annotations={"subak.io/command": written}),
        spec=manifest.PodSpec(containers=[container]),
    )


def _mebibytes(text: str) -> int:
    try:
        memory_bytes = Quantity.parse(text).value
    except QuantityError as error:
        _stop(f"--memory {text!r}: {error}")
    if memory_bytes < MIB:
        _stop(f"--memory {text!r} is less than 1 MiB: give an amount with a unit, such as 8Gi or 512Mi")
    if memory_bytes > MOST_CARD_BYTES:
        _stop(f"--memory {text!r} is more than any card has: give an amount such as 8Gi or 512Mi")
    return int(-(-memory_bytes // MIB))


def _wait(slices: Slices, slice: Slice, timeout: float | None, deadline: float | None) -> manifest.Pod:
    """Wait for room; gives the pod with its cards.  Ends the program if there is no room in time."""
    said = ""
    while isinstance(answer := slices.attempt(slice, time.time_ns()), Explanation):
        if deadline is not None and time.monotonic() >= deadline:
            complain([f"no slice was free within {timeout:g} s: {_short(answer)}"])
            sys.exit(GAVE_UP)
        if said != (said := _short(answer)):
            complain((), (), [f"waiting for a card: {said}"])
        time.sleep(EVERY)
    return answer


def _short(explanation: Explanation) -> str:
    return "; ".join(f"{group.detail} ({group.reason})" for group in explanation.groups)


def _say_what_it_has(interpreter: Interpreter, pod: manifest.Pod, node: Node) -> None:
    shares = [share for grant in interpreter.placement(pod, node).grants for share in grant.shares]
    held = ", ".join(
        f"card {share.index} {share.memory_bytes // MIB:,} MiB{f' {share.cores} % of its time' if share.cores else ''}"
        for share in shares
    )
    complain((), (), [f"{pod.name} has {held}"])


def _environment(
    interpreter: Interpreter, pod: manifest.Pod, node: Node, slice: Slice, isolated: Isolation | None
) -> dict[str, str]:
    """The command's environment."""
    (injection,) = interpreter.injections(pod, interpreter.placement(pod, node), node)
    env = {**injection.env, isolation.REGION: str(slice.region)}
    if isolated is not None:
        slice.prepare_region()
        env |= isolation.shown(share.id for share in injection.held)
        env[isolation.TURNS] = str(isolated.turns or slice.notice.place)
        limits = isolation.limits_file(injection.held, env) + f"{isolation.SLICE}={slice.notice.alive}\n"
        env[isolation.LIMITS_BY_NAME] = str(slice.write_limits(limits))
        env |= preloading(os.environ.get(PRELOAD), str(isolated.library))
    return env


def _become(command: tuple[str, ...], environment: dict[str, str]) -> None:
    """Replace this process with the command."""
    if sys.stdout is not None:
        sys.stdout.flush()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and the command would go on to
        signal.signal(ignored, signal.SIG_DFL)
    try:
        try:
            os.execvpe(command[0], command, environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script that does not say what runs it is the shell's, as for execvp(3) and so for `env` and `nice`.
            os.execve("/bin/sh", ["/bin/sh", error.filename, *command[1:]], environment)
    except OSError as error:
        complain([f"{command[0]}: {error.strerror}"])
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)
    except ValueError as error:  # an empty name
        complain([f"{command[0]!r} cannot be run: {error}"])
        sys.exit(CANNOT_RUN)


def _stop(message: str) -> NoReturn:
    complain([message])
    sys.exit(BAD_INPUT)
