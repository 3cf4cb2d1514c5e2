"""HAMi's dialect for Moore Threads cards.

`mthreads.com/vgpu` asks for cards; `sgpu-memory` (512 MiB) and `sgpu-core` (16ths of a card) for a part of one.  A part
has one of a few sizes.  `vgpu` alone, or more than one, means whole cards.  Unlike with other vendors the amounts are
those of the container, not of each card.

All containers of a pod share one card: the vendor's agent learns a single list of indices per pod.  So either one
container has several cards, or several containers have the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from subak.dialects import Agent, Ask, Injection, Patch, Published, Sight, hami
from subak.dialects.amounts import Asked, asked, mentions
from subak.dialects.config import Mthreads as Names
from subak.dialects.totals import Totals
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Grant, Placement
from subak.model.reason import Refusal
from subak.model.request import Claim

FAMILY = "mthreads"
WORD = "Mthreads"
BLOCK_MIB = 512
CARD_CORES = 16

ALLOCATED = "hami.io/mthreads-vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/mthreads-vgpu-devices-to-allocate"
GPU_INDEX = "mthreads.com/gpu-index"
PREDICATE_TIME = "mthreads.com/predicate-time"
PREDICATE_NODE = "mthreads.com/predicate-node"
CARDS_REQUESTED = "mthreads.com/request-gpu-num"

WHOLE_CARDS = "mthreads.com/gpu"
"""Cards that the vendor's plugin gives out by itself, from a pool of its own."""


def part_sizes(card_sizes: Iterable[int]) -> list[int]:
    """The amounts of memory that the driver can cut from cards of these sizes: powers of two, or all."""
    sizes = set(card_sizes)
    powers = {2**power for size in sizes for power in range(1, size.bit_length()) if 2**power < size}
    return sorted(powers | sizes)


class Mthreads:
    """HAMi, Moore Threads."""

    name = "hami-mthreads"
    families = frozenset({FAMILY})
    # HAMi never writes TO_ALLOCATE, but reserves the name.
    owned = hami.OWNED | {ALLOCATED, TO_ALLOCATE, GPU_INDEX, PREDICATE_TIME, PREDICATE_NODE}
    recorded = frozenset({ALLOCATED})
    agent = Agent("hami", (FAMILY,), label=hami.NODE)

    def __init__(self, names: Names) -> None:
        self.totals = Totals(
            FAMILY,
            names.resource_count_name,
            names.resource_memory_name,
            names.resource_core_name,
            block_mib=BLOCK_MIB,
            cores=CARD_CORES,
        )
        self.resources = self.totals.names
        self.quota_units = self.totals.quota_units(self.name)
        self.measures = self.totals.measures
        self.sizes = part_sizes(names.memory_per_card)

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for cards or a part of one."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """Whole cards where no memory is given or more than one card is asked for."""
        patch = Patch()
        hami.check_policies(pod.annotations)
        for position, ask in self._asking(pod):
            self._admit_container(ask, position, patch)
        return patch

    def _asking(self, pod: manifest.Pod) -> list[tuple[int, Asked]]:
        """The containers that ask for cards, by position.  Refuses sets of them that no card can serve."""
        asking: list[tuple[int, Asked]] = []
        for position, ask in enumerate(asked(pod)):
            self._check_count(ask)
            if ask.has(self.totals.count_name):
                asking.append((position, ask))
        for _, ask in asking:
            count = ask(self.totals.count_name)
            if count != 1 and len(asking) > 1:
                raise Refusal(
                    ask.path(self.totals.count_name),
                    count,
                    f"Device sharing for multi-cards is not supported: container {ask.container.name} asks for {count} "
                    f"cards and {len(asking)} containers of the pod ask for cards; let only one container ask, or each "
                    f"for {self.totals.count_name}: 1",
                )
        return asking

    def _check_count(self, ask: Asked) -> None:
        name = self.totals.count_name
        text = ask.text(name)
        if text is not None and (str(text).lstrip().startswith("-") or ask(name, "cards") == 0):
            raise Refusal(ask.path(name), text, f"{name} must be greater than 0")
        self.totals.check_counted(ask)
        if ask.has(WHOLE_CARDS) and any(ask.has(each) for each in self.resources):
            raise Refusal(
                ask.path(WHOLE_CARDS),
                ask.text(WHOLE_CARDS),
                f"{WHOLE_CARDS} and {name} cannot be mixed in container {ask.container.name}, because the vendor's "
                f"plugin gives out the first by itself: for whole cards ask for {name} alone",
            )

    def _admit_container(self, ask: Asked, position: int, patch: Patch) -> None:
        count = ask(self.totals.count_name) or 0
        memory = ask(self.totals.memory_name, self.totals.unit)
        cores = ask(self.totals.core_name, f"1/{CARD_CORES} of a card")
        if count == 1 and memory is not None:
            self._check_part(ask, memory)
            return
        if count == 1 and cores not in (None, 0, CARD_CORES):
            name = self.totals.core_name
            raise Refusal(
                ask.path(name),
                ask.text(name),
                f"{name} is {ask.text(name)}, but without {self.totals.memory_name} the whole card is meant: "
                f"add {self.totals.memory_name}, or leave {name} out",
            )
        patch.set_limit(position, self.totals.core_name, CARD_CORES * count)
        patch.set_limit(position, self.totals.memory_name, self.sizes[-1] * count)
        if count > 1:
            patch.annotations[CARDS_REQUESTED] = str(count)

    def _check_part(self, ask: Asked, memory: int) -> None:
        name = self.totals.memory_name
        if memory not in self.sizes:
            message = f"sGPU memory request value is invalid, valid values are {self.sizes}"
            raise Refusal(ask.path(name), ask.text(name), message)
        ask.check_most(self.totals.core_name, CARD_CORES)

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container, all of them on the same card."""
        self._asking(pod)  # refuses what cannot be meant
        return hami.ask_each(pod, self.amounts, self.claim)

    def claim(self, pod: manifest.Pod, position: int, amounts: hami.Amounts) -> Claim:
        """The claim of the container at `position`."""
        selection = hami.selection(
            pod.annotations, use_ids="mthreads.ai/use-gpuuuid", nouse_ids="mthreads.ai/nouse-gpuuuid"
        )
        policy = hami.card_policy(pod.annotations)
        role = pod.roles[position]
        claim = hami.claim(self.name, FAMILY, position, role, selection=selection, policy=policy, **amounts)
        return replace(claim, together=True)

    def amounts(self, ask: Asked) -> hami.Amounts | None:
        """`count`, `memory_bytes`, `percent` and `cores`, of each card; None if the container asks for no card."""
        count = ask(self.totals.count_name, "cards")
        if not count:
            return None
        memory_bytes = self.totals.memory_bytes(ask, count)
        return {
            "count": count,
            "memory_bytes": memory_bytes,
            "percent": 0 if memory_bytes else 100,
            "cores": (ask(self.totals.core_name) or 0) // count,
        }

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards behind the node's capacity; the vendor publishes nothing else."""
        return self.totals.sight(node)

    def publish(self, node: Node) -> Published:
        """The sums over the cards."""
        return self.totals.publish(node.devices)

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """HAMi's annotations, and the vendor's for its agent."""
        annotations = hami.write(pod, placement, now_ns, self.name, WORD, ALLOCATED)
        holding = [shares for shares in hami.cards_by_container(pod, placement, self.name) if shares]
        if holding:
            # One list for the whole pod: all containers have the same card, so that any of them could be named.
            annotations[GPU_INDEX] = ",".join(str(share.index) for share in holding[-1])
            annotations[PREDICATE_TIME] = str(now_ns)
            annotations[PREDICATE_NODE] = placement.node
        return annotations

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of HAMi's annotations."""
        if ALLOCATED not in pod.annotations:
            return ()  # a pod of another dialect: what it asks for is not ours to judge
        return hami.read(pod, node, self.name, ALLOCATED, lambda ask: ask(self.totals.count_name))

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """The variables of the vendor's container runtime, whose kernel module holds the limits."""
        share = grant.shares[0]
        env = {
            "MTHREADS_VISIBLE_DEVICES": ",".join(str(each.index) for each in grant.shares),
            "MTHREADS_QOS_MEMORY_LIMIT": str(share.memory_bytes),
        }
        if share.cores:  # The runtime takes weights from 1 on; without one the container has its default.
            env["MTHREADS_QOS_COMPUTING_POWER_WEIGHT"] = str(share.cores)
        return Injection(env)
