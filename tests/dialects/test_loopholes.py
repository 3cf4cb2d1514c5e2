"""Ways around limits: refused beside a slice, unless allowed; nobody's business beside whole cards."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.dialects.interpreter import Interpreter
from subak.dialects.loopholes import DISABLE_CONTROL, LOOPHOLES, PRIVILEGED
from subak.model import manifest
from subak.model.reason import Refusal

INTERPRETER = Interpreter()
HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
SLICES: list[dict[str, str]] = [
    {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"},
    {"volcano.sh/gpu-memory": "1024"},
    {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"},
    HALF,
]
WHOLE: list[dict[str, str]] = [{"volcano.sh/gpu-number": "1"}, {"nvidia.com/gpu": "1"}, {"koordinator.sh/gpu": "100"}]


def pod(limits: dict[str, str], **more: Any) -> manifest.Pod:
    asking = {"name": "c", "resources": {"limits": limits, "requests": limits}, **more}
    content = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "first"}, asking]}}
    return msgspec.convert(content, manifest.Pod)


@pytest.mark.parametrize("limits", SLICES)
@pytest.mark.parametrize(
    "variable", [{"value": "true"}, {"value": "false"}, {}, {"valueFrom": {"configMapKeyRef": {}}}]
)
def test_the_switch_of_limits_is_refused_whatever_its_value(limits: dict[str, str], variable: dict[str, Any]) -> None:
    sent = pod(limits, env=[{"name": "A", "value": "1"}, {"name": "CUDA_DISABLE_CONTROL", **variable}])
    with pytest.raises(Refusal, match="container c sets CUDA_DISABLE_CONTROL, .* remove it") as caught:
        INTERPRETER.admit(sent, ())
    assert caught.value.field == "spec.containers[1].env[1]"
    INTERPRETER.admit(sent, (DISABLE_CONTROL,))
    INTERPRETER.admit(sent)


@pytest.mark.parametrize("limits", SLICES)
def test_a_privileged_container_is_refused(limits: dict[str, str]) -> None:
    sent = pod(limits, securityContext={"privileged": True})
    for allowed in ((), (DISABLE_CONTROL,)):
        with pytest.raises(Refusal, match="container c is privileged, so that no limit would hold") as caught:
            INTERPRETER.admit(sent, allowed)
        assert caught.value.field == "spec.containers[1].securityContext.privileged"
    INTERPRETER.admit(sent, (PRIVILEGED,))


@pytest.mark.parametrize("limits", WHOLE)
def test_whoever_has_whole_cards_may_use_the_switch(limits: dict[str, str]) -> None:
    INTERPRETER.admit(pod(limits, env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]), ())


def test_whole_cards_may_be_used_with_privileges_except_by_hami_pods() -> None:
    privileged = {"privileged": True}
    INTERPRETER.admit(pod({"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "100"}, securityContext=privileged), ())
    INTERPRETER.admit(pod({"volcano.sh/gpu-number": "2"}, securityContext=privileged), ())
    with pytest.raises(Refusal, match="is privileged"):
        INTERPRETER.admit(pod({"nvidia.com/gpu": "1"}, securityContext=privileged), ())


def test_a_pod_that_asks_for_no_card_may_do_both() -> None:
    harmless = pod({"cpu": "1"}, securityContext={"privileged": True}, env=[{"name": "CUDA_DISABLE_CONTROL"}])
    assert INTERPRETER.admit(harmless, ()) == harmless
    assert {PRIVILEGED, DISABLE_CONTROL} == set(LOOPHOLES)
