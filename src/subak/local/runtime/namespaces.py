"""Containers as confined processes: each has its own user, mount, pid, uts and ipc namespaces.

Works as root and as an ordinary user (where the kernel allows it, see `capability`).  Under root, the users inside have
ids that nobody on the machine has (`launcher.ids`): they may do there what every stranger may.  Under an ordinary user,
root inside is that user.  Limits:

- containers use the machine's network, and even root inside cannot listen on ports below 1024;
- under an ordinary user, a container has only the one user that it asks for, and `chown` to another fails;
- files that a container writes are kept in memory (at most half of it); volumes are for large ones;
- memory and the number of processes are limited where cgroups can be had (see `cgroups`), elsewhere only the number of
  processes; cpu is not limited.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from subak.local.runtime import filter
from subak.local.runtime.cgroups import PROCESSES, Cgroups
from subak.local.runtime.container import Confined, program_of
from subak.local.runtime.launcher.kernel import CAPABILITIES
from subak.local.runtime.machine import look
from subak.local.runtime.spec import LOG_LIMIT, File, Spec, StartError
from subak.model.mount import Purpose

if TYPE_CHECKING:
    from subak.local.runtime.launcher.order import Order


class Namespaces:
    """The `Runtime` that runs commands.

    `hide` are directories and files that containers must not see, besides those that `machine` names: for example the
    data of the API server.
    """

    def __init__(self, hide: Iterable[str | Path] = ()) -> None:
        self._marks = look(hide)
        self._cgroups = Cgroups()
        self._containers: set[Confined] = set()
        self._closed = False

    async def start(self, spec: Spec) -> Confined:
        if self._closed:
            raise StartError(f"{spec.name}: containers are no longer started, Subak is about to end")
        try:
            order = _order(spec, self._marks, PROCESSES if self._cgroups.obstacle else 0)
            container = Confined(order, self._cgroups.make(spec.memory))
        except (OSError, ValueError) as error:  # no more processes or descriptors, text that cannot be encoded
            number = getattr(error, "errno", None) or 0
            raise StartError(f"{spec.name} cannot be launched: {error}", number=number) from error
        self._containers.add(container)
        try:
            await container.begin()
        except BaseException:
            self._containers.discard(container)
            raise
        container.when_gone(self._containers.discard)
        return container

    def notes(self) -> list[str]:
        """What containers lack here, for the user who starts them."""
        found = []
        if self._cgroups.obstacle:
            found.append(
                f"memory limits of containers are not enforced, since no cgroups can be made ({self._cgroups.obstacle})"
            )
        if not filter.program():
            found.append(f"system calls of containers are not filtered: those of {os.uname().machine} are not known")
        return found

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(container.stop(0) for container in list(self._containers)))
        self._cgroups.close()


def _order(spec: Spec, marks: Mapping[str, str], processes: int) -> Order:
    program = program_of(spec.argv, spec.env)
    named = [File("/etc/hostname", os.fsencode(spec.host_name) + b"\n")] if spec.host_name else []
    return {
        "program": {
            "argv": program["argv"],
            "env": program["env"],
            "path": program["path"],
            "working_directory": spec.working_directory or "/",
            "uid": spec.uid,
            "gid": spec.gid,
            "groups": list(spec.groups),
            "capabilities": [CAPABILITIES[name] for name in spec.capabilities],
            "filter": filter.program(),
            "cgroups": [],
            "processes": processes,
            "tty": False,
        },
        "marks": dict(marks),
        "mounts": [
            {
                "destination": each.destination,
                "source": each.source,
                "read_only": each.read_only,
                "size": each.size,
                "beneath": each.beneath,
                "refusal": each.refusal,
                "true_ids": each.true_ids,
                "no_link": each.purpose is not Purpose.NONE,
            }
            for each in spec.mounts
        ],
        "files": [
            {"path": each.path, "content": each.content, "directory": each.directory, "mode": each.mode}
            for each in (*named, *spec.files)
        ],
        "devices": list(spec.devices),
        "host_name": spec.host_name,
        "read_only": spec.read_only,
        "log": str(spec.log or ""),
        "log_limit": LOG_LIMIT,
        "stdin": spec.stdin,
    }
