"""A pod's directories on the machine.

    DIRECTORY/pods/UID/volumes/NAME          its volumes
    DIRECTORY/pods/UID/hosts                 /etc/hosts of its containers
    DIRECTORY/pods/UID/messages/NAME.N       the termination message of the N-th attempt of a container
    DIRECTORY/logs/NAMESPACE_NAME_UID/CONTAINER/N.log

The first part is removed when the pod has ended, the logs when the pod is gone from the API server.
"""

from __future__ import annotations

import os
from pathlib import Path

from subak.local.kubelet import logs
from subak.local.kubelet.downward import ADDRESS
from subak.local.kubelet.pod import Container, Metadata, Pod
from subak.local.kubelet.volumes import Volumes
from subak.local.runtime.ownership import give
from subak.model.mount import Mount
from subak.node import trees

LONGEST_MESSAGE = 4096
LONGEST_EXCERPT = 2048
EXCERPT_LINES = 80
HOSTS = "/etc/hosts"


class Sandbox:
    """One pod's directories."""

    __slots__ = ("_root", "logs")

    def __init__(self, directory: Path, metadata: Metadata) -> None:
        self._root = directory / "pods" / metadata.uid
        self.logs = directory / "logs" / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"

    @property
    def volumes(self) -> Volumes:
        """The pod's volumes."""
        return Volumes(self._root / "volumes")

    def make(self, pod: Pod) -> None:
        """Create what all containers share; other users of the machine cannot read it."""
        (self._root / "messages").mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)
        (self._root / "hosts").write_text(hosts(pod))
        give(self._root / "hosts", 0o644)

    def log(self, container: str, attempt: int) -> Path:
        """The log file of an attempt; removes those before the previous one."""
        directory = self.logs / container
        directory.mkdir(parents=True, exist_ok=True)
        for old in (f"{attempt - 2}.log", f"{attempt - 2}.log.1"):
            (directory / old).unlink(missing_ok=True)
        return directory / f"{attempt}.log"

    def own_mounts(self, container: Container, attempt: int) -> list[Mount]:
        """The mounts of every container: /etc/hosts, and the file for its termination message."""
        taken = {os.path.normpath(each.mount_path) for each in container.volume_mounts}
        mounts = [] if HOSTS in taken else [Mount(HOSTS, str(self._root / "hosts"))]
        if container.termination_message_path:
            path = self._message(container.name, attempt)
            path.write_bytes(b"")
            give(path, 0o666)
            mounts.append(Mount(container.termination_message_path, str(path)))
        return mounts

    def last_words(self, container: Container, attempt: int, exit_code: int) -> str:
        """The attempt's termination message; if it wrote none and failed, perhaps the end of its log."""
        try:
            with logs.opened(self._message(container.name, attempt)) as file:
                words = file.read(LONGEST_MESSAGE)
        except OSError:
            words = b""
        if not words and exit_code and container.termination_message_policy == "FallbackToLogsOnError":
            words = logs.excerpt(self.logs / container.name / f"{attempt}.log", EXCERPT_LINES)[-LONGEST_EXCERPT:]
        return words.decode(errors="replace")

    def remove(self) -> None:
        """Remove all but the logs."""
        trees.remove(self._root)

    def remove_logs(self) -> None:
        """Remove the logs."""
        trees.remove(self.logs)

    def _message(self, container: str, attempt: int) -> Path:
        return self._root / "messages" / f"{container}.{attempt}"


def hosts(pod: Pod) -> str:
    """The content of /etc/hosts."""
    lines = [
        "# Made for this pod.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        f"{ADDRESS}\t{pod.host_name}",
        *(f"{alias.ip}\t{' '.join(alias.hostnames)}" for alias in pod.spec.host_aliases),
    ]
    return "\n".join(lines) + "\n"


def strangers(directory: Path, uids: set[str]) -> list[Path]:
    """Directories of pods that no longer exist.  A link in the place of all of them is not followed."""
    found = []
    for kind in ("pods", "logs"):
        if (directory / kind).is_dir() and not (directory / kind).is_symlink():
            found += [each for each in (directory / kind).iterdir() if each.name.rpartition("_")[2] not in uids]
    return found
