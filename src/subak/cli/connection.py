"""The connection of a command to its cluster, and the messages for errors on the way."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from subak.cli.say import complain, say
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.codec import Unreadable
from tinykube.discovery import UnknownKind
from tinykube.endpoint import ConfigError, Endpoint
from tinykube.http import HttpTransport
from tinykube.resource import BadName
from tinykube.status import ApiError

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

REFUSED, MISUSED = 1, 2
MANAGER = "subak"
"""The owner of the fields that commands write."""


class Blind(Exception):
    """The user may not see the whole cluster; the message says what is forbidden and who can allow it."""


def default_kubeconfig() -> Path:
    """The kubeconfig that `subak up` writes by default.  Raises ConfigError if there is no home directory."""
    try:
        folder = os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache"
    except RuntimeError:
        raise ConfigError("this user has no home directory: set HOME, or name a kubeconfig (--kubeconfig)") from None
    return Path(folder) / "subak" / "kubeconfig"


@dataclass(frozen=True, slots=True)
class Connection:
    """A client, and the namespace to use if none is given; `all` means every namespace."""

    client: Client
    transport: HttpTransport
    namespace: str
    all: bool = False

    @property
    def scope(self) -> str:
        """The namespace to list; empty for all."""
        return "" if self.all else self.namespace


@asynccontextmanager
async def opened(path: str | None, context: str, namespace: str, everywhere: bool = False) -> AsyncIterator[Connection]:
    """The connection that the shared options name, as long as it is needed.  Raises ConfigError."""
    target = endpoint(path, context)
    transport = HttpTransport(target, agent=MANAGER)
    try:
        yield Connection(Client(transport, MANAGER), transport, namespace or target.namespace, everywhere)
    finally:
        await transport.close()


def endpoint(path: str | None, context: str) -> Endpoint:
    """The API server to use: from the option, KUBECONFIG, `subak up`, or kubectl's file.  Raises ConfigError."""
    if path is None and not os.environ.get("KUBECONFIG") and _is_written(default_kubeconfig()):
        return kubeconfig.load(default_kubeconfig(), context)
    try:
        return kubeconfig.load(path, context)
    except ConfigError as error:
        if path is None and not os.environ.get("KUBECONFIG"):
            raise ConfigError(f"{error}; or start a cluster on this machine with: subak up") from None
        raise


def _is_written(path: Path) -> bool:
    """Whether the file says how to connect; the file of a cluster that is starting is still empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


Command = Callable[Concatenate[Connection, P], Awaitable[int | None]]
Alone = Callable[Concatenate[str, P], Awaitable[int | None]]
"""What a command does without a cluster; the text says why there is none.  None: it can do nothing then."""


def which_cluster(command: F) -> F:
    """The options of all commands for a live cluster."""
    for option in (
        click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace; default: the context's."),
        click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig, not the current one."),
        click.option("--kubeconfig", "path", metavar="FILE", help="How to reach the cluster; default: $KUBECONFIG."),
    ):
        command = option(command)
    return command


def connected(command: Command[P]) -> Callable[..., None]:
    """Run an asynchronous command on the cluster that the shared options name; it may return an exit code."""
    return connected_or(None)(command)


def connected_or(alone: Alone[P] | None) -> Callable[[Command[P]], Callable[..., None]]:
    """The same for a command that can do without a cluster, unless an option names one."""

    def decorate(command: Command[P]) -> Callable[..., None]:
        @which_cluster
        @functools.wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            path, context, namespace = (options.pop(name) for name in ("path", "context", "namespace"))
            everywhere = bool(options.pop("all_namespaces", False))
            _check_text(context, namespace, *(value for name, value in options.items() if name != "files"))

            async def act() -> int | None:
                async with opened(path, context, namespace, everywhere) as connection:  # type: ignore[arg-type]
                    return await command(connection, *args, **options)

            async def act_or_go_alone() -> int | None:
                try:
                    return await act()
                except (ConfigError, OSError) as error:
                    if alone is None or path or context or _local(error):
                        raise
                    code = await alone(_no_cluster(error), *args, **options)
                    if code is None:
                        raise
                    return code

            sys.exit(exit_code(act_or_go_alone))

        return run

    return decorate


def _check_text(*values: object) -> None:
    """Refuse text that is not UTF-8, except for names of files: it would not reach the server as it is."""
    for value in values:
        if isinstance(value, tuple):
            _check_text(*value)
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise click.UsageError(f"{value!r} is not UTF-8 text") from None


def _local(error: Exception) -> bool:
    """Whether the error is local, such as an output that cannot be written: a `Transport` gives no error numbers."""
    return isinstance(error, OSError) and error.errno is not None


def _no_cluster(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    return f"the cluster cannot be reached: {str(error) or 'no answer'}"


def exit_code(act: Callable[[], Awaitable[int | None]]) -> int:
    """Run a command; gives its exit code, and prints an error as one line on standard error."""
    try:
        return asyncio.run(_whole(act)) or 0
    except ApiError as error:
        reason = f" ({error.reason})" if error.reason else ""
        say(f"Error from server{reason}: {error.message}")
        return REFUSED
    except click.UsageError as error:
        complain([error.message])
        return MISUSED
    except (ConfigError, UnknownKind, BadName) as error:
        complain([str(error.args[0])])
        return MISUSED
    except Unreadable as error:
        complain([f"an object of the server cannot be read: {error}"])
        return REFUSED
    except Blind as blind:
        complain([str(blind)])
        return REFUSED
    except OSError as error:
        if _local(error):  # most likely the output: `streams.guarded` reports it
            raise
        complain([f"{_no_cluster(error)}; is `subak up` running?"])
        return REFUSED
    except KeyboardInterrupt:
        return 130


async def _whole(act: Callable[[], Awaitable[int | None]]) -> Any:
    return await act()


all_option = click.option("-A", "--all-namespaces", is_flag=True, help="Every namespace.")
