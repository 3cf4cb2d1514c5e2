"""Amounts of resources by name: what a task asks for, a job holds, a queue deserves, or a cluster has.

    cpu       thousandths of a processor
    memory    bytes
    pods      pods, of which each task is one
    others    units of an extended resource that no dialect speaks of, under its own name
    cards     `FAMILY/memory` in bytes, `FAMILY/cores` as the vendor counts them (percent of a card, as a rule),
              `FAMILY/cards` that are taken as a whole, `FAMILY/slots`: see `batch.dimensions`

A name that is missing counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Amounts = Mapping[str, float]

SLACK = 1e-4
"""Differences up to this are none: shares are fractions."""

PRECISION = 1e-9
"""Nor are those of so small a part: a fraction of many bytes is not exact to the byte."""


def add(total: dict[str, float], amounts: Amounts, sign: float = 1) -> None:
    """Change a total in place; names that reach 0 leave it."""
    for name, amount in amounts.items():
        value = total.get(name, 0) + sign * amount
        if -SLACK < value < SLACK:
            total.pop(name, None)
        else:
            total[name] = value


def plus(one: Amounts, other: Amounts) -> dict[str, float]:
    """Both together."""
    total = dict(one)
    add(total, other)
    return total


def minus(one: Amounts, other: Amounts) -> dict[str, float]:
    """What is left of the first; less than nothing where the other has more."""
    total = dict(one)
    add(total, other, -1)
    return total


def times(amounts: Amounts, factor: float) -> dict[str, float]:
    """Each so many times."""
    return {name: amount * factor for name, amount in amounts.items()}


def within(amounts: Amounts, limits: Amounts, among: Iterable[str] | None = None) -> bool:
    """Whether none exceeds its limit; where `among` is given, only these names are compared."""
    names = amounts if among is None else among
    return all(fits(amounts.get(name, 0), limits.get(name, 0)) for name in names)


def exceeding(amounts: Amounts, limits: Amounts, among: Iterable[str] | None = None) -> list[str]:
    """The names that exceed their limits, in order."""
    names = amounts if among is None else among
    return sorted(name for name in names if not fits(amounts.get(name, 0), limits.get(name, 0)))


def fits(amount: float, limit: float) -> bool:
    """Whether an amount does not exceed a limit."""
    return amount <= limit + SLACK + PRECISION * abs(limit)


def excess(amounts: Amounts, limits: Amounts) -> dict[str, float]:
    """By how much each exceeds its limit, where it does."""
    left = ((name, amount - limits.get(name, 0)) for name, amount in amounts.items())
    return {name: amount for name, amount in left if amount > SLACK}


def largest_part(amounts: Amounts, of: Amounts) -> float:
    """The dominant share: the largest quotient over all names of the whole; 0/0 is 0, anything else of 0 is 1."""
    return max([_part(amount, of[name]) for name, amount in amounts.items() if name in of], default=0.0)


def _part(amount: float, whole: float) -> float:
    if whole > 0:
        return amount / whole
    return 1.0 if amount > 0 else 0.0
