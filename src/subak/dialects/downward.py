"""A container's variables by way of its pod's annotations, where the container runtime does not ask our agent.

    admission   `added`: what a new container refers to, by its number in the pod (`model.variables`)
    Binding     `values`: the annotations, of the same injections that an agent makes
    agent       `mismatch`: what kubelet will give the container, compared with what it should get

Kubelet gives a container the variables of device plugins first and its own after them, so these win over what any
plugin says.  What NRI sets comes last, but NRI cannot change a variable that the image has too, as NVIDIA's images have
theirs: there the pod's value stays.  So the Binding says the same to every node, and all ways agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from subak.dialects import Injection, isolation
from subak.model import manifest, variables
from subak.model.device import MIB, Device
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.request import Claim

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
"""No card, in the words of NVIDIA's container runtime; an empty value means the same."""

NVIDIA = "nvidia"

_IMAGINED = "imagined"


def imagined(claims: Sequence[Claim]) -> tuple[Placement, Node]:
    """Cards as the claims ask for, and a node that has them: more memory than anybody takes, so that limits matter."""
    grants: list[Grant] = []
    devices: list[Device] = []
    for claim in claims:
        shares = []
        for _ in range(claim.count):
            index, memory = len(devices), claim.memory_bytes or MIB
            id = f"GPU-{index:08d}-0000-0000-0000-000000000000"
            family = NVIDIA if NVIDIA in claim.families else min(claim.families)
            devices.append(Device(id, index, family, memory_bytes=2 * memory))
            shares.append(Share(id, index, memory, claim.cores, claim.extras))
        if shares:
            grants.append(Grant(claim.dialect, claim.containers, claim.role, tuple(shares), slotted=claim.slotted))
    return Placement(_IMAGINED, tuple(grants)), Node(_IMAGINED, tuple(devices))


def refers(pod: manifest.Pod) -> bool:
    """Whether any container of the pod refers to annotations of ours."""
    return any(each.env and variables.referred(each) for each in pod.containers)


def added(container: manifest.Container, number: int, env: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to a container that would get these: their names, and the annotations behind them.

    Not those that it refers to already, nor those that its user has set to the very value.
    """
    known = variables.referred(container)
    own = {each.name: each.value for each in variables.effective(container.env or ())}
    names = [*env, *([isolation.CARDS] if VISIBLE in env else [])]
    return {
        name: variables.key(number, name)
        for name in names
        if name not in known and variables.fits(number, name) and (name not in env or own.get(name) != env[name])
    }


def values(pod: manifest.Pod, injections: Sequence[Injection]) -> dict[str, str]:
    """The annotations to which the pod's variables refer."""
    found: dict[str, str] = {}
    for container, injection in zip(pod.containers, injections, strict=True):
        keys = variables.referred(container)
        env = isolation.listed(injection.held) | injection.env
        found |= {keys[name]: value for name, value in env.items() if name in keys}
    return found


def mismatch(pod: manifest.Pod, position: int, env: Mapping[str, str]) -> str:
    """What kubelet will not give the container at this position as it should be; empty if all is well."""
    container = pod.containers[position]
    keys = variables.referred(container)
    own = {each.name: each.value for each in variables.effective(container.env or ())}
    for name, value in env.items():
        source = f"annotation {keys[name]}" if name in keys else "its own environment"
        given = pod.annotations.get(keys[name]) if name in keys else own.get(name)
        if given != value:
            return f"{name} must be {value!r}, but {source} says {'nothing' if given is None else repr(given)}"
    return ""
