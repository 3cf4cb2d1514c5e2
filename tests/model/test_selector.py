"""Choosing pods and namespaces by labels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.model import manifest
from subak.model.selector import Term, chosen, described, pairs, selector, with_labels

Json = dict[str, Any]


def lines(**content: Any) -> Any:
    return selector(msgspec.convert(content, manifest.LabelSelector))


def line(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def test_a_selector_without_lines_chooses_everything_and_none_chooses_nothing() -> None:
    assert chosen(lines(), {})
    assert chosen(lines(), {"app": "web"})
    assert not chosen(selector(None), {})


@pytest.mark.parametrize(
    ("expression", "labels", "holds"),
    [
        (line("app", "In", "web", "db"), {"app": "db"}, True),
        (line("app", "In", "web"), {}, False),
        (line("app", "NotIn", "web"), {}, True),
        (line("app", "NotIn", "web"), {"app": "web"}, False),
        (line("app", "Exists"), {"app": ""}, True),
        (line("app", "DoesNotExist"), {"app": ""}, False),
    ],
)
def test_lines_hold_as_in_kubernetes(expression: Json, labels: dict[str, str], holds: bool) -> None:
    assert chosen(lines(matchExpressions=[expression]), labels) is holds
    assert not chosen(lines(matchLabels={"tier": "gold"}, matchExpressions=[expression]), labels)


def test_equal_choices_are_equal_however_they_are_written() -> None:
    one = lines(matchLabels={"b": "1", "a": "2"})
    assert one == lines(matchExpressions=[line("a", "In", "2"), line("b", "In", "1", "1")])
    assert hash(one) == hash(lines(matchLabels={"a": "2", "b": "1"}))


def test_a_chosen_pod_has_one_of_the_pairs() -> None:
    assert pairs(lines(matchExpressions=[line("a", "Exists"), line("b", "In", "1", "2")])) == (("b", "1"), ("b", "2"))
    assert pairs(lines(matchExpressions=[line("a", "NotIn", "1")])) == ()
    assert pairs(None) == ()


def test_a_selector_is_shown_as_kubectl_takes_it() -> None:
    expressions = [line("b", "Exists"), line("c", "DoesNotExist"), line("d", "NotIn", "x"), line("e", "In", "y", "z")]
    assert described(lines(matchLabels={"a": "1"}, matchExpressions=expressions)) == "a=1,b,!c,d!=x,e in (y,z)"
    assert described(lines()) == "any labels"


def test_a_selector_is_narrowed_by_the_pods_own_labels_once() -> None:
    narrow = with_labels(lines(matchLabels={"app": "web"}), {"hash": "1", "tier": "gold"}, ["hash", "none"], ["tier"])
    assert described(narrow) == "app=web,hash=1,tier!=gold"
    assert with_labels(narrow, {"hash": "2", "tier": "tin"}, ["hash"], ["tier"]) == narrow, "the API server did it"
    assert with_labels(None, {"hash": "1"}, ["hash"]) is None


class TestTerm:
    def term(self, **content: Any) -> Term:
        pod = msgspec.convert({"metadata": {"name": "p", "namespace": "red"}}, manifest.Pod)
        return Term.of(msgspec.convert({"labelSelector": {}, **content}, manifest.PodTerm), pod)

    def test_without_namespaces_it_means_the_pods_own(self) -> None:
        assert self.term().means("red", {}, {})
        assert not self.term().means("blue", {}, {})

    def test_namespaces_are_named_or_chosen_by_their_labels(self) -> None:
        term = self.term(namespaces=["blue"], namespaceSelector={"matchLabels": {"team": "a"}})
        assert term.means("blue", {}, {})
        assert term.means("green", {"team": "a"}, {})
        assert not term.means("red", {}, {})

    def test_an_empty_namespace_selector_means_all_namespaces(self) -> None:
        assert self.term(namespaceSelector={}).means("blue", {}, {})
