"""How a container is held to its share: libsubak and the variables it reads, the same for all NVIDIA dialects.

The variables are HAMi-core's, so that programs and monitors that know them keep working.  libsubak lies under a
versioned path on the host; in the container it appears where users of HAMi and Koordinator expect the library.

A program can lose or change its environment.  So the agent also writes the limits to a file that a container cannot
change: of the two the smaller limit holds (`native/src/config.c`).
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
PRELOADING = Mount(PRELOAD, f"{HOST_DIRECTORY}/ld.so.preload", read_only=True, purpose=Purpose.PRELOAD)

SHOWN, VOID = "NVIDIA_VISIBLE_DEVICES", "void"
"""The variable by which NVIDIA's container runtime shows cards, and its word for none.  Many images say `all`."""
HIDDEN = frozenset({"", VOID, "none"})
CUDA_CARDS = "CUDA_VISIBLE_DEVICES"
SWITCH, REGION, POLICY, PRIORITY, TURNS, CARDS, LIMITS_BY_NAME = (
    "CUDA_DISABLE_CONTROL",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "GPU_CORE_UTILIZATION_POLICY",
    "CUDA_TASK_PRIORITY",
    "SUBAK_TURNS",
    "SUBAK_CARDS",
    "SUBAK_LIMITS",
)


def visible(shares: Sequence[Share], node: Node) -> str:
    """The cards by UUID; by index if no source gives the UUID (then the id is one of ours)."""
    named = [share.id for share in shares if share.id != f"{node.name}-nvidia-{share.index}"]
    return ",".join(named if len(named) == len(shares) else [str(share.index) for share in shares])


def owner(pod: manifest.Pod, container: manifest.Container) -> str:
    """The name under which a container's files are kept on the host."""
    return f"{pod.metadata.uid or pod.key.replace('/', '_')}_{container.name}"


def limits(pod: manifest.Pod, position: int, shares: Sequence[Share]) -> Injection:
    """Memory and core limits for each visible card, the shared accounting file and the library itself."""
    container = pod.containers[position]
    name = owner(pod, container)
    env = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{share.memory_bytes // MIB}m" for i, share in enumerate(shares)}
    env["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].cores)
    env[REGION] = f"{HOOK}/{name}.cache"
    mounts = [
        Mount(HOOK, f"{HOOK}/containers/{name}", purpose=Purpose.ACCOUNT),
        # Inside the directory above, so it comes after it.
        Mount(LIBRARY, f"{HOST_DIRECTORY}/libsubak.so", read_only=True, purpose=Purpose.LIBRARY),
        Mount(LOCKS, LOCKS, purpose=Purpose.TURNS),
    ]
    if not _switched_off(container):
        mounts.append(PRELOADING)
    return Injection(env, mounts, held=tuple(shares))


def guard(pod: manifest.Pod, position: int, injection: Injection) -> list[Mount]:
    """What a container that a dialect holds to its shares needs, so that they hold without its environment too.

    That is the agent's file, and the library in every program, where a dialect has it in a variable only.
    """
    if not injection.held:
        return []
    container = pod.containers[position]
    off = _switched_off(container)
    content = limits_file(injection.held, injection.env) + (f"{SWITCH}=true\n" if off else "")
    source = f"{HOST_LIMITS}/{owner(pod, container)}"
    mounts = [Mount(LIMITS, source, read_only=True, purpose=Purpose.LIMITS, content=content)]
    if not off and all(each.purpose is not Purpose.PRELOAD for each in injection.mounts):
        mounts.append(PRELOADING)
    return mounts


def shown(cards: Iterable[str]) -> dict[str, str]:
    """The variables by which programs see these cards of the machine, by UUID.

    libsubak learns them as well: the limits are numbered in the order in which cards were given, NVML lists them in
    another.
    """
    return dict.fromkeys((CUDA_CARDS, CARDS), ",".join(cards))


def _switched_off(container: manifest.Container) -> bool:
    """Whether the container wants no limits, as HAMi lets it choose."""
    return any(each.name == SWITCH and each.value == "true" for each in container.env or ())


def limits_file(shares: Sequence[Share], env: Mapping[str, str]) -> str:
    """The content of the agent's file: the share of each card, and all else that a program must not choose itself.

    Cards are listed by UUID where it is known: the library would else take the numbers for NVML's.
    """
    lines = {}
    if all(share.id.startswith(("GPU-", "MIG-")) for share in shares):
        lines[CARDS] = ",".join(share.id for share in shares)
    for i, share in enumerate(shares):
        if share.memory_bytes:
            lines[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"] = str(share.memory_bytes)
        if 0 < share.cores < FULL_CORES:
            lines[f"CUDA_DEVICE_SM_LIMIT_{i}"] = str(share.cores)
    lines |= {REGION: env[REGION], TURNS: env.get(TURNS, LOCKS)}
    lines |= {name: env[name] for name in (POLICY, PRIORITY) if name in env}
    return "".join(f"{name}={value}\n" for name, value in lines.items())
