"""Variables of a container that refer to annotations of its pod: kubelet resolves them when it starts the container.

    env:
    - name: NVIDIA_VISIBLE_DEVICES
      valueFrom: {fieldRef: {fieldPath: "metadata.annotations['subak.io/env.0.NVIDIA_VISIBLE_DEVICES']"}}

The number is the container's place in its pod.  Admission writes the variables, the Binding the annotations.  An
annotation that is missing gives an empty value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from subak.model.manifest import Container, EnvVar

SLOT = "subak.io/slot"
"""What a container asks of kubelet that gets its cards by such variables: one."""

STEM = "subak.io/env."

LONGEST = 63
"""How long the part of an annotation's key behind the slash may be."""

_PATH = re.compile(rf"metadata\.annotations\['({re.escape(STEM)}([0-9]+)\.([^']+))'\]")


def key(number: int, name: str) -> str:
    """The annotation behind a variable of the container with this number."""
    return f"{STEM}{number}.{name}"


def path(key: str) -> str:
    """The `fieldPath` that refers to an annotation."""
    return f"metadata.annotations['{key}']"


def fits(number: int, name: str) -> bool:
    """Whether there can be such an annotation."""
    return len(key(number, name).partition("/")[2]) <= LONGEST


def referred(container: Container) -> dict[str, str]:
    """The variables of a container that refer to annotations of ours, and the keys of those."""
    found = {}
    for variable in effective(container.env or ()):
        match = _PATH.fullmatch(variable.field_path)
        if match is not None:
            found[variable.name] = match[1]
    return found


def numbers(container: Container) -> set[int]:
    """The numbers under which a container refers to annotations."""
    paths = (_PATH.fullmatch(each.field_path) for each in container.env or ())
    return {int(match[2]) for match in paths if match is not None}


def effective(variables: Iterable[EnvVar]) -> Iterable[EnvVar]:
    """The variables that count: of several with one name the last."""
    return {each.name: each for each in variables}.values()


def slotted(container: Container) -> bool:
    """Whether a container can get cards by variables: it asks for a slot, and refers to annotations."""
    return SLOT in container.limits and bool(referred(container))
