"""Koordinator's dialect: parts of cards in percent or bytes, whole cards under their vendors' names, RDMA and FPGA.

`koordinator.sh/gpu-core: 50` with `gpu-memory-ratio: 50` (or `gpu-memory` in bytes) asks for half a card, `gpu.shared`
spreads the amounts over several, `koordinator.sh/gpu: 200` means two cards.  The request belongs to the pod, not to its
containers: what was granted serves all of them that ask.  The label `koordinator.sh/gpu-isolation-provider` asks that
the share be enforced; without it the container sees the whole card, as Koordinator's users know it.

The steps are in modules of their own: names, admission, request, hint, template, rules, device, partition, allocation,
vendor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from subak.dialects import (
    Agent,
    Ask,
    Injection,
    Patch,
    Published,
    QuotaUnit,
    Sight,
    Source,
    hami,
    isolation,
    koordinator_admission,
    koordinator_allocation,
    koordinator_device,
    koordinator_hint,
    koordinator_template,
    koordinator_vendor,
)
from subak.dialects.config import Koordinator as Settings
from subak.dialects.config import Metax
from subak.dialects.koordinator_hint import Hints
from subak.dialects.koordinator_measures import MEASURES
from subak.dialects.koordinator_names import (
    ALLOCATED,
    BIND_TIME,
    CORE,
    GPU_FAMILIES,
    HINT,
    ISOLATION,
    JOINT,
    MEMORY,
    MINORS,
    NVIDIA_GPU,
    PARTITION,
    RESOURCES,
    SCHEDULER,
    SHARED,
    UNIT,
    canonical,
)
from subak.dialects.koordinator_request import KINDS, Asked, Portion, parts, portions
from subak.dialects.koordinator_rules import KoordinatorRules
from subak.model import manifest
from subak.model.device import FPGA, FULL_CORES, GPU, MIB, RDMA, Device
from subak.model.manifest import Role
from subak.model.mount import Purpose
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import LEAST_ALLOCATED, MOST_ALLOCATED, CardPolicy, Claim, Partitioning, Pick, Selection
from subak.model.rules import PLAIN

PROVIDER = "hami-core"
"""The isolation that libsubak gives, under the name that Koordinator's users know."""

PLAIN_CARDS = Selection(modes=f"{PROVIDER},sgpu,native")
"""Koordinator knows neither MIG nor MPS, and its record could name no MIG instance.  The others are MetaX's modes."""

MOST_REMEMBERED = 4_096
"""Shapes of pods: to look one up is ten times as fast as to understand it."""


class Koordinator:
    """Koordinator."""

    name = "koordinator"
    families = GPU_FAMILIES | {RDMA, FPGA}
    resources = RESOURCES
    owned = frozenset({ALLOCATED, MINORS, BIND_TIME, *koordinator_vendor.OWNED})
    recorded = frozenset({ALLOCATED})
    agent = Agent(name, ("nvidia", "metax"), Source.DEVICE_OBJECT, locks=koordinator_vendor.LOCKS, label=hami.NODE)
    quota_units: Mapping[str, QuotaUnit] = {}
    measures = MEASURES

    def __init__(self, settings: Settings, slot: str = Metax().resource_v_count_name) -> None:
        if settings.scoring_strategy not in (LEAST_ALLOCATED, MOST_ALLOCATED):
            raise ValueError(
                f"koordinator.scoringStrategy is {settings.scoring_strategy!r}: "
                f"use {LEAST_ALLOCATED} or {MOST_ALLOCATED}"
            )
        self.strategy = settings.scoring_strategy
        self.slot = slot
        self.templates = koordinator_template.read(settings.gpu_shared_resource_templates)
        self._remembered: dict[Hashable, Asked] = {}

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container names a resource of Koordinator's, or whole NVIDIA cards in a pod of its."""
        return _names_ours(pod) or owns_whole_cards(pod)

    def admit(self, pod: manifest.Pod) -> Patch:
        """Shorthands written out; the whole pod is checked as `ask` will read it."""
        hami.check_policies(pod.annotations)
        patch, amounts = Patch(), parts(pod)
        for position, (written, role) in enumerate(zip(amounts, pod.roles, strict=True)):
            if role is Role.APP:  # Koordinator leaves init containers as they are
                koordinator_admission.verify(written, f"{pod.fields[position]}.resources.requests")
                amounts[position] = self._filled(pod, position, written, patch)
        for claim in self._claims(pod, amounts):
            _check_card(pod, claim)
        return patch

    def _filled(self, pod: manifest.Pod, position: int, written: Counter[str], patch: Patch) -> Counter[str]:
        added = koordinator_admission.fill(written)
        for name, amount in added.items():
            patch.set_limit(position, name, amount)
        if UNIT not in written:
            return Counter({**written, **added})
        spelled = [name for name in pod.containers[position].requests if canonical(name) == UNIT]
        patch.remove.setdefault(position, []).extend(spelled)
        return Counter({name: amount for name, amount in {**written, **added}.items() if name != UNIT})

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per kind of device, for the pod as a whole."""
        return Ask(self._claims(pod, parts(pod)), node_policy=hami.node_policy(pod.annotations, self.strategy))

    def _claims(self, pod: manifest.Pod, amounts: Sequence[Counter[str]]) -> tuple[Claim, ...]:
        found = portions(pod, amounts) if self.speaks(pod) else {}
        if not found:
            return ()
        hints = koordinator_hint.hints(pod.annotations, found)
        return tuple(self._claim(pod, kind, found, hints) for kind in found)

    def _claim(self, pod: manifest.Pod, kind: str, found: Mapping[str, Portion], hints: Hints) -> Claim:
        portion = hints.portion(kind, found[kind])
        beside, same_roots = hints.beside(kind, found)
        policy = CardPolicy(order=(self.strategy,), beside=beside, same_roots=same_roots)
        if kind == GPU:
            policy = self._policy(pod, portion, hints)
        rules = KoordinatorRules(
            isolation=_provider(pod) if kind == GPU and portion.shared else "",
            templated=koordinator_template.templated(portion),
            templates=koordinator_template.matching(self.templates, portion),
            function=hints.function(kind),
        )
        return Claim(
            dialect=self.name,
            families=_families(portion),
            containers=portion.containers,
            count=portion.count,
            memory_bytes=portion.memory_bytes,
            memory_percent=portion.ratio,
            granule=1,
            cores=portion.cores,
            extras=portion.extras,
            idle=kind == GPU and portion.whole,
            slotted=kind == GPU and self._slotted(pod),
            everywhere=hints.everywhere(kind, found[kind]),
            rules=PLAIN if rules == KoordinatorRules() else rules,
            selection=replace(PLAIN_CARDS, labels=hints.labels(kind)),
            policy=policy,
        )

    def _slotted(self, pod: manifest.Pod) -> bool:
        """Whether the pod takes slots: Koordinator has none, but MetaX's agent cuts only so many sub-devices."""
        return self.slot in pod.resource_names()

    def _policy(self, pod: manifest.Pod, portion: Portion, hints: Hints) -> CardPolicy:
        scope, partition = hints.scope(), None if portion.shared else hints.partition or Partitioning()
        policy = CardPolicy(order=(self.strategy,), pick=Pick.TREE, scope=scope, partition=partition)
        if hami.CARD_POLICY not in pod.annotations:
            return policy
        chosen = replace(hami.card_policy(pod.annotations), partition=partition)
        # Only the tree knows scopes: the order is the pod's, the scope still holds.
        return replace(chosen, pick=Pick.TREE, scope=scope) if scope else chosen

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """The cards of the Device object, or of the node's allocatable."""
        return koordinator_device.sight(node, device)

    def publish(self, node: Node) -> Published:
        """The Device object, and what koord-manager takes from it."""
        return koordinator_device.publish(node)

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """Koordinator's record, and the ones it makes for other agents."""
        asked = self._asked(pod).portions
        held: dict[str, list[koordinator_allocation.Entry]] = {}
        cards: list[tuple[Share, Device]] = []
        for grant in placement.grants:
            if grant.dialect != self.name:
                continue
            for share in grant.shares:
                device = _device(share, node)
                ratio = asked[device.kind].ratio if device.kind in asked else 0
                held.setdefault(device.kind, []).append(koordinator_allocation.entry(share, ratio, device, node))
                cards.append((share, device))
        annotations = {ALLOCATED: koordinator_allocation.encode(held), BIND_TIME: str(now_ns)}
        if GPU in held:
            annotations[MINORS] = ",".join(str(each.minor) for each in held[GPU])
        return annotations | koordinator_vendor.records(cards, now_ns)

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """One grant per kind of device; the containers are those that ask, since the record does not name them."""
        text = pod.annotations.get(ALLOCATED)
        if not text:
            return ()
        held, asked = koordinator_allocation.decode(text), self._asked(pod)
        grants: list[Grant] = []
        for kind in KINDS:
            if held.get(kind):
                portion, slotted = asked.portions.get(kind), kind == GPU and self._slotted(pod)
                shares = tuple([koordinator_allocation.share(each, kind, node, portion) for each in held[kind]])
                grants.append(Grant(self.name, asked.containers[kind], Role.APP, shares, slotted=slotted))
        return tuple(grants)

    def _asked(self, pod: manifest.Pod) -> Asked:
        """What the pod asks for; no portions where that means nothing, as in a pod that others have admitted."""
        said = (
            tuple([tuple(each.requests.items()) for each in pod.containers]),
            tuple(pod.roles),
            tuple((pod.spec.overhead or {}).items()),
        )
        known = self._remembered.get(said)
        if known is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[said] = Asked.by(pod)
        return known

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """The visible NVIDIA cards, and limits if the pod wants them enforced; other vendors' agents do their own."""
        cards = [_device(share, node) for share in grant.shares]
        if not all(card.kind == GPU and card.family == "nvidia" for card in cards):
            return Injection()
        visible = {"NVIDIA_VISIBLE_DEVICES": isolation.visible(grant.shares, node)}
        limited = any(
            share.memory_bytes < card.memory_bytes or 0 < share.cores < FULL_CORES
            for share, card in zip(grant.shares, cards, strict=True)
        )
        if _provider(pod) != PROVIDER or not limited:
            return Injection(visible)
        injection = _limits(pod, position, grant)
        injection.env = visible | injection.env
        return injection


def owns_whole_cards(pod: manifest.Pod) -> bool:
    """Whether `nvidia.com/gpu` of this pod is meant for Koordinator, and not for HAMi.

    It is where the pod names koord-scheduler, or anything else that only Koordinator reads.  But `nvidia.com/gpumem`
    and its like beside it are HAMi's, and Koordinator would forget them.
    """
    nvidia = {name for name in pod.resource_names() if name.startswith(NVIDIA_GPU)}
    return nvidia == {NVIDIA_GPU} and (
        pod.spec.scheduler_name == SCHEDULER
        or ISOLATION in pod.labels
        or any(key in pod.annotations for key in (ALLOCATED, HINT, JOINT, PARTITION))
        or _names_ours(pod)
    )


def _names_ours(pod: manifest.Pod) -> bool:
    return any(name != NVIDIA_GPU and canonical(name) is not None for name in pod.resource_names())


def _check_card(pod: manifest.Pod, claim: Claim) -> None:
    """Refuse what one card cannot be asked for: such a pod would wait for ever, or get next to nothing."""
    field = f"{pod.fields[claim.containers[0]]}.resources.requests"
    if 0 < claim.memory_bytes < MIB:
        message = f"{MEMORY} counts bytes, and {claim.memory_bytes} of a card are not 1 MiB: add a suffix, as in 1024Mi"
        raise Refusal(f"{field}[{MEMORY}]", claim.memory_bytes, message)
    if claim.families.isdisjoint({RDMA, FPGA, "huawei"}) and claim.cores > FULL_CORES:
        message = (
            f"{CORE} is {claim.cores} on each card, but a card has {FULL_CORES}: spread it over more with {SHARED}"
        )
        raise Refusal(f"{field}[{CORE}]", claim.cores, message)


def _families(portion: Portion) -> frozenset[str]:
    """The vendors whose cards can give the portion: Cambricon's agent cuts one card at a time."""
    if "cambricon" in portion.families and not koordinator_vendor.cambricon_serves(portion):
        return portion.families - {"cambricon"}
    return portion.families


def _provider(pod: manifest.Pod) -> str:
    """The isolation that the pod wants.  The published pages write it in both cases."""
    return pod.labels.get(ISOLATION, "").strip().lower()


def _device(share: Share, node: Node) -> Device:
    device = node.device(share.id)
    if device is None:
        raise ValueError(f"node {node.name} has no card {share.id}")
    return device


def _limits(pod: manifest.Pod, position: int, grant: Grant) -> Injection:
    """The limits in Koordinator's form: bytes, and a library preloaded by a variable.

    Koordinator gives one limit for all cards, taken from the first.  We give it too, and one per card, because on a
    node with unequal cards half of one is not half of another.
    """
    shares = grant.shares
    injection = isolation.limits(pod, position, shares, grant.containers)
    env = {"CUDA_DEVICE_MEMORY_LIMIT": str(shares[0].memory_bytes)}
    env |= {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": str(share.memory_bytes) for i, share in enumerate(shares)}
    if shares[0].cores:
        env["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].cores)
        env |= {f"CUDA_DEVICE_SM_LIMIT_{i}": str(share.cores) for i, share in enumerate(shares)}
    env[isolation.REGION] = injection.env[isolation.REGION]
    mounts = [each for each in injection.mounts if each.purpose is not Purpose.PRELOAD]
    return Injection(env, mounts, preload=isolation.LIBRARY, held=injection.held)
