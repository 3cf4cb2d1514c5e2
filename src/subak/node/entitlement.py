"""What a pod may have of what its record gives it: as much as it asks for, and no more.

    the record gives                       the pod gets
    what the pod asks for                  that
    more memory or cores of a card         what it asks for
    more cards, or cards for a container   nothing: the record is forged, or of another request
    that asks for none
    fewer cards                            nothing: whoever bound it did not finish

A record is text in annotations, which somebody may have changed in spite of all guards.  The pod's request cannot be
changed once it exists, so that is what counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from subak.model.reason import Refusal
from subak.model.request import Claim
from subak.node import counters

FIELD = "metadata.annotations"


def entitled(pod: manifest.Pod, placement: Placement, claims: Sequence[Claim], node: Node) -> Placement:
    """The placement as far as the pod asks for it.  Raises Refusal."""
    open_claims = list(claims)
    grants = []
    for grant in placement.grants:
        claim = next((each for each in open_claims if _answers(grant, each, node)), None)
        if claim is None:
            names = ", ".join(pod.containers[position].name for position in grant.containers)
            message = (
                f"the record gives container {names} {_cards(grant)} ({grant.dialect}), which it does not ask for: "
                "somebody else than the scheduler wrote it"
            )
            raise Refusal(FIELD, _ids(grant), message, counters.BAD_RECORD)
        open_claims.remove(claim)
        grants.append(_bounded(pod, grant, claim, node))
    return msgspec.structs.replace(placement, grants=tuple(grants))


def _answers(grant: Grant, claim: Claim, node: Node) -> bool:
    """Whether the grant is what the claim got; cards that the node does not have are the ledger's to refuse."""
    if grant.dialect != claim.dialect or grant.containers != claim.containers:
        return False
    known = [device for share in grant.shares if (device := node.device(share.id)) is not None]
    return all(device.family in claim.families for device in known)


def _bounded(pod: manifest.Pod, grant: Grant, claim: Claim, node: Node) -> Grant:
    if len(grant.shares) != claim.count and not claim.everywhere:
        names = ", ".join(pod.containers[position].name for position in grant.containers)
        message = f"the record gives container {names} {_cards(grant)} ({grant.dialect}), it asks for {claim.count}"
        raise Refusal(FIELD, _ids(grant), message, counters.BAD_RECORD)
    return msgspec.structs.replace(grant, shares=tuple(_bounded_share(each, claim, node) for each in grant.shares))


def _bounded_share(share: Share, claim: Claim, node: Node) -> Share:
    device = node.device(share.id)
    if device is None or share.mig is not None or share.template:
        return share  # an instance or a cut has a size of its own, which is seldom what was asked for
    return msgspec.structs.replace(
        share,
        memory_bytes=_at_most(share.memory_bytes, claim.memory_on(device)),
        cores=_at_most(share.cores, claim.cores),
    )


def _at_most(given: int, asked: int) -> int:
    """The smaller amount; 0 means no limit, on both sides."""
    return min(given, asked) if given and asked else given or asked


def _cards(grant: Grant) -> str:
    return "1 card" if len(grant.shares) == 1 else f"{len(grant.shares)} cards"


def _ids(grant: Grant) -> str:
    return ", ".join(share.id for share in grant.shares)
