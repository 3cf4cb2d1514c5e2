"""What Koordinator's webhooks do to one container: shorthands are written out, amounts that contradict are refused.

`koordinator.sh/gpu: N` becomes `gpu-core: N` and `gpu-memory-ratio: N`.  A container that does not say over how many
cards it spreads gets `gpu.shared`: one, or as many as its percentage stands for.  So two containers that ask for a part
each make a pod of two cards; Koordinator's users know this, and its webhook does the same wherever it runs beside us.

The checks look at what the user wrote before it is written out, since an error about names that he never wrote helps
nobody.  Their texts are Koordinator's.
"""

from __future__ import annotations

from collections.abc import Mapping

from subak.dialects.koordinator_names import CORE, MEMORY, NPU_CORE, RATIO, SHARED, UNIT, kind
from subak.dialects.koordinator_request import check
from subak.model.device import GPU
from subak.model.reason import Refusal


def fill(written: Mapping[str, int]) -> dict[str, int]:
    """The amounts that a container gets; they replace `koordinator.sh/gpu`.  Nothing if it asks for nothing."""
    amounts = {name: amount for name, amount in written.items() if amount}
    added = {CORE: amounts[UNIT], RATIO: amounts[UNIT]} if UNIT in amounts else {}
    amounts |= added
    # Whole Ascend cards are npu-core with a ratio and nothing else; Koordinator's own webhook spoils that request.
    ascend = NPU_CORE in amounts and RATIO in amounts
    if SHARED in amounts or ascend or not any(name in amounts for name in (CORE, MEMORY, RATIO)):
        return added
    percent = amounts.get(RATIO, amounts.get(CORE, 0))
    added[SHARED] = percent // 100 if percent > 100 and percent % 100 == 0 else 1
    return added


def verify(written: Mapping[str, int], field: str) -> None:
    """Refuse a container whose amounts contradict each other."""
    _verify_unit(written, field)
    amounts = {**written, **fill(written)}
    shared = amounts.get(SHARED)
    if shared is None or amounts.get(NPU_CORE):
        return
    memory, ratio, core = amounts.get(MEMORY), amounts.get(RATIO), amounts.get(CORE, 0)
    if not memory and not ratio:
        raise Refusal(field, None, "GPU memory and GPU memory ratio all is zero: give one of them")
    if memory and ratio:
        raise Refusal(field, None, "declare GPU memory and GPU memory ratio at same time: give only one of them")
    for name, amount in (("gpuCore", core), ("gpuMemoryRatio", ratio or 0)):
        if amount % shared:
            text = f"the requested {name} must multiple of shared: {amount} does not divide by {shared}"
            raise Refusal(field, amount, text)


def _verify_unit(written: Mapping[str, int], field: str) -> None:
    if UNIT in written and SHARED in written:
        text = f"Forbidden declare GPU and GPU share at same time: give {UNIT}, or {SHARED} with its parts"
        raise Refusal(field, None, text)
    for name in (UNIT, SHARED):
        if written.get(name) == 0:
            raise Refusal(f"{field}[{name}]", 0, "the requested GPU must be greater than zero")
    unit = written.get(UNIT)
    if unit is None:
        return
    if unit > 100 and unit % 100:
        text = f"the requested GPU must be percentage of 100: {unit} is more than one card and not whole cards"
        raise Refusal(f"{field}[{UNIT}]", unit, text)
    # Written out, it would silently replace the amounts beside it.
    check({name: amount for name, amount in written.items() if amount and kind(name) == GPU}, field)
