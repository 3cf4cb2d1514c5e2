"""Simulated hardware, described in a small YAML:

    nodes:
    - name: p40                # needed unless the profile has one
      count: 3                 # the names become p40-1, p40-2, p40-3; without count the name stays as it is
      profile: koordinator     # begin with a built-in profile; what is said here goes first
      cards:
        vendor: nvidia         # nvidia, iluvatar, mthreads or metax
        model: Tesla P40       # as the driver says it
        count: 2
        memory: 23040Mi        # of each card
        shares: 10             # how many containers may have a part of a card, where the plugin lets one choose
        mode: whole            # MetaX only: sgpu (cards are shared) or whole
        numa: [[0], [1]]       # the cards of each NUMA node; all on node 0 if left out
        switches: [[0, 1]]     # cards behind the same PCIe switch; those of a NUMA node if left out
        links: [[0, 1]]        # cards wired to each other by NVLink or MetaXLink
        unhealthy: [1]         # broken cards
      speaks: [hami, volcano]  # whose plugins run there: hami, hami-legacy, volcano, volcano-vgpu, koordinator
      cpu: 64
      memory: 256Gi
      labels: {rack: a1}
      taints: ["key=value:NoSchedule"]

The built-in profiles are in `profiles.yaml` beside this module.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from subak.dialects import Dialect
from subak.dialects.interpreter import Interpreter
from subak.dialects.vendor import WHOLE
from subak.local.hardware import cards
from subak.local.hardware.description import BadDescription, Fields, load
from subak.model.manifest import Taint
from subak.node.machine import Machine

MOST_NODES = 100_000
FIELDS = ("name", "count", "profile", "cards", "speaks", "cpu", "memory", "labels", "taints")

CUSTOM = "custom"
"""The profile of a node that has none."""

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"({_NAME}/)?{_LABEL}"
_TAINT = re.compile(rf"(?P<key>{_KEY})(=(?P<value>({_LABEL})?))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")


def read(path: Path, interpreter: Interpreter) -> list[Machine]:
    """The machines that a file describes.  Raises BadDescription."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadDescription(f"{path}: cannot be read: {reason}") from None
    return machines(load(text, str(path)), str(path), interpreter)


def default(interpreter: Interpreter) -> list[Machine]:
    """One node of every built-in profile."""
    return machines({"nodes": [{"profile": name} for name in built_in()]}, "profiles.yaml", interpreter)


@cache
def built_in() -> dict[str, dict[str, Any]]:
    """The built-in profiles by name, as their file has them."""
    text = resources.files(__package__).joinpath("profiles.yaml").read_text(encoding="utf-8")
    profiles: dict[str, dict[str, Any]] = load(text, "profiles.yaml")["profiles"]
    return profiles


def machines(content: Any, place: str, interpreter: Interpreter) -> list[Machine]:
    """The machines of a description; `place` is the file that errors name.  Raises BadDescription."""
    top = Fields(content, place, "", ("nodes",))
    if not isinstance(top["nodes"], list) or not top["nodes"]:
        raise top.wrong("nodes", top["nodes"], "must be a list of nodes, such as [{profile: koordinator}]")
    found: dict[str, Machine] = {}
    for position, entry in enumerate(top["nodes"]):
        fields = _with_profile(Fields(entry, place, f"nodes[{position}]", FIELDS))
        for machine in _alike(fields, interpreter):
            if machine.name in found:
                raise fields.wrong("name", machine.name, "is the name of an earlier node too: give it another one")
            found[machine.name] = machine
            if len(found) > MOST_NODES:
                raise top.wrong("nodes", f"{machine.name} and so on", f"are more than {MOST_NODES:,}: describe fewer")
    return list(found.values())


def _with_profile(fields: Fields) -> Fields:
    """The fields of a node, filled up from its profile."""
    if "profile" not in fields:
        return fields
    profile = built_in()[fields.one_of("profile", tuple(built_in()))]
    content = profile | {key: fields[key] for key in FIELDS if key in fields}
    if isinstance(fields["cards"], dict):
        content["cards"] = profile["cards"] | fields["cards"]
    return Fields(content, fields.place, fields.path, FIELDS)


def _alike(fields: Fields, interpreter: Interpreter) -> list[Machine]:
    """The machines of one entry."""
    names = _names(fields)
    given = Fields(fields["cards"], fields.place, f"{fields.path}.cards", cards.FIELDS)
    speaks = _speaks(fields, given, interpreter)
    devices = cards.described(given, speaks)
    machine = Machine(
        names[0],
        fields["profile"] or CUSTOM,
        devices,
        speaks,
        cpu=str(fields.quantity("cpu", "64", "64")),
        memory=str(fields.quantity("memory", "256Gi", "256Gi")),
        labels=_labels(fields),
        taints=_taints(fields),
    )
    return [replace(machine, name=name, devices=cards.named(devices, name, speaks)) for name in names]


def _names(fields: Fields) -> list[str]:
    name = fields.text("name", _NAME, "a name of lower-case letters, digits, '-' and '.'")
    count = fields.whole("count", MOST_NODES, 1)
    names = [f"{name}-{number}" for number in range(1, count + 1)] if "count" in fields else [name]
    if len(names[-1]) > 63:
        raise fields.wrong("name", names[-1], f"has {len(names[-1])} letters: use at most 63, as it becomes a label")
    return names


def _speaks(fields: Fields, given: Fields, interpreter: Interpreter) -> tuple[Dialect, ...]:
    vendors = dict.fromkeys(vendor for each in interpreter.dialects for vendor in each.agent.vendors)
    family = given.one_of("vendor", tuple(vendors))
    model = given.text("model", r"[^,:;\n]{1,63}", "a text of up to 63 letters without ',', ':' and ';'")
    mode = cards.mode(given)
    describing = interpreter.describing(family, model, "" if mode == WHOLE else mode)
    known = {each.agent.system: each for each in describing}
    spoken = fields.words("speaks", "systems, such as [hami]")
    dialects = [known[word] for word in spoken if word in known]
    if not dialects or len(dialects) < len(spoken):
        possible = ", ".join(sorted(known))
        raise fields.wrong("speaks", spoken, f"must name one or more of {possible} for {family} cards of model {model}")
    return tuple(dialects)


def _labels(fields: Fields) -> dict[str, str]:
    labels = fields.texts("labels")
    for key, value in labels.items():
        if not re.fullmatch(_KEY, key) or key.startswith("subak.io/"):
            raise fields.wrong(f"labels[{key}]", value, "has a bad key: use one such as rack or example.com/rack")
        if value and not re.fullmatch(_LABEL, value):
            raise fields.wrong(f"labels[{key}]", value, "is no label: use up to 63 letters, digits, '-', '_' and '.'")
    return labels


def _taints(fields: Fields) -> tuple[Taint, ...]:
    taints = []
    for text in fields.words("taints", "taints, such as key=value:NoSchedule"):
        match = _TAINT.fullmatch(text)
        if match is None:
            raise fields.wrong("taints", text, "is no taint: write key=value:NoSchedule, as kubectl taint does")
        taints.append(Taint(key=match["key"], value=match["value"] or "", effect=match["effect"]))
    return tuple(taints)
