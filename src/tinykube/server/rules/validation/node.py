"""What a node must be, and what of it may change."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, resources, scheduling

Json = dict[str, Any]


def creation(problems: Problems, node: Json) -> None:
    """Of a node's metadata and spec, new or changed."""
    metadata.creation(problems, node["metadata"], False, names.subdomain_name)
    spec = node["spec"]
    if "taints" in spec:
        scheduling.taints(problems, "metadata.taints", spec["taints"])
    _amounts(problems, node["status"])
    ranges = spec.get("podCIDRs", ())
    for index, text in enumerate(ranges):
        problem.each(problems, f"spec.podCIDRs[{index}]", text, names.cidr(text))
    families = [":" in each for each in ranges]
    strange = [index for index, text in enumerate(ranges) if names.is_no_cidr(text)]
    if len(ranges) > 1 and strange:
        text = ranges[strange[0]]
        words = f"invalid CIDR[{strange[0]}]: <nil> (invalid CIDR address: {text})"
        message = f"invalid PodCIDRs. failed to check with dual stack with error:{words}"
        problems.append(problem.internal("spec.podCIDRs", message))
    if len(ranges) > 1 and (strange or len(ranges) > 2 or len(set(families)) < 2):
        words = "may specify no more than one CIDR for each IP family"
        problems.append(problem.invalid("spec.podCIDRs", ranges, words))


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a node that is written again."""
    creation(problems, new)
    status(problems, new, old)


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a node whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _amounts(problems, new["status"])
    _addresses(problems, new["status"])
    spec, before = new["spec"], old["spec"]
    was = before.get("podCIDRs", [])
    if was and was != spec.get("podCIDRs", []):
        words = 'node updates may not change podCIDR except from "" to valid'
        problems.append(problem.forbidden("spec.podCIDRs", words))
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        words = 'node updates may not change providerID except from "" to valid'
        problems.append(problem.forbidden("spec.providerID", words))
    if "taints" in spec:
        scheduling.taints(problems, "metadata.taints", spec["taints"])
    if spec.get("externalID", "") != before.get("externalID", ""):
        problems.append(problem.forbidden("spec.externalID", "may not be updated"))


def _amounts(problems: Problems, given: Json) -> None:
    for which in ("capacity", "allocatable"):
        for name, text in given.get(which, {}).items():
            resources.amount(problems, f"status.{which}.{name}", name, text)


def _addresses(problems: Problems, given: Json) -> None:
    seen = []
    for index, address in enumerate(given.get("addresses", ())):
        if address in seen:
            problems.append(problem.duplicate(f"status.addresses[{index}]", address))
        seen.append(address)
