"""`subak controller`: the scheduler of a Kubernetes cluster, until it is asked to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
import uuid

import click

from subak.cli.connection import MISUSED
from subak.cli.options import config_option, interpreter
from subak.cli.say import complain
from subak.scheduler import logbook
from subak.scheduler.configuration import NAMESPACE
from subak.scheduler.controller import Controller, LostLease, Settings
from subak.scheduler.served import NAMES
from subak.scheduler.window import CannotListen
from tinykube import kubeconfig
from tinykube.endpoint import ConfigError, Endpoint
from tinykube.http import HttpTransport

FAILED = 1
LEVELS = ("debug", "info", "warning", "error")

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\s]*)):([0-9]{1,5})")


def _address(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int]:
    """Read `ADDRESS:PORT`."""
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found[3]) > 65535:
        raise click.BadParameter(f"{value!r} is no ADDRESS:PORT, such as :9440, 127.0.0.1:9440 or [::1]:9440")
    return found[1] or found[2] or "", int(found[3])


def _leases(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=LEASE`."""
    pairs = [value.partition("=") for value in values]
    for value, (name, equals, lease) in zip(values, pairs, strict=True):
        if not (name and equals and lease):
            raise click.BadParameter(f"{value!r} is no NAME=LEASE, such as volcano=vc-scheduler")
    return {name: lease for name, _, lease in pairs}


def _identity() -> str:
    """The pod's name, or the host's; and something of our own, since two runs must never be taken for one."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@click.command()
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    default=NAMES,
    show_default=True,
    metavar="NAME",
    help="Serve pods with this spec.schedulerName; may be given several times.",
)
@click.option(
    "--foreign-lease",
    "foreign_leases",
    multiple=True,
    metavar="NAME=LEASE",
    callback=_leases,
    help="The Lease of the scheduler that the name comes from, in any namespace; default: it is called as the name.",
)
@click.option(
    "--leader-elect/--no-leader-elect", "elect", default=True, show_default=True, help="Decide only with the Lease."
)
@click.option("--lease-namespace", default=NAMESPACE, show_default=True, metavar="NAME", help="Where the Lease is.")
@click.option("--lease-name", default="subak-controller", show_default=True, metavar="NAME", help="Its name.")
@click.option("--identity", metavar="NAME", help="Our name in the Lease; default: the pod's or host's, and a number.")
@click.option(
    "--listen",
    default=":9440",
    show_default=True,
    metavar="ADDRESS:PORT",
    callback=_address,
    help="Where to serve /healthz, /readyz, /metrics and /pods over HTTP.",
)
@config_option
@click.option("--kubeconfig", "path", metavar="FILE", help="How to reach the cluster; default: the pod's own account.")
@click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig, not the current one.")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="Default: text on a terminal, else json.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What to log.")
def controller(
    names: tuple[str, ...],
    foreign_leases: dict[str, str],
    elect: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str | None,
    listen: tuple[str, int],
    device_config: str | None,
    path: str | None,
    context: str,
    log_format: str | None,
    log_level: str,
) -> None:
    """Schedule the GPU-sharing pods of a Kubernetes cluster.

    It places pods whose spec.schedulerName is one of --scheduler-name: which node, which cards, in one write per pod.
    A name whose own scheduler still runs, so that its Lease is renewed, is left to it.

    Run several replicas: the one that holds the Lease decides, the others keep up and take over when it ends.  In a
    cluster it uses its ServiceAccount (kubectl apply -f deploy/manifests), elsewhere --kubeconfig, $KUBECONFIG or
    ~/.kube/config.  It needs no state: pods carry what they hold.

    \b
    Examples:
      subak controller                                     in a pod
      subak controller --kubeconfig admin.conf             on your machine
      subak controller --scheduler-name subak              only our own name
      curl localhost:9440/readyz                           who leads, and which names are served

    \b
    Exit codes:
      0  ended by SIGTERM or Ctrl-C; the Lease is given back
      1  the Lease is lost, or it could not go on: start it again
      2  bad input: an option, a file or an address that cannot be used
    """
    logbook.set_up(log_format or ("text" if sys.stderr.isatty() else "json"), log_level)
    # Most objects live long, and a full collection visits all of them: at the usual rate that takes half of the time.
    gc.set_threshold(50_000, 20, 100)
    settings = Settings(
        names=names,
        elect=elect,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        identity=identity or _identity(),
        host=listen[0],
        port=listen[1],
        config=interpreter(device_config).config if device_config else None,
        foreign_leases=foreign_leases,
    )
    try:
        target = _endpoint(path, context)
    except ConfigError as error:
        complain([str(error)])
        sys.exit(MISUSED)
    sys.exit(asyncio.run(_serve(target, settings)))


def _endpoint(path: str | None, context: str) -> Endpoint:
    """The cluster of the kubeconfig; without one, the cluster that we are a pod of.  Raises ConfigError."""
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ and (kubeconfig.SERVICE_ACCOUNT / "token").exists()
    return kubeconfig.in_cluster() if path is None and not context and in_a_pod else kubeconfig.load(path, context)


async def _serve(target: Endpoint, settings: Settings) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    transport = HttpTransport(target, agent="subak-controller")
    try:
        await Controller(transport, settings).run(stopped)
    except CannotListen as error:
        complain([str(error)])
        return MISUSED
    except LostLease as error:
        log.error("%s: this replica ends, to be started again", error)
        return FAILED
    except Exception:
        log.exception("this replica cannot go on, which is a mistake in Subak")
        return FAILED
    finally:
        await transport.close()
    return 0
