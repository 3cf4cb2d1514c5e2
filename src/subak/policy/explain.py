"""Why a pod waits: the nodes grouped by what keeps it off them, with numbers.

    0 of 3 nodes fit: 2 nodes: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory); 1 node: ...

A node has one group, by the rule that it came furthest with; its other reasons are counted in `reasons`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from subak.model.card import CardState
from subak.model.device import MIB
from subak.model.reason import Reason
from subak.model.request import Claim, Request
from subak.policy import Filter, mig, registry
from subak.policy.fit import Refused, everywhere, fit, refuse, rules_for
from subak.policy.on_node import on_node
from subak.policy.order import in_order
from subak.policy.tally import CARD_REASONS, Heap, Tally, Verdict, columns
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Pool
from tinykube.quantity import Quantity

NO_NODES = "there are no nodes"

AT_ONCE = 16
"""Nodes that are asked one by one in one step."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that refuse for the same reason; `count` of them where they are not named."""

    reason: str
    nodes: tuple[str, ...]
    detail: str
    count: int = 0

    def __str__(self) -> str:
        count = self.count or len(self.nodes)
        return f"{count:,} {'node' if count == 1 else 'nodes'}: {self.detail} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Explanation:
    """All groups, the largest first; and for each reason how many nodes have a card (or themselves) refused by it."""

    nodes: int
    fitting: tuple[str, ...]
    groups: tuple[Group, ...]
    reasons: dict[str, int]

    def __str__(self) -> str:
        if not self.nodes:
            return NO_NODES
        head = f"{len(self.fitting):,} of {self.nodes:,} nodes fit"
        return "; ".join([head, *(str(group) for group in self.groups)]).replace("fit; ", "fit: ", 1)


def explain(snapshot: Snapshot, request: Request) -> Explanation:
    """What every node says to the request."""
    tally = Tally(named=True)
    for _ in explaining(snapshot, request, tally):
        pass
    return explanation(tally)


def explaining(snapshot: Snapshot, request: Request, tally: Tally) -> Iterator[int]:
    """Fill the tally step by step; each step yields about how many nodes it had to ask one by one.

    What columns can tell costs next to nothing.  Where neighbours, wiring or instances decide, nodes are asked in turn.
    """
    filters = registry.filters(snapshot, request)
    for pool in list(snapshot.pools):
        left = columns(pool, request, filters, tally)
        yield 1 + pool.size // 200
        for start in range(0, len(left), AT_ONCE):
            part = [at for at in left[start : start + AT_ONCE] if at < pool.size and pool.nodes[at].name]
            for at in part:
                verdict = _ask(pool, at, request, filters)
                if verdict is None:
                    tally.fit(pool, at)
                else:
                    tally.add_one(pool, at, verdict)
            yield len(part)


def explanation(tally: Tally) -> Explanation:
    """What the tally says, the largest group first."""
    groups = sorted(tally.heaps.values(), key=lambda heap: (-heap.count, heap.key.reason, heap.first))
    return Explanation(
        tally.nodes,
        tuple(sorted(tally.fitting)),
        tuple(_group(heap, tally.named) for heap in groups),
        dict(sorted(tally.reasons.items())),
    )


def _group(heap: Heap, named: bool) -> Group:
    detail = heap.key.detail or _figures(heap)
    return Group(heap.key.reason, tuple(sorted(heap.names)), detail, 0 if named else heap.count)


def _ask(pool: Pool, at: int, request: Request, filters: Sequence[Filter]) -> Verdict | None:
    node = pool.nodes[at]
    for each in filters:
        refusal = each.refuse(node, request)
        if refusal is not None:
            return Verdict(refusal.reason, frozenset(), refusal.detail)
    for name, amount in request.needs.resources:
        free = pool.free(at, name)
        if free < amount:
            return Verdict(Reason.NODE_INSUFFICIENT_RESOURCE, frozenset(), "", free, amount, name)
    cards = pool.cards(at)
    refused = on_node(node, cards, request)
    return None if isinstance(refused, tuple) else _card_verdict(cards, request, refused)


def _plain(name: str, amount: int) -> str:
    if name == "cpu":
        return str(Quantity.parse(f"{amount}m"))
    if name == "memory" and amount % 1024 == 0:
        return str(Quantity.parse(f"{amount // 1024}Ki"))
    return f"{amount:,}"


def _card_verdict(cards: Sequence[CardState], request: Request, refused: Refused) -> Verdict:
    """What keeps off the first claim that does not fit even alone; else, that all of them together do not fit."""
    mine = [[card for card in cards if card.device.family in claim.families] for claim in request.claims]
    for claim, kin in zip(request.claims, mine, strict=True):
        if mig.most(kin, claim) < claim.count:
            return Verdict(Reason.NODE_INSUFFICIENT_DEVICE, frozenset(), "", mig.most(kin, claim), claim.count)
    for claim, kin in zip(request.claims, mine, strict=True):
        alone = fit(in_order(kin, claim), claim, request.node_policy)
        if isinstance(alone, Counter):
            return _claim_verdict(kin, everywhere(claim, kin) if claim.everywhere else claim, alone)
    detail = f"each of {len(request.claims)} requests fits alone, all together do not"
    return Verdict(_furthest(refused), frozenset(refused), detail)


def _claim_verdict(cards: Sequence[CardState], claim: Claim, refused: Refused) -> Verdict:
    """The reason that came furthest in the order of the rules, and its figure."""
    others = frozenset(refused)
    if Reason.NUMA_NOT_FIT in refused:  # before the number of cards that fit: that one speaks of a single NUMA node
        return Verdict(Reason.NUMA_NOT_FIT, others, _scattered(cards, claim))
    reason = _furthest(refused)
    if reason is Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST:
        return Verdict(reason, others, "", refused[reason], claim.count)
    if reason in (Reason.CARD_PARTITION_MISSING, Reason.CARD_PARTITION_NOT_FREE):
        plural = "card" if claim.count == 1 else "cards"
        return Verdict(reason, others, f"{_WORDS[reason]}, {claim.count:,} {plural} asked")
    short = [card for card in cards if refuse(card, claim, rules_for(claim)) is reason]
    if reason is Reason.CARD_INSUFFICIENT_MEMORY:
        best = max(short, key=lambda card: card.memory_free)
        return Verdict(reason, others, "", best.memory_free, claim.memory_on(best.device))
    if reason is Reason.CARD_INSUFFICIENT_CORE:
        return Verdict(reason, others, "", max(card.cores_free for card in short), claim.cores)
    return Verdict(reason, others, "", refused[reason], len(cards))


def _scattered(cards: Sequence[CardState], claim: Claim) -> str:
    if claim.policy.scope and any(not card.device.pcie for card in cards):
        return "PCIe roots of the cards not known"
    scope = "PCIe root" if claim.policy.scope == "PCIe" else "NUMA node"
    return f"cards on several {scope}s, {claim.count:,} asked on one"


def _furthest(refused: Refused) -> Reason:
    return max(refused, key=CARD_REASONS.index)


def _figures(heap: Heap) -> str:
    best, asked = heap.figure, heap.key.asked
    match heap.key.reason:
        case Reason.CARD_INSUFFICIENT_MEMORY:
            return f"largest free slice {max(best, 0) // MIB:,} MiB, {-(-asked // MIB):,} MiB asked"
        case Reason.CARD_INSUFFICIENT_CORE:
            return f"most free cores {max(best, 0)}, {asked} asked"
        case Reason.NODE_INSUFFICIENT_RESOURCE:
            name = heap.key.resource
            return f"at most {_plain(name, best)} {name} free, {_plain(name, asked)} asked"
        case Reason.NODE_INSUFFICIENT_DEVICE:
            return f"at most {best} {'card' if best == 1 else 'cards'}, {asked} asked"
        case Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST:
            return f"at most {best} {'card fits' if best == 1 else 'cards fit'}, {asked} asked"
        case reason:
            return f"{_WORDS.get(reason, reason)} on {best} of {asked} cards"


_WORDS: dict[str, str] = {
    Reason.CARD_NOT_HEALTH: "card not healthy",
    Reason.CARD_UNHEALTHY: "card not healthy",
    Reason.CARD_CORDONED: "card cordoned",
    Reason.CARD_TYPE_MISMATCH: "type, mode or labels not admitted",
    Reason.CARD_UUID_MISMATCH: "UUID not admitted",
    Reason.CARD_APP_CLASS_MISMATCH: "other application class",
    Reason.CARD_QOS_POLICY_MISMATCH: "other QoS policy",
    Reason.CARD_POD_GROUP_CONFLICT: "member of its own group",
    Reason.CARD_TIME_SLICING_EXHAUSTED: "no slot left",
    Reason.CARD_INSUFFICIENT_EXTRA: "vendor resource exhausted",
    Reason.CARD_COMPUTE_UNITS_EXHAUSTED: "no cores left",
    Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT: "card in use, asked for alone",
    Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE: "not the pod's card",
    Reason.CARD_MIG_TOPOLOGY_INFEASIBLE: "no MIG instance free",
    Reason.CARD_TEMPLATE_MISMATCH: "no matched GPU shared resource template",
    Reason.CARD_VIRTUAL_FUNCTIONS_EXHAUSTED: "no virtual function free",
    Reason.CARD_PARTITION_MISSING: "no such partition in the node's table",
    Reason.CARD_PARTITION_NOT_FREE: "no partition wholly free",
    Reason.CARD_PCIE_ROOT_MISMATCH: "not under the PCIe roots of the pod's other devices",
}
