"""Koordinator's rules for its devices.

    isolation    a node that names a provider takes only pods that ask for no other
    templates    cards of some vendors give only the parts that their drivers can cut: exactly one of the templates
    functions    a network card gives its free virtual function with the lowest address, of a group the user admits

A virtual function belongs to one pod at a time.  Its holder is written down with the card's other tenants.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

import msgspec

from subak.dialects.koordinator_names import ISOLATION
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.manifest import Expression
from subak.model.node import Node
from subak.model.placement import Function, Share
from subak.model.reason import NodeRefusal, Reason
from subak.model.rules import Rules


@dataclass(frozen=True, slots=True)
class KoordinatorRules(Rules):
    """What a claim says beyond amounts.

    `isolation` is the provider that it wants.  Cards of the `templated` families give it only the cut that `templates`
    names for their model.  `function` are lines on the labels of the virtual function that comes with each card; None
    if none comes.
    """

    isolation: str = ""
    templated: frozenset[str] = frozenset()
    templates: tuple[tuple[str, str], ...] = ()
    function: tuple[Expression, ...] | None = None

    @property
    def node_key(self) -> Hashable:
        return self.isolation

    def refuse_node(self, node: Node) -> NodeRefusal | None:
        provider = node.labels.get(ISOLATION)
        if not self.isolation or not provider or provider.lower() == self.isolation:
            return None
        detail = f"isolation by {provider}, {self.isolation} asked (GPUIsolationProviderHAMICore not found on the node)"
        return NodeRefusal(Reason.NODE_ISOLATION_MISSING, detail)

    def refuse(self, card: CardState, cores: int) -> Reason | None:
        if card.device.family not in self.templated or card.device.model in dict(self.templates):
            return None
        return Reason.CARD_TEMPLATE_MISMATCH

    def refuse_last(self, card: CardState) -> Reason | None:
        if self.function is None or self._free_function(card) is not None:
            return None
        return Reason.CARD_VIRTUAL_FUNCTIONS_EXHAUSTED

    def in_columns(self, families: Collection[str]) -> bool:
        return self.function is None and self.templated.isdisjoint(families)

    def complete(self, share: Share, card: CardState) -> Share:
        template = dict(self.templates).get(card.device.model, "") if card.device.family in self.templated else ""
        virtual = None if self.function is None else self._free_function(card)
        functions = () if virtual is None else (virtual,)
        return msgspec.structs.replace(share, functions=functions, template=template)

    def widest(self, share: Share, device: Device) -> Share:
        if self.function is None:
            return share
        functions = tuple(Function(each.bus, each.minor) for each in device.functions)
        return msgspec.structs.replace(share, functions=functions)

    def _free_function(self, card: CardState) -> Function | None:
        taken = {each.bus for charge in card.tenants.values() for each in charge.functions}
        free = (
            each
            for each in card.device.functions
            if each.bus not in taken and all(line.holds(each.labels) for line in self.function or ())
        )
        first = min(free, key=lambda each: each.bus, default=None)
        return None if first is None else Function(first.bus, first.minor)
