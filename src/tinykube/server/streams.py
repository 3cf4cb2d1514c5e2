"""What the kubelet is asked for: logs of containers, programs run inside them, and what they use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tinykube.server import errors
from tinykube.server.kinds import Kind
from tinykube.server.kubelet import Kubelet, LogOptions, Session
from tinykube.server.options import flag, integer
from tinykube.server.rules import problem
from tinykube.status import ApiError, Cause

Json = dict[str, Any]
Query = Mapping[str, str]

_LOG_OPTIONS = Kind("", "v1", "PodLogOptions", "podlogoptions")


@dataclass(frozen=True, slots=True)
class Execution:
    """The query of `pods/NAME/exec`."""

    container: str
    command: tuple[str, ...]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def execution(query: Query, command: Sequence[str]) -> Execution:
    """What is to be run.  The command is given apart, since its parameter comes many times."""
    wanted = Execution(
        query.get("container", ""),
        tuple(command),
        bool(flag(query, "stdin")),
        bool(flag(query, "stdout")),
        bool(flag(query, "stderr")),
        bool(flag(query, "tty")),
    )
    if wanted.tty and wanted.stderr:
        wanted = Execution(wanted.container, wanted.command, wanted.stdin, wanted.stdout, False, True)
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return wanted


def check(pod: Json, container: str) -> str:
    """The container in which something can be run."""
    found = _container(pod, container)
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    return found


def no_spdy(pod: Json, container: str) -> ApiError:
    """Why SPDY is not spoken.  kubectl falls back to it when a WebSocket is refused, and shows what it hears then."""
    status = pod.get("status", {})
    known = [*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])]
    if not any(each["name"] == container and "running" in each.get("state", {}) for each in known):
        return errors.internal(f'unable to upgrade connection: container not found ("{container}")')
    return errors.bad_request("unable to upgrade: commands run over WebSockets only, which kubectl speaks since 1.31")


async def execute(kubelet: Kubelet | None, pod: Json, wanted: Execution) -> Session:
    """Start a program in a container."""
    container = check(pod, wanted.container)
    return await _reached(kubelet, pod["spec"]["nodeName"]).execute(
        pod, container, wanted.command, stdin=wanted.stdin, tty=wanted.tty
    )  # fmt: skip


async def logs(kubelet: Kubelet | None, pod: Json, query: Query, now: float) -> AsyncIterator[bytes] | None:
    """What a container has printed; None if the pod is on no node yet."""
    options = _log_options(pod["metadata"]["name"], query, now)
    container = _container(pod, options.container)
    if not pod["spec"].get("nodeName"):
        return None
    settled = LogOptions(
        container, options.follow, options.previous, options.timestamps, options.since,
        options.tail_lines, options.limit_bytes,
    )  # fmt: skip
    return await _reached(kubelet, pod["spec"]["nodeName"]).logs(pod, settled)


async def summary(kubelet: Kubelet | None, node: str) -> Json:
    """What the pods of a node use."""
    return await _reached(kubelet, node).summary(node)


def _reached(kubelet: Kubelet | None, node: str) -> Kubelet:
    if kubelet is None:
        raise ApiError(500, "", f'Get "https://{node}:10250": nobody runs containers on node {node}')
    return kubelet


def _container(pod: Json, name: str) -> str:
    """The container that is meant."""
    spec, pod_name = pod["spec"], pod["metadata"]["name"]
    names = [
        each["name"]
        for part in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(part) or ()
    ]  # fmt: skip
    if name:
        if name not in names:
            raise errors.bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    if len(spec["containers"]) == 1:
        return str(spec["containers"][0]["name"])
    choice = f", choose one of: [{' '.join(names)}]"
    raise errors.bad_request(f"a container name must be specified for pod {pod_name}{choice}")


def _log_options(pod: str, query: Query, now: float) -> LogOptions:
    tail, limit, seconds = (integer(query, each) for each in ("tailLines", "limitBytes", "sinceSeconds"))
    moment = query.get("sinceTime")
    problems: list[Cause] = []
    if tail is not None and tail < 0:
        problems.append(problem.invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        problems.append(problem.invalid("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and moment is not None:
        problems.append(problem.forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif seconds is not None and seconds < 1:
        problems.append(problem.invalid("sinceSeconds", seconds, "must be greater than 0"))
    if problems:
        raise errors.invalid(_LOG_OPTIONS, pod, problems)
    since = now - seconds if seconds is not None else None
    if moment:
        since = _moment(moment)
    return LogOptions(
        query.get("container", ""),
        bool(flag(query, "follow")),
        bool(flag(query, "previous")),
        bool(flag(query, "timestamps")),
        since,
        tail,
        limit,
    )


def _moment(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise errors.bad_request(f"sinceTime: {problem.quote(text)} is not a time in RFC 3339") from None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()
