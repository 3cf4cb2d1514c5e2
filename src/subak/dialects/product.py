"""What people call a card.

Several vendors publish totals only, which name no model (Moore Threads, Iluvatar's older names, whole MetaX cards), and
MetaX's register calls every shared card `sgpu`.  A label of the node says what they are: the vendor's own where it has
one, or ours, which `subak up` writes and an administrator may set.  The name is for people: no request is matched
against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from subak.model.device import Device

_VENDORS = {"nvidia": "nvidia.com/gpu.product", "metax": "metax-tech.com/gpu.product"}
_KOORDINATOR = "node.koordinator.sh/gpu-model"


def name(device: Device, labels: Mapping[str, str]) -> str:
    """A short name for a card of a node with these labels: its model, or its vendor if the model is unknown."""
    keys = (_label(device.family), _VENDORS.get(device.family, ""), _KOORDINATOR)
    model = device.model or next((labels[key] for key in keys if labels.get(key)), device.family)
    return re.sub(r"(?i)^nvidia[- ](?=.)", "", model)


def labels(devices: Iterable[Device]) -> dict[str, str]:
    """The labels that name the models of these cards, one a vendor."""
    models = {each.family: _as_label(each.model) for each in reversed(tuple(devices)) if each.model}
    return {_label(family): model for family, model in models.items() if model}


def _label(family: str) -> str:
    return f"subak.io/{family}-model"


def _as_label(model: str) -> str:
    """The model with what a label cannot hold replaced."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", model)[:63].strip("-_.")
