"""What a container gets, as the runtime wants to be told; and whether the runtime is about to do just that.

Three things would undo what we give, and are refused:

    a variable that image and pod have   the runtime replaces the first, and the last counts: it must have our value
    a mount of the pod over one of ours  written differently (`/etc//ld.so.preload`), it is not replaced but comes after
    what another plugin changes          see `difference`
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from subak.dialects import Injection, isolation
from subak.model import mount
from subak.model.reason import Refusal
from subak.node.nri.messages import NO_ADJUSTMENT, Adjustment, Container, DeviceNode, Mount

_PERMISSIONS = 0o777


def adjustment(injection: Injection, container: Container, cdi: tuple[str, ...] = ()) -> Adjustment:
    """What the runtime must change in the container.  Raises Refusal.

    With names of CDI devices the runtime brings the device nodes itself, and NVIDIA's own runtime must not do it too.
    """
    env = injection.variables(container.variables)
    if cdi and len(container.values(isolation.SHOWN)) < 2:
        env |= {isolation.SHOWN: isolation.VOID}
    _check_variables(container, env)
    mounts = tuple(_mount(each) for each in injection.mounts)
    _check_mounts(container, mounts)
    devices = () if cdi else tuple(_node(path) for path in injection.devices)
    return Adjustment(tuple(env.items()), mounts, devices, cdi)


def hidden(container: Container) -> Adjustment:
    """What keeps NVIDIA's runtime from showing cards to a container that has none.  Raises Refusal."""
    shown = container.values(isolation.SHOWN)
    if isolation.HIDDEN.issuperset(shown):
        return NO_ADJUSTMENT
    env = {isolation.SHOWN: shown[-1] if shown[-1] in isolation.HIDDEN else isolation.VOID}
    _check_variables(container, env)
    return Adjustment(env=tuple(env.items()))


def difference(decided: Adjustment, final: Adjustment, cards: Collection[str]) -> str:
    """How what will be done to a container differs from what we decided; empty if it does not.

    Other plugins may add what is theirs, but no variable that shows cards, and none of the device nodes of `cards`.
    """
    values: dict[str, list[str]] = {}
    for name, value in final.env:
        values.setdefault(name.removeprefix("-"), []).append(value)
    for name, value in decided.env:
        if values.get(name) != [value]:
            return f"variable {name} would be {_said(values.get(name))}, not {value!r}"
    if isolation.SHOWN not in dict(decided.env) and not set(values.get(isolation.SHOWN, ())) <= isolation.HIDDEN:
        return f"variable {isolation.SHOWN} would be {_said(values[isolation.SHOWN])}, and the container has no card"
    ours = {_clean(each.destination) for each in decided.mounts}
    there = [each for each in final.mounts if _clean(each.destination.removeprefix("-")) in ours]
    if Counter(there) != Counter(decided.mounts):
        return f"the mounts at {', '.join(sorted(ours))} would not be those that the node gives"
    nodes = [each for each in final.devices if each in decided.devices or each.path.removeprefix("-") in cards]
    if Counter(nodes) != Counter(decided.devices):
        return f"the device nodes would be {_paths(nodes)}, not {_paths(decided.devices)}"
    kinds = {name.partition("=")[0] for name in decided.cdi}
    names = [name for name in final.cdi if name.partition("=")[0] in kinds or name.partition("=")[2] in cards]
    if Counter(names) != Counter(decided.cdi):
        return f"the CDI devices would be {', '.join(names) or 'none'}, not {', '.join(decided.cdi) or 'none'}"
    return ""


def _check_variables(container: Container, env: Mapping[str, str]) -> None:
    """A container has a variable twice that its image and its pod set; then the pod's must be right already."""
    for name, value in env.items():
        values = container.values(name)
        if len(values) > 1 and values[-1] != value:
            message = (
                f"container {container.name} sets {name} to {values[-1]!r} and its image sets it too, so that the node "
                f"cannot make it {value!r}: remove it from the pod"
            )
            raise Refusal(f"env[{name}]", values[-1], message)


def _check_mounts(container: Container, mounts: Sequence[Mount]) -> None:
    ours = {_clean(each.destination): each.destination for each in mounts}
    for each in container.mounts:
        same = ours.get(_clean(each.destination))
        if same is not None and same != each.destination:
            message = f"container {container.name} mounts {each.destination} over {same}, which the node needs"
            raise Refusal("volumeMounts", each.destination, f"{message}: mount it elsewhere")


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _mount(given: mount.Mount) -> Mount:
    access = "ro" if given.read_only else "rw"
    if not given.source:
        size = (f"size={given.size}",) if given.size else ()
        return Mount(given.destination, "tmpfs", "tmpfs", ("nosuid", "nodev", *size))
    return Mount(given.destination, "bind", given.source, ("rbind", "rprivate", "nosuid", "nodev", access))


def _node(path: str) -> DeviceNode:
    """The host's device node, as the container is to have it."""
    try:
        found = os.stat(path)
    except OSError as error:
        message = f"device node {path} of its card cannot be used: {error.strerror}; is the driver loaded?"
        raise Refusal("spec.nodeName", path, message) from None
    if stat.S_ISCHR(found.st_mode):
        type = "c"
    elif stat.S_ISBLK(found.st_mode):
        type = "b"
    else:
        raise Refusal("spec.nodeName", path, f"{path} of its card is no device node; is the driver loaded?")
    device = found.st_rdev
    return DeviceNode(path, type, os.major(device), os.minor(device), found.st_mode & _PERMISSIONS)


def _said(values: Sequence[str] | None) -> str:
    return "unset" if not values else " and ".join(map(repr, values))


def _paths(nodes: Iterable[DeviceNode]) -> str:
    return ", ".join(each.path for each in nodes) or "none"
