"""A history with two writers: another scheduler that binds as it likes, and bindings that arrive late.

So cards are overcommitted in truth, and the core has to find out.  `may_go` are the pods that it may evict then: those
on a card to which more was bound than it had.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from subak.model import manifest
from subak.model.device import MIB
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, Instruction
from tests.scheduler.history import VOLCANO, Card, History, _bound


@dataclass
class Rivalry(History):
    """`late` are bindings under way, with the core that sent them and what they take."""

    late: list[tuple[Core, Bind, dict[Card, int]]] = field(default_factory=list)
    hold_back: bool = False
    given_up: set[Card] = field(default_factory=set)
    """Cards that were overcommitted by running pods when a core began: it cannot know that they were never larger."""

    def carry_out(self, instruction: Instruction, refuse: bool = False) -> None:
        if isinstance(instruction, Bind) and self.hold_back:
            self.late.append((self.core, instruction, self.taken_by(instruction)))
        else:
            super().carry_out(instruction, refuse)

    def arrive(self, bind: Bind, taken: dict[Card, int], refuse: bool = False) -> None:
        super().arrive(bind, taken, refuse)
        self._look()

    def land(self, number: int) -> None:
        """A binding arrives that was sent some time ago, maybe by a core that is no more."""
        if not self.late:
            return
        sender, bind, taken = self.late.pop(number % len(self.late))
        known = self.pods.get(bind.key)
        if sender is self.core:
            self.arrive(bind, taken)
        elif known is not None and known.metadata.uid == bind.uid and not known.spec.node_name:
            self.truth[bind.key], self.written[bind.key] = taken, bind.annotations
            self._put(_bound(known, bind.node, bind.annotations))
            self._look()

    def rival(self, key: str, name: str, index: int) -> None:
        """Another scheduler binds a waiting Volcano pod to a card without asking how full it is."""
        pod = self.pods[key]
        if VOLCANO in pod.spec.containers[0].limits:
            amount = int(str(pod.spec.containers[0].limits[VOLCANO])) * MIB
            self.truth[key] = {(name, "nvidia", index): amount}
            self._put(_bound(pod, name, {"volcano.sh/gpu-index": str(index)}))
            self._look()

    def relabel(self, key: str, label: str) -> None:
        """Somebody changes a label of a pod."""
        pod = self.pods[key]
        self._put(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={"a": label})))

    def start(self, key: str) -> None:
        """The node starts a pod."""
        pod = self.pods[key]
        if pod.spec.node_name:
            self._put(msgspec.structs.replace(pod, status=manifest.PodStatus(phase="Running")))

    def restart(self, order: list[int]) -> None:
        super().restart(order)
        running = {key for key, pod in self.pods.items() if pod.started}
        for card in self.overcommitted():
            if sum(taken.get(card, 0) for key, taken in self.truth.items() if key in running) > self._size(card):
                self.given_up.add(card)

    def settle(self) -> None:
        """What is under way arrives; then everything is told and done."""
        self.hold_back = False
        while self.late:
            self.land(0)
        super().settle()

    def persisting(self) -> list[Card]:
        """Cards that are overcommitted and should have been repaired."""
        return [card for card in self.overcommitted() if card not in self.given_up]

    def _look(self) -> None:
        """Note who is on a card to which more was bound than it has."""
        for card in {card for taken in self.truth.values() for card in taken}:
            if self.load(card) > self.size_now(card):
                self.may_go |= {key for key, taken in self.truth.items() if card in taken}
            else:
                self.given_up.discard(card)
