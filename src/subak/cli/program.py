"""What the programs share that run in a cluster until they are asked to end: `subak controller` and `subak agent`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from subak.scheduler import logbook
from tinykube import kubeconfig
from tinykube.endpoint import Endpoint

FAILED = 1
LEVELS = ("debug", "info", "warning", "error")

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\s]*)):([0-9]{1,5})")


def address(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int]:
    """Read `ADDRESS:PORT`."""
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found[3]) > 65535:
        raise click.BadParameter(f"{value!r} is no ADDRESS:PORT, such as :9440, 127.0.0.1:9440 or [::1]:9440")
    return found[1] or found[2] or "", int(found[3])


def optional_address(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Read `ADDRESS:PORT`, where there is one."""
    return None if value is None else address(context, parameter, value)


_OPTIONS = (
    click.option(
        "--kubeconfig", "path", metavar="FILE", help="How to reach the cluster; default: the pod's own account."
    ),
    click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig, not the current one."),
    click.option("--log-format", type=click.Choice(["json", "text"]), help="Default: text on a terminal, else json."),
    click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What to log."),
)


def program_options(command: F) -> F:
    """Give a command the options; it gets the arguments `path`, `context`, `log_format` and `log_level`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


def set_up_logs(form: str | None, level: str) -> None:
    """Log as these options say."""
    logbook.set_up(form or ("text" if sys.stderr.isatty() else "json"), level)


def asked_to_end() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def endpoint(
    path: str | None,
    context: str,
    environ: Mapping[str, str] = os.environ,
    account: Path = kubeconfig.SERVICE_ACCOUNT,
) -> tuple[bool, Endpoint]:
    """Whether we are a pod of the cluster, and how to reach it.  A kubeconfig that is named counts first.

    Raises ConfigError.
    """
    if path is None and not context and "KUBERNETES_SERVICE_HOST" in environ and (account / "token").exists():
        return True, kubeconfig.in_cluster(environ, account)
    return False, kubeconfig.load(path, context, environ)
