"""Reading resource amounts from containers, with errors that name the field, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subak.model import manifest
from subak.model.manifest import Amount, Amounts, Container
from subak.model.reason import Refusal
from tinykube.quantity import Quantity, QuantityError


def whole(amounts: Mapping[str, Amount], name: str, field: str, unit: str = "") -> int | None:
    """The non-negative whole number behind `name`, None when absent.  `unit` says in the error what is counted."""
    text = amounts.get(name)
    if text is None:
        return None
    counted = "whole number of " + unit if unit else "whole number"
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        raise Refusal(f"{field}[{name}]", text, f"{error}; {name} takes a {counted}") from None
    try:
        number = quantity.integer()
    except QuantityError:
        message = f"{str(text)!r} is not a whole number; {name} takes a {counted}"
        raise Refusal(f"{field}[{name}]", text, message) from None
    if number < 0:
        raise Refusal(f"{field}[{name}]", text, f"{name} must not be negative; give a {counted}, 0 or more")
    return number


class Asked:
    """The amounts of one container.  Limits are read first, then requests, as all dialects but MetaX sGPU do."""

    def __init__(self, container: Container, field: str) -> None:
        self.container = container
        self.field = field

    def __call__(self, name: str, unit: str = "") -> int | None:
        """The amount behind `name`, None when absent."""
        limits = self.container.limits
        if name in limits:
            return whole(limits, name, f"{self.field}.resources.limits", unit)
        requests = (self.container.resources and self.container.resources.requests) or {}
        return whole(requests, name, f"{self.field}.resources.requests", unit)

    def has(self, name: str) -> bool:
        """Whether `name` is mentioned at all."""
        resources = self.container.resources
        return resources is not None and (name in (resources.limits or ()) or name in (resources.requests or ()))

    def path(self, name: str) -> str:
        """The field that holds `name`, for an error message."""
        kind = "limits" if name in self.container.limits else "requests"
        return f"{self.field}.resources.{kind}[{name}]"

    def check_most(self, name: str, most: int) -> None:
        """Refuse more of `name` than one card has: no other amount can have been meant."""
        amount = self(name)
        if amount is not None and amount > most:
            text = self.text(name)
            raise Refusal(self.path(name), text, f"{name} is {text}, but a card has {most}: give at most {most}")

    def check_counted(self, count: str, parts: Iterable[str]) -> None:
        """Refuse parts of 0 cards."""
        if self(count) == 0 and any(self(part) for part in parts):
            message = f"{count} is 0 although a part of a card is asked for: give 1 or more"
            raise Refusal(self.path(count), self.text(count), message)

    def text(self, name: str) -> Amount | None:
        """The amount as the user wrote it."""
        return self.container.limits.get(name, self.container.requests.get(name))


def asked(pod: manifest.Pod) -> list[Asked]:
    """One reader per container, in the order of `Pod.containers`."""
    return [Asked(container, field) for container, field in zip(pod.containers, pod.fields, strict=True)]


def mentions(pod: manifest.Pod, names: Iterable[str]) -> bool:
    """Whether any container mentions one of the names."""
    wanted = frozenset(names)
    return any(name in wanted for name in pod.resource_names())


def offers(amounts: Amounts, names: Iterable[str]) -> bool:
    """Whether a node's allocatable has a positive amount of one of the names; unreadable amounts do not count."""
    return any(published(amounts, name) > 0 for name in names)


def published(amounts: Amounts, name: str) -> int:
    """A node's amount of `name`, 0 when it is absent, negative or cannot be read."""
    if name not in amounts:
        return 0
    try:
        return max(manifest.amount(amounts, name), 0)
    except QuantityError:
        return 0
