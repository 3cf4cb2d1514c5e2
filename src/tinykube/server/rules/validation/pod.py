"""What a pod must be when it is created."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tinykube.server import digits
from tinykube.server.rules import amounts, problem, scalars
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, resources, scheduling, security, volumes
from tinykube.server.rules.validation.containers import Containers, trimmed

Json = dict[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RESTARTS = ("Always", "OnFailure", "Never")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_MAX_INT32 = 2**31 - 1


def creation(problems: Problems, pod: Json) -> None:
    """Of a new pod."""
    whole(problems, pod)
    spec = pod["spec"]
    if "ephemeralContainers" in spec:
        problems.append(problem.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        words = "cannot be set until all schedulingGates have been cleared"
        problems.append(problem.forbidden("spec.nodeName", words))


def whole(problems: Problems, pod: Json) -> None:
    """Of a pod's metadata and spec, new or changed."""
    meta, spec = pod["metadata"], pod["spec"]
    metadata.creation(problems, meta, True, names.subdomain_name)
    if "annotations" in meta:
        own_annotations(problems, meta["annotations"], spec)
    of_spec(problems, spec, meta.get("name", ""))
    if not spec.get("serviceAccountName"):
        _no_tokens(problems, spec)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            trimmed(problems, f"spec.{kind}[{index}]", container)


def template(problems: Problems, template: Json) -> None:
    """Of the template of a workload's pods, which is in its `spec.template`."""
    meta, spec = template["metadata"], template["spec"]
    metadata.labels(problems, "spec.template.labels", meta.get("labels"))
    metadata.of_annotations(problems, meta.get("annotations", {}), "spec.template")
    inside: Problems = []
    own_annotations(inside, meta.get("annotations", {}), spec)
    problems += [replace(each, field=f"spec.template.{each.field.removeprefix('metadata.')}") for each in inside]
    inside = []
    of_spec(inside, spec, "")
    if "ephemeralContainers" in spec:
        words = "ephemeral containers not allowed in pod template"
        inside.append(problem.forbidden("spec.ephemeralContainers", words))
    problems += [replace(each, field=f"spec.template.{each.field}") for each in inside]


def own_annotations(problems: Problems, given: dict[str, str], spec: Json) -> None:
    """Of annotations that mean something to the API server itself."""
    path = "metadata.annotations"
    if _MIRROR in given and not spec.get("nodeName"):
        words = "must set spec.nodeName if mirror pod annotation is set"
        problems.append(problem.invalid(f"{path}[{_MIRROR}]", given[_MIRROR], words))
    cost = given.get(_DELETION_COST)
    if cost is not None and not _is_cost(cost):
        problems.append(problem.invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    profile = given.get(_SECCOMP)
    known = ("runtime/default", "docker/default", "unconfined")
    if profile is not None and profile not in known and not profile.startswith("localhost/"):
        problems.append(problem.invalid(f"{path}.{_SECCOMP}", profile, "must be a valid seccomp profile"))
    containers = {each.get("name") for _, each in every_container(spec)}
    for key, profile in given.items():
        if key.startswith(_APP_ARMOR):
            _app_armor(problems, f"{path}[{key}]", key.removeprefix(_APP_ARMOR), profile, containers)


def every_container(spec: Json) -> Iterator[tuple[str, Json]]:
    """All containers with their paths: init containers, the others, ephemeral ones."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"spec.{kind}[{index}]", container


def of_spec(problems: Problems, spec: Json, name: str) -> None:
    """Of what a pod is to be, of which only the name is known else."""
    usable = volumes.all_of(problems, "spec.volumes", spec["volumes"], name) if "volumes" in spec else {}
    if "resourceClaims" in spec:
        _claims(problems, "spec.resourceClaims", spec["resourceClaims"])
    Containers(problems, spec, usable).check("spec")
    if "resources" in spec:
        _pod_level(problems, spec)
    if spec.get("hostNetwork"):
        _host_network(problems, spec)
    _choice(problems, "spec.restartPolicy", spec.get("restartPolicy", ""), _RESTARTS)
    _choice(problems, "spec.dnsPolicy", spec.get("dnsPolicy", ""), _DNS)
    metadata.labels(problems, "spec.nodeSelector", spec.get("nodeSelector"))
    security.of_pod(problems, "spec.securityContext", spec)
    if "affinity" in spec:
        scheduling.affinity(problems, "spec.affinity", spec["affinity"])
    if "dnsConfig" in spec or spec.get("dnsPolicy") == "None":
        _dns(problems, "spec.dnsConfig", spec.get("dnsConfig"), spec.get("dnsPolicy", ""))
    for index, gate in enumerate(spec.get("readinessGates", ())):
        kind = gate.get("conditionType", "")
        problem.each(problems, f"spec.readinessGates[{index}].conditionType", kind, names.label_key(kind))
    if "schedulingGates" in spec:
        scheduling.gates(problems, "spec.schedulingGates", spec["schedulingGates"])
    if "topologySpreadConstraints" in spec:
        scheduling.spread(problems, "spec.topologySpreadConstraints", spec["topologySpreadConstraints"])
    if spec.get("hostUsers") is False:
        _own_users(problems, spec)
    if "hostnameOverride" in spec:
        _host_name(problems, spec)
    _names(problems, spec)
    if "tolerations" in spec:
        scheduling.tolerations(problems, "spec.tolerations", spec["tolerations"])
    _rest(problems, spec)


def _names(problems: Problems, spec: Json) -> None:
    for key in ("serviceAccountName", "nodeName"):
        if spec.get(key):
            wrong = names.subdomain_name(spec[key])
            if wrong:
                problem.each(problems, f"spec.{key}", spec[key], wrong)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        words = names.between(1, _MAX_INT32)
        problems.append(problem.invalid("spec.activeDeadlineSeconds", deadline, words))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            problem.each(problems, f"spec.{key}", spec[key], names.dns_label(spec[key]))


def _rest(problems: Problems, spec: Json) -> None:
    for index, alias in enumerate(spec.get("hostAliases", ())):
        here = f"spec.hostAliases[{index}]"
        problem.each(problems, f"{here}.ip", alias.get("ip", ""), names.ip(alias.get("ip", "")))
        for place, host in enumerate(alias.get("hostnames", ())):
            problem.each(problems, f"{here}.hostnames[{place}]", host, names.dns_subdomain(host))
    for key in ("priorityClassName", "runtimeClassName"):
        if spec.get(key):
            problem.each(problems, f"spec.{key}", spec[key], names.subdomain_name(spec[key]))
    if "preemptionPolicy" in spec:
        _choice(problems, "spec.preemptionPolicy", spec["preemptionPolicy"], _PREEMPTION)
    if spec.get("overhead"):
        resources.requirements(problems, "spec.overhead", {"limits": spec["overhead"]}, set())
    if "os" in spec:
        system = spec["os"].get("name", "")
        if not system:
            problems.append(problem.required("spec.os.name"))
        elif system not in ("linux", "windows"):
            problems.append(problem.unsupported("spec.os", system, ("linux", "windows")))
    _files(problems, spec)


def _choice(problems: Problems, path: str, value: str, known: tuple[str, ...]) -> None:
    if not value:
        problems.append(problem.required(path))
    elif value not in known:
        problems.append(problem.unsupported(path, value, known))


def _claims(problems: Problems, path: str, claims: list[Json]) -> None:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            problems.append(problem.required(f"{here}.name"))
        elif name in seen:
            problems.append(problem.duplicate(f"{here}.name", name))
        else:
            problem.each(problems, f"{here}.name", name, names.dns_label(name))
            seen.add(name)
        own, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        if own is not None and template is not None:
            words = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            problems.append(problem.invalid(here, claim, words))
        if own is None and template is None:
            words = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            problems.append(problem.invalid(here, claim, words))
        for key in ("resourceClaimName", "resourceClaimTemplateName"):
            if claim.get(key) is not None:
                problem.each(problems, f"{here}.{key}", claim[key], names.subdomain_name(claim[key]))


def _pod_level(problems: Problems, spec: Json) -> None:
    path, given = "spec.resources", spec["resources"]
    if "claims" in given:
        problems.append(problem.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    resources.requirements(problems, path, given, set(), of_pod=True)
    own, limits = given.get("requests", {}), given.get("limits", {})
    for name, text in amounts.of_containers(spec, "requests").items():
        if name in own and scalars.nanos(text) > scalars.nanos(own[name]):
            words = f"must be greater than or equal to aggregate container requests of {text}"
            problems.append(problem.invalid(f"{path}.requests[{name}]", own[name], words))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in container["resources"].get("limits", {}).items():
            if name in limits and scalars.nanos(text) > scalars.nanos(limits[name]):
                words = f"must be less than or equal to pod limits of {limits[name]}"
                here = f"{path}.containers[{index}][{name}].limits"
                problems.append(problem.invalid(here, text, words))


def _host_network(problems: Problems, spec: Json) -> None:
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports", ())):
            # In a template it may be open, and is filled in when the pod is made.
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort", 0):
                here = f"spec.containers[{index}].ports[{place}].hostPort"
                words = "must match `containerPort` when `hostNetwork` is true"
                problems.append(problem.invalid(here, port.get("hostPort", 0), words))


def _dns(problems: Problems, path: str, given: Json | None, policy: str) -> None:
    servers = (given or {}).get("nameservers", ())
    if policy == "None" and given is None:
        problems.append(problem.required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
        return
    if policy == "None" and not servers:
        words = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        problems.append(problem.required(f"{path}.nameservers", words))
        return
    given = given or {}
    searches = given.get("searches", ())
    if len(servers) > 3:
        problems.append(problem.invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        problem.each(problems, f"{path}.nameservers[{index}]", server, names.ip(server))
    if len(searches) > 32:
        problems.append(problem.invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches).encode()) > 2048:
        words = "must not have more than 2048 characters (including spaces) in the search list"
        problems.append(problem.invalid(f"{path}.searches", searches, words))
    for index, search in enumerate(searches):
        if search != ".":
            text = search.removesuffix(".")
            problem.each(problems, f"{path}.searches[{index}]", text, names.dns_search(text))
    for index, option in enumerate(given.get("options", ())):
        if not option.get("name"):
            problems.append(problem.required(f"{path}.options[{index}]", "must not be empty"))


def _own_users(problems: Problems, spec: Json) -> None:
    words = "when `hostUsers` is false"
    for key, name in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(key):
            problems.append(problem.forbidden(f"spec.{name}", words))
    for path, container in every_container(spec):
        if "volumeDevices" in container:
            problems.append(problem.forbidden(f"{path}.volumeDevices", words))


def _host_name(problems: Problems, spec: Json) -> None:
    path, name = "spec.hostnameOverride", spec["hostnameOverride"]
    for key in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(key):
            problems.append(problem.forbidden(path, f"may not be specified when {key} is true"))
    if len(name.encode()) > 64:
        problems.append(problem.too_long(path, 64))
    problem.each(problems, path, name, names.dns_subdomain(name))


def _files(problems: Problems, spec: Json) -> None:
    """Variables from files: the file must be in an empty directory."""
    volumes = {each.get("name"): each for each in reversed(spec.get("volumes", ()))}
    for path, container in every_container(spec):
        for index, variable in enumerate(container.get("env", ())):
            reference = variable.get("valueFrom", {}).get("fileKeyRef")
            if reference is None:
                continue
            here, name = f"{path}.env[{index}].valueFrom.fileKeyRef.volumeName", reference.get("volumeName", "")
            found = volumes.get(name)
            if found is None:
                problems.append(problem.not_found(here, name))
            elif "emptyDir" not in found:
                problems.append(problem.invalid(here, name, "referenced volume must be of type emptyDir"))


def _no_tokens(problems: Problems, spec: Json) -> None:
    for index, volume in enumerate(spec.get("volumes", ())):
        for place, source in enumerate(volume.get("projected", {}).get("sources") or ()):
            if "serviceAccountToken" in source:
                here = f"spec.volumes[{index}].projected.sources[{place}].serviceAccountToken"
                words = "must not be specified when serviceAccountName is not set"
                problems.append(problem.forbidden(here, words))


def _app_armor(problems: Problems, path: str, container: str, profile: str, containers: set[str | None]) -> None:
    if container not in containers:
        problems.append(problem.invalid(path, container, "container not found"))
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
        words = f"invalid AppArmor profile name: {problem.quote(profile)}"
        problems.append(problem.invalid(path, profile, words))


def _is_cost(text: str) -> bool:
    plain = text.removeprefix("-")
    if not plain.isdigit() or not plain.isascii() or (plain[0] == "0" and text != "0"):
        return False
    cost = digits.whole(text)
    return cost is not None and -(2**31) <= cost < 2**31
