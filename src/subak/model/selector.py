"""Choosing pods and namespaces by their labels, as affinity and spreading do.

A selector is a set of lines that must all hold.  One without lines chooses everything; None chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from subak.model import manifest
from subak.model.manifest import Expression, LabelSelector, PodTerm

Selector = tuple[Expression, ...]
Pair = tuple[str, str]
"""A label: key and value."""


def selector(written: LabelSelector | None) -> Selector | None:
    """What a user wrote, as lines in one order, so that equal choices are equal values."""
    if written is None:
        return None
    lines = [_is_in(key, value) for key, value in (written.match_labels or {}).items()]
    for line in written.match_expressions or ():
        lines.append(Expression(key=line.key, operator=line.operator, values=tuple(sorted(set(line.values or ())))))
    return tuple(sorted(set(lines), key=lambda line: (line.key, line.operator, line.values or ())))


def chosen(lines: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector chooses something with these labels."""
    return lines is not None and all(line.holds(labels) for line in lines)


def pairs(lines: Selector | None) -> tuple[Pair, ...]:
    """Labels of which a chosen object has at least one; empty if the selector names none."""
    wanted = next((line for line in lines or () if line.operator == "In"), None)
    return () if wanted is None else tuple([(wanted.key, value) for value in wanted.values or ()])


def described(lines: Selector | None) -> str:
    """The selector as `kubectl -l` would take it."""
    if lines is None:
        return "no labels"
    return ",".join(map(_words, lines)) or "any labels"


def with_labels(
    lines: Selector | None, labels: Mapping[str, str], same: Iterable[str] = (), other: Iterable[str] = ()
) -> Selector | None:
    """The selector, narrowed to objects with the same values of some labels, and other values of others.

    A line that is there already stays as it is: recent API servers add these lines when a pod is created.
    """
    if lines is None:
        return None
    known = {(line.key, line.operator) for line in lines}
    more = [_is_in(key, labels[key]) for key in same if key in labels and (key, "In") not in known]
    for key in other:
        if key in labels and (key, "NotIn") not in known:
            more.append(Expression(key=key, operator="NotIn", values=(labels[key],)))
    return (*lines, *more)


@dataclass(frozen=True, slots=True)
class Term:
    """Pods that a term of a pod affinity means: by namespace, by labels of the namespace, and by their own labels."""

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    selector: Selector | None

    @classmethod
    def of(cls, written: PodTerm, pod: manifest.Pod) -> Term:
        """The term as this pod states it; without any namespace it means the pod's own."""
        lines = with_labels(
            selector(written.label_selector),
            pod.labels,
            written.match_label_keys or (),
            written.mismatch_label_keys or (),
        )
        names = frozenset(written.namespaces or ())
        if not names and written.namespace_selector is None:
            names = frozenset((pod.namespace,))
        return cls(names, selector(written.namespace_selector), lines)

    def means(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels in this namespace is meant."""
        there = namespace in self.namespaces or chosen(self.namespace_selector, namespace_labels)
        return there and chosen(self.selector, labels)


def _is_in(key: str, *values: str) -> Expression:
    return Expression(key=key, operator="In", values=values)


def _words(line: Expression) -> str:
    values = line.values or ()
    match line.operator:
        case "In" if len(values) == 1:
            return f"{line.key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{line.key}!={values[0]}"
        case "Exists":
            return line.key
        case "DoesNotExist":
            return f"!{line.key}"
        case operator:
            return f"{line.key} {operator.lower()} ({','.join(values)})"
