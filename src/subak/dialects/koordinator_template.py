"""Templates of Ascend cards: the cuts that the vendor's driver can make, by vendor and model of the card.

A part of such a card must be exactly one of them; Koordinator's users give them in the ConfigMap
`gpu-shared-resource-templates`, whose content is read here as it is:

    huawei-Ascend-310P: {vir01: {koordinator.sh/gpu-memory: 3Gi, huawei.com/npu-core: 1, ...}}
"""

from __future__ import annotations

from collections.abc import Mapping

from subak.dialects.koordinator_names import MEMORY, NPU_CORE, NPU_CPU, NPU_DVPP, RATIO
from subak.dialects.koordinator_request import Portion
from subak.model.manifest import Amount
from tinykube.quantity import Quantity, QuantityError

Templates = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Amounts by the vendor and model, then by the template's name."""

FAMILY = "huawei"

DUO = "Ascend-310P3-300I-DUO"
"""A model of which the vendor's agent gives only whole cards, without a template."""


def read(content: Mapping[str, Mapping[str, Mapping[str, Amount]]]) -> Templates:
    """The templates in a configuration.  Raises ValueError that names the amount which cannot be read."""
    templates: dict[str, dict[str, dict[str, int]]] = {}
    for model, cuts in content.items():
        for cut, amounts in cuts.items():
            for name, amount in amounts.items():
                try:
                    templates.setdefault(model, {}).setdefault(cut, {})[name] = Quantity.parse(amount).integer()
                except QuantityError as error:
                    where = f"koordinator.gpuSharedResourceTemplates.{model}.{cut}"
                    raise ValueError(f"{where}: {name}: {error}") from None
    return templates


def templated(portion: Portion) -> frozenset[str]:
    """The vendors whose cards give the portion only as one of their templates; whole cards need none."""
    return portion.families & {FAMILY} if portion.shared else frozenset()


def matching(templates: Templates, portion: Portion) -> tuple[tuple[str, str], ...]:
    """The template that is exactly the portion, for each model that has one."""
    if not templated(portion):
        return ()
    asked = {NPU_CORE: portion.cores, MEMORY: portion.memory_bytes, RATIO: portion.ratio, **dict(portion.extras)}
    asked = {name: amount for name, amount in asked.items() if amount}
    found = {
        model.removeprefix(f"{FAMILY}-"): cut
        for model, cuts in templates.items()
        if model.startswith(f"{FAMILY}-") and model != f"{FAMILY}-{DUO}"
        for cut, amounts in sorted(cuts.items(), reverse=True)
        if amounts == asked
    }
    return tuple(sorted(found.items()))


def ascend_310p() -> dict[str, dict[str, dict[str, Amount]]]:
    """The templates that Koordinator's chart brings."""
    sizes: dict[str, tuple[str, int, int, int]] = {
        "vir01": ("3Gi", 1, 1, 12),
        "vir02": ("6Gi", 2, 2, 25),
        "vir02_1c": ("6Gi", 2, 1, 25),
        "vir04": ("12Gi", 4, 4, 50),
        "vir04_3c": ("12Gi", 4, 3, 50),
        "vir04_3c_ndvpp": ("12Gi", 4, 3, 0),
        "vir04_4c_dvpp": ("12Gi", 4, 4, 100),
    }
    cuts: dict[str, dict[str, Amount]] = {
        cut: {MEMORY: memory, NPU_CORE: cores, NPU_CPU: cpus, **({NPU_DVPP: dvpp} if dvpp else {})}
        for cut, (memory, cores, cpus, dvpp) in sizes.items()
    }
    return {f"{FAMILY}-Ascend-310P": cuts}
