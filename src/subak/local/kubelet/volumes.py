"""The volumes of one pod, as directories below the pod's own.

`set_up` creates or refreshes them; `mounts` gives what a container sees of them.  Kinds that this kubelet cannot serve
(persistent claims, network file systems, ...) are refused with a message that says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from subak.local.kubelet import snapshots
from subak.local.kubelet.content import Contents, Reference
from subak.local.kubelet.expansion import MissingValues, TooLong, expand_path
from subak.local.kubelet.payload import BadVolume, Payload, payload, references, sources
from subak.local.kubelet.pod import Container, EmptyDir, HostPath, Pod, Volume, VolumeMount
from subak.local.runtime.ownership import ROOT, Owner, give, hand_over, inherited
from subak.model.manifest import Amount
from subak.model.mount import Mount
from tinykube.quantity import Quantity

SERVED = "emptyDir, configMap, secret, downwardAPI, projected and hostPath"

_CHECKS = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def wanted(pod: Pod) -> set[Reference]:
    """The ConfigMaps and Secrets that the pod's volumes show."""
    return {reference for volume in pod.spec.volumes for reference in references(volume)}


def plan(volume: Volume, pod: Pod, contents: Contents, allocatable: Mapping[str, Amount]) -> Payload:
    """The files that a volume shows from the start.  Raises BadVolume, also for a kind that is not served here."""
    if not sources(volume) and not (volume.host_path or volume.empty_dir or volume.projected):
        raise BadVolume(f"volume {volume.name}: this kind of volume is not served here, only {SERVED} are")
    return payload(volume, pod, contents, allocatable)


class Volumes:
    """The volumes of one pod in `directory`."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def inherited(self, volume: Volume) -> bool:
        """Whether an earlier version has made it, so that it takes long to set it up."""
        path = self._directory / volume.name
        return path.exists() and inherited(path)

    def set_up(self, volume: Volume, planned: Payload, owner: Owner = ROOT) -> list[str]:
        """Create or refresh one volume; gives remarks for the pod's user.  Raises BadVolume.

        What an earlier version left in it is given to `owner`.
        """
        path = self._directory / volume.name
        try:
            if sources(volume):
                snapshots.write(path, planned)
            elif volume.host_path:
                _check(volume.host_path)
                if not Path(volume.host_path.path).exists():
                    _make(path, 0o755, owner)
                    return [
                        f"{volume.host_path.path} is not on this machine: volume {volume.name} is an empty directory"
                    ]
            else:
                _make(path, 0o777, owner)
        except OSError as error:
            raise BadVolume(f"volume {volume.name}: {error}") from None
        return []

    def mounts(self, pod: Pod, container: Container, variables: Mapping[str, str]) -> list[Mount]:
        """What a container sees of the volumes.  Raises BadVolume."""
        volumes = {each.name: each for each in pod.spec.volumes}
        made = []
        for mount in container.volume_mounts:
            volume = volumes.get(mount.name)
            if volume is None:
                raise BadVolume(f'cannot find volume "{mount.name}" to mount into container "{container.name}"')
            destination = os.path.normpath(os.path.join("/", mount.mount_path))
            if destination.strip("/") == "":
                raise BadVolume(
                    f'volume "{mount.name}" cannot be mounted over the root of container "{container.name}"'
                )
            if _private_memory(pod, volume) and not (mount.sub_path or mount.sub_path_expr):
                assert volume.empty_dir is not None
                made.append(Mount(destination, read_only=mount.read_only, size=_size(volume.empty_dir)))
                continue
            host = Path(volume.host_path.path) if volume.host_path else None
            known = host is not None and host.exists()
            made.append(
                Mount(
                    destination,
                    str(host if known else self._directory / volume.name),
                    mount.read_only or bool(sources(volume)),
                    beneath=_part(mount, variables),
                    refusal=f'failed to prepare subPath for volumeMount "{mount.name}" of container "{container.name}"',
                    true_ids=known,
                )
            )
        if container.volume_devices:
            raise BadVolume(f'container "{container.name}": volumeDevices are not served here')
        return made


def owner(pod: Pod, volume: Volume) -> Owner:
    """Who has a volume: its only user in the pod, or root."""
    users = {pod.user(each) for each in pod.spec.all for mount in each.volume_mounts if mount.name == volume.name}
    return users.pop() if len(users) == 1 else ROOT


def _make(directory: Path, mode: int, owner: Owner) -> None:
    """Make a volume, unless it is there; then its mode and owner are as containers have left them."""
    if directory.exists():
        if inherited(directory):
            hand_over(directory, owner)
    else:
        begun = directory.with_name(f".{directory.name}")  # if we are killed now, it is made again
        begun.mkdir(parents=True, exist_ok=True)
        give(begun, mode)
        begun.rename(directory)


def _part(mount: VolumeMount, variables: Mapping[str, str]) -> str:
    """The part of a volume that is mounted; empty for all of it."""
    part = mount.sub_path
    if mount.sub_path_expr:
        try:
            part = expand_path(mount.sub_path_expr, variables)
        except (MissingValues, TooLong) as error:
            raise BadVolume(str(error)) from None
    if part.startswith("/") or ".." in part.split("/") or "\0" in part:
        raise BadVolume(f"unable to provision SubPath `{part}`: it must be a path inside the volume")
    return "" if os.path.normpath(part) == "." else os.path.normpath(part)


def _private_memory(pod: Pod, volume: Volume) -> bool:
    """Whether a memory volume can be a tmpfs of its container: not if several containers share it."""
    if not volume.empty_dir or volume.empty_dir.medium != "Memory":
        return False
    users = [each for each in pod.spec.all for mount in each.volume_mounts if mount.name == volume.name]
    return len(users) == 1


def _size(directory: EmptyDir) -> int:
    return Quantity.parse(directory.size_limit).ceil() if directory.size_limit else 0


def _check(host: HostPath) -> None:
    """Check that the machine's path is of the given type, and create it where the type asks for that."""
    if not host.type:
        return
    if host.type not in _CHECKS:
        raise BadVolume(f"{host.type} is an invalid volume type")
    path = Path(host.path)
    if host.type == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif host.type == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    fits, what = _CHECKS[host.type]
    if not path.exists() or not fits(path.stat().st_mode):
        raise BadVolume(f"hostPath type check failed: {host.path} is not {what}")
