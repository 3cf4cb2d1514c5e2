"""What a pod and its containers may be allowed to do."""

from __future__ import annotations

import re
from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names, paths

Json = dict[str, Any]

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({_SEGMENT}[\./])*{_SEGMENT}"
_NAMESPACED = {"net": "hostNetwork", "kernel.shm": "hostIPC", "kernel.msg": "hostIPC", "kernel.sem": "hostIPC",
               "fs.mqueue.": "hostIPC"}  # fmt: skip


def of_pod(problems: Problems, path: str, spec: Json) -> None:
    """Of `spec.securityContext`."""
    given = spec.get("securityContext")
    if not given:
        if spec.get("shareProcessNamespace") and spec.get("hostPID"):
            _shared(problems, path)
        return
    for key in ("fsGroup", "runAsUser", "runAsGroup"):
        if key in given:
            problem.each(problems, f"{path}.{key}", given[key], names.user_id(given[key]))
    for index, number in enumerate(given.get("supplementalGroups", ())):
        problem.each(problems, f"{path}.supplementalGroups[{index}]", number, names.user_id(number))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        _shared(problems, path)
    if "sysctls" in given:
        _sysctls(problems, f"{path}.sysctls", given["sysctls"], spec)
    _one_of(problems, path, given, "fsGroupChangePolicy", ("Always", "OnRootMismatch"))
    _seccomp(problems, f"{path}.seccompProfile", given.get("seccompProfile"))
    _app_armor(problems, f"{path}.appArmorProfile", given.get("appArmorProfile"))
    _one_of(problems, path, given, "supplementalGroupsPolicy", ("Merge", "Strict"))
    _one_of(problems, path, given, "seLinuxChangePolicy", ("Recursive",))


def of_container(problems: Problems, path: str, given: Json, *, host_users: bool) -> None:
    """Of a container's `securityContext`."""
    for key in ("runAsUser", "runAsGroup"):
        if key in given:
            problem.each(problems, f"{path}.{key}", given[key], names.user_id(given[key]))
    _one_of(problems, path, given, "procMount", ("Default", "Unmasked"))
    if given.get("procMount") == "Unmasked" and host_users:
        words = "`hostUsers` must be false to use `Unmasked`"
        problems.append(problem.invalid(f"{path}.procMount", "Unmasked", words))
    _seccomp(problems, f"{path}.seccompProfile", given.get("seccompProfile"))
    if given.get("allowPrivilegeEscalation") is False:
        if given.get("privileged"):
            words = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            problems.append(problem.invalid(path, given, words))
        for capability in given.get("capabilities", {}).get("add", ()):
            if capability == "CAP_SYS_ADMIN":
                words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                problems.append(problem.invalid(path, given, words))
    _app_armor(problems, f"{path}.appArmorProfile", given.get("appArmorProfile"))


def _shared(problems: Problems, path: str) -> None:
    words = "ShareProcessNamespace and HostPID cannot both be enabled"
    problems.append(problem.invalid(f"{path}.shareProcessNamespace", True, words))


def _one_of(problems: Problems, path: str, given: Json, key: str, known: tuple[str, ...]) -> None:
    if key in given and given[key] not in known:
        problems.append(problem.unsupported(f"{path}.{key}", given[key], known))


def _sysctls(problems: Problems, path: str, given: list[Json], spec: Json) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(given):
        here, name = f"{path}[{index}].name", sysctl.get("name", "")
        if not name:
            problems.append(problem.required(here))
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            words = f"must have at most 253 characters and match regex ^{_SYSCTL}$"
            problems.append(problem.invalid(here, name, words))
        elif name in seen:
            problems.append(problem.duplicate(here, name))
        seen.add(name)
        for prefix, switch in _NAMESPACED.items():
            inside = name.startswith(f"{prefix}." if prefix == "net" else prefix)
            if inside and spec.get(switch):
                problems.append(problem.invalid(here, name, f"may not be specified when '{switch}' is true"))


def _seccomp(problems: Problems, path: str, profile: Json | None) -> None:
    if profile is None:
        return
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        problems.append(problem.required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        problems.append(problem.unsupported(f"{path}.type", kind, _PROFILES))
    here = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None:
            problems.append(problem.required(here, "must be set when seccomp type is Localhost"))
        else:
            paths.downward(problems, here, local)
    elif local is not None:
        problems.append(problem.invalid(here, profile, "can only be set when seccomp type is Localhost"))


def _app_armor(problems: Problems, path: str, profile: Json | None) -> None:
    if profile is None:
        return
    kind, local, here = profile.get("type", ""), profile.get("localhostProfile"), f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is None or not local.strip():
            problems.append(problem.required(here, "must be set when AppArmor type is Localhost"))
        elif local != local.strip():
            problems.append(problem.invalid(here, local, "must not be padded with whitespace"))
        if local is not None and len(local.encode()) > 4095:
            problems.append(problem.too_long(here, 4095))
    elif kind in _PROFILES:
        if local is not None:
            problems.append(problem.invalid(here, local, "can only be set when AppArmor type is Localhost"))
    elif not kind:
        problems.append(problem.required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        problems.append(problem.unsupported(f"{path}.type", kind, _PROFILES))
