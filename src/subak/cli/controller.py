"""`subak controller`: the scheduler of a Kubernetes cluster, until it is asked to end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from subak.admission.service import Admission
from subak.cli.admission import Given, admission_options
from subak.cli.connection import MISUSED
from subak.cli.durations import duration
from subak.cli.options import config_option, interpreter
from subak.cli.program import FAILED, address, asked_to_end, endpoint, optional_address, program_options, set_up_logs
from subak.cli.say import complain
from subak.dialects.interpreter import Interpreter
from subak.scheduler import batch_configuration, volumes
from subak.scheduler.batch_configuration import Source
from subak.scheduler.configuration import NAMESPACE, BadConfig
from subak.scheduler.controller import Companion, Companions, Controller, LostLease, Settings
from subak.scheduler.served import NAMES, OWN_LEASES, Served
from subak.scheduler.service import Service
from tinykube.client import Client
from tinykube.endpoint import ConfigError, Endpoint
from tinykube.http import HttpTransport
from tinykube.window import CannotListen

_BATCH_CONFIG = f"{batch_configuration.NAMESPACE}/{batch_configuration.NAME}"

log = logging.getLogger(__name__)


def _names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that no pod can have, and forget repeated ones."""
    for value in values:
        if not value.strip():
            raise click.BadParameter("a scheduler's name is not empty; it is what pods have in spec.schedulerName")
    return tuple(dict.fromkeys(values))


def _leases(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=LEASE`."""
    pairs = [value.partition("=") for value in values]
    for value, (name, equals, lease) in zip(values, pairs, strict=True):
        if not (name and equals and lease):
            raise click.BadParameter(f"{value!r} is no NAME=LEASE, such as volcano=vc-scheduler")
    return {name: lease for name, _, lease in pairs}


def _object(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, str]:
    """Read `NAMESPACE/NAME`."""
    namespace, _, name = value.partition("/")
    if not namespace or not name or "/" in name:
        raise click.BadParameter(f"{value!r} is no NAMESPACE/NAME, such as {_BATCH_CONFIG}")
    return namespace, name


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
    callback=_names,
    help="Serve pods with this spec.schedulerName; may be given several times.",
)
@click.option(
    "--foreign-lease",
    "foreign_leases",
    multiple=True,
    metavar="NAME=LEASE",
    callback=_leases,
    help="Leave the name alone while this Lease, in any namespace, is renewed; known are those of "
    f"{', '.join(OWN_LEASES)}.",
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
    callback=address,
    help="Where to serve /healthz, /readyz, /metrics and /pods over HTTP.",
)
@click.option(
    "--volume-timeout",
    type=duration,
    default=f"{volumes.TIMEOUT:.0f}s",
    show_default=True,
    metavar="DURATION",
    help="How long the volumes of a pod may take until another place is tried.",
)
@click.option(
    "--batch-config",
    default=_BATCH_CONFIG,
    show_default=True,
    metavar="NAMESPACE/NAME",
    callback=_object,
    help=f"The ConfigMap with Volcano's {batch_configuration.KEY}; edits count at once.",
)
@click.option(
    "--scheduler-conf",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"A {batch_configuration.KEY} to use instead of that ConfigMap; edits count at once.",
)
@click.option(
    "--group-timeout",
    type=duration,
    default=f"{batch_configuration.GROUP_TIMEOUT:.0f}s",
    show_default=True,
    metavar="DURATION",
    help="How long a part of a group may run alone until it is evicted; groups may say so themselves.",
)
@click.option(
    "--extender",
    metavar="ADDRESS:PORT",
    callback=optional_address,
    help="Serve no names, but answer a kube-scheduler that asks here for cards; 127.0.0.1:8118 beside it in one pod.",
)
@admission_options
@config_option
@program_options
def controller(
    names: tuple[str, ...],
    foreign_leases: dict[str, str],
    elect: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str | None,
    listen: tuple[str, int],
    volume_timeout: float,
    batch_config: tuple[str, str],
    scheduler_conf: Path | None,
    group_timeout: float,
    extender: tuple[str, int] | None,
    device_config: str | None,
    path: str | None,
    context: str,
    log_format: str | None,
    log_level: str,
    **admission: Any,
) -> None:
    """Schedule the GPU-sharing pods of a Kubernetes cluster.

    It places pods whose spec.schedulerName is one of --scheduler-name: which node, which cards, in one write per pod.
    A name whose own scheduler still runs, so that its Lease is renewed, is left to it.  In a pod it also reviews new
    pods that ask for cards, and guards the records of who holds which card (docs/reference/admission.md).
    Gangs, queues and fair shares are as Volcano's scheduler configuration says (docs/reference/batch.md).

    Run several replicas: the one that holds the Lease decides, the others keep up and take over when it ends.  In a
    cluster it uses its ServiceAccount (kubectl apply -f deploy/manifests), elsewhere --kubeconfig, $KUBECONFIG or
    ~/.kube/config.  It needs no state: pods carry what they hold.

    \b
    Examples:
      subak controller                                     in a pod
      subak controller --kubeconfig admin.conf             on your machine
      subak controller --scheduler-name subak              only our own name
      subak controller --scheduler-conf scheduler.conf     queues and gangs as in Volcano (docs/reference/batch.md)
      subak controller --extender 127.0.0.1:8118           for a kube-scheduler that stays (subak extender --help)
      curl localhost:9440/readyz                           who leads, and which names are served

    \b
    Exit codes:
      0  ended by SIGTERM or Ctrl-C; the Lease is given back
      1  the Lease is lost, or it could not go on: start it again
      2  bad input: an option, a file or an address that cannot be used
    """
    set_up_logs(log_format, log_level)
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
        volume_timeout=volume_timeout,
        extender=extender,
        batch=Source(*batch_config, file=scheduler_conf, group_timeout=group_timeout),
    )
    try:
        in_a_pod, target = endpoint(path, context)
    except ConfigError as error:
        complain([str(error)])
        sys.exit(MISUSED)
    given = Given(**admission)
    options = given.options(names, in_a_pod and extender is None)

    def companions(client: Client, interpreter: Interpreter, served: Served, service: Service) -> Sequence[Companion]:
        if options is None:
            return ()
        # A kube-scheduler that asks us serves the names all the time.
        schedulers = served if extender is None else names
        slots = given.prepares(service.needs_variables)
        return (Admission(client, interpreter, replace(options, schedulers=schedulers, slots=slots)),)

    sys.exit(asyncio.run(_serve(target, settings, companions)))


async def _serve(target: Endpoint, settings: Settings, companions: Companions) -> int:
    stopped = asked_to_end()
    transport = HttpTransport(target, agent="subak-controller")
    try:
        await Controller(transport, settings, companions).run(stopped)
    except (CannotListen, BadConfig) as error:
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
