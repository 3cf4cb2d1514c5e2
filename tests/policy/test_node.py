"""May a pod go to a node at all: Kubernetes' own rules by truth tables, and the dialect that a node speaks."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.koordinator_names import ISOLATION
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.model.manifest import Expression, Taint, Toleration
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Needs
from subak.policy.node import refuse_dialect, refuse_node, unrestricted
from tests.support.cards import claim, node

GPU = Taint(key="gpu", value="a100", effect="NoSchedule")
Term = tuple[tuple[Expression, ...], tuple[Expression, ...]]


def refused(needs: Needs | None = None, **facts: Any) -> NodeRefusal | None:
    return refuse_node(node("n", **facts), needs or Needs())


def tolerating(*tolerations: Toleration) -> Needs:
    return Needs(tolerations=tolerations)


def line(key: str, operator: str, *values: str) -> Expression:
    return Expression(key=key, operator=operator, values=values)


def wanting(*terms: Term) -> Needs:
    return Needs(terms=terms)


def test_an_ordinary_node_takes_an_ordinary_pod() -> None:
    assert refused() is None
    assert unrestricted(Needs(resources=(("cpu", 1),), tolerations=(Toleration(operator="Exists"),)))


@pytest.mark.parametrize(
    ("needs", "facts", "reason", "detail"),
    [
        (Needs(), {"ready": False}, Reason.NODE_NOT_READY, "not ready"),
        (Needs(), {"unschedulable": True}, Reason.NODE_UNSCHEDULABLE, "cordoned (unschedulable)"),
        (Needs(), {"taints": (GPU,)}, Reason.NODE_TAINT_NOT_TOLERATED, "taint gpu=a100:NoSchedule not tolerated"),
        (
            Needs(),
            {"taints": (Taint(key="down", effect="NoExecute"),)},
            Reason.NODE_TAINT_NOT_TOLERATED,
            "taint down:NoExecute not tolerated",
        ),
        (
            Needs(selector=(("disk", "ssd"), ("zone", "b"))),
            {"labels": {"disk": "ssd", "zone": "a"}},
            Reason.NODE_SELECTOR_MISMATCH,
            "label zone=b missing",
        ),
        (Needs(selector=(("disk", ""),)), {}, Reason.NODE_SELECTOR_MISMATCH, "label disk= missing"),
        (
            wanting(((line("zone", "In", "a"),), ())),
            {},
            Reason.NODE_SELECTOR_MISMATCH,
            "required node affinity does not match",
        ),
        (
            Needs(unsupported=("host ports", "resource claims")),
            {},
            Reason.NOT_SUPPORTED_YET,
            "host ports, resource claims not supported yet",
        ),
    ],
)
def test_a_node_is_refused_with_its_reason(needs: Needs, facts: dict[str, Any], reason: Reason, detail: str) -> None:
    assert refused(needs, **facts) == NodeRefusal(reason, detail)


def test_what_is_not_supported_is_told_before_anything_else_and_restricts() -> None:
    needs = Needs(unsupported=("host ports",), selector=(("zone", "b"),))
    refusal = refused(needs, ready=False, unschedulable=True, taints=(GPU,))
    assert refusal is not None
    assert refusal.reason is Reason.NOT_SUPPORTED_YET
    assert not unrestricted(Needs(unsupported=("host ports",)))
    assert not unrestricted(Needs(selector=(("zone", "b"),)))
    assert not unrestricted(Needs(terms=()))


def test_a_preference_against_a_pod_is_no_refusal() -> None:
    assert refused(taints=(Taint(key="slow", effect="PreferNoSchedule"),)) is None


def test_every_taint_must_be_tolerated() -> None:
    other = Taint(key="other", effect="NoExecute")
    needs = tolerating(Toleration(key="gpu", operator="Exists"))
    assert refused(needs, taints=(GPU,)) is None
    refusal = refused(needs, taints=(GPU, other))
    assert refusal is not None
    assert refusal.detail == "taint other:NoExecute not tolerated"
    assert refused(tolerating(*needs.tolerations, Toleration(key="other")), taints=(GPU, other)) is None


def test_a_pod_that_tolerates_the_cordon_goes_to_a_cordoned_node() -> None:
    """As DaemonSets do; Kubernetes reads spec.unschedulable as this taint."""
    cordon = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule")
    assert refused(tolerating(cordon), unschedulable=True) is None
    assert refused(tolerating(Toleration(operator="Exists")), unschedulable=True) is None
    assert refused(tolerating(Toleration(key="gpu", operator="Exists")), unschedulable=True) is not None
    assert refused(tolerating(cordon), unschedulable=True, ready=False) is not None


KEYS, VALUES = ("gpu", "other"), ("", "a", "b")
HARD = ("NoSchedule", "NoExecute")
TAINTS = [Taint(key=key, value=value, effect=effect) for key in KEYS for value in VALUES for effect in HARD]


@pytest.mark.parametrize("operator", ["Exists", "Equal", "", "Lt"])
@pytest.mark.parametrize("key", ["", *KEYS])
def test_tolerations_match_taints_as_in_kubernetes(key: str, operator: str) -> None:
    for value, effect in product(VALUES, ("", *HARD, "PreferNoSchedule")):
        toleration = Toleration(key=key, operator=operator, value=value, effect=effect)
        of_key = {taint for taint in TAINTS if taint.key == key} if key else set(TAINTS)
        of_effect = {taint for taint in TAINTS if taint.effect == effect} if effect else set(TAINTS)
        of_value = {taint for taint in TAINTS if taint.value == value}
        if not key:
            of_value = set()  # the API refuses an empty key unless the operator is Exists
        meant = {"Exists": set(TAINTS), "Equal": of_value, "": of_value}.get(operator, set())
        tolerated = {taint for taint in TAINTS if refused(tolerating(toleration), taints=(taint,)) is None}
        assert tolerated == of_key & of_effect & meant


ABSENT = None
LABELS = (ABSENT, "", "a", "b", "5", "6", "07", "x5", "1_0")


def truth(operator: str, values: tuple[str, ...]) -> set[str | None]:
    """The values of a label (None: no such label) that a line of a node affinity accepts."""
    present = set(LABELS) - {ABSENT}
    whole = {"5": 5, "6": 6, "07": 7}
    limit = int(values[0]) if len(values) == 1 and values[0].lstrip("-+").isdecimal() else None
    match operator:
        case "In":
            return present & set(values)
        case "NotIn":
            return set(LABELS) - set(values)
        case "Exists":
            return set(present)
        case "DoesNotExist":
            return {ABSENT}
        case "Gt" if limit is not None:
            return {text for text, number in whole.items() if number > limit}
        case "Lt" if limit is not None:
            return {text for text, number in whole.items() if number < limit}
        case _:
            return set()


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")


@pytest.mark.parametrize(
    "values", [(), ("a",), ("a", "b"), ("",), ("5",), ("6",), ("-1",), ("+6",), ("5", "6"), ("1_0",), ("5.5",)]
)
@pytest.mark.parametrize("operator", OPERATORS)
def test_lines_of_a_node_affinity_match_labels_as_in_kubernetes(operator: str, values: tuple[str, ...]) -> None:
    needs = wanting(((line("size", operator, *values),), ()))
    accepted = {value for value in LABELS if refused(needs, labels={} if value is None else {"size": value}) is None}
    assert accepted == truth(operator, values)


def test_a_line_without_values_is_read() -> None:
    needs = wanting(((Expression(key="size", operator="Exists"),), ()))
    assert refused(needs, labels={"size": "5"}) is None
    assert refused(wanting(((Expression(key="size", operator="In"),), ())), labels={"size": "5"}) is not None


def test_fields_speak_of_the_nodes_name() -> None:
    only = wanting(((), (line("metadata.name", "In", "n"),)))
    but = wanting(((), (line("metadata.name", "NotIn", "n"),)))
    assert refuse_node(node("n"), only) is None
    assert refuse_node(node("m"), only) is not None
    assert refuse_node(node("n"), but) is not None
    assert refuse_node(node("m"), but) is None
    labelled = node("m", labels={"metadata.name": "n"})
    assert refuse_node(labelled, only) is not None, "a label of that name is not the node's name"


def test_an_empty_term_selects_nothing_nor_does_an_empty_list_of_terms() -> None:
    assert refused(wanting(((), ()))) is not None
    assert refused(wanting()) is not None
    assert refused(wanting(((), ()), ((line("zone", "DoesNotExist"),), ()))) is None


lines = st.builds(
    lambda key, operator, values: line(key, operator, *values),
    st.sampled_from(["size", "zone"]),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(["a", "5", "6"]), max_size=2, unique=True),
)
fields = st.builds(
    lambda operator, name: line("metadata.name", operator, name),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from("nm"),
)
terms = st.tuples(st.lists(lines, max_size=3).map(tuple), st.lists(fields, max_size=1).map(tuple))
labels = st.dictionaries(st.sampled_from(["size", "zone"]), st.sampled_from(["", "a", "5", "6"]))


@given(st.lists(terms, max_size=3), labels, st.sampled_from("nm"))
def test_one_term_must_hold_with_all_of_its_lines(drawn: list[Term], labels: dict[str, str], name: str) -> None:
    def holds(term: Term) -> bool:
        facts = [labels.get(each.key) in truth(each.operator, each.values or ()) for each in term[0]]
        facts += [(name in (each.values or ())) is (each.operator == "In") for each in term[1]]
        return bool(facts) and all(facts)

    accepted = refuse_node(node(name, labels=labels), wanting(*drawn)) is None
    assert accepted is any(map(holds, drawn))


def test_a_node_takes_only_pods_of_a_dialect_that_it_speaks() -> None:
    assert refuse_dialect(node("n"), claim()) is None
    assert refuse_dialect(node("n", offers=frozenset()), claim()) == NodeRefusal(
        Reason.NODE_UNREGISTERED, "hami-nvidia not offered"
    )
    assert refuse_dialect(node("n"), claim(dialect="volcano-share")) is not None


def test_a_node_takes_no_pods_of_a_dialect_whose_agent_is_dead() -> None:
    """The others keep their own agents."""
    both = frozenset({"hami-nvidia", "volcano-share"})
    home = node("n", offers=both, dead={"hami-nvidia": "agent dead: 0 nvidia.com/gpu allocatable"})
    assert refuse_dialect(home, claim()) == NodeRefusal(
        Reason.NODE_AGENT_DEAD, "agent dead: 0 nvidia.com/gpu allocatable"
    )
    assert refuse_dialect(home, claim(dialect="volcano-share")) is None


@pytest.mark.parametrize(
    ("label", "isolation", "fits"),
    [
        ("HAMi-core", "hami-core", True),
        ("hami-core", "hami-core", True),
        ("HAMI-CORE", "hami-core", True),
        ("other", "hami-core", False),
        ("", "hami-core", True),
        (None, "hami-core", True),
        ("other", "", True),
    ],
)
def test_a_node_that_isolates_by_another_library_is_refused(label: str | None, isolation: str, fits: bool) -> None:
    home = node("n", labels={} if label is None else {ISOLATION: label})
    refusal = refuse_dialect(home, claim(rules=KoordinatorRules(isolation)))
    assert (refusal is None) is fits
    if refusal is not None:
        assert refusal.reason is Reason.NODE_ISOLATION_MISSING
        assert refusal.detail.startswith("isolation by other, hami-core asked")
