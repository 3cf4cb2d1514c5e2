"""What the dialects of the HAMi family share: device strings, register formats, policies, annotations.

HAMi keeps its books in annotations.  A pod carries, per vendor, a *device string*: for each container (init containers
first) its cards as `UUID,Type,MiB,Cores:`, then `;`.  A node carries a *register*: JSON, or the older colon form with
one `UUID,count,MiB,cores,type,numa,health[,index,mode]:` per card.  Cores are percent, for Moore Threads 16ths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

import msgspec

from subak.dialects import Ask, Sighting
from subak.dialects.amounts import Asked, asked
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, MOST_CARD_BYTES, Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import BINPACK, MUTEX, NUMA, SPREAD, CardPolicy, Claim, Pick, Selection, Weights

NODE_POLICY = "hami.io/node-scheduler-policy"
CARD_POLICY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
CORDON = "hami.io/device-cordon"
LOCK = "hami.io/mutex.lock"

NODE, NODE_TIME = "hami.io/vgpu-node", "hami.io/vgpu-time"
BIND_PHASE, BIND_TIME = "hami.io/bind-phase", "hami.io/bind-time"

OWNED = frozenset({NODE, NODE_TIME, BIND_PHASE, BIND_TIME})
"""Annotations of the family that users must not write."""

TOPOLOGY_AWARE = "topology-aware"
NODE_POLICIES = (BINPACK, SPREAD)
CARD_POLICIES = (BINPACK, SPREAD, MUTEX, TOPOLOGY_AWARE, NUMA)

MOST_MIB = MOST_CARD_BYTES // MIB
"""Above this an amount in MiB is a mistake of unit."""

BYTES = ("Mi", "Gi", "Ti", "Pi", "Ei")
"""Suffixes by which people mean bytes, where units are counted."""

_WEIGHT = re.compile("[0-9]{1,9}")


class Held(msgspec.Struct, frozen=True, gc=False):
    """One card in a device string."""

    uuid: str
    type: str
    memory_mib: int
    cores: int


def encode_devices(containers: Sequence[Sequence[Held]]) -> str:
    """The device string; a container without cards is a bare `;`."""
    return "".join(
        "".join(f"{held.uuid},{held.type},{held.memory_mib},{held.cores}:" for held in cards) + ";"
        for cards in containers
    )


def decode_devices(text: str) -> list[list[Held]]:
    """The containers of a device string.

    Running pods may carry older forms: `,,0,0:` for no card, `UUID[template-slot]` for a MIG instance, or extra
    semicolons left by an agent.
    """
    containers = [[_held(piece) for piece in part.split(":") if "," in piece] for part in text.split(";")]
    while containers and not containers[-1]:
        containers.pop()
    return [[held for held in cards if held.uuid] for cards in containers]


def _held(piece: str) -> Held:
    fields = piece.split(",")
    if len(fields) < 4:
        raise ValueError(f"{piece!r} in a device string has {len(fields)} fields: need UUID,Type,MiB,Cores")
    try:
        held = Held(fields[0], fields[1], int(fields[2]), int(fields[3]))
    except ValueError:
        raise ValueError(f"{piece!r} in a device string: memory and cores must be whole numbers") from None
    if held.memory_mib < 0 or held.cores < 0:
        raise ValueError(f"{piece!r} in a device string: memory and cores must not be negative")
    return held


def decode_register(text: str, family: str, cordoned: frozenset[str] = frozenset()) -> tuple[Sighting, ...]:
    """The cards of a register in colon form."""
    if ":" not in text:
        raise ValueError(f"{text!r} is no register: each card must end with ':'")
    cards: list[Sighting] = []
    for piece in text.split(":"):
        if not piece.strip():
            continue
        fields = piece.split(",")
        if len(fields) not in (7, 9):
            raise ValueError(f"{piece!r} in a register has {len(fields)} fields: need 7, or 9 with index and mode")
        id, slots, mib, cores, type, numa, health, index, mode = (*fields, "0", "hami-core")[:9]
        try:
            card = Sighting(
                family,
                int(index),
                id,
                model=type,
                memory_bytes=int(mib) * MIB,
                cores=int(cores),
                slots=int(slots),
                numa=int(numa),
                healthy=health.lower() == "true",
                cordoned=id in cordoned,
                mode=mode,
            )
        except ValueError:
            raise ValueError(f"{piece!r} in a register: count, MiB, cores, numa and index must be numbers") from None
        cards.append(card)
    return tuple(cards)


def encode_register(cards: Iterable[Device], word: str) -> str:
    """A register in colon form with seven fields, which have no index, so that the order counts."""
    return "".join(
        f"{each.id},{each.slots},{each.memory_bytes // MIB},{each.cores},{word},{each.numa},"
        f"{str(each.healthy).lower()}:"
        for each in cards
    )


def words(text: str | None) -> tuple[str, ...]:
    """The members of a comma list, without blanks and empty ones."""
    return tuple(word for word in (part.strip() for part in (text or "").split(",")) if word)


def selection(
    annotations: Mapping[str, str],
    *,
    use_ids: str,
    nouse_ids: str,
    use_types: str = "",
    nouse_types: str = "",
    modes: str = "",
    models: Iterable[str] = (),
) -> Selection:
    """The cards that a pod's annotations admit; the arguments are annotation keys."""
    return Selection(
        use_ids=frozenset(words(annotations.get(use_ids))),
        nouse_ids=frozenset(words(annotations.get(nouse_ids))),
        use_types=tuple(word.lower() for word in words(annotations.get(use_types))),
        nouse_types=tuple(word.lower() for word in words(annotations.get(nouse_types))),
        modes=annotations.get(modes, "").strip(),
        models=frozenset(models),
    )


def node_policy(annotations: Mapping[str, str], default: str = BINPACK) -> str:
    """The pod's choice between filling nodes and spreading over them."""
    return annotations.get(NODE_POLICY, "").strip() or default


def card_policy(
    annotations: Mapping[str, str], default: tuple[str, ...] = (SPREAD,), numa_bind: bool = False
) -> CardPolicy:
    """The pod's policy for cards: a single word or a chain such as `binpack,numa`."""
    chain = words(annotations.get(CARD_POLICY))
    order = tuple(word for word in chain if word not in (MUTEX, TOPOLOGY_AWARE))
    if not order and MUTEX in chain:
        order = (MUTEX,)
    return CardPolicy(
        order=order or default,
        pick=Pick.LINKS if TOPOLOGY_AWARE in chain else Pick.IN_ORDER,
        mutex=MUTEX in chain,
        numa_bind=numa_bind,
        weights=weights(annotations.get(WEIGHTS)),
    )


def weights(text: str | None) -> Weights:
    """`slot=1,core=1,memory=3`: exactly these three keys, whole numbers, not all zero."""
    if text is None:
        return Weights()
    given: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in ("slot", "core", "memory") or key in given or not _WEIGHT.fullmatch(value.strip()):
            raise _bad_weights(text)
        given[key] = int(value)
    if len(given) != 3 or not any(given.values()):
        raise _bad_weights(text)
    return Weights(**given)


def _bad_weights(text: str) -> Refusal:
    return Refusal(
        f"metadata.annotations[{WEIGHTS}]",
        text,
        f"{WEIGHTS} is {text!r}: give each of slot, core and memory once, as whole numbers, at least one above 0, "
        "for example slot=1,core=1,memory=3",
    )


def check_policies(annotations: Mapping[str, str]) -> None:
    """Refuse policies that nobody knows; HAMi would silently take another one."""
    for key, known in ((NODE_POLICY, NODE_POLICIES), (CARD_POLICY, CARD_POLICIES)):
        text = annotations.get(key)
        chain = words(text) if key == CARD_POLICY else ((text or "").strip() or BINPACK,)
        for word in chain:
            if word not in known:
                raise Refusal(f"metadata.annotations[{key}]", text, f"{word!r} is no policy: use {', '.join(known)}")
    weights(annotations.get(WEIGHTS))


def check_mib(units: int, factor: int, asked: Asked, name: str, unit: str) -> int:
    """Bytes of `units` times `factor` MiB.  A figure beyond any card means that a byte suffix was used by mistake."""
    text = str(asked.text(name))
    if units * factor > MOST_MIB or text.endswith(BYTES):
        meant = units // (factor * MIB) if text.endswith(BYTES) else 0
        remedy = f"for {text} give {meant}" if meant else "give the plain number of units"
        message = f"{name} counts {unit}, so {text} means {units * factor:,} MiB; {remedy}"
        raise Refusal(asked.path(name), asked.text(name), message)
    return units * factor * MIB


class Amounts(TypedDict):
    """What a container asks for of each card, as `claim` takes it."""

    count: int
    memory_bytes: int
    percent: int
    cores: int


def claim(
    dialect: str,
    family: str,
    position: int,
    role: Role,
    *,
    count: int,
    memory_bytes: int,
    percent: int,
    cores: int,
    selection: Selection,
    policy: CardPolicy,
    clamp: bool = True,
) -> Claim:
    """A claim under HAMi's common rules: an amount of memory beats a percentage, cores end at one card's worth."""
    return Claim(
        dialect=dialect,
        families=frozenset({family}),
        containers=(position,),
        role=role,
        count=count,
        memory_bytes=memory_bytes,
        memory_percent=0 if memory_bytes else min(percent, 100),
        cores=min(cores, FULL_CORES) if clamp else cores,
        selection=selection,
        policy=policy,
    )


def ask_each(
    pod: manifest.Pod,
    amounts: Callable[[Asked], Amounts | None],
    claim: Callable[[manifest.Pod, int, Amounts], Claim],
) -> Ask:
    """One claim for each container that asks for cards."""
    claims = [
        claim(pod, position, found) for position, each in enumerate(asked(pod)) if (found := amounts(each)) is not None
    ]
    return Ask(tuple(claims), node_policy=node_policy(pod.annotations))


def cards_by_container(pod: manifest.Pod, placement: Placement, dialect: str) -> list[list[Share]]:
    """The shares of each container, in the order of the device string, empty ones included."""
    shares: list[list[Share]] = [[] for _ in pod.containers]
    for grant in placement.grants:
        if grant.dialect == dialect:
            for position in grant.containers:
                shares[position] += grant.shares
    return shares


def write(pod: manifest.Pod, placement: Placement, now_ns: int, dialect: str, word: str, *keys: str) -> dict[str, str]:
    """The annotations that the whole family writes; `keys` take the device string."""
    text = encode_devices(
        [
            [Held(share.id, word, share.memory_bytes // MIB, share.cores) for share in shares]
            for shares in cards_by_container(pod, placement, dialect)
        ]
    )
    seconds = str(now_ns // 10**9)
    return {
        NODE: placement.node,
        NODE_TIME: seconds,
        BIND_PHASE: "allocating",
        BIND_TIME: seconds,
        **dict.fromkeys(keys, text),
    }


def read(pod: manifest.Pod, node: Node, dialect: str, key: str, asks: Callable[[Asked], object]) -> tuple[Grant, ...]:
    """What the device string under `key` says; the cards' indices come from the node.

    `asks` tells whether a container asks for cards: HAMi 2.10 loses the places of the others on NVIDIA nodes (its issue
    2899), so that the string of a pod with several containers must be aligned again.
    """
    text = pod.annotations.get(key)
    if not text:
        return ()
    held = {position: cards for position, cards in enumerate(decode_devices(text)) if cards}
    roles = pod.roles
    if len(roles) > 1 or list(held) != [0]:
        asking = [position for position, each in enumerate(asked(pod)) if asks(each)]
        if list(held) != asking and len(held) == len(asking):
            held = dict(zip(asking, held.values(), strict=True))
    if held and max(held) >= len(roles):
        raise ValueError(f"{key} speaks of {max(held) + 1} containers, the pod has {len(roles)}")
    return tuple(
        [
            Grant(dialect, (position,), roles[position], tuple([_share(each, node) for each in cards]))
            for position, cards in held.items()
        ]
    )


def _share(held: Held, node: Node) -> Share:
    id = held.uuid.partition("[")[0]
    device = node.device(id)
    return Share(id, -1 if device is None else device.index, held.memory_mib * MIB, held.cores)
