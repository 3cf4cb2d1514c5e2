"""The names in Koordinator's language: resources, labels, annotations, and older spellings of them.

Users meet three generations of names.  `kubernetes.io/gpu-core` is what `koordinator.sh/gpu-core` was called first, and
the page about sharing with HAMi said `gpu-shared` before it said `gpu.shared`.  All are understood; the current name is
the one used from here on.
"""

from __future__ import annotations

from subak.model.device import FPGA, GPU, RDMA

UNIT = "koordinator.sh/gpu"
"""Percent of one card's cores and memory alike; 200 are two cards."""

CORE, MEMORY, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
SHARED = "koordinator.sh/gpu.shared"
"""Over how many cards the other amounts are spread."""

RDMA_UNIT, FPGA_UNIT = "koordinator.sh/rdma", "koordinator.sh/fpga"

NVIDIA_GPU, AMD_GPU, DCU_GPU = "nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"
VENDORS = {NVIDIA_GPU: "nvidia", AMD_GPU: "amd", DCU_GPU: "hygon"}
"""Whole cards by the vendor's own resource name."""

NPU_CORE, NPU_CPU, NPU_DVPP = "huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"
EXTRAS = (NPU_CPU, NPU_DVPP)
"""Amounts that only Ascend cards count; their cores are `NPU_CORE`, and no percentage."""

GPU_FAMILIES = frozenset(
    {"nvidia", "metax", "huawei", "cambricon", "kunlun", "amd", "hygon", "iluvatar", "mthreads"},
)
"""Vendors whose cards a Device object may describe."""

_RENAMED = (UNIT, CORE, MEMORY, RATIO, SHARED, RDMA_UNIT, FPGA_UNIT)
RESOURCES = frozenset(
    {
        *_RENAMED,
        *(name.replace("koordinator.sh/", "kubernetes.io/") for name in _RENAMED),
        *("koordinator.sh/gpu-shared", "kubernetes.io/gpu-shared"),
        *VENDORS,
        *(NPU_CORE, NPU_CPU, NPU_DVPP),
    }
)
"""Every name that means something, in every spelling."""

SCHEDULER = "koord-scheduler"
ISOLATION = "koordinator.sh/gpu-isolation-provider"
"""Label of a pod that wants its share enforced, and of a node that can do so."""

VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"
DRIVER = "node.koordinator.sh/gpu-driver-version"
PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
"""Label and annotation of a Device object: whether whole cards are given by the table of partitions only, and it."""

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
MINORS, BIND_TIME = "scheduling.koordinator.sh/gpu-minors", "scheduling.koordinator.sh/bind-timestamp"
METAX_ALLOCATED = "metax-tech.com/gpu-devices-allocated"
PREDICATE_TIME, ASCEND_310P = "predicate-time", "huawei.com/Ascend310P"
CAMBRICON_ASSIGNED, CAMBRICON_PROFILE = "CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_PROFILE"
"""Spelled as Cambricon's agent spells it."""

HINT = "scheduling.koordinator.sh/device-allocate-hint"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
RESERVATION = "scheduling.koordinator.sh/reservation-affinity"
NUMA = "scheduling.koordinator.sh/numa-topology-spec"


def canonical(name: str) -> str | None:
    """The current spelling of a resource name; None if it is none of Koordinator's.

    A name that only looks like one (`koordinator.sh/gpu-mem`) is returned as well: the user meant Koordinator, and the
    table of legal combinations says so better than a pod that waits for ever.
    """
    name = name.replace("kubernetes.io/", "koordinator.sh/") if name.startswith("kubernetes.io/") else name
    if name == "koordinator.sh/gpu-shared":
        return SHARED
    known = name in VENDORS or name in (RDMA_UNIT, FPGA_UNIT)
    return name if known or name.startswith((UNIT, "huawei.com/npu-")) else None


def kind(name: str) -> str:
    """The kind of device that a resource of this current name belongs to."""
    return {RDMA_UNIT: RDMA, FPGA_UNIT: FPGA}.get(name, GPU)
