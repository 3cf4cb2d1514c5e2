"""How a container is held to its share: libsubak and the variables it reads, the same for all NVIDIA dialects.

The variables are HAMi-core's, so that programs and monitors that know them keep working.  libsubak lies under a
versioned path on the host; in the container it appears where users of HAMi and Koordinator expect the library.

A program can lose or change its environment.  So the agent also writes the limits to a file that a container cannot
change: of the two the smaller limit holds (`native/src/config.c`).  Beside it lies the container's state, where the
agent's monitor says what holds at the moment (`subak.node.monitor`).

Containers that one grant serves share what was granted, so they count what they use in one region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from subak import __version__
from subak.dialects import Injection
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB
from subak.model.mount import Mount, Purpose
from subak.model.node import Node
from subak.model.placement import Share

HOST_DIRECTORY = f"/usr/local/subak/{__version__}"
HOOK = "/usr/local/vgpu"
LIBRARY = f"{HOOK}/libvgpu.so"
PRELOAD = "/etc/ld.so.preload"
LOCKS = "/tmp/vgpulock"
"""Where all programs on a host's cards take turns."""
LIMITS = "/etc/subak/limits"
HOST_LIMITS = "/run/subak/limits"
STATE = "/etc/subak/state"
HOST_STATE = "/run/subak/state"
PRELOADING = Mount(PRELOAD, f"{HOST_DIRECTORY}/ld.so.preload", read_only=True, purpose=Purpose.PRELOAD)

SHOWN, VOID = "NVIDIA_VISIBLE_DEVICES", "void"
"""The variable by which NVIDIA's container runtime shows cards, and its word for none.  Many images say `all`."""
HIDDEN = frozenset({"", VOID, "none"})
CUDA_CARDS = "CUDA_VISIBLE_DEVICES"
SWITCH, REGION, POLICY, PRIORITY, TURNS, CARDS, LIMITS_BY_NAME, STATE_BY_NAME, CONTAINER, SLICE = (
    "CUDA_DISABLE_CONTROL",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "GPU_CORE_UTILIZATION_POLICY",
    "CUDA_TASK_PRIORITY",
    "SUBAK_TURNS",
    "SUBAK_CARDS",
    "SUBAK_LIMITS",
    "SUBAK_STATE",
    "SUBAK_CONTAINER",
    "SUBAK_SLICE",
)

DEFAULT, FORCE, DISABLE = "default", "force", "disable"
"""Policies for shares of time: lifted while nobody else works on the card, always enforced, never enforced."""
HIGH, USUAL = 0, 1
"""Priorities: whoever has a lower number goes first."""


def visible(shares: Sequence[Share], node: Node) -> str:
    """The cards by UUID; by index if no source gives the UUID (then the id is one of ours)."""
    named = [share.id for share in shares if share.id != f"{node.name}-nvidia-{share.index}"]
    return ",".join(named if len(named) == len(shares) else [str(share.index) for share in shares])


def owner(pod: manifest.Pod, container: manifest.Container) -> str:
    """The name under which a container's files are kept on the host."""
    return f"{pod.metadata.uid or pod.key.replace('/', '_')}_{container.name}"


def limits(pod: manifest.Pod, position: int, shares: Sequence[Share], together: Sequence[int] = ()) -> Injection:
    """Memory and core limits for each visible card, the shared accounting file and the library itself.

    `together` are the positions of all containers that the shares are for; the region has the name of the first.
    """
    container = pod.containers[position]
    name = owner(pod, pod.containers[min(together, default=position)])
    env = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{share.memory_bytes // MIB}m" for i, share in enumerate(shares)}
    env["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].cores)
    env[REGION] = f"{HOOK}/{name}.cache"
    mounts = [
        Mount(HOOK, f"{HOOK}/containers/{name}", purpose=Purpose.ACCOUNT),
        # Inside the directory above, so it comes after it.
        Mount(LIBRARY, f"{HOST_DIRECTORY}/libsubak.so", read_only=True, purpose=Purpose.LIBRARY),
        Mount(LOCKS, LOCKS, purpose=Purpose.TURNS),
    ]
    if not switched_off(container):
        mounts.append(PRELOADING)
    return Injection(env, mounts, held=tuple(shares))


def guard(pod: manifest.Pod, position: int, injection: Injection) -> list[Mount]:
    """What a container that a dialect holds to its shares needs, so that they hold without its environment too.

    That is the agent's file and its state, and the library in every program, where a dialect has it in a variable only.
    """
    if not injection.held:
        return []
    container, name = pod.containers[position], owner(pod, pod.containers[position])
    off = switched_off(container)
    env = injection.env | {POLICY: policy(container, injection.env), PRIORITY: str(priority(container, injection.env))}
    content = limits_file(injection.held, env) + f"{STATE_BY_NAME}={STATE}\n{CONTAINER}={position}\n"
    content += f"{SWITCH}=true\n" if off else ""
    mounts = [
        Mount(LIMITS, f"{HOST_LIMITS}/{name}", read_only=True, purpose=Purpose.LIMITS, content=content),
        Mount(STATE, f"{HOST_STATE}/{name}", read_only=True, purpose=Purpose.STATE),
    ]
    if not off and all(each.purpose is not Purpose.PRELOAD for each in injection.mounts):
        mounts.append(PRELOADING)
    return mounts


def shown(cards: Iterable[str]) -> dict[str, str]:
    """The variables by which programs see these cards of the machine, by UUID.

    libsubak learns them as well: the limits are numbered in the order in which cards were given, NVML lists them in
    another.
    """
    return dict.fromkeys((CUDA_CARDS, CARDS), ",".join(cards))


def switched_off(container: manifest.Container) -> bool:
    """Whether the container wants no limits, as HAMi lets it choose."""
    return _own(container, SWITCH) == "true"


def policy(container: manifest.Container, env: Mapping[str, str]) -> str:
    """When a container's shares of time are enforced: the dialect says so, else it may itself ask to be held always.

    Only the administrator can disable them.
    """
    given = env.get(POLICY, "").lower()
    if given in (FORCE, DISABLE):
        return given
    return FORCE if _own(container, POLICY).lower() == FORCE else DEFAULT


def priority(container: manifest.Container, env: Mapping[str, str]) -> int:
    """A container's priority, from its dialect or from its own variable as the pod has it."""
    text = env.get(PRIORITY) or _own(container, PRIORITY)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else USUAL


def _own(container: manifest.Container, name: str) -> str:
    """The value of a variable that the pod itself gives the container; empty if it has none."""
    return container.variables.get(name, "")


def listed(shares: Sequence[Share]) -> dict[str, str]:
    """The list by which libsubak numbers the limits of these shares; none where not all cards have a UUID."""
    if not shares or not all(share.id.startswith(("GPU-", "MIG-")) for share in shares):
        return {}
    return {CARDS: ",".join(share.id for share in shares)}


def limits_file(shares: Sequence[Share], env: Mapping[str, str]) -> str:
    """The content of the agent's file: the share of each card, and all else that a program must not choose itself.

    Cards are listed by UUID where it is known: the library would else take the numbers for NVML's.
    """
    lines = listed(shares)
    for i, share in enumerate(shares):
        if share.memory_bytes:
            lines[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"] = str(share.memory_bytes)
        if 0 < share.cores < FULL_CORES:
            lines[f"CUDA_DEVICE_SM_LIMIT_{i}"] = str(share.cores)
    lines |= {REGION: env[REGION], TURNS: env.get(TURNS, LOCKS)}
    lines |= {name: env[name] for name in (POLICY, PRIORITY) if name in env}
    return "".join(f"{name}={value}\n" for name, value in lines.items())
