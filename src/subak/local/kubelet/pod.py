"""Pods as the kubelet reads them.

A pod at rest is kept as its metadata and the bytes of its spec.  `Spec` is decoded only while something has to be
started, so ten thousand sleeping pods cost little.
"""

from __future__ import annotations

from typing import Any

import msgspec

from subak.model import manifest
from subak.model.manifest import Lean

JsonObject = dict[str, Any]

_LONGEST_HOST_NAME = 63


class Metadata(manifest.Metadata, frozen=True, gc=False, kw_only=True):
    """The fields of ObjectMeta that only the kubelet reads, besides the common ones."""

    generation: int = 0
    creation_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None


class Seen(Lean, frozen=True, gc=False, kw_only=True):
    """A pod as it comes from the API server, its parts not decoded yet."""

    metadata: Metadata
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        # A Raw is a view: without a copy, each pod would keep the server's whole answer alive.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())
        msgspec.structs.force_setattr(self, "status", self.status.copy())

    @property
    def node(self) -> str:
        """The node to which it is bound."""
        return _BOUND.decode(self.spec).node_name

    def decoded(self) -> Pod:
        """The pod with its spec.  Raises msgspec.ValidationError if that cannot be read."""
        return Pod(self.metadata, _SPEC.decode(self.spec))

    def manifest(self) -> manifest.Pod:
        """The pod as the rest of Subak reads it."""
        return manifest.Pod(metadata=self.metadata, spec=_MANIFEST_SPEC.decode(self.spec))


class _Bound(Lean, frozen=True, gc=False, kw_only=True):
    node_name: str = ""


class Exec(Lean, frozen=True, gc=False, kw_only=True):
    """A program to run inside."""

    command: tuple[str, ...] = ()


class Header(Lean, frozen=True, gc=False, kw_only=True):
    """A header of an HTTP request."""

    name: str
    value: str = ""


class HttpGet(Lean, frozen=True, gc=False, kw_only=True):
    """A page to request."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class TcpSocket(Lean, frozen=True, gc=False, kw_only=True):
    """A port to connect to."""

    port: int | str
    host: str = ""


class Sleep(Lean, frozen=True, gc=False, kw_only=True):
    """A time to wait."""

    seconds: int = 0


class Action(Lean, frozen=True, gc=False, kw_only=True):
    """What a probe or a hook does: one of its fields."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    sleep: Sleep | None = None
    grpc: Any = None


class Probe(Action, frozen=True, gc=False, kw_only=True):
    """A probe, with the API server's defaults."""

    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(Lean, frozen=True, gc=False, kw_only=True):
    """What happens after a container's start and before its end."""

    post_start: Action | None = None
    pre_stop: Action | None = None


class Port(Lean, frozen=True, gc=False, kw_only=True):
    """A port that a probe may call by its name."""

    name: str = ""
    container_port: int = 0


class FieldRef(Lean, frozen=True, gc=False, kw_only=True):
    """A field of the pod itself."""

    field_path: str


class ResourceFieldRef(Lean, frozen=True, gc=False, kw_only=True):
    """An amount that a container has."""

    resource: str
    container_name: str = ""
    divisor: manifest.Amount = "0"


class KeyRef(Lean, frozen=True, gc=False, kw_only=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvSource(Lean, frozen=True, gc=False, kw_only=True):
    """Where a variable's value comes from: one of its fields."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None
    file_key_ref: Any = None


class EnvVar(Lean, frozen=True, gc=False, kw_only=True):
    """A variable."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Ref(Lean, frozen=True, gc=False, kw_only=True):
    """A whole ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFrom(Lean, frozen=True, gc=False, kw_only=True):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str = ""
    config_map_ref: Ref | None = None
    secret_ref: Ref | None = None


class VolumeMount(Lean, frozen=True, gc=False, kw_only=True):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class Capabilities(Lean, frozen=True, gc=False, kw_only=True):
    """Capabilities that a container wants besides the usual ones, and those that it does without."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityContext(Lean, frozen=True, gc=False, kw_only=True):
    """The user, groups and rights of a container."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    capabilities: Capabilities | None = None
    read_only_root_filesystem: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()


class Container(Lean, frozen=True, gc=False, kw_only=True):
    """One container, init containers included."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    ports: tuple[Port, ...] = ()
    resources: manifest.Resources | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[Any, ...] = ()
    restart_policy: str | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    termination_message_path: str = ""
    termination_message_policy: str = "File"
    stdin: bool = False
    tty: bool = False


class KeyToPath(Lean, frozen=True, gc=False, kw_only=True):
    """Which key becomes which file."""

    key: str
    path: str
    mode: int | None = None


class Keys(Lean, frozen=True, gc=False, kw_only=True):
    """A ConfigMap or a Secret as files; the latter's name is in `secret_name` unless it is projected."""

    name: str = ""
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardItem(Lean, frozen=True, gc=False, kw_only=True):
    """A field of the pod as a file."""

    path: str
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class Downward(Lean, frozen=True, gc=False, kw_only=True):
    """Fields of the pod as files."""

    items: tuple[DownwardItem, ...] = ()
    default_mode: int | None = None


class Token(Lean, frozen=True, gc=False, kw_only=True):
    """A service account's token as a file."""

    path: str
    audience: str = ""
    expiration_seconds: int = 3600


class Source(Lean, frozen=True, gc=False, kw_only=True):
    """A part of a projected volume: one of its fields."""

    config_map: Keys | None = None
    secret: Keys | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: Token | None = None


class Projected(Lean, frozen=True, gc=False, kw_only=True):
    """Several sources in one directory."""

    sources: tuple[Source, ...] = ()
    default_mode: int | None = None


class EmptyDir(Lean, frozen=True, gc=False, kw_only=True):
    """A directory that lives as long as the pod."""

    medium: str = ""
    size_limit: manifest.Amount | None = None


class HostPath(Lean, frozen=True, gc=False, kw_only=True):
    """A path of the machine itself."""

    path: str
    type: str = ""


class Volume(Lean, frozen=True, gc=False, kw_only=True):
    """A volume: one of its fields, or a kind that is not served here."""

    name: str
    empty_dir: EmptyDir | None = None
    config_map: Keys | None = None
    secret: Keys | None = None
    downward_api: Downward | None = msgspec.field(default=None, name="downwardAPI")
    projected: Projected | None = None
    host_path: HostPath | None = None


class HostAlias(Lean, frozen=True, gc=False, kw_only=True):
    """Names for an address in /etc/hosts."""

    ip: str
    hostnames: tuple[str, ...] = ()


class Gate(Lean, frozen=True, gc=False, kw_only=True):
    """A condition that others must set before the pod is ready."""

    condition_type: str


class Spec(Lean, frozen=True, gc=False, kw_only=True):
    """What the kubelet reads of a pod's spec."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    node_name: str = ""
    service_account_name: str = ""
    enable_service_links: bool = True
    hostname: str = ""
    host_aliases: tuple[HostAlias, ...] = ()
    readiness_gates: tuple[Gate, ...] = ()
    security_context: SecurityContext | None = None

    @property
    def all(self) -> tuple[Container, ...]:
        """All containers, init containers first."""
        return (*self.init_containers, *self.containers)


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod with its spec decoded."""

    metadata: Metadata
    spec: Spec

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def title(self) -> str:
        """Its name in the kubelet's messages: `name_namespace(uid)`."""
        return f"{self.name}_{self.namespace}({self.metadata.uid})"

    def user(self, container: Container) -> tuple[int, int]:
        """User and group of a container: its own, or the pod's, or root."""
        contexts = [each for each in (container.security_context, self.spec.security_context) if each]
        user = next((each.run_as_user for each in contexts if each.run_as_user is not None), 0)
        group = next((each.run_as_group for each in contexts if each.run_as_group is not None), 0)
        return user, group

    @property
    def host_name(self) -> str:
        """The host name inside the pod."""
        return (self.spec.hostname or self.name)[:_LONGEST_HOST_NAME].rstrip("-.")


_BOUND = msgspec.json.Decoder(_Bound)
_SPEC = msgspec.json.Decoder(Spec)
_MANIFEST_SPEC = msgspec.json.Decoder(manifest.PodSpec)
