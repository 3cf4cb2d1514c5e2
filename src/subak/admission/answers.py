"""Answers to an API server that asks about a new pod: an AdmissionReview in, an AdmissionReview out.  No I/O.

`mutate` only completes: the pod goes to our scheduler and gets its defaults.  What cannot be completed is left as it
is, for `validate` to refuse, which sees the pod as it will be stored, after all webhooks.  `mutate` can be asked again
about its own result, as an API server does when another webhook has changed something, and then changes nothing.

Every question gets an answer.  One that cannot be read is denied, and so is a pod at which our own code fails: an error
would reach the user as "failed calling webhook", without a reason.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import msgspec

from subak.admission.difference import difference
from subak.admission.records import Writers, guard
from subak.admission.review import denied, review, spoken
from subak.admission.scope import DEFAULT, Scope
from subak.admission.slots import slotted
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from tinykube.admission import CREATE, Review
from tinykube.status import ApiError
from tinykube.user import User

Json = dict[str, Any]
API_VERSION = "admission.k8s.io/v1"

log = logging.getLogger(__name__)


class _Kind(msgspec.Struct, rename="camel"):
    resource: str = ""


class _Request(msgspec.Struct, rename="camel"):
    """What we read of a question."""

    uid: str
    operation: str
    resource: _Kind
    object: dict[str, Any]
    user_info: dict[str, Any]
    sub_resource: str = ""
    namespace: str = ""


class _Question(msgspec.Struct, rename="camel"):
    request: _Request
    api_version: str = API_VERSION


_questions = msgspec.json.Decoder(_Question)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def always() -> bool:
    """Prepare all pods for nodes without NRI."""
    return True


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers under one configuration.

    A pod of the default scheduler is sent to `send_to`, unless that is empty.  `allowed` are the ways around limits
    that the administrator allows (`dialects.loopholes`).  `slots` says whether pods are prepared for nodes
    without NRI (`admission.slots`).
    """

    interpreter: Interpreter
    scope: Scope
    writers: Writers
    send_to: str
    allowed: Container[str] = ()
    slots: Callable[[], bool] = always

    def mutate(self, body: bytes) -> bytes:
        """The answer of the mutating webhook."""
        return _answer(body, self._mutate)

    def validate(self, body: bytes) -> bytes:
        """The answer of the validating webhook."""
        return _answer(body, self._validate)

    def _mutate(self, request: _Request, pod: manifest.Pod) -> Json:
        if not self.scope.reviews(pod):
            return {}
        try:
            complete = self._completed(request.object)
        except ApiError:
            return {}
        patch = list(difference(request.object, complete))
        if not patch:
            return {}
        return {"patchType": "JSONPatch", "patch": b64encode(msgspec.json.encode(patch)).decode()}

    def _validate(self, request: _Request, pod: manifest.Pod) -> Json:
        owned, user = self.scope.owned, User.of(request.user_info)
        guard(owned, self.writers, Review(CREATE, "pods", "", request.namespace, user, request.object))
        if self.scope.reviews(pod):
            meant = self._completed(request.object)["spec"]
            if meant.get("schedulerName", "") != pod.spec.scheduler_name:
                raise denied(
                    f"spec.schedulerName is {DEFAULT}, but pods that ask for cards are sent to {self.send_to}: another "
                    "webhook has changed it back, or ours was not there yet; try again, or label the pod "
                    "subak.io/webhook=ignore to leave it there",
                    "spec.schedulerName",
                )
        elif owned.among(request.object):
            review(self.interpreter, request.object, self.allowed)  # not even a writer creates a pod that has a record
        return {}

    def _completed(self, pod: Json) -> Json:
        """The pod as it should be stored.  Raises ApiError if it is refused."""
        complete = review(self.interpreter, pod, self.allowed)
        if self.slots():
            complete = slotted(self.interpreter, complete)
        if self.send_to and (complete["spec"].get("schedulerName") or DEFAULT) == DEFAULT:
            complete = {**complete, "spec": {**complete["spec"], "schedulerName": self.send_to}}
        return complete


def _answer(body: bytes, decide: Callable[[_Request, manifest.Pod], Json]) -> bytes:
    uid = ""
    try:
        request, pod = _read(body)
        uid = request.uid
        response = {"uid": uid, "allowed": True, **decide(request, pod)}
    except ApiError as error:
        status = {**error.status(), "message": spoken(error)}
        response = {"uid": uid or _uid(body), "allowed": False, "status": status}
    except Exception:
        log.exception("a pod could not be reviewed, and is refused")
        text = "Subak made a mistake when it reviewed the pod, which its log shows: please report it"
        response = {"uid": uid, "allowed": False, "status": denied(text).status() | {"message": text}}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _read(body: bytes) -> tuple[_Request, manifest.Pod]:
    try:
        question = _questions.decode(body)
        pod = msgspec.convert(question.request.object, manifest.Pod)
    except _UNREADABLE as error:
        raise _malformed(str(error)) from None
    request = question.request
    if question.api_version != API_VERSION:
        raise _malformed(f"apiVersion is {question.api_version!r}: only {API_VERSION} is understood")
    if (request.operation, request.resource.resource, request.sub_resource) != (CREATE, "pods", ""):
        asked = f"{request.operation} {request.resource.resource}/{request.sub_resource}".rstrip("/")
        raise _malformed(f"it asks about {asked!r}: only the creation of pods is reviewed")
    if not request.object.keys() >= {"metadata", "spec"}:
        raise _malformed("the pod has no metadata, or no spec")
    return request, pod


def _malformed(problem: str) -> ApiError:
    error = denied(f"this is no AdmissionReview of a new pod: {problem}")
    return ApiError(400, "BadRequest", error.message)


def _uid(body: bytes) -> str:
    """An API server takes an answer for its own only if it carries the UID of the question."""
    try:
        return str(msgspec.json.decode(body)["request"]["uid"])
    except (*_UNREADABLE, LookupError, TypeError):
        return ""
