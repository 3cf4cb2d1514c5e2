"""CDI, the Container Device Interface: descriptions on the host of what a container needs for a card.

Where a vendor's toolkit has written such a description, and the runtime reads it, the name of a card is enough: the
runtime adds device nodes, libraries and hooks itself.  Only names by UUID are used.  Indices change when a card fails.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from tinykube.yaml import read

DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
SUFFIXES = (".json", ".yaml")
LARGEST = 4 << 20
"""Bytes of a description that are read; more is no description."""

log = logging.getLogger(__name__)

Stamp = tuple[tuple[str, int, int], ...]


class Catalogue:
    """The cards that are described; read again when a file has changed."""

    def __init__(self, directories: Sequence[Path] = DIRECTORIES) -> None:
        self._directories = directories
        self._stamp: Stamp | None = None
        self._names: dict[str, str] = {}

    def names(self, ids: Sequence[str]) -> tuple[str, ...]:
        """The names of these cards; empty unless all of them are described."""
        files = self._files()
        stamp = tuple((str(path), state.st_mtime_ns, state.st_size) for path, state in files)
        if stamp != self._stamp:
            self._names = {id: name for path, _ in files for id, name in _described(path).items()}
            self._stamp = stamp
        wanted = tuple(dict.fromkeys(ids))
        return tuple(self._names[id] for id in wanted) if self._names.keys() >= set(wanted) else ()

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        for folder in self._directories:
            with suppress(OSError):  # a folder that is not there, a file that has just gone
                found += [(path, path.stat()) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
        return found


def _described(path: Path) -> dict[str, str]:
    """The devices of one description by their own names, with the kind before it; later files win, as in runtimes."""
    try:
        with path.open("rb") as file:
            content = read(file.read(LARGEST)).content  # JSON is YAML too
        kind = content["kind"]
        return {str(each["name"]): f"{kind}={each['name']}" for each in content["devices"]}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        log.warning("%s is no CDI description: %s", path, error)
        return {}
