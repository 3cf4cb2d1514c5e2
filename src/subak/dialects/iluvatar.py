"""HAMi's dialect for Iluvatar cards, in both generations of names.

The older one has one set of names for all models (`iluvatar.ai/vgpu`, `vcuda-memory`, `vcuda-core`); since HAMi 2.7.1
each model has its own (`iluvatar.ai/MR-V100-vgpu`, `MR-V100.vMem`, `MR-V100.vCore`).  Memory counts 256 MiB and cores
percent, both of each card.  Without memory the whole card's is meant.  Sharing works for one card only: who asks for
more gets all cores of each.

Both generations draw on the same cards.  Newer agents write a register annotation; where it is missing, as on many
nodes in the field, the cards follow from the node's capacity.  The agent finds its pod by the vendor's own annotations
(`iluvatar.ai/predicate-...`), so that both generations write them besides HAMi's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from subak.dialects import Agent, Ask, Injection, Patch, Published, Sight, Sighting, Source, agent, hami
from subak.dialects.amounts import Asked, asked, mentions
from subak.dialects.config import Iluvatar as LegacyNames
from subak.dialects.config import IluvatarChip as ChipNames
from subak.dialects.totals import Totals
from subak.model import manifest
from subak.model.device import FULL_CORES, Device
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import Claim

FAMILY = "iluvatar"
WORD = "Iluvatar"
BLOCK_MIB = 256

ASSIGNED = "iluvatar.ai/gpu-assigned"
PREDICATE_TIME = "iluvatar.ai/predicate-time"
PREDICATE_INDEX = "iluvatar.ai/predicate-gpu-idx-"

LIBRARIES = tuple(f"/usr/local/iluvatar/lib64/{name}" for name in ("libcuda.so", "libcuda.so.1", "libixml.so"))
DIRECTORIES = ("/usr/local/corex/lib64",)
"""What the vendor's image has."""

CONTAINER_NAME = "SOL_CONTINER_NAME"
"""Misspelt by the vendor, whose library reads this and nothing else."""


def totals(names: LegacyNames | ChipNames) -> Totals:
    """The three resources behind these names."""
    return Totals(
        FAMILY,
        names.resource_count_name,
        names.resource_memory_name,
        names.resource_core_name,
        block_mib=BLOCK_MIB,
        cores=FULL_CORES,
    )


def vendor_annotations(containers: Sequence[Sequence[Share]], now_ns: int) -> dict[str, str]:
    """What the vendor's gpu-manager looks for; `containers` are the shares of each app container.

    It takes the pod with `gpu-assigned=false` and the oldest time, and from there the cards' indices by the container's
    place in `spec.containers`.  Without cards there is nothing to wait for, and the pod must not look as if.
    """
    indices = {
        f"{PREDICATE_INDEX}{place}": ",".join(str(share.index) for share in shares)
        for place, shares in enumerate(containers)
        if shares
    }
    return {ASSIGNED: "false", PREDICATE_TIME: str(now_ns), **indices} if indices else {}


class _Generation:
    """What both generations share.

    `word` is the type in device strings, `stem` the middle of the keys that hold them.  `use_ids` and `nouse_ids` are
    the annotations by which users choose cards.
    """

    families = frozenset({FAMILY})

    def __init__(
        self,
        name: str,
        totals: Totals,
        agent: Agent,
        *,
        word: str,
        stem: str,
        use_ids: str,
        nouse_ids: str,
    ) -> None:
        self.name = name
        self.totals = totals
        self.agent = agent
        self.word = word
        self.resources = totals.names
        self.quota_units = totals.quota_units(name)
        self.measures = totals.measures
        self.to_allocate = f"hami.io/{stem}-devices-to-allocate"
        self.allocated = f"hami.io/{stem}-devices-allocated"
        self.owned = hami.OWNED | {self.to_allocate, self.allocated, ASSIGNED, PREDICATE_TIME, f"{PREDICATE_INDEX}*"}
        self.recorded = frozenset({self.allocated})
        self._use_ids, self._nouse_ids = use_ids, nouse_ids

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for cards or a part of one."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """All cores of each card where more than one is asked for."""
        patch = Patch()
        hami.check_policies(pod.annotations)
        for position, ask in enumerate(asked(pod)):
            amounts = self.amounts(ask)
            if amounts is not None:
                self._check_parts(ask, amounts["count"])
                self._fill(ask, position, amounts["count"], patch)
        return patch

    def _check_parts(self, ask: Asked, count: int) -> None:
        """Refuse more than all cores of a card, and parts of several cards: sharing works for one card only."""
        if count == 1:
            ask.check_most(self.totals.core_name, FULL_CORES)
            return
        for name, everything in ((self.totals.memory_name, 0), (self.totals.core_name, count * FULL_CORES)):
            if ask(name) not in (None, 0, everything):
                raise Refusal(
                    ask.path(name),
                    ask.text(name),
                    f"{name} is {ask.text(name)}, but {count} cards are given whole: leave {name} out, "
                    f"or ask for a part of one card with {self.totals.count_name}: 1",
                )

    def _fill(self, ask: Asked, position: int, count: int, patch: Patch) -> None:
        if count > 1:
            patch.set_limit(position, self.totals.core_name, count * FULL_CORES)

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container."""
        return hami.ask_each(pod, self.amounts, self.claim)

    def claim(self, pod: manifest.Pod, position: int, amounts: hami.Amounts) -> Claim:
        """The claim of the container at `position`."""
        selection = hami.selection(
            pod.annotations, use_ids=self._use_ids, nouse_ids=self._nouse_ids, models=filter(None, [self.agent.model])
        )
        policy = hami.card_policy(pod.annotations)
        role = pod.roles[position]
        return hami.claim(self.name, FAMILY, position, role, selection=selection, policy=policy, **amounts)

    def amounts(self, ask: Asked) -> hami.Amounts | None:
        """`count`, `memory_bytes`, `percent` and `cores` of a container; None if it asks for no card."""
        self.totals.check_counted(ask)
        count = ask(self.totals.count_name, "cards")
        if not count:
            return None
        memory_bytes = self.totals.memory_bytes(ask)
        return {
            "count": count,
            "memory_bytes": memory_bytes,
            "percent": 0 if memory_bytes else 100,
            "cores": ask(self.totals.core_name, "percent") or 0,
        }

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards behind the node's capacity."""
        return self.totals.sight(node)

    def publish(self, node: Node) -> Published:
        """The sums over the cards that the names mean."""
        return self.totals.publish(self._meant(node))

    def _meant(self, node: Node) -> list[Device]:
        return [each for each in node.devices if self.agent.describes(each.family, each.model, each.mode)]

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """HAMi's annotations, which also list init containers, and the vendor's, which know only app containers."""
        ours = hami.write(pod, placement, now_ns, self.name, self.word, self.to_allocate, self.allocated)
        shares = hami.cards_by_container(pod, placement, self.name)
        return {**ours, **vendor_annotations(shares[len(pod.spec.init_containers or ()) :], now_ns)}

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of HAMi's annotations."""
        if self.allocated not in pod.annotations:
            return ()  # a pod of another dialect: what it asks for is not ours to judge
        return hami.read(pod, node, self.name, self.allocated, lambda ask: ask(self.totals.count_name))

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """Nothing: the vendor's gpu-manager sets the container up."""
        return Injection()


class IluvatarLegacy(_Generation):
    """HAMi up to 2.7.0: the same names for all models."""

    def __init__(self, names: LegacyNames) -> None:
        super().__init__(
            "hami-iluvatar",
            totals(names),
            Agent("hami-legacy", (FAMILY,), label=hami.NODE, libraries=LIBRARIES, directories=DIRECTORIES),
            word=WORD,
            stem="iluvatar-vgpu",
            use_ids="iluvatar.ai/use-gpuuuid",
            nouse_ids="iluvatar.ai/nouse-gpuuuid",
        )


class IluvatarChip(_Generation):
    """HAMi since 2.7.1: one of these per model, whose word is in every name."""

    def __init__(self, names: ChipNames) -> None:
        word = names.common_word
        agent = Agent(
            "hami",
            (FAMILY,),
            Source.REGISTER,
            model=word,
            lock=hami.LOCK,
            label=hami.NODE,
            handshake=f"hami.io/node-handshake-{word}",
            libraries=LIBRARIES,
            directories=DIRECTORIES,
        )
        super().__init__(
            f"hami-iluvatar-{word}",
            totals(names),
            agent,
            word=word,
            stem=word,
            use_ids=f"hami.io/use-{word}-uuid",
            nouse_ids=f"hami.io/no-use-{word}-uuid",
        )
        self.register = f"hami.io/node-{word}-register"

    def _fill(self, ask: Asked, position: int, count: int, patch: Patch) -> None:
        super()._fill(ask, position, count, patch)
        container = ask.container
        if container.name and all(each.name != CONTAINER_NAME for each in container.env or ()):
            patch.set_env(position, CONTAINER_NAME, container.name)

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards of the register annotation; those behind the capacity where there is none."""
        text = node.annotations.get(self.register)
        if text is None:
            return self.totals.sight(node, self.word, only=self.word)
        try:
            sightings = tuple(map(self._registered, hami.decode_register(text, FAMILY)))
        except ValueError as error:
            return Sight.unreadable(node, self.register, error, FAMILY, True)
        # Some agents publish no number of cards, only their cores and memory.
        names = (self.totals.count_name, self.totals.core_name, self.totals.memory_name)
        resource = next((name for name in names if name in node.allocatable), self.totals.count_name)
        death = agent.death(node, resource, sightings, self.agent.handshake)
        return Sight(True, Source.REGISTER, sightings, only=self.word, death=death)

    def _registered(self, card: Sighting) -> Sighting:
        # HAMi is content with the word as a part of the type, in any case.  It says nothing of modes and cordons here.
        model = self.word if self.word.lower() in (card.model or "").lower() else card.model
        return msgspec.structs.replace(card, model=model, mode=None, cordoned=None)

    def publish(self, node: Node) -> Published:
        """The register, and the sums."""
        cards = self._meant(node)
        register = {self.register: hami.encode_register(cards, self.word)} if cards else {}
        return self.totals.publish(cards) | Published(annotations=register)

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """The container's name, as admission wrote it; gpu-manager does the rest."""
        container = pod.containers[position]
        for variable in container.env or ():
            if variable.name == CONTAINER_NAME:
                return Injection({} if variable.value is None else {CONTAINER_NAME: variable.value})
        return Injection({CONTAINER_NAME: container.name})
