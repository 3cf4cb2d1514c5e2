"""What the containers of a pod must be."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import environment, names, probes, resources, security, volumes

Json = dict[str, Any]

_MESSAGES = ("File", "FallbackToLogsOnError")
_PULLS = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESTARTS = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_NO_POLICY = "must specify restartPolicy when restart rules are used"
_ONLY_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_EPHEMERAL = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip


class Containers:
    """All containers of one pod, with what they need to know of it."""

    def __init__(self, problems: Problems, spec: Json, usable: dict[str, Json]) -> None:
        self.problems = problems
        self.spec = spec
        self.volumes = usable
        self.claims = {each["name"] for each in spec.get("resourceClaims", ()) if each.get("name")}
        self.grace: int | None = spec.get("terminationGracePeriodSeconds")

    def check(self, path: str) -> None:
        """Note all that is wrong with them."""
        self._regular(f"{path}.containers")
        if "initContainers" in self.spec:
            self._init(f"{path}.initContainers")
        if "ephemeralContainers" in self.spec:
            self._ephemeral(f"{path}.ephemeralContainers")

    def _regular(self, path: str) -> None:
        problems, given = self.problems, self.spec.get("containers")
        if not given:
            problems.append(problem.required(path))
            return
        seen: set[str] = set()
        for index, container in enumerate(given):
            here, name = f"{path}[{index}]", container.get("name", "")
            self._common(here, container)
            if name in seen:
                problems.append(problem.duplicate(f"{here}.name", name))
            seen.add(name)
            if "lifecycle" in container:
                probes.lifecycle(problems, f"{here}.lifecycle", container["lifecycle"], self.grace)
            probes.all_of(problems, here, container, self.grace)
            if "restartPolicy" in container or "restartPolicyRules" in container:
                _restarts(problems, here, container)
        _host_ports(problems, path, given)

    def _init(self, path: str) -> None:
        problems = self.problems
        seen = {each.get("name", "") for each in self.spec.get("containers") or ()}
        for index, container in enumerate(self.spec["initContainers"]):
            here, name = f"{path}[{index}]", container.get("name", "")
            sidecar = container.get("restartPolicy") == "Always"
            self._common(here, container)
            if "restartPolicy" in container:
                _restarts(problems, here, container)
            elif "restartPolicyRules" in container:
                problems.append(problem.required(f"{here}.restartPolicy", _NO_POLICY))
            if name in seen:
                problems.append(problem.duplicate(f"{here}.name", name))
            elif name:
                seen.add(name)
            _host_ports(problems, path, [container])
            if sidecar:
                if "lifecycle" in container:
                    probes.lifecycle(problems, f"{here}.lifecycle", container["lifecycle"], self.grace)
                probes.all_of(problems, here, container, self.grace)
            else:
                self._only_sidecars(here, container)

    def _only_sidecars(self, path: str, container: Json) -> None:
        for key in _ONLY_SIDECARS:
            if key in container:
                words = "may not be set for init containers without restartPolicy=Always"
                self.problems.append(problem.forbidden(f"{path}.{key}", words))
        for index, policy in enumerate(container.get("resizePolicy", ())):
            if policy.get("restartPolicy") == "RestartContainer":
                words = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                here = f"{path}.resizePolicy[{index}].restartPolicy"
                self.problems.append(problem.invalid(here, "RestartContainer", words))

    def _ephemeral(self, path: str) -> None:
        problems = self.problems
        others = [*(self.spec.get("containers") or ()), *self.spec.get("initContainers", ())]
        known = {each.get("name", "") for each in others}
        seen = set(known)
        words = "cannot be set for an Ephemeral Container"
        for index, container in enumerate(self.spec["ephemeralContainers"]):
            here, name = f"{path}[{index}]", container.get("name", "")
            self._common(here, container)
            trimmed(problems, here, container)
            if name in seen:
                problems.append(problem.duplicate(f"{here}.name", name))
            seen.add(name)
            target = container.get("targetContainerName", "")
            if target and target not in known:
                problems.append(problem.not_found(f"{here}.targetContainerName", target))
            problems += [problem.forbidden(f"{here}.{key}", words) for key in _NOT_EPHEMERAL if container.get(key)]
            for place, mount in enumerate(container.get("volumeMounts", ())):
                for key in ("subPath", "subPathExpr"):
                    if mount.get(key):
                        problems.append(problem.forbidden(f"{here}.volumeMounts[{place}].{key}", words))

    def _common(self, path: str, container: Json) -> None:
        problems = self.problems
        name = container.get("name", "")
        if not name:
            problems.append(problem.required(f"{path}.name"))
        else:
            wrong = names.dns_label(name)
            if wrong:
                problem.each(problems, f"{path}.name", name, wrong)
        if not container.get("image"):
            problems.append(problem.required(f"{path}.image"))
        message = container.get("terminationMessagePolicy", "")
        if message not in _MESSAGES:
            problems.append(problem.unsupported(f"{path}.terminationMessagePolicy", message, _MESSAGES))
        if "ports" in container:
            _ports(problems, f"{path}.ports", container["ports"])
        if "env" in container:
            environment.variables(problems, f"{path}.env", container["env"])
        if "envFrom" in container:
            environment.sources(problems, f"{path}.envFrom", container["envFrom"])
        if "volumeMounts" in container:
            volumes.mounts(problems, f"{path}.volumeMounts", container, self.volumes)
        if "volumeDevices" in container:
            volumes.devices(problems, f"{path}.volumeDevices", container, self.volumes)
        policy = container.get("imagePullPolicy", "")
        if policy not in _PULLS:
            problems.append(problem.unsupported(f"{path}.imagePullPolicy", policy, _PULLS))
        if container["resources"]:
            resources.requirements(problems, f"{path}.resources", container["resources"], self.claims)
        if "resizePolicy" in container:
            self._resizing(f"{path}.resizePolicy", container["resizePolicy"])
        if "securityContext" in container:
            host_users = self.spec.get("hostUsers") is not False
            security.of_container(
                problems, f"{path}.securityContext", container["securityContext"], host_users=host_users
            )

    def _resizing(self, path: str, policies: list[Json]) -> None:
        problems = self.problems
        seen: set[str] = set()
        for index, policy in enumerate(policies):
            name, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
            if name in seen:
                problems.append(problem.duplicate(f"{path}[{index}]", name))
            seen.add(name)
            for value, known in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
                if not value:
                    problems.append(problem.required(path))
                elif value not in known:
                    problems.append(problem.unsupported(path, value, known))
            if self.spec.get("restartPolicy") == "Never" and restart != "NotRequired":
                words = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
                problems.append(problem.invalid(path, restart, words))


def trimmed(problems: Problems, path: str, container: Json) -> None:
    """Of an image's name in a pod."""
    image = container.get("image", "")
    if image != image.strip():
        problems.append(problem.invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _ports(problems: Problems, path: str, ports: list[Json]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        name, number, on_host = port.get("name", ""), port.get("containerPort", 0), port.get("hostPort", 0)
        if name:
            wrong = names.port_name(name)
            problem.each(problems, f"{here}.name", name, wrong)
            if name in seen:
                problems.append(problem.duplicate(f"{here}.name", name))
            if not wrong:
                seen.add(name)
        if not number:
            problems.append(problem.required(f"{here}.containerPort"))
        else:
            problem.each(problems, f"{here}.containerPort", number, names.port_number(number))
        if on_host:
            problem.each(problems, f"{here}.hostPort", on_host, names.port_number(on_host))
        if port.get("protocol") not in _PROTOCOLS:
            problems.append(problem.unsupported(f"{here}.protocol", port.get("protocol", ""), _PROTOCOLS))


def _host_ports(problems: Problems, path: str, containers: list[Json]) -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for place, port in enumerate(container.get("ports", ())):
            if port.get("hostPort"):
                taken = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                if taken in seen:
                    problems.append(problem.duplicate(f"{path}[{index}].ports[{place}].hostPort", taken))
                seen.add(taken)


def _restarts(problems: Problems, path: str, container: Json) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    if policy is None:
        problems.append(problem.required(f"{path}.restartPolicy", _NO_POLICY))
    elif policy not in _RESTARTS:
        problems.append(problem.unsupported(f"{path}.restartPolicy", policy, _RESTARTS))
    if len(rules) > 20:
        problems.append(problem.too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        here, codes = f"{path}.restartPolicyRules[{index}]", rule.get("exitCodes")
        if rule.get("action") not in _ACTIONS:
            problems.append(problem.unsupported(f"{here}.action", rule.get("action", ""), _ACTIONS))
        if codes is None:
            problems.append(problem.required(f"{here}.exitCodes", "must be specified"))
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            known = ("In", "NotIn")
            problems.append(problem.unsupported(f"{here}.exitCodes.operator", codes.get("operator", ""), known))
        if len(codes.get("values", ())) > 255:
            problems.append(problem.too_many(f"{here}.exitCodes.values", len(codes["values"]), 255))
