"""Volcano's vGPU: members of one group that want to be apart never share a card."""

from __future__ import annotations

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.dialects.volcano_vgpu import CORES, MEMORY, NUMBER, PODGROUP_POLICY, REGISTER, VolcanoVgpu
from subak.model import manifest
from subak.model.placement import Placement
from subak.policy.decider import Decider
from tests.dialects.manifests import annotated, pod

vgpu = VolcanoVgpu()


def member(name: str, group: str = "train", **more: str) -> manifest.Pod:
    """A pod of a group that shares no card with others of it."""
    annotations = {"scheduling.k8s.io/group-name": group, PODGROUP_POLICY: "spread", **more}
    made = pod({NUMBER: 1, MEMORY: 1_000}, annotations=annotations)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name))


def two_cards() -> Decider:
    decider = Decider(Interpreter())
    register = "".join(f"GPU-{i},10,8000,NVIDIA-A10,true,hami-core:" for i in range(2))
    amounts = {NUMBER: "20", MEMORY: "16000", CORES: "200"}
    content = {"metadata": {"name": "n", "annotations": {REGISTER: register}}, "status": {"allocatable": amounts}}
    node, warnings = decider.interpreter.node(msgspec.convert(content, manifest.Node), None)
    assert not warnings
    decider.snapshot.put([node])
    return decider


def card_of(decider: Decider, pod: manifest.Pod) -> str:
    """The card that the pod gets; empty if none."""
    request = decider.request(pod)
    placement = decider.decide(pod.namespace, request)
    if not isinstance(placement, Placement):
        return ""
    decider.snapshot.assume(pod.key, placement, request.needs.resources, pod)
    return placement.grants[0].shares[0].id


def test_members_of_one_group_never_share_a_card() -> None:
    decider = two_cards()
    cards = [card_of(decider, member(name)) for name in ("a", "b", "c")]
    assert sorted(cards[:2]) == ["GPU-0", "GPU-1"]
    assert cards[2] == ""
    told = str(decider.explain(member("c")))
    assert "member of its own group on 2 of 2 cards (CardPodGroupConflict)" in told
    assert card_of(decider, member("d", "another")) != ""
    assert card_of(decider, pod({NUMBER: 1, MEMORY: 1_000})) != "", "who is in no group may be anywhere"


def test_pods_of_one_owner_are_a_group_too() -> None:
    decider = two_cards()
    owner = manifest.OwnerReference(kind="Job", name="j", uid="u", controller=True)
    pods = [pod({NUMBER: 1}, annotations={PODGROUP_POLICY: "spread"}) for _ in range(2)]
    owned = [
        msgspec.structs.replace(
            each, metadata=msgspec.structs.replace(each.metadata, name=f"j-{i}", owner_references=(owner,))
        )
        for i, each in enumerate(pods)
    ]
    assert {card_of(decider, each) for each in owned} == {"GPU-0", "GPU-1"}


def test_a_members_own_containers_may_share_a_card() -> None:
    decider = two_cards()
    annotations = {"scheduling.k8s.io/group-name": "train", PODGROUP_POLICY: "spread"}
    three = pod(*({NUMBER: 1, MEMORY: 1_000} for _ in range(3)), annotations=annotations)
    assert card_of(decider, three) != ""


def test_a_members_record_tells_of_its_group() -> None:
    decider = two_cards()
    one = member("a")
    placement = decider.decide("default", decider.request(one))
    assert isinstance(placement, Placement)
    node = decider.snapshot.node("n")
    assert node is not None
    written = annotated(one, vgpu.write(one, placement, node, 0))
    assert vgpu.read(written, node) == placement.grants
