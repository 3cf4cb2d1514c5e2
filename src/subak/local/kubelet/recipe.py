"""From a container in a pod's spec to a container that a runtime can start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from subak.dialects import Injection
from subak.local.kubelet import environment
from subak.local.kubelet.expansion import Room, expand
from subak.local.kubelet.pod import Capabilities, Container, Pod
from subak.local.kubelet.sandbox import Sandbox
from subak.local.runtime.launcher.kernel import CAPABILITIES
from subak.local.runtime.spec import File, Spec
from subak.model.mount import Mount, Purpose
from tinykube.quantity import Quantity

CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"
NO_COMMAND = "ErrImageNeverPull"


class Unstartable(Exception):
    """A container that cannot be started; `final` if nothing but another pod would help."""

    def __init__(self, reason: str, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message.encode(errors="replace").decode()  # a variable in it may hold bytes that are no text
        self.final = final


def command(container: Container, variables: Mapping[str, str]) -> list[str]:
    """The program and its arguments; empty if only the image defines them.  Raises TooLong."""
    if not container.command:
        return []
    room = Room()
    return [room.take(expand(part, variables)) for part in (*container.command, *container.args)]


def no_command(container: Container, field: str) -> Unstartable:
    """Why a container without a command is not started."""
    return Unstartable(
        NO_COMMAND,
        f'image "{container.image}" is not pulled here, so its own command is not known: '
        f"give {field}.command, or start the cluster with --stand-in",
        final=True,
    )


def recipe(
    pod: Pod,
    container: Container,
    said: Mapping[str, str],
    injection: Injection,
    files: Sequence[File],
    simulated: bool,
    sandbox: Sandbox | None,
    attempt: int,
) -> Spec:
    """What to start.  Without a sandbox, nothing is written to disk.  Raises Unstartable and BadVolume."""
    user, group = _user(pod, container)
    mounts: list[Mount] = []
    log = None
    if sandbox is not None:
        log = sandbox.log(container.name, attempt)
        mounts = [
            *sandbox.own_mounts(container, attempt),
            *sandbox.volumes.mounts(pod, container, said),
            *_injected(injection, simulated),
        ]
    return Spec(
        name=f"{pod.namespace}/{pod.name}/{container.name}",
        argv=command(container, said),
        env=environment.complete(pod, user, said, injection.variables(said)),
        working_directory=container.working_dir or "/",
        mounts=mounts,
        files=files,
        devices=tuple(injection.devices),
        host_name=pod.host_name,
        uid=user,
        gid=group,
        groups=_groups(pod),
        capabilities=_capabilities(container),
        read_only=bool(container.security_context and container.security_context.read_only_root_filesystem),
        memory=_memory(container),
        log=log,
        stdin=container.stdin,
    )


def _injected(injection: Injection, simulated: bool) -> list[Mount]:
    """What comes with the cards.  Of simulated ones a vendor's own files may be missing, but not what holds a limit."""
    made = []
    for mount in injection.mounts:
        if Path(mount.source).exists():
            made.append(replace(mount, destination=os.path.normpath(mount.destination)))
        elif not simulated or mount.purpose is not Purpose.NONE:
            raise Unstartable(
                CREATE_ERROR,
                f"{mount.source}, which holds the container to its share of the cards, is not on this machine",
            )
    return made


def _user(pod: Pod, container: Container) -> tuple[int, int]:
    """User and group of a container.  Raises Unstartable if it must not be root, and is."""
    contexts = [each for each in (container.security_context, pod.spec.security_context) if each]
    user, group = pod.user(container)
    cautious = next((each.run_as_non_root for each in contexts if each.run_as_non_root is not None), False)
    if cautious and user == 0:
        raise Unstartable(
            CONFIG_ERROR,
            f'container has runAsNonRoot and would run as root (pod: "{pod.title}", container: {container.name}): '
            "set securityContext.runAsUser",
        )
    return user, group


def _capabilities(container: Container) -> tuple[str, ...]:
    """Of the capabilities that a container may have, those that it does not give up."""
    said = (container.security_context and container.security_context.capabilities) or Capabilities()
    added, dropped = ({name.upper().removeprefix("CAP_") for name in names} for names in (said.add, said.drop))
    usual = added if "ALL" in dropped else CAPABILITIES
    return tuple(name for name in CAPABILITIES if name in usual and name not in dropped)


def _memory(container: Container) -> int:
    """Its limit of memory in bytes, 0 if it has none."""
    limits = (container.resources and container.resources.limits) or {}
    return Quantity.parse(limits.get("memory", 0)).ceil()


def _groups(pod: Pod) -> tuple[int, ...]:
    """The further groups of the pod's programs."""
    context = pod.spec.security_context
    if context is None:
        return ()
    return (*context.supplemental_groups, *(() if context.fs_group is None else (context.fs_group,)))
