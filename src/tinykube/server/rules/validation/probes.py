"""How a container may be asked whether it lives, and what may run when it starts and stops."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names

Json = dict[str, Any]

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_LIFECYCLE_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def all_of(problems: Problems, path: str, container: Json, grace: int | None) -> None:
    """Of the three probes of a container."""
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        if kind in container:
            _probe(problems, f"{path}.{kind}", container[kind], grace, kind)


def lifecycle(problems: Problems, path: str, given: Json, grace: int | None) -> None:
    """Of what runs when a container starts and stops."""
    for kind in ("postStart", "preStop"):
        if kind in given:
            _handler(problems, f"{path}.{kind}", given[kind], grace, _LIFECYCLE_HANDLERS)


def port(problems: Problems, path: str, given: int | str) -> None:
    """Of a port by number or by name."""
    wrong = names.port_name(given) if isinstance(given, str) else names.port_number(given)
    problem.each(problems, path, given, wrong)


def _probe(problems: Problems, path: str, probe: Json, grace: int | None, kind: str) -> None:
    _handler(problems, path, probe, grace, _PROBE_HANDLERS)
    for name in _NUMBERS:
        if probe.get(name, 0) < 0:
            problems.append(problem.invalid(f"{path}.{name}", probe[name], "must be greater than or equal to 0"))
    own = probe.get("terminationGracePeriodSeconds")
    here = f"{path}.terminationGracePeriodSeconds"
    if own is not None and own <= 0:
        problems.append(problem.invalid(here, own, "must be greater than 0"))
    if kind == "readinessProbe":
        if own is not None:
            problems.append(problem.invalid(here, own, "must not be set for readinessProbes"))
    elif probe.get("successThreshold", 0) != 1:
        problems.append(problem.invalid(f"{path}.successThreshold", probe.get("successThreshold", 0), "must be 1"))


def _handler(problems: Problems, path: str, given: Json, grace: int | None, kinds: tuple[str, ...]) -> None:
    seen = False
    for kind in kinds:
        if kind not in given:
            continue
        if seen:
            problems.append(problem.forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
            continue
        seen = True
        _action(problems, f"{path}.{kind}", kind, given[kind], grace)
    if not seen:
        problems.append(problem.required(path, "must specify a handler type"))


def _action(problems: Problems, path: str, kind: str, action: Json, grace: int | None) -> None:
    match kind:
        case "exec":
            if not action.get("command"):
                problems.append(problem.required(f"{path}.command"))
        case "httpGet":
            _http(problems, path, action)
        case "tcpSocket" | "grpc":
            port(problems, f"{path}.port", action.get("port", 0))
        case "sleep":
            seconds = action.get("seconds", 0)
            if grace is not None and not 0 <= seconds <= grace:
                words = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                problems.append(problem.invalid(path, seconds, words))


def _http(problems: Problems, path: str, action: Json) -> None:
    if not action.get("path"):
        problems.append(problem.required(f"{path}.path"))
    port(problems, f"{path}.port", action.get("port", 0))
    if action.get("scheme") not in ("HTTP", "HTTPS"):
        problems.append(problem.unsupported(f"{path}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS")))
    for each in action.get("httpHeaders", ()):
        problem.each(problems, f"{path}.httpHeaders", each.get("name", ""), names.header(each.get("name", "")))
