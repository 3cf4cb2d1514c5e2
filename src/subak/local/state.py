"""What `subak up` keeps in a state directory beside the database, and what it says of objects that it cannot serve."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from tinykube.server.kinds import POD
from tinykube.server.sqlite import Aside

IDENTITY, MACHINE = "identity", "machine"
BESIDE = (IDENTITY, MACHINE)
"""Certificates with the token; files of pods and agents."""

SHOWN = 5


def set_aside(database: Path, aside: Sequence[Aside]) -> list[str]:
    """Which objects could not be read, what that means, and how to look at them."""
    if not aside:
        return []
    named = [f"{each.resource} {each.key} ({each.reason})" for each in aside[:SHOWN]]
    if len(aside) > SHOWN:
        named.append(f"{len(aside) - SHOWN:,} more")
    objects, look = ("an object", "it") if len(aside) == 1 else (f"{len(aside):,} objects", "them")
    has_pods = any(each.resource == POD.resource for each in aside)
    pods = ": what a pod ran has ended, and what it held is free" if has_pods else ""
    return [
        f"{objects} of {database} cannot be read: {', '.join(named)}; set aside, and not part of the cluster{pods}. "
        f"To look at {look}: sqlite3 {shlex.quote(str(database))} 'SELECT * FROM aside'; "
        f"to forget {look}: 'DELETE FROM aside'"
    ]


def not_served(database: Path, resources: Counter[str], served: Collection[str]) -> list[str]:
    """Which objects stay as they are, since this program does not know their kind."""
    unknown = [f"{count:,} {resource}" for resource, count in sorted(resources.items()) if resource not in served]
    if not unknown:
        return []
    return [f"{database} also keeps objects of kinds that this program does not serve: {', '.join(unknown)}"]
