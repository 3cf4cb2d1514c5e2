"""Names and defaults that administrators change: HAMi's `device-config.yaml`, read as it is.

Sections and keys are HAMi's, so that an existing ConfigMap can be handed over.  Sections of vendors that Subak does not
speak for are skipped, and so are HAMi's keys that mean nothing here.  Any other is a typing error: `unknown` tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from subak.dialects.koordinator_template import ascend_310p
from subak.model.manifest import Amount

FILE = "device-config.yaml"
"""What the file is called, and its key in a ConfigMap."""

Natural = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]

OTHER_SECTIONS = ("amd", "awsneuron", "biren", "cambricon", "enflame", "hygon", "kunlun", "vastai", "vnpus")
"""HAMi's sections for vendors that Subak does not speak for."""

OTHER_KEYS = {
    "nvidia": (
        *("enableNumaTopology", "knownMigGeometries", "libCudaLogLevel", "migProfileAllowlist", "overwriteEnv"),
        *("preConfiguredDeviceMemory", "runtimeClassName"),
    ),
}
"""HAMi's keys that mean nothing to Subak, by section."""


class Section(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A vendor's part of the file."""


class Nvidia(Section, frozen=True, kw_only=True):
    """`nvidia:`."""

    resource_count_name: str = "nvidia.com/gpu"
    resource_memory_name: str = "nvidia.com/gpumem"
    resource_memory_percentage_name: str = "nvidia.com/gpumem-percentage"
    resource_core_name: str = "nvidia.com/gpucores"
    resource_priority_name: str = "nvidia.com/priority"
    default_memory: Natural = 0
    default_cores: Percent = 0
    default_gpu_num: Positive = msgspec.field(default=1, name="defaultGPUNum")
    memory_factor: Positive = 1
    device_split_count: Positive = 10
    device_memory_scaling: float = 1
    device_core_scaling: float = 1
    gpu_core_policy: str = "default"
    disable_core_limit: bool = False


class Metax(Section, frozen=True, kw_only=True):
    """`metax:`: whole cards under `resourceCountName`, shared ones under the others."""

    resource_count_name: str = "metax-tech.com/gpu"
    resource_v_count_name: str = "metax-tech.com/sgpu"
    resource_v_memory_name: str = "metax-tech.com/vmemory"
    resource_v_core_name: str = "metax-tech.com/vcore"
    sgpu_topology_aware: bool = False


class Mthreads(Section, frozen=True, kw_only=True):
    """`mthreads:`; `memoryPerCard` (in units of 512 MiB) lists the sizes of cards other than the S4000's 96."""

    resource_count_name: str = "mthreads.com/vgpu"
    resource_memory_name: str = "mthreads.com/sgpu-memory"
    resource_core_name: str = "mthreads.com/sgpu-core"
    memory_per_card: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)] = (96,)


class Iluvatar(Section, frozen=True, kw_only=True):
    """`iluvatar:`, the names of the older generation."""

    resource_count_name: str = "iluvatar.ai/vgpu"
    resource_memory_name: str = "iluvatar.ai/vcuda-memory"
    resource_core_name: str = "iluvatar.ai/vcuda-core"


class IluvatarChip(Section, frozen=True, kw_only=True):
    """An entry of `iluvatars:`, one per model."""

    chip_name: str = ""
    common_word: str
    resource_count_name: str
    resource_memory_name: str
    resource_core_name: str


def _chip(word: str) -> IluvatarChip:
    return IluvatarChip(
        chip_name=word,
        common_word=word,
        resource_count_name=f"iluvatar.ai/{word}-vgpu",
        resource_memory_name=f"iluvatar.ai/{word}.vMem",
        resource_core_name=f"iluvatar.ai/{word}.vCore",
    )


class Volcano(Section, frozen=True, kw_only=True):
    """`volcano:`, a section of ours: the device plugin's `--gpu-memory-factor`."""

    gpu_memory_factor: Positive = 1


class Koordinator(Section, frozen=True, kw_only=True):
    """`koordinator:`, a section of ours: DeviceShare's `scoringStrategy.type`, and the templates of Ascend cards.

    The templates are the content of the ConfigMap `gpu-shared-resource-templates`: by vendor and model, by name.
    """

    scoring_strategy: str = "LeastAllocated"
    gpu_shared_resource_templates: dict[str, dict[str, dict[str, Amount]]] = msgspec.field(default_factory=ascend_310p)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All sections, with HAMi's defaults."""

    nvidia: Nvidia = Nvidia()
    metax: Metax = Metax()
    mthreads: Mthreads = Mthreads()
    iluvatar: Iluvatar = Iluvatar()
    iluvatars: tuple[IluvatarChip, ...] = tuple(_chip(word) for word in ("MR-V100", "MR-V50", "BI-V150", "BI-V100"))
    volcano: Volcano = Volcano()
    koordinator: Koordinator = Koordinator()

    @classmethod
    def of(cls, content: Any) -> Config:
        """The configuration in a parsed `device-config.yaml`.  Raises ValueError naming the key that is wrong."""
        if isinstance(content, dict):  # a section may be left empty
            content = {name: section for name, section in content.items() if section is not None}
        try:
            return msgspec.convert({} if content is None else content, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"device-config: {error}") from None


def unknown(content: Any) -> list[str]:
    """A sentence for each section and key of a parsed `device-config.yaml` that nobody reads, with the nearest name."""
    if not isinstance(content, Mapping):
        return []
    ours = {field.encode_name: field.default for field in msgspec.structs.fields(Config)}
    sections = (*ours, *OTHER_SECTIONS)
    found = [_sentence("section ", word, sections) for word in content if word not in sections]
    for name, default in ours.items():
        keys, parts = _keys(name, default), content.get(name)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, Mapping):
                found += [_sentence(f"key {name}.", word, keys) for word in part if word not in keys]
    return found


def _keys(name: str, default: Any) -> tuple[str, ...]:
    """The keys of a section; one of several entries has the keys of its entries."""
    section = type(default[0] if isinstance(default, tuple) else default)
    return (*(field.encode_name for field in msgspec.structs.fields(section)), *OTHER_KEYS.get(name, ()))


def _sentence(what: str, word: Any, known: Iterable[str]) -> str:
    """What is said of a word that nobody knows; capital letters do not keep it from being recognised."""
    by_sound = {each.lower(): each for each in known}
    near = get_close_matches(str(word).lower(), by_sound, n=1)
    remedy = f"did you mean {by_sound[near[0]]}?" if near else f"known are {', '.join(by_sound.values())}"
    return f"device-config: {what}{word} is unknown and has no effect; {remedy}"
