"""The options of a command that runs admission (`subak controller`), and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import click

from subak.admission.records import Writers
from subak.admission.service import WRITERS, Options
from subak.dialects.loopholes import LOOPHOLES

AUTO, ALWAYS, NEVER = "auto", "always", "never"

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--webhook/--no-webhook",
        default=None,
        help="Review new pods, and guard records; default: in a pod, and with --webhook-url.",
    ),
    click.option(
        "--webhook-port", type=click.IntRange(1, 65535), default=9443, show_default=True, help="Where to serve it."
    ),
    click.option(
        "--webhook-url", default="", metavar="URL", help="Where the API server finds it; default: the Service."
    ),
    click.option(
        "--send-to",
        default="subak",
        show_default=True,
        metavar="NAME",
        help="The scheduler for pods that ask for cards and name none; empty: leave them to the default one.",
    ),
    click.option(
        "--allow",
        "allowed",
        multiple=True,
        type=click.Choice(LOOPHOLES),
        help="Let pods with a slice be privileged, or set CUDA_DISABLE_CONTROL; no limit holds for them.",
    ),
    click.option(
        "--slots",
        type=click.Choice([AUTO, ALWAYS, NEVER]),
        default=AUTO,
        show_default=True,
        help="Prepare pods for nodes without NRI (a subak.io/slot, and variables); auto: if there is such a node.",
    ),
    click.option(
        "--writer", "writers", multiple=True, metavar="NAME", help="A user or group that also writes records of pods."
    ),
    click.option(
        "--node-writer",
        "node_writers",
        multiple=True,
        metavar="NAME",
        help="The same, but only for pods on the node where the user's own pod runs.",
    ),
)


def admission_options(command: F) -> F:
    """Give a command the options; it gets one argument for each of the fields of `Given`."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says."""

    webhook: bool | None
    webhook_port: int
    webhook_url: str
    send_to: str
    allowed: tuple[str, ...]
    slots: str
    writers: tuple[str, ...]
    node_writers: tuple[str, ...]

    def prepares(self, needed: Callable[[], bool]) -> Callable[[], bool]:
        """Whether pods are prepared for nodes without NRI; `needed` says whether there is such a node."""
        return needed if self.slots == AUTO else lambda: self.slots == ALWAYS

    def options(self, schedulers: Collection[str], in_a_pod: bool) -> Options | None:
        """What admission is to do for pods of these schedulers; None if nothing.  Raises click.UsageError.

        The API server finds a webhook in a pod, or by a URL.  It must not be told of one that it cannot find: nobody
        could create pods with cards then.
        """
        if not (bool(self.webhook_url) or in_a_pod if self.webhook is None else self.webhook):
            return None
        if self.webhook_url and not self.webhook_url.startswith("https://"):
            raise click.UsageError(f"--webhook-url {self.webhook_url!r}: an API server calls https:// only")
        if self.send_to and self.send_to not in schedulers:
            raise click.UsageError(f"--send-to {self.send_to!r}: it is none of the names that are served")
        return Options(
            schedulers,
            send_to=self.send_to,
            writers=Writers(WRITERS.everywhere | {*self.writers}, WRITERS.on_own_node | {*self.node_writers}),
            allowed=frozenset(self.allowed),
            url=self.webhook_url,
            port=self.webhook_port,
        )
