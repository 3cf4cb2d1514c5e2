"""In which form answers are wanted."""

from __future__ import annotations

import pytest

from tinykube.server.negotiation import JSON, YAML, Form, body, check, form, is_pretty
from tinykube.status import ApiError

TABLE = "application/json;as=Table;v={};g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Form()),
        ("*/*", Form()),
        ("application/*", Form()),
        ("application/json", Form()),
        ("application/yaml", Form(YAML)),
        ("application/yaml;q=0.5, application/json", Form(JSON)),
        ("application/yaml, */*;q=0.1", Form(YAML)),
        ("application/vnd.kubernetes.protobuf, application/json", Form()),
        (TABLE.format("v1"), Form(JSON, "Table", "v1")),
        (f"{TABLE.format('v9')},{TABLE.format('v1beta1')}", Form(JSON, "Table", "v1beta1")),
        ("application/json;as=Nonsense;v=v1;g=meta.k8s.io, application/json", Form()),
        ("application/json;pretty=1", Form(pretty=True)),
        ("application/json;stream=watch", Form()),
    ],
)
def test_the_best_form_that_can_be_had(accept: str, expected: Form) -> None:
    assert form(accept) == expected


@pytest.mark.parametrize("accept", ["text/html", "application/vnd.kubernetes.protobuf", TABLE.format("v9")])
def test_forms_that_cannot_be_had(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        form(accept)
    assert caught.value.code == 406


def test_what_is_told_before_anybody_looks_closer() -> None:
    check("text/html, */*")
    with pytest.raises(ApiError, match="406: Not Acceptable") as caught:
        check("text/html", streams=True)
    assert caught.value.message.endswith("application/vnd.kubernetes.protobuf;stream=watch")


def test_bodies_are_json_if_nobody_says() -> None:
    assert body("", (JSON, YAML)) == JSON
    assert body("application/yaml; charset=utf-8", (JSON, YAML)) == YAML
    with pytest.raises(ApiError, match="accepted media types include: application/json, application/yaml"):
        body("text/plain", (JSON, YAML))


@pytest.mark.parametrize(
    ("query", "agent", "pretty"),
    [
        ("", "", False),
        ("", "curl/8", True),
        ("false", "curl/8", False),
        ("1", "kubectl/v1", True),
        ("", "kubectl", False),
    ],
)
def test_who_reads_with_his_own_eyes(query: str, agent: str, pretty: bool) -> None:
    assert is_pretty(query, agent) is pretty
