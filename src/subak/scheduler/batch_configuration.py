"""Which scheduler configuration is in force: that of a ConfigMap, or of a file, as it is now.

    valid                    it is in force at once, without a restart
    invalid, at the start    Volcano's default is
    invalid, later           the one before stays
    none                     Volcano's default is; a file that is gone counts as invalid

What is in force is logged whenever that changes, and what is wrong with a text once for each text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from subak.batch.configuration import DEFAULT, Configuration
from subak.batch.parser import parse
from subak.scheduler.configuration import ConfigMap
from subak.scheduler.messages import Configured
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import CONFIG_MAPS

NAMESPACE = "volcano-system"
NAME = "volcano-scheduler-configmap"
KEY = "volcano-scheduler.conf"
"""Where Volcano's users write it."""

GROUP_TIMEOUT = 300.0
PAUSE = 1.0
"""Seconds after which a file is read again.  Its text is compared: a mounted ConfigMap changes by a swap of links."""
MOST_BYTES = 1 << 20
"""As much as a ConfigMap may have."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration is written; a file, if there is one, counts instead of the ConfigMap.

    `group_timeout` are the seconds for which a part of a group may run alone, for groups that do not say.
    """

    namespace: str = NAMESPACE
    name: str = NAME
    file: Path | None = None
    group_timeout: float = GROUP_TIMEOUT

    def __str__(self) -> str:
        return f"configmap {self.namespace}/{self.name}" if self.file is None else f"file {self.file}"


USUAL = Source()


class BatchConfiguration:
    """Keeps to a source, and tells what is in force; `trouble` says why it is not what is written there."""

    def __init__(self, client: Client, source: Source, tell: Callable[[Configured], None]) -> None:
        self.known = asyncio.Event()
        self.trouble = ""
        self.reflectors: tuple[Reflector[ConfigMap], ...] = ()
        self._source = source
        self._tell = tell
        self._seen: str | None = None
        if source.file is None:
            watched = Reflector(
                client,
                CONFIG_MAPS,
                ConfigMap,
                self._see,
                self._listed,
                namespace=source.namespace,
                fields=f"metadata.name={source.name}",
            )
            self.reflectors = (watched,)

    async def run(self) -> None:
        """Keep up until cancelled.  `known` is set as soon as it is told for the first time."""
        for watched in self.reflectors:
            await watched.run()
        while self._source.file is not None:
            try:
                text = await asyncio.to_thread(_read, self._source.file)
            except (OSError, ValueError) as error:
                self._seen = None
                why = error.strerror if isinstance(error, OSError) else error
                self._refuse(f"{self._source}: it cannot be read: {why}")
            else:
                self._take(text, str(self._source))
            await asyncio.sleep(PAUSE)

    def _see(self, change: str, found: ConfigMap) -> None:
        text = None if change == DELETED else (found.data or {}).get(KEY)
        if text is not None:
            self._take(text, f"{self._source}: {KEY}")
        else:
            self._seen = None
            self._use_default(f"{self._source} {'is removed' if change == DELETED else f'has no key {KEY}'}")

    def _listed(self) -> None:
        if not self.known.is_set():
            self._put(DEFAULT, f"the default, since there is no {self._source}")

    def _take(self, text: str, place: str) -> None:
        """What is written now; a text that was seen already is no news."""
        if text == self._seen:
            return
        self._seen = text
        try:
            configuration = parse(text, place)
        except ValueError as error:
            self._refuse(str(error))
            return
        for warning in configuration.warnings:
            log.warning("%s: %s", place, warning)
        self._put(configuration, f"that of {place}")

    def _refuse(self, problem: str) -> None:
        """What is written does not count."""
        if self.trouble.startswith(problem):
            return
        if self.known.is_set():
            self.trouble = f"{problem}; the scheduler configuration before stays in force"
            log.warning("%s", self.trouble)
        else:
            self._use_default(problem)
            self.trouble = f"{problem}; the default scheduler configuration is in force"

    def _use_default(self, why: str) -> None:
        log.warning("%s; the default scheduler configuration is in force", why)
        self._put(DEFAULT, "the default")

    def _put(self, configuration: Configuration, which: str) -> None:
        self.trouble = ""
        self._tell(Configured(configuration, self._source.group_timeout))
        self.known.set()
        log.info("the scheduler configuration in force is %s: %s", which, configuration)


def _read(path: Path) -> str:
    """The text of a file.  Raises OSError, and ValueError if it is none."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    return data.decode()
