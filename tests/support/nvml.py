"""A fake NVIDIA driver: the functions of `pynvml` that Subak calls, for cards that do not exist."""
# ruff: noqa: N801, N802, N815

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

GIB = 1 << 30


class NVMLError(Exception):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_Timeout(NVMLError):
    pass


@dataclass(frozen=True)
class Instance:
    uuid: str
    memory: int
    gpu_instance: int
    compute_instance: int = 0
    name: str = "NVIDIA A100 MIG 1g.10gb"


@dataclass(frozen=True)
class Gpu:
    """A card of the played driver.  `links` are the bus addresses at the other ends, `switch` for an NVSwitch."""

    uuid: str
    bus: str
    minor: int = 0
    name: str = "NVIDIA A100-SXM4-80GB"
    memory: int = 80 * GIB
    mig: bool = False
    instances: Sequence[Instance] = ()
    links: Sequence[str] = ()
    failed_rows: int = 0
    lost: bool = False
    demand: int | None = 0


@dataclass
class Driver:
    """The functions of `pynvml` that are asked."""

    gpus: Sequence[Gpu]
    level: int = 10
    open: int = 0
    missing: Exception | None = None
    NVMLError: type[Exception] = field(default=NVMLError)
    NVMLError_NotFound: type[Exception] = field(default=NVMLError_NotFound)
    NVMLError_LibraryNotFound: type[Exception] = field(default=NVMLError_LibraryNotFound)
    NVMLError_Timeout: type[Exception] = field(default=NVMLError_Timeout)
    NVML_DEVICE_MIG_ENABLE: int = 1
    NVML_NVLINK_MAX_LINKS: int = 4
    NVML_NVLINK_DEVICE_TYPE_SWITCH: int = 2
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: int = 230
    nvmlEventTypeXidCriticalError: int = 8
    watched: int = 0
    happened: list[tuple[Gpu, int]] = field(default_factory=list)
    """Xid errors that nobody has heard of yet."""

    def nvmlInit(self) -> None:
        if self.missing:
            raise self.missing
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        if self.gpus[index].lost:
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000{gpu.bus.upper()}")

    def nvmlDeviceGetMinorNumber(self, gpu: Gpu) -> int:
        return gpu.minor

    def nvmlDeviceGetRemappedRows(self, gpu: Gpu) -> tuple[int, int, int, int]:
        return 0, 0, 0, gpu.failed_rows

    def nvmlDeviceGetUUID(self, gpu: Gpu | Instance) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: Gpu | Instance) -> str:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu | Instance) -> SimpleNamespace:
        return SimpleNamespace(total=gpu.memory)

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> tuple[int, int]:
        return int(gpu.mig), int(gpu.mig)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Instance:
        if index >= len(gpu.instances):
            raise NVMLError_NotFound("Not Found")
        return gpu.instances[index]

    def nvmlDeviceGetGpuInstanceId(self, instance: Instance) -> int:
        return instance.gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, instance: Instance) -> int:
        return instance.compute_instance

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Gpu, other: Gpu) -> int:
        return self.level

    def nvmlDeviceGetNvLinkState(self, gpu: Gpu, link: int) -> int:
        if not gpu.links:
            raise NVMLError("Not Supported")
        return int(link < len(gpu.links))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: Gpu, link: int) -> int:
        return 2 if gpu.links[link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: Gpu, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000{gpu.links[link].upper()}")

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: Sequence[int]) -> list[SimpleNamespace]:
        assert list(fields) == [self.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        unknown = gpu.demand is None
        return [SimpleNamespace(nvmlReturn=int(unknown), value=SimpleNamespace(uiVal=gpu.demand or 0))]

    def nvmlEventSetCreate(self) -> object:
        self.watched += 1
        return self

    def nvmlEventSetFree(self, events: object) -> None:
        assert self.open, "the driver is in use"
        self.watched -= 1

    def nvmlDeviceRegisterEvents(self, gpu: Gpu, types: int, events: object) -> None:
        assert types == self.nvmlEventTypeXidCriticalError

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> SimpleNamespace:
        assert self.watched, "an event set that was freed crashes the real one"
        if not self.happened:
            raise NVMLError_Timeout("Timeout")
        gpu, xid = self.happened.pop(0)
        return SimpleNamespace(device=gpu, eventType=self.nvmlEventTypeXidCriticalError, eventData=xid)
