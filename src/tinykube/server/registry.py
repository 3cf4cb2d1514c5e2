"""What happens to an object on its way from a request to the store.

    create:  names, owners of fields ──> hooks ──> rules (admission, validation) ──> guards ──> store
    update:  version checked ──> owners of fields ──> rules ──> guards ──> store, unless nothing has changed
    patch:   the stored object, patched and read again ──> as an update; an apply may create

Everything happens at once, without a wait between reading and writing, so that no write is lost.
"""

from __future__ import annotations

import calendar
import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinykube.admission import CREATE, UPDATE, Review
from tinykube.server import errors, rules
from tinykube.server.kinds import EVENT, LEASE, NAMESPACE, POD, SERVICE, Kind
from tinykube.server.options import ListOptions, WriteOptions, revision
from tinykube.server.paging import Page, page, too_large
from tinykube.server.patch import apply, managed_fields
from tinykube.server.rules import problem
from tinykube.server.store import Store, Stored, encode
from tinykube.status import ApiError

Json = dict[str, Any]
Hook = Callable[[Json], Json]
Guard = Callable[[Review], None]
Change = Callable[[Json], Json]

# Letters and digits that do not look alike and make no words.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
_ATTEMPTS = 8

# What only the server says of a new object.
_SYSTEM = frozenset(
    {"creationTimestamp", "uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
)

# A PUT may create these.
_CREATED_BY_UPDATE = frozenset({EVENT, SERVICE, LEASE})


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Registry:
    """Reads and writes objects as an API server does.

    `clock` says what time it is, and somebody may set it; `steady` counts the seconds that pass.
    """

    def __init__(
        self,
        store: Store,
        hooks: Sequence[Hook] = (),
        guards: Sequence[Guard] = (),
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.hooks = tuple(hooks)
        self.guards = tuple(guards)
        self.clock = clock
        self.steady = steady

    def now(self, later: float = 0) -> str:
        """The time as objects carry it, or that of some seconds later."""
        return stamp(self.clock() + later)

    # Reading

    def get(self, target: Target, version: str = "") -> Stored:
        """An object, at least as new as a version."""
        asked = revision(version, 500)
        if asked > self.store.revision:
            raise too_large(asked, self.store.revision)
        return self.find(target)

    def find(self, target: Target) -> Stored:
        """An object as it is stored."""
        found = self.store.stored(target.kind, target.namespace, target.name)
        if found is None:
            raise errors.not_found(target.kind, target.name)
        return found

    def list(self, target: Target, options: ListOptions) -> Page:
        """The objects of a kind."""
        return page(self.store, target.kind, target.namespace, options)

    # Creating

    def create(self, target: Target, object: Json, options: WriteOptions) -> Stored:
        """Store a new object, which has been read by the rules."""
        metadata = object["metadata"] = dict(object["metadata"])
        version = metadata.get("resourceVersion", "")
        versioned = version.isdecimal() and version != "0" and not target.name
        _agree_on_namespace(target, metadata)
        object = managed_fields.updated(None, object, target.kind, manager=options.manager, now=self.now())
        return self.admit(target, object, options, versioned)

    def admit(self, target: Target, object: Json, options: WriteOptions, versioned: bool = False) -> Stored:
        """Store a new object that knows who owns its fields; `versioned`: it says that it is not new."""
        kind = target.kind
        if kind is POD:
            for hook in self.hooks:
                object = hook(object)
        metadata = object["metadata"] = {
            **{key: value for key, value in object["metadata"].items() if key not in _SYSTEM},
            "uid": str(uuid.uuid4()),
            "creationTimestamp": self.now(),
        }
        if not metadata.get("name") and metadata.get("generateName"):
            self._generate_name(target, metadata)
        object = rules.create(kind, object, self.store, dry_run=options.dry_run)
        if kind is POD:
            self.review(CREATE, target, object, None, options)
        if versioned and not options.dry_run:
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        self._check_new(target, object["metadata"])
        if options.dry_run:
            return Stored(object, 0, encode(object))
        return self.store.create(kind, object)

    def review(self, operation: str, target: Target, object: Json, old: Json | None, options: WriteOptions) -> None:
        """Put a write to the guards, as validating webhooks see it.  Raises ApiError if one of them refuses it."""
        plural, subresource = target.kind.plural, target.subresource
        for guard in self.guards:
            guard(Review(operation, plural, subresource, target.namespace, options.user, object, old))

    def _generate_name(self, target: Target, metadata: Json) -> None:
        for _ in range(_ATTEMPTS):
            suffix = "".join(random.choices(_SUFFIX, k=5))
            metadata["name"] = metadata["generateName"][:_LONGEST_PREFIX] + suffix
            namespace = target.namespace if target.kind.namespaced else ""
            if self.store.get(target.kind, namespace, metadata["name"]) is None:
                return

    def _check_new(self, target: Target, metadata: Json) -> None:
        there = self.store.get(target.kind, metadata.get("namespace", ""), metadata["name"])
        if there is not None:
            refusal = errors.already_exists(target.kind, metadata["name"])
            if there["metadata"].get("deletionTimestamp"):
                refusal = ApiError(
                    refusal.code, refusal.reason, f"object is being deleted: {refusal.message}", refusal.details
                )
            raise refusal

    # Updating

    def update(self, target: Target, object: Json, options: WriteOptions) -> tuple[Stored, bool]:
        """Replace an object by one that has been read by the rules; says whether it was created."""
        metadata = object["metadata"] = dict(object["metadata"])
        _agree_on_namespace(target, metadata)
        check_name(target, metadata)
        kind = target.kind
        stored = self.store.stored(kind, target.namespace, target.name)
        if stored is None:
            if kind not in _CREATED_BY_UPDATE or target.subresource:
                raise errors.not_found(kind, target.name)
            return self.create(target, object, options), True
        check_uid(target, stored.object, metadata.get("uid", ""))
        object = self._owned(target, object, stored.object, options)
        return self.write(target, object, stored, options), False

    def _owned(self, target: Target, object: Json, old: Json, options: WriteOptions) -> Json:
        return managed_fields.updated(
            old, object, target.kind, manager=options.manager, now=self.now(), subresource=target.subresource
        )

    def write(self, target: Target, object: Json, stored: Stored, options: WriteOptions) -> Stored:
        """Store a changed object that knows who owns its fields."""
        kind = target.kind
        _check_version(target, object["metadata"].get("resourceVersion", ""), stored.revision)
        object = rules.update(kind, object, stored.object, self.store, target.subresource, dry_run=options.dry_run)
        if kind is POD:
            self.review(UPDATE, target, object, stored.object, options)
        object["metadata"] = {**object["metadata"], "resourceVersion": str(stored.revision)}
        object = managed_fields.settled(stored.object, object)
        if _is_over(kind, object, stored.object) and not options.dry_run:
            self.store.delete(kind, target.namespace, target.name)
            return Stored(object, stored.revision, encode(object))
        return self.put(kind, object, stored, options.dry_run)

    def put(self, kind: Kind, object: Json, stored: Stored, dry_run: bool = False) -> Stored:
        """Store the next version of an object as it is; nothing happens if it is the same."""
        if object == stored.object:
            return stored
        if dry_run:
            return Stored(object, stored.revision, encode(object))
        return self.store.update(kind, object)

    # Patching

    def patch(self, target: Target, change: Change, options: WriteOptions) -> Stored:
        """Change an object; `change` makes the next version, read by the rules, of the one that is there."""
        stored = self.find(target)
        object = change(stored.object)
        metadata = object["metadata"] = dict(object["metadata"])
        _agree_on_namespace(target, metadata)
        check_name(target, metadata)
        return self.write(target, self._owned(target, object, stored.object, options), stored, options)

    def apply(self, target: Target, applied: Json, read: Change, options: WriteOptions) -> tuple[Stored, bool]:
        """Server-side apply; `read` has the merged object read by the rules.  Says whether it was created."""
        kind = target.kind
        stored = self.store.stored(kind, target.namespace, target.name)
        if stored is None and target.subresource:
            raise errors.not_found(kind, target.name)
        live = stored.object if stored else None
        object = apply.apply(
            live, applied, kind, manager=options.manager, force=options.force,
            now=self.now(), subresource=target.subresource,
        )  # fmt: skip
        object = read(object)
        metadata = object["metadata"] = dict(object["metadata"])
        if stored is None and metadata.get("uid"):
            why = f"the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise errors.conflict(kind, target.name, f"uid mismatch: {why}")
        _agree_on_namespace(target, metadata)
        check_name(target, metadata)
        if stored is None:
            return self.admit(target, object, options), True
        return self.write(target, object, stored, options), False


def stamp(seconds: float) -> str:
    """A moment as objects carry it."""
    return _stamp(int(seconds))


@lru_cache(maxsize=64)  # many writes fall into one second
def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds(text: str) -> int:
    """The moment that an object carries."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _agree_on_namespace(target: Target, metadata: Json) -> None:
    """The object is in the namespace of the request, whether it says so or not."""
    expected = target.namespace if target.kind.namespaced else ""
    given = metadata.get("namespace", "")
    if given == expected:
        return
    if given and expected:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)
    if expected:
        metadata["namespace"] = expected
    else:
        del metadata["namespace"]


def check_name(target: Target, metadata: Json) -> None:
    """The object has the name that the request is about."""
    name = metadata.get("name", "")
    if not name:
        message = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(message)
    if name != target.name:
        message = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise errors.bad_request(message)


def check_uid(target: Target, object: Json, uid: str) -> None:
    """The object is the very one that the caller has seen."""
    found = object["metadata"].get("uid", "")
    if uid and uid != found:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
        raise errors.conflict(target.kind, target.name, storage_error(target, why))


def storage_error(target: Target, why: str) -> str:
    """How the API server tells what its storage did not like."""
    kind = target.kind
    place = f"{kind.group}/{kind.plural}" if kind.custom else _place(kind)
    path = f"{target.namespace}/{target.name}" if kind.namespaced else target.name
    message = f"StorageError: invalid object, Code: 4, Key: /registry/{place}/{path}, ResourceVersion: 0"
    return f"{message}, AdditionalErrorMsg: {why}"


def _place(kind: Kind) -> str:
    return {"nodes": "minions", "services": "services/specs"}.get(kind.plural, kind.plural)


def _check_version(target: Target, version: str, current: int) -> None:
    if version in ("", "0"):
        if target.kind is LEASE or target.kind.custom:
            cause = problem.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            kind = Kind(target.kind.group, target.kind.version, target.kind.plural, target.kind.plural)
            raise errors.invalid(kind, target.name, [cause])
    elif not version.isdecimal():
        raise ApiError(500, "", f"strconv.ParseUint: parsing {problem.quote(version)}: invalid syntax")
    elif version != str(current):
        raise errors.conflict(target.kind, target.name)


def _is_over(kind: Kind, object: Json, old: Json) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    before = old["metadata"]
    if object["metadata"].get("finalizers") or not before.get("deletionTimestamp"):
        return False
    if kind is NAMESPACE and object.get("spec", {}).get("finalizers"):
        return False
    return not before.get("deletionGracePeriodSeconds")
