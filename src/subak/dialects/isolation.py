"""How a container is held to its share: libsubak and the variables it reads, the same for all NVIDIA dialects.

The variables are HAMi-core's, so that programs and monitors that know them keep working.  libsubak lies under a
versioned path on the host; in the container it appears where users of HAMi and Koordinator expect the library.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak import __version__
from subak.dialects import Injection, Mount
from subak.model import manifest
from subak.model.device import MIB
from subak.model.node import Node
from subak.model.placement import Share

HOST_DIRECTORY = f"/usr/local/subak/{__version__}"
HOOK = "/usr/local/vgpu"
LIBRARY = f"{HOOK}/libvgpu.so"
PRELOAD = "/etc/ld.so.preload"
LOCKS = "/tmp/vgpulock"


def visible(shares: Sequence[Share], node: Node) -> str:
    """The cards by UUID; by index where no source told the UUID (then the id is one of ours)."""
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
    env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{HOOK}/{name}.cache"
    mounts = [
        Mount(f"{HOOK}/containers/{name}", HOOK, read_only=False),
        Mount(f"{HOST_DIRECTORY}/libsubak.so", LIBRARY),  # inside the directory above, so it comes after it
        Mount(LOCKS, LOCKS, read_only=False),
    ]
    if not any(each.name == "CUDA_DISABLE_CONTROL" and each.value == "true" for each in container.env or ()):
        mounts.append(Mount(f"{HOST_DIRECTORY}/ld.so.preload", PRELOAD))
    return Injection(env, mounts)
