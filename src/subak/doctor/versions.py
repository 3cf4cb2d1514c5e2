"""Versions of container runtimes, and what they can do for us."""

from __future__ import annotations

import re

from subak.doctor import Finding, ok, unknown, warning

Version = tuple[int, int]

OLDEST = {"containerd": (1, 7), "cri-o": (1, 26)}
"""The first with NRI."""
VALIDATING = {"containerd": (2, 2), "cri-o": (1, 34)}
"""The first with NRI 0.10, whose default validator refuses a container that a required plugin has not seen."""
WITHOUT_NRI = "containers get their cards through kubelet's device plugins, and the agent can only evict"
UNSURE = (
    "upgrade it: until then a container that is created while our agent is away may start without its limits, "
    "and is killed when the agent is back"
)


def read(text: str) -> Version | None:
    """Major and minor number of a version in a text, as `v2.1.4-k3s1` has them; None if there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def runtime(name: str, text: str) -> Finding:
    """What this version of this runtime means for us."""
    name, version = name.lower(), read(text)
    if name not in OLDEST:
        return warning(f"{name} {text} knows no NRI: {WITHOUT_NRI}", "use containerd 2.2 or later, or CRI-O 1.34")
    if version is None:
        return unknown(f"{name} {text!r} is no version that we can read")
    if version < OLDEST[name]:
        remedy = f"upgrade it to {_dotted(OLDEST[name])}, better {_best(name)}"
        return warning(f"{name} {text} knows no NRI: {WITHOUT_NRI}", remedy)
    if version < VALIDATING[name]:
        return warning(f"{name} {text} cannot insist on our agent; {name} {_best(name)} can", UNSURE)
    return ok(f"{name} {text}")


def _best(name: str) -> str:
    return _dotted(VALIDATING[name])


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
