"""The custom kinds of a cluster on one machine: Koordinator's Device, Volcano's Queue, and three kinds of PodGroup."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tinykube.server import crds
from tinykube.server.kinds import Kind
from tinykube.yaml import read

CRDS = Path(__file__).with_name("crds")


@cache
def kinds() -> tuple[Kind, ...]:
    """The kinds that the definitions in `crds/` define."""
    return tuple(crds.kind(dict(read(path.read_text()).content)) for path in sorted(CRDS.glob("*.yaml")))
