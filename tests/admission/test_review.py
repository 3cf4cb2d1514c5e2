"""Admission: what is stored of a pod that asks for cards, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from subak.admission.review import review
from subak.dialects.interpreter import Interpreter
from tinykube.status import ApiError


def pod(limits: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "busybox", "env": [{"name": "A", "value": "1"}]}
    if limits is not None:
        container["resources"] = {"limits": limits, "requests": dict(limits)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"containers": [container], "dnsPolicy": "ClusterFirst"},
    }


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return Interpreter()


def test_a_pod_without_cards_passes_as_it_is(interpreter: Interpreter) -> None:
    for plain in (pod(), pod({"cpu": "1"}), {**pod(), "spec": {**pod()["spec"], "nodeName": "here"}}):
        assert review(interpreter, plain) is plain


def test_what_a_dialect_fills_in_is_written_beside_what_was_there(interpreter: Interpreter) -> None:
    sent = pod({"nvidia.com/gpumem": "1k", "cpu": "1"})
    stored = review(interpreter, sent)
    (container,) = stored["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpumem": "1k", "cpu": "1", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["env"][0] == {"name": "A", "value": "1"}
    assert stored["spec"]["dnsPolicy"] == "ClusterFirst"
    assert sent == pod({"nvidia.com/gpumem": "1k", "cpu": "1"}), "what was sent is not changed"


def test_a_request_that_cannot_mean_anything_is_refused_with_field_and_remedy(interpreter: Interpreter) -> None:
    with pytest.raises(ApiError) as caught:
        review(interpreter, pod({"volcano.sh/gpu-memory": "-1"}))
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert caught.value.message.startswith('admission webhook "pods.subak.io" denied the request: ')
    (cause,) = caught.value.details["causes"]
    assert cause["field"] == "spec.containers[0].resources.limits[volcano.sh/gpu-memory]"


def test_nobody_may_write_an_allocation(interpreter: Interpreter) -> None:
    with pytest.raises(ApiError, match="only the scheduler may write"):
        review(interpreter, pod(annotations={"volcano.sh/gpu-index": "0"}))


def test_a_pod_that_asks_for_cards_cannot_choose_its_node_itself(interpreter: Interpreter) -> None:
    sent = pod({"nvidia.com/gpu": "1"})
    sent["spec"]["nodeName"] = "here"
    with pytest.raises(ApiError, match="leave spec.nodeName empty"):
        review(interpreter, sent)
