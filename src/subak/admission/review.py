"""The review of a new pod, on the object as it was sent.

Pods that ask for no card pass unchanged.  For the others, the dialects fill in defaults (limits, variables,
annotations), which are written into the object, or refuse it with an `ApiError` like that of an admission webhook.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.dialects.loopholes import DISABLE_CONTROL
from subak.model import manifest
from subak.model.reason import Refusal
from tinykube.status import ApiError, Cause

WEBHOOK = "pods.subak.io"
_SPEAKER = f'admission webhook "{WEBHOOK}" denied the request: '


def review(
    interpreter: Interpreter, pod: dict[str, Any], allowed: Container[str] = (DISABLE_CONTROL,)
) -> dict[str, Any]:
    """The pod with its defaults filled in.  Raises ApiError if its request is impossible.

    `allowed` are the ways around limits that it may use (`dialects.loopholes`); by default those of one machine.
    """
    try:
        lean = msgspec.convert(pod, manifest.Pod)
    except msgspec.ValidationError as error:
        raise denied(str(error)) from None
    if not interpreter.speaking(lean) and not interpreter.owned_among(lean.annotations):
        return pod
    try:
        complete = interpreter.admit(lean, allowed)
    except Refusal as refusal:
        raise denied(refusal.message, refusal.field) from None
    return _filled(pod, lean, complete)


def denied(message: str, field: str = "", reason: str = "FieldValueInvalid") -> ApiError:
    """The refusal of a webhook, in the form in which an API server passes it on."""
    text = f"{_SPEAKER}{message}"
    causes = [Cause(reason, message, field)] if field else []
    return ApiError(403, "Forbidden", text, causes=causes)


def spoken(error: ApiError) -> str:
    """What a webhook says itself: an API server names the webhook."""
    return error.message.removeprefix(_SPEAKER)


def _filled(pod: dict[str, Any], before: manifest.Pod, after: manifest.Pod) -> dict[str, Any]:
    """The object with the defaults that the lean pod has gained."""
    if after == before:
        return pod
    pod = {**pod, "metadata": {**pod["metadata"]}, "spec": {**pod["spec"]}}
    if after.annotations != before.annotations:
        pod["metadata"]["annotations"] = dict(after.annotations)
    for field, old, new in (
        ("initContainers", before.spec.init_containers, after.spec.init_containers),
        ("containers", before.spec.containers, after.spec.containers),
    ):
        if old != new:
            triples = zip(pod["spec"][field], old or (), new or (), strict=True)
            pod["spec"][field] = [_filled_container(*triple) for triple in triples]
    return pod


def _filled_container(
    container: dict[str, Any], before: manifest.Container, after: manifest.Container
) -> dict[str, Any]:
    if after == before:
        return container
    container = dict(container)
    if after.resources != before.resources:
        # Requests too, since the API server has copied limits to requests before this review.
        container["resources"] = {
            **container.get("resources", {}),
            "limits": _written(after.limits),
            "requests": _written(after.requests),
        }
    added = (after.env or [])[len(before.env or ()) :]
    if added:
        container["env"] = [*container.get("env", ()), *({"name": each.name, "value": each.value} for each in added)]
    return container


def _written(amounts: manifest.Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
