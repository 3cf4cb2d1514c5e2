"""Answers to an API server: what is patched, what is refused, and that there is always an answer."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.admission.answers import Answers
from subak.admission.scope import Scope
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from tests.support.documents import pods_of_the_documents
from tests.support.doors import HELD, INTERPRETER, OWNED, SCHEDULER, TENANT, WRITERS
from tinykube.server.patch import json_patch
from tinykube.user import User

Json = dict[str, Any]

SCOPE = Scope(INTERPRETER.resources, OWNED, ("subak", "volcano"))
ANSWERS = Answers(INTERPRETER, SCOPE, WRITERS, "subak")
HALF = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}


def pod(limits: dict[str, str], scheduler: str = "default-scheduler", **metadata: Any) -> Json:
    container = {"name": "c", "image": "none", "resources": {"limits": limits, "requests": dict(limits)}}
    named = {"name": "p", "namespace": "team", **metadata}
    return {"metadata": named, "spec": {"schedulerName": scheduler, "containers": [container]}}


def question(object: Any, user: User = TENANT, **more: Any) -> bytes:
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team",
        "userInfo": user.info(),
        "object": object,
        "oldObject": None,
        **more,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def asked(answer: bytes) -> Json:
    """The response in an answer that an API server takes for its own."""
    body = msgspec.json.decode(answer)
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = body["response"]
    assert response["uid"] == "u-1"
    return response


def mutated(sent: Json, answers: Answers = ANSWERS) -> Any:
    """The pod as the API server goes on with it."""
    response = asked(answers.mutate(question(sent)))
    assert response["allowed"]
    if "patch" not in response:
        return sent
    assert response["patchType"] == "JSONPatch"
    return json_patch.apply(sent, msgspec.json.decode(b64decode(response["patch"])))


def refusal(sent: Json, user: User = TENANT, answers: Answers = ANSWERS) -> Json:
    response = asked(answers.validate(question(sent, user)))
    assert not response["allowed"]
    status: Json = response["status"]
    assert status["code"] == 403
    assert "admission webhook" not in status["message"], "the API server says that itself"
    return status


def passes(sent: Json, user: User = TENANT, answers: Answers = ANSWERS) -> bool:
    allowed: bool = asked(answers.validate(question(sent, user)))["allowed"]
    return allowed


@pytest.mark.parametrize("sent", pods_of_the_documents(), ids=lambda sent: sent["metadata"]["name"])
def test_a_pod_that_was_completed_needs_nothing_more(sent: Json) -> None:
    once = mutated(sent)
    assert mutated(once) == once


def test_a_pod_that_asks_for_cards_is_sent_to_us_with_its_defaults() -> None:
    stored = mutated(pod({"nvidia.com/gpumem": "3k"}))
    assert stored["spec"]["schedulerName"] == "subak"
    assert stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert passes(stored)


def test_a_scheduler_that_we_serve_is_kept() -> None:
    assert mutated(pod(HALF, "volcano"))["spec"]["schedulerName"] == "volcano"


def test_pods_may_stay_with_the_default_scheduler() -> None:
    """As with an extender: they are completed and reviewed all the same."""
    staying = Answers(INTERPRETER, SCOPE, WRITERS, "")
    stored = mutated(pod({"nvidia.com/gpumem": "3k"}), staying)
    assert stored["spec"]["schedulerName"] == "default-scheduler"
    assert stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert passes(stored, answers=staying)


@pytest.mark.parametrize(
    "sent",
    [
        pod({"cpu": "1"}),
        pod({**HALF, "nvidia.com/gpucores": "101"}, "somebody-else"),
        pod(HALF, labels={"hami.io/webhook": "ignore"}),
        pod(HALF, labels={"subak.io/webhook": "ignore"}),
    ],
)
def test_pods_that_are_none_of_our_business_pass_as_they_are(sent: Json) -> None:
    assert mutated(sent) == sent
    assert passes(sent)


def test_what_cannot_be_is_left_for_validation_to_refuse() -> None:
    sent = pod({**HALF, "nvidia.com/gpucores": "101"})
    assert mutated(sent) == sent
    (cause,) = refusal(sent)["details"]["causes"]
    assert cause["field"] == "spec.containers[0].resources.limits[nvidia.com/gpucores]"


def test_whoever_opts_out_and_names_us_is_reviewed() -> None:
    sent = pod({**HALF, "nvidia.com/gpucores": "101"}, "subak", labels={"hami.io/webhook": "ignore"})
    assert "gpucores" in refusal(sent)["message"]


def test_a_pod_that_another_webhook_took_from_us_is_refused() -> None:
    stored = mutated(pod(HALF))
    stored["spec"]["schedulerName"] = "default-scheduler"
    status = refusal(stored)
    assert "another webhook has changed it back" in status["message"]
    assert status["details"]["causes"][0]["field"] == "spec.schedulerName"


def test_nobody_creates_a_pod_with_a_record() -> None:
    sent = pod({"cpu": "1"}, "somebody-else", annotations=HELD)
    assert f'user "{TENANT.name}" may not set metadata.annotations[' in refusal(sent)["message"]
    assert "only the scheduler may write" in refusal(sent, SCHEDULER)["message"]


def test_ways_around_limits_are_for_the_administrator_to_allow() -> None:
    sent = mutated(pod(HALF))
    sent["spec"]["containers"][0] |= {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]}
    assert "remove it" in refusal(sent)["message"]
    assert passes(sent, answers=Answers(INTERPRETER, SCOPE, WRITERS, "subak", frozenset({"disable-control"})))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no AdmissionReview"),
        (b"\xff{", "no AdmissionReview"),
        (b"[" * 100_000, "no AdmissionReview"),
        (b'{"request": {"uid": "u-1"}}', "missing required field"),
        (question([]), "Expected `object`"),
        (question({"spec": {}}), "no metadata, or no spec"),
        (question({"metadata": {}, "spec": {"containers": [1]}}), "$.spec.containers[0]"),
        (question({"metadata": {}, "spec": {}}, operation="UPDATE"), "'UPDATE pods': only the creation of pods"),
        (question({"metadata": {}, "spec": {}}, subResource="binding"), "'CREATE pods/binding'"),
        (question(pod({})).replace(b"k8s.io/v1", b"k8s.io/v1beta1"), "only admission.k8s.io/v1 is understood"),
    ],
)
def test_a_question_that_cannot_be_read_is_denied_with_a_reason(body: bytes, problem: str) -> None:
    for answer in (ANSWERS.mutate(body), ANSWERS.validate(body)):
        response = msgspec.json.decode(answer)["response"]
        assert response["uid"] == ("u-1" if b"u-1" in body else "")
        assert not response["allowed"]
        assert response["status"]["code"] == 400
        assert problem in response["status"]["message"]


FIELDS = ["metadata", "spec", "containers", "initContainers", "resources", "limits", "nvidia.com/gpu", "annotations"]
FIELDS += ["name", "labels", "schedulerName", "env", "securityContext"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=10,
)


@given(anything)
def test_there_is_an_answer_to_everything(object: Any) -> None:
    for answer in (ANSWERS.mutate(question(object)), ANSWERS.validate(question(object))):
        response = asked(answer)
        assert response["allowed"] or "mistake" not in response["status"]["message"]


def test_a_mistake_of_ours_refuses_the_pod(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Interpreter):
        def admit(self, pod: manifest.Pod, allowed: Any = ()) -> manifest.Pod:
            raise KeyError("oh")

    answers = Answers(Broken(), SCOPE, WRITERS, "subak")
    assert "Subak made a mistake" in refusal(pod(HALF, "subak"), answers=answers)["message"]
    assert "KeyError" in caplog.text
