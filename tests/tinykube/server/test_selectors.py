"""What selectors choose, and how they are refused; the words are those of a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.custom import QUEUE
from tinykube.server import selectors
from tinykube.server.kinds import CONFIG_MAP, EVENT, NODE, POD, Kind
from tinykube.status import ApiError

WEB = {"app": "web", "tier": "a", "n": "5"}


def chosen(kind: Kind, labels: str = "", fields: str = "", **object: Any) -> bool:
    test = selectors.test(kind, labels, fields)
    return test is None or test({"metadata": {"name": "x", "namespace": "d", "labels": WEB}, **object})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=a", True),
        ("app=web,tier=b", False),
        ("app!=web", False),
        ("other!=web", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("app in (web, db)", True),
        ("app notin (web,db)", False),
        ("other notin (web)", True),
        ("app in ()", False),
        ("tier in (,a)", True),
        ("app=", False),
        ("other in (in)", False),
        ("n>4,n<6", True),
        ("app>4", False),
        (" app = web , tier ", True),
    ],
)
def test_labels(text: str, matches: bool) -> None:
    assert chosen(POD, text) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (!)", "unable to parse requirement: found '!', expected: ',', ')' or identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a<=3", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be"
            " an integer",
        ),
    ],
)
def test_what_is_no_label_selector_is_a_bad_request(text: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        selectors.labels(text)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_fields() -> None:
    pod = {
        "spec": {"nodeName": "n1", "hostNetwork": True},
        "status": {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}]},
    }
    for text in ("spec.nodeName=n1", "spec.host==n1", "status.phase!=Pending,metadata.name=x", "spec.hostNetwork=true",
                 "status.podIP=1.2.3.4", "spec.schedulerName=", ""):  # fmt: skip
        assert chosen(POD, "", text, **pod), text
    for text in ("spec.nodeName!=n1", "spec.nodeName=", "metadata.name=x,metadata.name=y"):
        assert not chosen(POD, "", text, **pod), text


def test_escaped_characters_belong_to_the_value() -> None:
    assert chosen(EVENT, "", r"reason=a\,b\=c", reason="a,b=c")


def test_events_are_selected_by_what_they_are_about() -> None:
    assert chosen(
        EVENT, "", "involvedObject.name=p,source=kubelet", involvedObject={"name": "p"}, reportingComponent="kubelet"
    )


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (POD, "a=b", "field label not supported: a"),
        (NODE, "metadata.namespace=y", "field label not supported: metadata.namespace"),
        (QUEUE, "metadata.namespace=y", "field label not supported: metadata.namespace"),
        (CONFIG_MAP, "x=y", '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (POD, "foo=bar,metadata.name", "invalid selector: 'foo=bar,metadata.name'; can't understand 'metadata.name'"),
        (POD, r"metadata.name=a\c", r"invalid field selector: invalid escape sequence: \c"),
        (POD, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_what_is_no_field_selector_is_a_bad_request(kind: Kind, text: str, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        selectors.fields(kind, text)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_many_values_are_not_compared_one_by_one() -> None:
    """A label is looked up: the values are compared to it only if their hashes are the same."""

    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    values = tuple(f"v{turn}" for turn in range(100_000))
    wanted = selectors.Requirement("app", "in", values)
    unwanted = selectors.Requirement("app", "notin", values)
    for value, within in (("v99999", True), ("w", False)):
        labels: dict[str, str] = {"app": Counted(value)}
        assert wanted.meets(labels) is within
        assert unwanted.meets(labels) is not within
    assert Counted.compared < 10
