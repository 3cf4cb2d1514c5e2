"""`subak agent`: the program of a node, until it is asked to end."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from subak.cli.connection import MISUSED
from subak.cli.options import config_option, interpreter
from subak.cli.program import FAILED, address, asked_to_end, endpoint, program_options, set_up_logs
from subak.cli.say import complain
from subak.dialects import mark
from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter
from subak.local.hardware import driver as simulated_driver
from subak.local.hardware import simulated
from subak.local.hardware.description import BadDescription
from subak.local.hardware.simulated import Simulated
from subak.node.agent import NAME, Agent, Settings
from subak.node.discovery import Source
from subak.node.driver import ROOTS, Nvidia, load
from subak.node.guard import EXEMPT
from subak.node.host import Host
from subak.node.injection import ByKubelet, ByRuntime, Way
from subak.node.lock import HostLock, Locked
from subak.node.monitor.attach import attach
from subak.node.nri.plugin import SOCKET
from subak.scheduler import configuration
from subak.scheduler.configuration import BadConfig
from subak.scheduler.observed import Observed
from tinykube.client import Client
from tinykube.endpoint import ConfigError, Endpoint
from tinykube.http import HttpTransport
from tinykube.window import CannotListen

AUTO = "auto"

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Place:
    """What the command line says of the machine."""

    simulate: Path | None
    driver_roots: tuple[Path, ...]
    host_root: Path
    nri_socket: Path
    exempt: frozenset[str]


def _node_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    name = value or socket.gethostname().lower()
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is no name of a node: see kubectl get nodes")
    return name


@click.command()
@click.option(
    "--node-name",
    envvar="NODE_NAME",
    metavar="NAME",
    callback=_node_name,
    help="The node on which it runs; default: $NODE_NAME, or the name of the host.",
)
@click.option(
    "--simulate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Simulated cards in the place of real ones; see docs/reference/hardware.md.",
)
@click.option(
    "--injection",
    type=click.Choice([AUTO, mark.NRI, mark.PLUGIN]),
    default=AUTO,
    show_default=True,
    help="How containers get their cards: the container runtime asks for each, or kubelet does; "
    "auto: nri where its socket is.",
)
@click.option(
    "--nri-socket",
    default=SOCKET,
    show_default=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the container runtime listens.",
)
@click.option(
    "--exempt-namespace",
    "exempt",
    multiple=True,
    default=sorted(EXEMPT),
    show_default=True,
    metavar="NAME",
    help="Containers there that ask for no cards may see cards all the same, as monitors must; with nri.",
)
@click.option(
    "--driver-root",
    "driver_roots",
    multiple=True,
    default=ROOTS,
    show_default=True,
    metavar="DIR",
    help="Where NVIDIA's driver is installed; the first that has one counts.",
)
@click.option(
    "--host-root",
    default="/",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to keep what is mounted into containers: usr/local/subak, run/subak and others below it.",
)
@click.option(
    "--listen",
    default=":9394",
    show_default=True,
    metavar="ADDRESS:PORT",
    callback=address,
    help="Where to serve /healthz, /readyz, /metrics and /use over HTTP.",
)
@config_option
@program_options
def agent(
    node_name: str,
    simulate: Path | None,
    injection: str,
    nri_socket: Path,
    exempt: tuple[str, ...],
    driver_roots: tuple[str, ...],
    host_root: Path,
    listen: tuple[str, int],
    device_config: str | None,
    path: str | None,
    context: str,
    log_format: str | None,
    log_level: str,
) -> None:
    """Serve the cards of this node to the containers of a Kubernetes cluster.

    It finds the cards, tells the cluster of them in every dialect, and gives each container the cards that its pod's
    record names, and no others.  It has the last word: a container that would overcommit a card is not started.  One
    runs on each node, as root (kubectl apply -f deploy/manifests).  When it ends it takes back what it said of the
    cards; running containers keep what they have.

    \b
    Examples:
      subak agent                                          in a pod of the DaemonSet
      subak agent --simulate cards.yaml                    a node without a GPU
      subak agent --kubeconfig admin.conf --node-name n1   beside a kubelet, without a pod
      curl localhost:9394/readyz                           which cards, and what is wrong

    \b
    Exit codes:
      0  ended by SIGTERM or Ctrl-C
      1  another agent runs on this machine, or it could not go on: start it again
      2  bad input: an option, a file or an address that cannot be used
    """
    set_up_logs(log_format, log_level)
    place = Place(simulate, tuple(map(Path, driver_roots)), host_root, nri_socket, frozenset(exempt))
    try:
        _, target = endpoint(path, context)
        config = interpreter(device_config).config if device_config else None
        if simulate is not None:
            simulated.described(simulate, node_name, Interpreter(config))
    except (ConfigError, BadDescription) as error:
        complain([str(error)])
        sys.exit(MISUSED)
    try:
        lock = HostLock(host_root / "run" / "subak")
    except Locked as error:
        complain([str(error)])
        sys.exit(FAILED)
    settings = Settings(node_name, _way(injection, nri_socket), *listen)
    try:
        sys.exit(asyncio.run(_serve(target, settings, place, config)))
    finally:
        lock.release()


def _way(injection: str, socket: Path) -> str:
    """How containers get their cards."""
    if injection != AUTO:
        return injection
    if socket.exists():
        return mark.NRI
    log.warning("%s is not there, so containers get their cards through kubelet's device plugins (--injection)", socket)
    return mark.PLUGIN


def _source(place: Place, node: str, languages: Interpreter) -> Source:
    if place.simulate is not None:
        files = place.host_root / "usr" / "local" / "subak" / "simulated"
        return Simulated(place.simulate, node, languages, partial(simulated_driver.installed, files))
    return Nvidia(node, languages, lambda: load(place.driver_roots))


async def _serve(target: Endpoint, settings: Settings, place: Place, config: Config | None) -> int:
    stopped = asked_to_end()
    transport = Observed(HttpTransport(target, agent=NAME), NAME, "agent-rbac.yaml")
    client = Client(transport, NAME)
    try:
        languages = Interpreter(config or await _config(client, stopped))
        if stopped.is_set():
            return 0
        source = _source(place, settings.node, languages)
        way = _inject(settings.way, place)
        agent = Agent(client, settings, languages, source, Host.on_node(place.host_root), way)
        attach(agent, settings.node, partial(load, place.driver_roots))
        await agent.run(stopped)
    except (CannotListen, BadConfig) as error:
        complain([str(error)])
        return MISUSED
    except Exception:
        log.exception("this agent cannot go on, which is a mistake in Subak")
        return FAILED
    finally:
        await transport.close()
    return 0


async def _config(client: Client, stopped: asyncio.Event) -> Config | None:
    """The device config of the cluster; None if we are asked to end before it is known.  Raises BadConfig."""
    reading = asyncio.create_task(configuration.awaited(client))
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
        return reading.result() if reading.done() else None
    finally:
        reading.cancel()
        stop.cancel()
        await asyncio.gather(reading, stop, return_exceptions=True)


def _inject(way: str, place: Place) -> Way:
    if way == mark.NRI:
        return lambda node: ByRuntime(node, place.nri_socket, place.exempt)
    return lambda node: ByKubelet(node, place.host_root / "run" / "subak" / "slots")
