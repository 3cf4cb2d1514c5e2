"""The columns that `kubectl get` shows of each kind, and what is in them.

Custom kinds name their columns in their definition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tinykube.server import crds, kinds, workload_summary
from tinykube.server.kinds import Kind
from tinykube.server.pod_summary import summary

Json = dict[str, Any]
Cells = Callable[[Json, float], list[Any]]
"""The cells of an object at a moment, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one of priority 1 is shown by `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        """As a Table has it."""
        return {
            "name": self.name, "type": self.type, "format": self.format,
            "description": self.description or self.name, "priority": self.priority,
        }  # fmt: skip


NAME = Column("Name", format="name", description="The name, unique in its namespace.")
AGE = Column("Age", description="How long ago it was created.")


def wide(name: str, type: str = "string") -> Column:
    """A column for those who want more."""
    return Column(name, type, priority=1)


def of(kind: Kind) -> tuple[tuple[Column, ...], Cells]:
    """The columns of a kind, and how an object fills them."""
    return _custom(kind) if kind.custom else _KINDS[kind]


def duration(seconds: float) -> str:
    """A span of time in few letters: 45s, 3m20s, 26h, 3d4h, 1y20d."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    for value, unit, limit, rest, smaller in (
        (minutes, "m", 10, whole % 60, "s"),
        (minutes, "m", 180, 0, ""),
        (hours, "h", 8, minutes % 60, "m"),
        (hours, "h", 48, 0, ""),
        (days, "d", 8, hours % 24, "h"),
        (days, "d", 730, 0, ""),
        (days // 365, "y", 8, days % 365, "d"),
    ):
        if value < limit:
            return f"{value}{unit}{rest}{smaller}" if rest else f"{value}{unit}"
    return f"{days // 365}y"


def since(text: str | None, now: float) -> str:
    """How long ago a moment was that an object carries."""
    if not text:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<invalid>"
    return duration(now - moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())


def age(object: Json, now: float) -> str:
    """How long an object has been there."""
    return since(object["metadata"].get("creationTimestamp"), now)


def _pod(pod: Json, now: float) -> list[Any]:
    line, spec, status = summary(pod), pod.get("spec", {}), pod.get("status", {})
    restarts = str(line.restarts)
    if line.restarts and line.restarted:
        restarts += f" ({since(line.restarted, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    gates = [each["conditionType"] for each in spec.get("readinessGates", [])]
    met = {each["type"] for each in status.get("conditions", []) if each.get("status") == "True"}
    return [
        pod["metadata"]["name"],
        f"{line.ready}/{line.total}",
        line.state,
        restarts,
        age(pod, now),
        addresses[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{sum(gate in met for gate in gates)}/{len(gates)}" if gates else "<none>",
    ]


def _node(node: Json, now: float) -> list[Any]:
    status, spec = node.get("status", {}), node.get("spec", {})
    ready = {each["type"]: each["status"] for each in status.get("conditions", [])}.get("Ready")
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if spec.get("unschedulable"):
        states.append("SchedulingDisabled")
    roles = set()
    for key, value in node["metadata"].get("labels", {}).items():
        role = key.removeprefix("node-role.kubernetes.io/")
        roles |= {role} if role != key else {value} if key == "kubernetes.io/role" else set()
    info = status.get("nodeInfo") or {}
    addresses = {each["type"]: each["address"] for each in reversed(status.get("addresses", []))}
    kernel = info.get("kernelVersion") or "<unknown>"
    return [
        node["metadata"]["name"],
        ",".join(states),
        ",".join(sorted(roles - {""})) or "<none>",
        age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(event: Json, now: float) -> list[Any]:
    about, series, source = event.get("involvedObject") or {}, event.get("series"), event.get("source") or {}
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    if series:
        last = since(series.get("lastObservedTime"), now)
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance") or ""
    kind = about.get("kind", "").lower()
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        event.get("message", "").strip(),
        first,
        series.get("count", 0) if series else event.get("count") or 1,
        event["metadata"]["name"],
    ]


def _service(service: Json, now: float) -> list[Any]:
    spec = service.get("spec", {})
    ports = [
        f"{each['port']}{':' + str(each['nodePort']) if each.get('nodePort') else ''}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports", [])
    ]
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec.get("selector", {}).items()))
    return [
        service["metadata"]["name"],
        spec.get("type", ""),
        (spec.get("clusterIPs") or ["<none>"])[0],
        _external(service),
        ",".join(ports) or "<none>",
        age(service, now),
        selector or "<none>",
    ]


def _external(service: Json) -> str:
    spec = service.get("spec", {})
    given = spec.get("externalIPs", [])
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or "<none>"
        case "LoadBalancer":
            ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress", [])
            balanced = sorted({each.get("ip") or each.get("hostname", "") for each in ingress} - {""})
            return ",".join([*balanced, *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return "<unknown>"


def _quota(quota: Json, now: float) -> list[Any]:
    status = quota.get("status", {})
    used = status.get("used") or {}
    requests, limits = list[str](), list[str]()
    for name, hard in sorted((status.get("hard") or {}).items()):
        column = limits if name.startswith("limits.") else requests
        column.append(f"{name}: {used.get(name, '0')}/{hard}")
    return [quota["metadata"]["name"], ", ".join(requests), ", ".join(limits), age(quota, now)]


def _plain(*values: Callable[[Json], Any]) -> Cells:
    """The name, some values, and the age."""
    return lambda object, now: [object["metadata"]["name"], *(value(object) for value in values), age(object, now)]


def _priority_class(object: Json, now: float) -> list[Any]:
    return [
        object["metadata"]["name"],
        object.get("value", 0),
        object.get("globalDefault", False),
        age(object, now),
        object.get("preemptionPolicy", ""),
    ]


def _workload(line: Callable[[Json], list[Any]]) -> Cells:
    return lambda object, now: [
        object["metadata"]["name"], *line(object), age(object, now), *workload_summary.template(object)
    ]  # fmt: skip


def _job(job: Json, now: float) -> list[Any]:
    state, completions, (began, ended) = workload_summary.job(job)
    lasted = ""
    if began:
        until = datetime.fromisoformat(ended).timestamp() if ended else now
        lasted = since(began, until)
    return [
        job["metadata"]["name"], state, completions, lasted, age(job, now), *workload_summary.template(job)
    ]  # fmt: skip


_POD_COLUMNS = (
    NAME, Column("Ready"), Column("Status"), Column("Restarts"), AGE,
    wide("IP"), wide("Node"), wide("Nominated Node"), wide("Readiness Gates"),
)  # fmt: skip
_NODE_COLUMNS = (
    NAME, Column("Status"), Column("Roles"), AGE, Column("Version"),
    *map(wide, ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")),
)  # fmt: skip
_EVENT_COLUMNS = (
    Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"), wide("Subobject"), wide("Source"),
    Column("Message"), wide("First Seen"), wide("Count"), Column("Name", format="name", priority=1),
)  # fmt: skip
_SERVICE_COLUMNS = (
    NAME, Column("Type"), Column("Cluster-IP"), Column("External-IP"), Column("Port(s)"), AGE, wide("Selector"),
)  # fmt: skip

_TEMPLATE_COLUMNS = tuple(map(wide, ("Containers", "Images", "Selector")))


def _counted(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "integer") for name in names)


_KINDS: dict[Kind, tuple[tuple[Column, ...], Cells]] = {
    kinds.POD: (_POD_COLUMNS, _pod),
    kinds.NODE: (_NODE_COLUMNS, _node),
    kinds.EVENT: (_EVENT_COLUMNS, _event),
    kinds.SERVICE: (_SERVICE_COLUMNS, _service),
    kinds.NAMESPACE: ((NAME, Column("Status"), AGE), _plain(lambda each: each.get("status", {}).get("phase", ""))),
    kinds.CONFIG_MAP: (
        (NAME, Column("Data"), AGE),
        _plain(lambda each: len(each.get("data", {})) + len(each.get("binaryData", {}))),
    ),
    kinds.SECRET: (
        (NAME, Column("Type"), Column("Data"), AGE),
        _plain(lambda each: each.get("type", ""), lambda each: len(each.get("data", {}))),
    ),
    kinds.SERVICE_ACCOUNT: ((NAME, AGE), _plain()),
    kinds.RESOURCE_QUOTA: ((NAME, Column("Request"), Column("Limit"), AGE), _quota),
    kinds.LEASE: ((NAME, Column("Holder"), AGE), _plain(lambda each: each.get("spec", {}).get("holderIdentity", ""))),
    kinds.DEPLOYMENT: (
        (NAME, Column("Ready"), Column("Up-to-date"), Column("Available"), AGE, *_TEMPLATE_COLUMNS),
        _workload(workload_summary.deployment),
    ),
    kinds.REPLICA_SET: (
        (NAME, *_counted("Desired", "Current", "Ready"), AGE, *_TEMPLATE_COLUMNS),
        _workload(workload_summary.replica_set),
    ),
    kinds.DAEMON_SET: (
        (
            NAME,
            *_counted("Desired", "Current", "Ready", "Up-to-date", "Available"),
            Column("Node Selector"),
            AGE,
            *_TEMPLATE_COLUMNS,
        ),
        _workload(workload_summary.daemon_set),
    ),
    kinds.JOB: (
        (NAME, Column("Status"), Column("Completions"), Column("Duration"), AGE, *_TEMPLATE_COLUMNS),
        _job,
    ),
    kinds.PRIORITY_CLASS: (
        (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy")),
        _priority_class,
    ),
}


@cache
def _custom(kind: Kind) -> tuple[tuple[Column, ...], Cells]:
    defined = crds.version(kind).get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]
    columns = [NAME]
    for each in defined:
        description = (
            each.get("description") or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}"
        )
        columns.append(Column(each["name"], each["type"], each.get("format", ""), each.get("priority", 0), description))
    paths = [(each["jsonPath"].strip(".").split("."), each["type"]) for each in defined]

    def cells(object: Json, now: float) -> list[Any]:
        return [object["metadata"]["name"], *(_cell(object, path, type, now) for path, type in paths)]

    return tuple(columns), cells


def _cell(object: Any, path: list[str], type: str, now: float) -> Any:
    for step in path:
        if not isinstance(object, dict) or step not in object:
            return None
        object = object[step]
    match type:
        case "date":
            return since(object, now) if isinstance(object, str) else None
        case "integer":
            return int(object) if isinstance(object, int | float) and not isinstance(object, bool) else None
        case "number":
            return object if isinstance(object, int | float) and not isinstance(object, bool) else None
        case "boolean":
            return object if isinstance(object, bool) else None
    return str(object)
