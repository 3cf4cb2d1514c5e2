"""What each container of a test really got, written down by the container itself when it starts.

A container may be gone before anybody looks, or may never have been allowed to start.  So its first act is to write its
environment, and the limits that the agent mounted, to a file of the host that is named after its pod's UID.  All
containers that ever ran are then compared with the records of their pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subak.dialects import isolation
from tests.e2e import images

RECORD = "hami.io/vgpu-devices-allocated"
CARDS = "NVIDIA_VISIBLE_DEVICES"
_LIMITS = "-- limits"
_END = "-- end"
_SCRIPT = (
    f'{{ env; echo "{_LIMITS}"; cat {isolation.LIMITS}; echo "{_END}"; }} >> /evidence/$POD_UID; exec sleep 100000'
)


@dataclass
class Start:
    """What one start of a container found."""

    environment: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    complete: bool = False


class Evidence:
    """A folder of the host where containers write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        directory.chmod(0o777)

    def pod(self, name: str, limits: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        """A pod that writes what it got, and then sleeps."""
        uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
        container = {
            "name": "main",
            "image": images.CUDA,
            "command": ["sh", "-c", _SCRIPT],
            "env": [uid],
            "resources": {"limits": limits},
            "volumeMounts": [{"name": "evidence", "mountPath": "/evidence"}],
        }
        spec = {
            "schedulerName": "subak",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": "evidence", "hostPath": {"path": str(self._directory)}}],
        }
        return {"metadata": {"name": name, **metadata}, "spec": spec}

    def starts(self) -> dict[str, list[Start]]:
        """All starts of containers so far, by the UID of their pod."""
        return {path.name: _read(path.read_text()) for path in self._directory.iterdir()}

    def problems(self, records: dict[str, str]) -> list[str]:
        """What is wrong with any of them; `records` are the pods' records by UID."""
        found = []
        for uid, starts in self.starts().items():
            for start in starts:
                found += [f"pod {uid}: {problem}" for problem in _compared(start, records.get(uid, ""))]
        return found


def held(record: str) -> list[tuple[str, int]]:
    """The cards of a record of a pod with one container, with the memory that it holds of each in MiB."""
    cards = record.rstrip(";").rstrip(":").split(":") if record else []
    fields = [each.split(",") for each in cards]
    return [(uuid, int(memory)) for uuid, _, memory, _ in fields]


def _compared(start: Start, record: str) -> list[str]:
    if not start.complete:
        return []  # it was ended while it wrote
    cards = held(record)
    names = ",".join(uuid for uuid, _ in cards)
    expected = {f"CUDA_DEVICE_MEMORY_LIMIT_{place}": memory for place, (_, memory) in enumerate(cards)}
    wanted = {CARDS: names} | {name: f"{memory}m" for name, memory in expected.items()}
    mounted = {isolation.CARDS: names} | {name: str(memory << 20) for name, memory in expected.items()}
    problems = [] if cards else ["it ran without a record"]
    for what, have, want in (
        ("environment", start.environment, wanted),
        ("limits", start.limits, mounted),
    ):
        for name, value in want.items():
            if have.get(name) != value:
                problems.append(f"{name} in its {what} is {have.get(name)!r}, its record says {value!r}")
    return problems


def _read(text: str) -> list[Start]:
    starts = [Start()]
    part = starts[-1].environment
    for line in text.splitlines():
        if line == _LIMITS:
            part = starts[-1].limits
        elif line == _END:
            starts[-1].complete = True
            starts.append(Start())
            part = starts[-1].environment
        elif "=" in line:
            name, _, value = line.partition("=")
            part[name] = value
    return [each for each in starts if each.environment]
