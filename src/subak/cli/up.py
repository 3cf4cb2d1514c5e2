"""`subak up`: a whole cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import signal
import sys
from functools import partial
from pathlib import Path

import click
import msgspec

from subak import __version__
from subak.cli.connection import default_kubeconfig
from subak.cli.examples import examples
from subak.cli.options import config_option, interpreter
from subak.cli.plain import one_line, plain
from subak.cli.say import complain
from subak.dialects.config import FILE, Config
from subak.dialects.interpreter import Interpreter
from subak.local import slices
from subak.local.cluster import LocalCluster, RuntimeName
from subak.local.hardware import profiles
from subak.local.hardware.description import BadDescription
from subak.local.kubeconfig import FileTaken, Kubeconfig, claim, claim_first
from subak.node import nvml
from subak.node.machine import Machine
from subak.scheduler import configuration
from subak.scheduler.configuration import ConfigMap
from tinykube import descriptors
from tinykube.endpoint import ConfigError
from tinykube.ration import Ration
from tinykube.server import sqlite
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.state import Damaged, StateError
from tinykube.status import ApiError

FAILED, BAD_INPUT = 1, 2


class PlainFormatter(logging.Formatter):
    """What goes wrong may have been named by a container, and is read on a terminal: it invents no further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of logging
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


@click.command()
@click.option("--hardware", metavar="FILE", help="Your own cards; see docs/reference/hardware.md.")
@click.option("--kubeconfig", metavar="FILE", help="Where to write how to connect; default: where subak looks for it.")
@click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path), help="Keep everything here; default: in memory."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where to listen; default: any free port.")
@click.option(
    "--runtime",
    type=click.Choice(["process", "stand-in", "none"]),
    default="process",
    show_default=True,
    help="What containers are: their commands as confined processes, processes that only wait, or nothing at all.",
)
@click.option("--stand-in", is_flag=True, help="A container without a command becomes a process that only waits.")
@config_option
def up(
    hardware: str | None,
    kubeconfig: str | None,
    state: Path | None,
    port: int,
    runtime: RuntimeName,
    stand_in: bool,
    device_config: str | None,
) -> None:
    """Start a cluster on this machine: API server, scheduler, nodes and containers in one process.

    Without --hardware it has one node of every built-in profile, with simulated cards; NVIDIA cards of this machine
    are used as well.  It listens on the loopback address only.  Ctrl-C ends it and everything that it started.
    With --state, nodes that are not described this time stay, NotReady, with their pods.

    \b
    Examples:
      subak up
      subak up --state ~/subak --hardware lab.yaml
      KUBECONFIG=... kubectl get nodes

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM
      1  it could not go on
      2  bad input: a file, a directory or a port that cannot be used
    """
    handler = logging.StreamHandler()
    handler.addFilter(Ration())
    handler.setFormatter(PlainFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    descriptors.raise_limit()
    # Most objects live long, and a full collection visits all of them: at the usual rate that takes half of the time.
    gc.set_threshold(50_000, 20, 100)
    kept = None if device_config or state is None else _kept(state)
    languages = kept or interpreter(device_config)
    machines, notes = _machines(languages, hardware)
    if kept is not None and kept.config != Config():
        notes.append("the device config is that of the last start with this --state; --device-config gives another")
    try:
        written = claim_first(default_kubeconfig()) if kubeconfig is None else claim(Path(kubeconfig))
    except (ConfigError, FileTaken) as error:
        complain([str(error)])
        sys.exit(BAD_INPUT)
    except OSError as error:
        complain([f"{error.filename}: {error.strerror}: name a kubeconfig that can be written (--kubeconfig)"])
        sys.exit(BAD_INPUT)
    cluster = LocalCluster(machines, languages, state=state, runtime=runtime, stand_in=stand_in, hide=[written.path])
    cluster.notes += notes
    if kubeconfig is None and written.path != default_kubeconfig():
        cluster.notes.append(f"another cluster of yours has {default_kubeconfig()}; this one has a file of its own")
    try:
        sys.exit(asyncio.run(_serve(cluster, written, port)))
    except Damaged as error:
        anew = "restore a backup (subak restore), or begin anew, each in another directory"
        complain([f"{error}: what was kept here cannot be served; {anew}"])
        sys.exit(BAD_INPUT)
    except (StateError, FileTaken, OSError) as error:
        complain([str(error)])
        sys.exit(BAD_INPUT)
    except ApiError as error:  # as of a full disk
        complain([f"the cluster cannot be started: {error.message}"])
        sys.exit(FAILED)
    finally:
        written.release()


def _kept(state: Path) -> Interpreter | None:
    """The device config under which the pods of a state directory ran."""
    data = sqlite.kept(state, CONFIG_MAP, f"{configuration.NAMESPACE}/{configuration.NAME}")
    if data is None:
        return None
    try:
        kept = msgspec.json.decode(data, type=ConfigMap).data or {}
        return Interpreter(configuration.parse(kept[FILE], f"{state}: configmap {configuration.NAME}"))
    except (ValueError, LookupError) as error:
        complain([f"{error}: name the right one with --device-config"])
        sys.exit(BAD_INPUT)


def _machines(languages: Interpreter, hardware: str | None) -> tuple[list[Machine], list[str]]:
    """The described machines, or one of every profile, and this machine's cards.  Ends the program on bad input."""
    try:
        described = profiles.default(languages) if hardware is None else profiles.read(Path(hardware), languages)
    except BadDescription as error:
        complain([str(error)])
        sys.exit(BAD_INPUT)
    found = nvml.find(languages)
    if found.machine is None:
        return described, list(found.notes) if found.driver else []
    if any(machine.name == found.machine.name for machine in described):
        clash = f"another node has its name, {found.machine.name}: give it another in {hardware or 'a --hardware FILE'}"
        return described, [f"the NVIDIA cards of this machine are left out: {clash}"]
    try:
        slices.claim(slices.directory(), f"the cluster of process {os.getpid()} (subak up)")  # until this process ends
    except slices.CardsTaken as taken:
        return described, [f"the NVIDIA cards of this machine are left out: {taken}"]
    return [*described, found.machine], list(found.notes)


async def _serve(cluster: LocalCluster, written: Kubeconfig, port: int) -> int:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with cluster:
        await cluster.endpoint.start(port)
        written.write(cluster.endpoint.kubeconfig())
        cluster.on_authority = partial(_write_again, cluster, written)
        _greet(cluster, written.path)
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait((waiting, cluster.failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        written.release()
        if not stopped.is_set():
            complain([f"the cluster cannot go on: {cluster.failed.exception()!r}"])
            return FAILED
    return 0


def _write_again(cluster: LocalCluster, written: Kubeconfig) -> None:
    try:
        written.write(cluster.endpoint.kubeconfig())
    except (FileTaken, OSError) as error:
        complain([], [f"the certificate authority is renewed, and {written.path} cannot be written anew: {error}"])


def _greet(cluster: LocalCluster, written: Path) -> None:
    cards = sum(len(machine.devices) for machine in cluster.machines)
    pods = "examples/volcano" if Path("examples/volcano").is_dir() else shlex.quote(str(examples() / "volcano"))
    complain((), (), [*cluster.notes, *cluster.lacks])
    click.echo(
        f"subak {__version__}: {len(cluster.machines):,} nodes with {cards:,} cards, at {cluster.endpoint.address}"
    )
    click.echo(f"  export KUBECONFIG={shlex.quote(str(written.absolute()))}")
    click.echo("  kubectl get nodes                  (or: subak nodes)")
    click.echo(f"  kubectl apply -f {pods}  (or: subak apply -f {pods})")
    click.echo("  subak top                          who shares which card")
    click.echo("ready")
    sys.stdout.flush()
