"""What decided pods are going to get, from the decision until their claims are bound.

Two pods in flight must not be promised the same volume, and pods that share a claim must agree on its volume, or on the
node for which it is provisioned.  A promise is part of the pod's booking: it ends when the pod gives its place back.
"""

from __future__ import annotations

from collections.abc import Iterable

from subak.model.volume import Assignment, Claim


class Promises:
    """Promises by pod, by volume and by claim."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Assignment]] = {}
        self._volumes: dict[str, dict[str, Assignment]] = {}
        self._claims: dict[str, dict[str, tuple[Assignment, str]]] = {}

    def __len__(self) -> int:
        """How many pods are promised something."""
        return len(self._pods)

    def make(self, pod: str, node: str, assignments: Iterable[Assignment]) -> None:
        """The pod goes to this node, and its claims get these volumes."""
        for each in assignments:
            self._pods.setdefault(pod, {})[each.claim] = each
            self._claims.setdefault(each.claim, {})[pod] = (each, node)
            if each.volume:
                self._volumes.setdefault(each.volume, {})[pod] = each

    def of(self, pod: str) -> tuple[Assignment, ...]:
        """What a pod is promised."""
        return tuple(self._pods.get(pod, {}).values())

    def about(self, claim: str) -> tuple[Assignment, ...]:
        """What pods are promised about a claim."""
        return tuple(each for each, _ in self._claims.get(claim, {}).values())

    def withdraw(self, pod: str) -> None:
        """The pod has given its place back."""
        for each in self.of(pod):
            self._remove(pod, each)

    def settle(self, claim: str) -> None:
        """The claim has its volume: what was promised about it no longer matters."""
        for pod, (assignment, _) in list(self._claims.get(claim, {}).items()):
            self._remove(pod, assignment)

    def volume(self, claim: Claim) -> str:
        """The volume that the claim is promised; empty for none."""
        return next((each.volume for each, _ in self._about(claim)), "")

    def node(self, claim: Claim) -> str | None:
        """The node for which the claim's volume is going to be provisioned."""
        return next((node for each, node in self._about(claim) if not each.volume), None)

    def to_another(self, volume: str, claim: Claim) -> bool:
        """Whether a volume is promised to another claim."""
        return any(each.uid != claim.metadata.uid for each in self._volumes.get(volume, {}).values())

    def _about(self, claim: Claim) -> list[tuple[Assignment, str]]:
        """The promises about this very claim, not about another one of that name."""
        found = self._claims.get(claim.key)
        return [each for each in found.values() if each[0].uid == claim.metadata.uid] if found else []

    def _remove(self, pod: str, assignment: Assignment) -> None:
        del self._pods[pod][assignment.claim], self._claims[assignment.claim][pod]
        if not self._pods[pod]:
            del self._pods[pod]
        if not self._claims[assignment.claim]:
            del self._claims[assignment.claim]
        if assignment.volume:
            del self._volumes[assignment.volume][pod]
            if not self._volumes[assignment.volume]:
                del self._volumes[assignment.volume]
