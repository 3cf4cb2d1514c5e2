"""What a pod is where its author says nothing."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import amounts, scalars
from tinykube.server.rules.images import pull_policy

Json = dict[str, Any]

_SPEC = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")
_RARE: dict[str, Json] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def fill(pod: Json) -> None:
    """Complete a pod."""
    spec = pod["spec"]
    for container in (*(spec.get("containers") or ()), *spec.get("initContainers", ())):
        _requests(container["resources"])
    template(spec)
    if "resources" in spec:
        _pod_level(spec)
    if spec.get("hostNetwork"):
        _host_ports(spec)
    spec.setdefault("enableServiceLinks", True)
    if "status" in pod:
        _status(pod["status"])


def template(spec: Json) -> None:
    """Complete the spec of a pod that is to be made later: what depends on the whole pod is filled in then."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            _container(container)
    for key, value in _SPEC.items():
        if key not in spec:
            spec[key] = value
    spec.setdefault("securityContext", {})
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for volume in spec.get("volumes", ()):
        _volume(volume)
    if "overhead" in spec:
        scalars.in_thousandths(spec["overhead"])
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _requests(resources: Json) -> None:
    """What has only a limit is requested in full."""
    limits = resources.get("limits")
    if limits is not None:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            if name not in requests:
                requests[name] = amount


def _container(container: Json) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        source = variable.get("valueFrom")
        if source is not None:
            _field_reference(source)
            if "fileKeyRef" in source:
                source["fileKeyRef"].setdefault("optional", False)
    for each in container["resources"].values():
        if type(each) is dict:
            scalars.in_thousandths(each)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for handler in container.get("lifecycle", {}).values():
        if type(handler) is dict:
            _http(handler)


def _probe(probe: Json) -> None:
    for key, value in _PROBE.items():
        probe.setdefault(key, value)
    _http(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _http(handler: Json) -> None:
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")


def _field_reference(source: Json) -> None:
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")


def _volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
        return
    for name in _WITH_MODE:
        if name in volume:
            volume[name].setdefault("defaultMode", 0o644)
    for name, values in _RARE.items():
        if name in volume:
            for key, value in values.items():
                volume[name].setdefault(key, value)
    for item in volume.get("downwardAPI", {}).get("items", ()):
        _field_reference(item)
    for source in volume.get("projected", {}).get("sources") or ():
        for item in source.get("downwardAPI", {}).get("items", ()):
            _field_reference(item)
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", pull_policy(volume["image"].get("reference", "")))
    template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
    if template is not None:
        template["spec"].setdefault("volumeMode", "Filesystem")
        for each in template["spec"]["resources"].values():
            scalars.in_thousandths(each)


def _pod_level(spec: Json) -> None:
    """What the containers ask for is what the pod asks for, where the pod itself has limits."""
    own = spec["resources"]
    if own.get("limits") or own.get("requests"):
        limits = own.get("limits", {})
        for name, amount in amounts.of_containers(spec, "limits").items():
            if name.startswith("hugepages-") and name not in own.get("requests", {}):
                limits.setdefault(name, amount)
        if limits:
            own["limits"] = limits
    if not own.get("limits"):
        return
    requests = own.get("requests", {})
    for name, amount in amounts.of_containers(spec, "requests").items():
        if name in amounts.POD_LEVEL:
            requests.setdefault(name, amount)
    for name, amount in own["limits"].items():
        if amounts.is_pod_level(name):
            requests.setdefault(name, amount)
    if requests:
        own["requests"] = requests
    for each in ("limits", "requests"):
        if each in own:
            scalars.in_thousandths(own[each])


def _host_ports(spec: Json) -> None:
    for container in [*(spec.get("containers") or ()), *spec.get("initContainers", ())]:
        for port in container.get("ports", ()):
            if port.get("containerPort"):
                port.setdefault("hostPort", port["containerPort"])


def _status(status: Json) -> None:
    """The first of a pod's addresses has another field too, and amounts are as rough as elsewhere."""
    first, all_of_them = status.get("podIP"), status.get("podIPs")
    if first and (not all_of_them or all_of_them[0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    elif all_of_them:
        status["podIP"] = all_of_them[0].get("ip", "")
    parts = [status]
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        parts += status.get(kind, ())
    for part in parts:
        for amounts_of in (part.get("allocatedResources"), *(part.get("resources") or {}).values()):
            if type(amounts_of) is dict:
                scalars.in_thousandths(amounts_of)
