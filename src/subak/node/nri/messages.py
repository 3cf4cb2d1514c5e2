"""What the runtime and a plugin tell each other: only what we read or write of it.

The numbers of the fields are those of NRI's own description of its interface (`api.proto`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from subak.node.nri import wire
from subak.node.nri.wire import Fields

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
REMOVED = "-"
"""A variable, mount or device whose name begins with this is to be removed."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


class Event(IntEnum):
    """What happens to pods and containers, and can be subscribed to."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def bit(self) -> int:
        """Its place in a subscription."""
        return 1 << (self - 1)


class State(IntEnum):
    """How far a container is."""

    UNKNOWN = 0
    CREATED = 1
    PAUSED = 2
    RUNNING = 3
    STOPPED = 4


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod as the runtime knows it.  Its labels and annotations are those of when it was started."""

    id: str = ""
    name: str = ""
    uid: str = ""
    namespace: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def decode(cls, fields: Fields) -> Sandbox:
        """The pod that these fields describe."""
        return cls(fields.text(1), fields.text(2), fields.text(3), fields.text(4), fields.mapping(6))

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of a container."""

    destination: str
    type: str = ""
    source: str = ""
    options: tuple[str, ...] = ()

    @classmethod
    def decode(cls, fields: Fields) -> Mount:
        """The mount that these fields describe."""
        return cls(fields.text(1), fields.text(2), fields.text(3), fields.texts(4))

    def encode(self) -> bytes:
        """The bytes."""
        texts = ((1, self.destination), (2, self.type), (3, self.source), *((4, each) for each in self.options))
        return b"".join(wire.text(number, value) for number, value in texts)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of a container: `type` is `c` or `b`, `mode` its permissions."""

    path: str
    type: str = "c"
    major: int = 0
    minor: int = 0
    mode: int | None = None

    @classmethod
    def decode(cls, fields: Fields) -> DeviceNode:
        """The device node that these fields describe."""
        mode = fields.message(5).number(1) if fields.all(5) else None
        return cls(fields.text(1), fields.text(2), fields.number(3), fields.number(4), mode)

    def encode(self) -> bytes:
        """The bytes."""
        content = wire.text(1, self.path) + wire.text(2, self.type)
        content += wire.number(3, self.major) + wire.number(4, self.minor)
        return content + (b"" if self.mode is None else wire.data(5, wire.number(1, self.mode)))


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the runtime knows it.  `env` are its variables, of the image and of the pod, as `NAME=value`."""

    id: str = ""
    sandbox: str = ""
    name: str = ""
    state: int = State.UNKNOWN
    env: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()

    @classmethod
    def decode(cls, fields: Fields) -> Container:
        """The container that these fields describe."""
        mounts = tuple(map(Mount.decode, fields.messages(9)))
        return cls(fields.text(1), fields.text(2), fields.text(3), fields.number(4), fields.texts(8), mounts)

    @property
    def variables(self) -> dict[str, str]:
        """Its variables by name; if there are several of a name, the last one."""
        return {name: value for name, _, value in (each.partition("=") for each in self.env)}

    def values(self, name: str) -> list[str]:
        """All values of a variable: that of the image comes before that of the pod, which counts."""
        return [each.removeprefix(f"{name}=") for each in self.env if each.startswith(f"{name}=")]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What plugins change in a container that is about to be created.  `cdi` are names of CDI devices."""

    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    cdi: tuple[str, ...] = ()

    @classmethod
    def decode(cls, fields: Fields) -> Adjustment:
        """The adjustment that these fields describe."""
        return cls(
            tuple((each.text(1), each.text(2)) for each in fields.messages(4)),
            tuple(map(Mount.decode, fields.messages(3))),
            tuple(map(DeviceNode.decode, fields.message(6).messages(1))),
            tuple(each.text(1) for each in fields.messages(8)),
        )

    def encode(self) -> bytes:
        """The bytes."""
        content = b"".join(wire.data(3, each.encode()) for each in self.mounts)
        content += wire.mapping(4, dict(self.env))
        if self.devices:
            content += wire.data(6, b"".join(wire.data(1, each.encode()) for each in self.devices))
        return content + b"".join(wire.data(8, wire.text(1, name)) for name in self.cdi)


NO_ADJUSTMENT = Adjustment()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime as it introduces itself.  `nri` is empty before NRI 0.12, `request_ms` 0 before 0.8."""

    name: str = ""
    version: str = ""
    request_ms: int = 0
    nri: str = ""

    @classmethod
    def decode(cls, payload: bytes) -> Runtime:
        """The runtime that configures us."""
        fields = Fields(payload)
        return cls(fields.text(2), fields.text(3), fields.number(5), fields.text(6))

    @property
    def validates(self) -> bool:
        """Whether plugins may see the adjustments of all before they are made: since NRI 0.10, in containerd 2.2."""
        known = _numbers(self.nri)
        if known:
            return known >= (0, 10, 0)
        return self.name == "containerd" and _numbers(self.version) >= (2, 2, 0)

    @property
    def injects_cdi(self) -> bool:
        """Whether it gives a container the CDI devices of an adjustment; older ones drop their names without a word."""
        version = _numbers(self.version)
        return self.name == "containerd" and (version >= (2, 1, 0) or (1, 7, 30) <= version < (1, 8, 0))

    def __str__(self) -> str:
        """For people."""
        return f"{self.name or 'runtime'} {self.version}".strip() + (f", NRI {self.nri}" if self.nri else "")


def _numbers(version: str) -> tuple[int, ...]:
    """The three numbers of a version; empty if it says none."""
    found = _VERSION.match(version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


@dataclass(frozen=True, slots=True)
class Synchronization:
    """All pods and containers that the runtime has, or a part of them if `more` come."""

    sandboxes: tuple[Sandbox, ...] = ()
    containers: tuple[Container, ...] = ()
    more: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Synchronization:
        """What a request to synchronize holds."""
        fields = Fields(payload)
        sandboxes = tuple(map(Sandbox.decode, fields.messages(1)))
        return cls(sandboxes, tuple(map(Container.decode, fields.messages(2))), fields.flag(3))


@dataclass(frozen=True, slots=True)
class Subject:
    """The pod and the container that a request is about.  `adjustment` is what all plugins together want of it."""

    sandbox: Sandbox
    container: Container
    adjustment: Adjustment = NO_ADJUSTMENT

    @classmethod
    def decode(cls, payload: bytes, at: int = 1) -> Subject:
        """The subject of a request whose pod has this number; the container follows."""
        fields = Fields(payload)
        return cls(
            Sandbox.decode(fields.message(at)),
            Container.decode(fields.message(at + 1)),
            Adjustment.decode(fields.message(at + 2)) if at == 1 else NO_ADJUSTMENT,
        )


def registration(name: str, index: str) -> bytes:
    """The request by which a plugin registers."""
    return wire.text(1, name) + wire.text(2, index)


def subscription(events: Sequence[Event]) -> bytes:
    """The answer to a configuration: what the plugin wants to hear of."""
    return wire.number(2, sum(event.bit for event in events))


def synchronized(more: bool) -> bytes:
    """The answer to a synchronization; it repeats whether more comes."""
    return wire.number(2, more)


def adjusted(adjustment: Adjustment) -> bytes:
    """The answer to the creation of a container."""
    content = adjustment.encode()
    return wire.data(1, content) if content else b""


def verdict(rejection: str) -> bytes:
    """The answer to a validation: why the adjustment is rejected; empty if it is not."""
    return wire.number(1, True) + wire.text(2, rejection) if rejection else b""
