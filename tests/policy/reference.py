"""The slow, obvious way: no columns, no caches, nothing incremental.

Every question is answered from the placements of all pods, by going through all nodes by name and all choices of cards
in order of preference.  MetaX's link arithmetic is shared with the product (it has a brute-force test of its own), and
so are the rules about nodes as such, which are plain there too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from subak.dialects import metax_links as links
from subak.dialects import metax_rules as metax
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.dialects.metax_rules import Shared, Whole
from subak.dialects.volcano_rules import Apart
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Charge, Grant, MigInstance, Placement, Share
from subak.model.request import (
    BINPACK,
    FEWEST_TENANTS,
    HIGHEST_INDEX,
    LOWEST_INDEX,
    MOST_ALLOCATED,
    MOST_MEMORY_USED,
    MUTEX,
    NUMA,
    SPREAD,
    Claim,
    Pick,
    Request,
)
from subak.policy.node import refuse_dialect, refuse_node
from subak.policy.tree import by_tree

MILLION = 10**6


@dataclass
class Used:
    """A card and the shares that are taken of it at this moment of a trial."""

    device: Device
    shares: int = 0
    slots: int = 0
    memory: int = 0
    cores: int = 0
    neighbours: list[tuple[str, str]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    """The tags of other pods alone."""
    tenants: dict[str, Charge] = field(default_factory=dict)
    instances: list[MigInstance] = field(default_factory=list)

    def state(self) -> CardState:
        state = CardState.of(self.device, self.shares, self.memory, self.cores, self.tenants)
        state.slots_free = self.device.slots - self.slots
        return state


@dataclass
class Reference:
    """All nodes, and the placements of all pods."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[Placement, tuple[tuple[str, int], ...]]] = field(default_factory=dict)

    def cards(self, name: str) -> list[Used]:
        """The cards of a node with what all pods take at their peak."""
        cards = [Used(device) for device in self.nodes[name].devices]
        for key, (placement, _) in self.pods.items():
            if placement.node != name:
                continue
            for card in cards:
                shares, slots, memory, cores, extras, mine = peak(placement.grants, card.device.id)
                if shares:
                    card.shares += shares
                    card.slots += slots
                    card.memory += memory
                    card.cores += cores
                    card.neighbours.append(mine[0].tag)
                    card.others.append(mine[0].tag)
                    instances = [s.mig for g in mine for s in g.shares if s.id == card.device.id and s.mig]
                    card.instances += instances
                    card.tenants[key] = Charge(shares, slots, memory, cores, extras, mine[0].tag)
        return cards

    def place(self, request: Request) -> Placement | None:
        """The best node that takes the pod."""
        best: tuple[int, Placement] | None = None
        for name in sorted(self.nodes):
            grants = self._try(self.nodes[name], request)
            if grants is not None:
                score = self._score(self.nodes[name], request, grants)
                if best is None or score > best[0]:
                    best = (score, Placement(name, grants))
        return best and best[1]

    def _try(self, node: Node, request: Request) -> tuple[Grant, ...] | None:
        if refuse_node(node, request.needs) or any(refuse_dialect(node, claim) for claim in request.claims):
            return None
        for resource, amount in request.needs.resources:
            taken = sum(
                dict(resources).get(resource, 0) for place, resources in self.pods.values() if place.node == node.name
            )
            if resource in node.allocatable and node.allocatable[resource] - taken < amount:
                return None
        starting = sorted(request.claims, key=lambda claim: (claim.role is Role.APP, claim.containers))
        found = next(search(starting, self.cards(node.name), [], request.node_policy), None)
        if found is None:
            return None
        return tuple(found[starting.index(claim)] for claim in request.claims)

    def _score(self, node: Node, request: Request, grants: Sequence[Grant]) -> int:
        cards = self.cards(node.name)
        if request.node_policy not in (BINPACK, SPREAD) and request.claims:
            return allocated(cards, request.claims[0], request.node_policy)
        gpus = [card for card in cards if card.device.kind == "gpu"]
        totals = [
            (sum(card.slots for card in gpus), sum(card.device.slots for card in gpus)),
            (sum(card.cores for card in gpus), sum(card.device.cores for card in gpus)),
            (sum(card.memory for card in gpus), sum(card.device.memory_bytes for card in gpus)),
        ]
        use = 0 if any(total == 0 for _, total in totals) else sum(part * MILLION // total for part, total in totals)
        points = 0
        for claim, given in zip(request.claims, grants, strict=True):
            chosen = {share.id for share in given.shares}
            free = [card.device for card in cards if card.device.family in claim.families and not card.shares]
            rules = shared(claim)
            if rules.online:
                on = [[tag[1] for tag in card.neighbours] for card in cards if card.device.id in chosen]
                points += metax.weighted(sum(metax.online_score(classes) for classes in on), request.node_policy)
            if rules.zones and rules.aware and claim.cores == 100:
                zones = [device.zone for device in free], [device.zone for device in free if device.id in chosen]
                points += metax.weighted(links.zone_score(*zones), request.node_policy)
        total = use + points * MILLION // 10
        linked = [claim for claim in request.claims if isinstance(claim.rules, Whole)]
        if linked:
            free = [card.device for card in cards if card.device.family in linked[0].families and not card.shares]
            count = sum(claim.count for claim in linked)
            total += links.node_points(request.node_policy, count, free, node.tables) * 2**22
        return -total if request.node_policy == SPREAD else total


def shared(claim: Claim) -> Shared:
    """MetaX's rules for the claim; those of a pod without QoS policy and class if it has others."""
    return claim.rules if isinstance(claim.rules, Shared) else Shared()


def cutting(claim: Claim) -> KoordinatorRules:
    """Koordinator's rules for the claim; those that say nothing if it has others."""
    return claim.rules if isinstance(claim.rules, KoordinatorRules) else KoordinatorRules()


def peak(grants: Sequence[Grant], card: str) -> tuple[int, int, int, int, dict[str, int], list[Grant]]:
    """What a pod takes of a card at most, by going through the moments of its life."""
    mine = [grant for grant in grants if any(share.id == card for share in grant.shares)]
    order = sorted(mine, key=lambda grant: (grant.role is Role.APP, grant.containers))
    moments = []
    for i, grant in enumerate(order):
        if passes(grant):
            moments.append([each for each in order[:i] if not passes(each)] + [grant])
    moments.append([grant for grant in order if not passes(grant)])
    sums = []
    extras: dict[str, int] = {}
    for moment in moments:
        held = [(share, grant.slotted) for grant in moment for share in grant.shares if share.id == card]
        slots = sum(slotted for _, slotted in held)
        sums.append((len(held), slots, sum(s.memory_bytes for s, _ in held), sum(s.cores for s, _ in held)))
        for name in {name for share, _ in held for name, _ in share.extras}:
            extras[name] = max(extras.get(name, 0), sum(dict(share.extras).get(name, 0) for share, _ in held))
    shares, slots, memory, cores = (max(each) for each in zip(*sums, strict=True))
    return shares, slots, memory, cores, extras, mine


def passes(grant: Grant) -> bool:
    """An init container's shares are free again before the others start; MIG instances are not."""
    return grant.role is Role.INIT and not any(share.mig for share in grant.shares)


def search(claims: Sequence[Claim], cards: list[Used], given: list[Grant], node_policy: str) -> Iterator[list[Grant]]:
    """All ways to serve the claims one after the other, the preferred ones first."""
    if not claims:
        yield given
        return
    claim, rest = claims[0], claims[1:]
    mine = [card for card in cards if card.device.family in claim.families]
    if claim.together and (earlier := [grant for grant in given if grant.dialect == claim.dialect]):
        mine = [card for card in mine if all([s.id for s in grant.shares] == [card.device.id] for grant in earlier)]
    ordered = sorted(mine, key=lambda card: preference(card, claim))
    for chosen in choices(claim, ordered, node_policy):
        before = [(card, Used(**vars(card))) for card in cards]
        tag = tag_of(claim)
        shares = tuple(take(card, claim, tag) for card in chosen)
        grant = Grant(claim.dialect, claim.containers, claim.role, shares, tag, claim.slotted)
        if passes(grant):
            restore(before)
        yield from search(rest, cards, [*given, grant], node_policy)
        restore(before)


def tag_of(claim: Claim) -> tuple[str, str]:
    """To whom its shares may be neighbours: members of a group that keep apart, or MetaX's classes."""
    if isinstance(claim.rules, Apart):
        return "pod group", claim.rules.group
    return shared(claim).qos or "", shared(claim).app_class


def take(card: Used, claim: Claim, tag: tuple[str, str]) -> Share:
    """Take the claim's share of a card: the next one sees it."""
    share = share_of(card, claim)
    card.shares += 1
    card.slots += claim.slotted
    card.memory += share.memory_bytes
    card.cores += share.cores
    card.neighbours = [*card.neighbours, tag]
    one = Charge(1, int(claim.slotted), share.memory_bytes, share.cores, dict(share.extras), tag)
    card.tenants = {**card.tenants, "this pod": one}
    card.instances = [*card.instances, *([share.mig] if share.mig else [])]
    return share


def restore(before: Sequence[tuple[Used, Used]]) -> None:
    """Undo what was taken."""
    for card, old in before:
        vars(card).update(vars(old))


def times(card: Used, claim: Claim) -> int:
    """How often a card that fits can be taken by one container: in MIG mode as long as it has instances."""
    if card.device.mode != "mig" or not claim.instances:
        return 1
    trial, taken = Used(**vars(card)), 0
    while taken < claim.count and trial.slots < trial.device.slots and mig_instance(trial, claim):
        take(trial, claim, ("", ""))
        taken += 1
    return taken


def choices(claim: Claim, ordered: list[Used], node_policy: str) -> Iterator[Sequence[Used]]:
    """The pick of the policy, then every other set of fitting cards."""
    fitting = [card for card in ordered if fits(card, claim)]
    repeated = [card for card in fitting for _ in range(times(card, claim))]
    if claim.policy.numa_bind:
        for numa in dict.fromkeys(card.device.numa for card in ordered if card.device.healthy):
            together = [card for card in repeated if card.device.numa == numa]
            if len(together) >= claim.count:
                yield together[: claim.count]
                return
        return
    if len(repeated) < claim.count:
        return
    if claim.policy.pick in (Pick.IN_ORDER, Pick.LINKS) and (
        claim.policy.pick == Pick.IN_ORDER or len(fitting) < claim.count
    ):
        best = repeated[: claim.count]
    else:
        best = picked(claim, fitting, ordered, node_policy)
    yield best
    known = [sorted(card.device.id for card in best)]
    for chosen in combinations(repeated, claim.count):
        ids = sorted(card.device.id for card in chosen)
        if ids not in known:
            known.append(ids)
            yield chosen


def picked(claim: Claim, fitting: list[Used], ordered: list[Used], node_policy: str) -> list[Used]:
    """What the policy takes of the fitting cards."""
    by_id = {card.device.id: card for card in fitting}
    states = [card.state() for card in fitting]
    match claim.policy.pick:
        case Pick.LINKS if len(fitting) > claim.count:
            if claim.count == 1:
                lone = [sum(card.device.links.get(other.device.id, 0) for other in fitting) for card in fitting]
                return [fitting[lone.index(min(lone))]]
            sets = list(combinations(fitting, claim.count))
            sums = [sum(a.device.links.get(b.device.id, 0) for a, b in combinations(each, 2)) for each in sets]
            return list(sets[sums.index(max(sums))])
        case Pick.RULES if shared(claim).zones:
            return links.by_zones(fitting, claim.count, lambda card: card.device.zone)
        case Pick.RULES if shared(claim).online:
            return [by_id[state.device.id] for state in metax.online_order(states)[: claim.count]]
        case Pick.RULES if len(fitting) > claim.count:
            return [by_id[state.device.id] for state in links.best_cards(states, claim.count, node_policy)]
        case Pick.TREE:
            everything = [card.state() for card in ordered]
            chosen = by_tree(states, everything, claim.count, claim.memory_percent < 100)
            return [by_id[state.device.id] for state in chosen]
        case _:
            return fitting[: claim.count]


def share_of(card: Used, claim: Claim) -> Share:
    """The claim's share of a card."""
    device = card.device
    instance = mig_instance(card, claim)
    if device.mode == "mig" and instance is not None:
        profile = next(each for each in device.mig if each.name == instance.profile)
        return Share(device.id, device.index, profile.memory_bytes, profile.cores, (), instance)
    rules = cutting(claim)
    template = dict(rules.templates).get(device.model, "") if device.family in rules.templated else ""
    return Share(device.id, device.index, wanted(device, claim), claim.cores, claim.extras, template=template)


def wanted(device: Device, claim: Claim) -> int:
    """Bytes of memory that the claim wants of a card."""
    if claim.memory_bytes:
        return claim.memory_bytes
    return device.memory_bytes // claim.granule * claim.memory_percent // 100 * claim.granule


def mig_instance(card: Used, claim: Claim) -> MigInstance | None:
    """The smallest instance that is large enough and has a free place."""
    for profile in sorted(card.device.mig, key=lambda each: (each.memory_bytes, each.cores, each.name)):
        if profile.memory_bytes < wanted(card.device, claim):
            continue
        if (
            profile.memory_bytes > card.device.memory_bytes - card.memory
            or profile.cores > card.device.cores - card.cores
        ):
            continue
        starts = sorted(profile.placements, reverse=profile.name[:3] in ("1g.", "3g."))
        for start, size in starts:
            taken = {place for each in card.instances for place in range(each.start, each.start + each.size)}
            if not taken & set(range(start, start + size)):
                return MigInstance(profile.name, start, size)
    return None


def fits(card: Used, claim: Claim) -> bool:
    """All rules at once."""
    device, selection = card.device, claim.selection
    if not device.healthy or device.cordoned or not selection.admits_id(device.id):
        return False
    if not selection.admits_type(device.model) or not selection.admits_mode(device.mode):
        return False
    if device.family in cutting(claim).templated and device.model not in dict(cutting(claim).templates):
        return False
    for name, amount in claim.extras:
        if dict(device.extras)[name] < amount + sum(each.extras.get(name, 0) for each in card.tenants.values()):
            return False
    if claim.slotted and card.slots >= device.slots:
        return False
    if device.memory_bytes - card.memory < wanted(device, claim):
        return False
    if (claim.idle or claim.policy.mutex) and card.shares:
        return False
    if isinstance(claim.rules, Apart) and any(("pod group", claim.rules.group) == tag for tag in card.others):
        return False
    rules = shared(claim)
    if not rules.online:
        free = device.cores - card.cores
        if claim.cores > 0 and free < claim.cores:
            return False
        if claim.slotted and free <= 0:
            return False
        if claim.slotted and device.cores == 100 and claim.cores == 100 and card.shares:
            return False
        alone = device.cores == 100 and any(each.slots == 1 and each.cores == 100 for each in card.tenants.values())
        if alone and free <= 0:
            return False
    if rules.qos is not None or rules.app_class:
        classes = {tag[1] for tag in card.neighbours}
        if classes and not (rules.app_class == "" if classes == {""} else rules.app_class != ""):
            return False
        if "online" in classes and rules.app_class == "offline":
            return False
        policy = metax.card_qos(card.state())
        if rules.app_class != "online" and card.shares and claim.cores != 100 and policy not in ("", rules.qos):
            return False
    return device.mode != "mig" or (claim.instances and mig_instance(card, claim) is not None)


def preference(card: Used, claim: Claim) -> tuple[int, ...]:
    """Sort key of a card: the lowest is preferred."""
    device, (word, *more) = card.device, claim.policy.order
    assert not more, "chains of policies are tested in test_order"
    weights = claim.policy.weights
    full = 0
    if device.slots and device.cores and device.memory_bytes:
        full = (
            weights.slot * (claim.slotted + card.slots) * MILLION // device.slots
            + weights.core * (claim.cores + card.cores) * MILLION // device.cores
            + weights.memory * (wanted(device, claim) + card.memory) * MILLION // device.memory_bytes
        )
    bind, numa, index = claim.policy.numa_bind, device.numa, device.index
    match word:
        case "binpack":
            return (numa, -full, index) if bind else (-full, -numa, index)
        case "spread":
            return (-numa, full, index) if bind else (full, -numa, index)
        case "mutex":
            return (-numa, card.shares, index) if bind else (card.shares, -numa, index)
        case _:
            key = {
                NUMA: -numa,
                LOWEST_INDEX: index,
                HIGHEST_INDEX: -index,
                MOST_MEMORY_USED: -card.memory,
                FEWEST_TENANTS: card.shares,
                MUTEX: card.shares,
            }
            first = key[word] if word in key else -allocated([card], claim, word)
            return first, -index if word == NUMA else index


def allocated(cards: Sequence[Used], claim: Claim, strategy: str) -> int:
    """Koordinator's score by the sums over healthy cards."""
    mine = [c for c in cards if c.device.family in claim.families and c.device.healthy and not c.device.cordoned]
    if not mine:
        return 0
    parts = []
    ratio = sum(100 for _ in mine), sum(100 - -(-c.memory * 100 // c.device.memory_bytes) for c in mine)
    memory = sum(c.device.memory_bytes for c in mine), sum(c.device.memory_bytes - c.memory for c in mine)
    for (total, free), ask in ((ratio, claim.memory_percent), (memory, claim.memory_bytes)):
        requested = total - free + ask
        most = min(requested, total) * 100 // total
        parts.append(most if strategy == MOST_ALLOCATED else max(total - requested, 0) * 100 // total)
    return sum(parts) // 2
