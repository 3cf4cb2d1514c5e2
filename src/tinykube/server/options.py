"""What the query of a request asks for: how to list, how to write, how to delete.

Parameters that do not parse, or contradict each other, are refused as the API server does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinykube.server import digits, errors, rules
from tinykube.server.kinds import Kind
from tinykube.server.rules import problem
from tinykube.server.users import LOOPBACK
from tinykube.status import ApiError, Cause
from tinykube.user import User

Query = Mapping[str, str]

LONGEST_MANAGER = 128
POLICIES = ("Foreground", "Background", "Orphan")


def _options(name: str) -> Kind:
    return Kind("meta.k8s.io", "v1", name, name.lower())


LIST = _options("ListOptions")
CREATE = _options("CreateOptions")
UPDATE = _options("UpdateOptions")
PATCH = _options("PatchOptions")
DELETE = _options("DeleteOptions")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or a watch.  `initial` is sendInitialEvents, None if nothing was said."""

    labels: str = ""
    fields: str = ""
    watch: bool = False
    limit: int = 0
    continued: str = ""
    version: str = ""
    match: str = ""
    bookmarks: bool = False
    initial: bool | None = None
    timeout: int = 0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an object is created, updated or patched, and by whom."""

    manager: str = ""
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    user: User = LOOPBACK


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How an object is deleted; None where nothing was said."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None
    orphan: bool | None = None
    policy: str | None = None
    dry_run: bool = False


def listing(query: Query) -> ListOptions:
    """The options of a list or a watch."""
    if not query:
        return ListOptions()
    initial, version = flag(query, "sendInitialEvents"), query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    watch = bool(flag(query, "watch"))
    if watch and initial is None and not match and version in ("", "0"):
        initial, match = True, "NotOlderThan"  # what such a watch always meant
    options = ListOptions(
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        watch,
        integer(query, "limit") or 0,
        query.get("continue", ""),
        version,
        match,
        bool(flag(query, "allowWatchBookmarks")),
        initial,
        integer(query, "timeoutSeconds") or 0,
    )
    problems = _watch_problems(options) if watch else _list_problems(options)
    if problems:
        raise errors.invalid(LIST, "", problems)
    return options


def _list_problems(options: ListOptions) -> list[Cause]:
    found, path = [], "resourceVersionMatch"
    if options.match:
        if not options.version:
            found.append(problem.forbidden(path, f"{path} is forbidden unless resourceVersion is provided"))
        if options.continued:
            found.append(problem.forbidden(path, f"{path} is forbidden when continue is provided"))
        if options.match not in ("Exact", "NotOlderThan"):
            found.append(problem.unsupported(path, options.match, ("Exact", "NotOlderThan", "")))
        if options.match == "Exact" and options.version == "0":
            found.append(problem.forbidden(path, f'{path} "exact" is forbidden for resourceVersion "0"'))
    if options.initial is not None:
        found.append(problem.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return found


def _watch_problems(options: ListOptions) -> list[Cause]:
    found, path = [], "resourceVersionMatch"
    if options.initial is not None and options.match != "NotOlderThan":
        found.append(problem.forbidden(path, f"sendInitialEvents requires setting {path} to NotOlderThan"))
    if options.match:
        if options.initial is None:
            found.append(problem.forbidden(path, f"{path} is forbidden for watch unless sendInitialEvents is provided"))
        if options.match != "NotOlderThan":
            found.append(problem.unsupported(path, options.match, ("NotOlderThan",)))
        if options.continued:
            found.append(problem.forbidden(path, f"{path} is forbidden when continue is provided"))
    return found


def writing(query: Query, agent: str, kind: Kind, applied: bool = False, user: User = LOOPBACK) -> WriteOptions:
    """The options of a write; `kind` names them in a refusal, `applied` says that the body is a server-side apply."""
    manager = query.get("fieldManager", "")
    problems: list[Cause] = []
    force = flag(query, "force")
    if applied and not manager:
        problems.append(problem.required("fieldManager", "is required for apply patch"))
    if kind is PATCH and not applied and force is not None:
        problems.append(problem.forbidden("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > LONGEST_MANAGER:
        problems.append(problem.too_long("fieldManager", LONGEST_MANAGER))
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            detail = f"invalid character U+{ord(letter):04X} (at position {position})"
            problems.append(problem.invalid("fieldManager", manager, detail))
    problems += _dry_run_problems(query.get("dryRun"))
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Strict", "Warn"):
        problems.append(problem.unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    if problems:
        raise errors.invalid(kind, "", problems)
    return WriteOptions(manager or _name(agent), "dryRun" in query, validation or "Warn", bool(force), user)


def deleting(query: Query) -> DeleteOptions:
    """The options of a deletion whose request has no body."""
    if not query:
        return DeleteOptions()
    policy = query.get("propagationPolicy")
    return _checked(
        DeleteOptions(
            integer(query, "gracePeriodSeconds"),
            None,
            None,
            flag(query, "orphanDependents"),
            policy,
            "dryRun" in query,
        ),
        query.get("dryRun"),
    )


def deletion(body: dict[str, Any]) -> DeleteOptions:
    """The options that the body of a deletion gives; then the query does not count.  Every group has them."""
    if body.get("kind", DELETE.kind) != DELETE.kind:
        version = problem.quote(body.get("apiVersion", ""))
        message = f"no kind {problem.quote(body['kind'])} is registered for version {version}"
        raise errors.bad_request(f'{message} in scheme "pkg/runtime/scheme.go:111"')
    try:
        body, _ = rules.read(DELETE, {**body, "kind": DELETE.kind, "apiVersion": DELETE.api_version}, "Ignore")
    except rules.NotOfKind as error:
        raise errors.bad_request(error.why) from None
    conditions = body.get("preconditions") or {}
    dry_run = body.get("dryRun") or []
    return _checked(
        DeleteOptions(
            body.get("gracePeriodSeconds"),
            conditions.get("uid"),
            conditions.get("resourceVersion"),
            body.get("orphanDependents"),
            body.get("propagationPolicy"),
            bool(dry_run),
        ),
        *dry_run,
    )


def _checked(options: DeleteOptions, *dry_run: str | None) -> DeleteOptions:
    found: list[Cause] = []
    if options.orphan is not None and options.policy is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        found.append(problem.invalid("propagationPolicy", options.policy, detail))
    if options.policy is not None and options.policy not in POLICIES:
        found.append(problem.unsupported("propagationPolicy", options.policy, (*POLICIES, "nil")))
    found += _dry_run_problems(*dry_run)
    if found:
        raise errors.invalid(DELETE, "", found)
    return options


def _dry_run_problems(*values: str | None) -> list[Cause]:
    if any(value not in (None, "All") for value in values):
        return [problem.unsupported("dryRun", list(values), ("All",))]
    return []


def flag(query: Query, name: str) -> bool | None:
    """Whatever is not said to be false is true."""
    value = query.get(name)
    return None if value is None else value.lower() not in ("0", "false")


def integer(query: Query, name: str) -> int | None:
    """A number, None if there is none."""
    value = query.get(name)
    if value is None:
        return None
    if not re.fullmatch("[+-]?[0-9]+", value):
        raise errors.bad_request(f"strconv.ParseInt: parsing {problem.quote(value)}: invalid syntax")
    number = digits.whole(value)
    if number is None or not -(2**63) <= number < 2**63:
        raise errors.bad_request(f"strconv.ParseInt: parsing {problem.quote(value)}: value out of range")
    return number


def _name(agent: str) -> str:
    """Who writes, if only its program is known: `kubectl` of `kubectl/v1.36.3 (linux/amd64)`."""
    name = agent.partition("/")[0]
    if len(name) <= LONGEST_MANAGER and name.isascii() and name.isprintable():
        return name
    printable = "".join(letter for letter in name if letter.isprintable())
    return printable.encode()[:LONGEST_MANAGER].decode(errors="ignore")


def revision(text: str, code: int = 400) -> int:
    """A resourceVersion as a number; 0 if there is none."""
    if not text:
        return 0
    proper = re.fullmatch("[0-9]+", text)
    number = digits.whole(text) if proper else None
    if number is None or number >= 2**64:
        wrong = f"resourceVersion: Invalid value: {problem.quote(text)}: strconv.ParseUint: parsing"
        message = f"{wrong} {problem.quote(text)}: {'value out of range' if proper else 'invalid syntax'}"
        if code == 400:
            raise errors.bad_request(f"invalid resource version: {message}")
        raise ApiError(code, "", message)
    return number
