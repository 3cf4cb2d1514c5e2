"""Which annotations are records: all that a placement writes, and all by which it is read back."""

from __future__ import annotations

import msgspec
from hypothesis import assume, given

from subak.model import manifest
from subak.model.group import VOLCANO_NAMES
from subak.model.reason import Refusal
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.fuzz import examples
from tests.support.world import INTERPRETER, KINDS, make, pods

WISHES = {
    *("hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy", "hami.io/device-scoring-weights"),
    *("nvidia.com/use-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/numa-bind", "nvidia.com/vgpu-mode"),
    *("iluvatar.ai/use-gpuuuid", "hami.io/use-MR-V100-uuid", "mthreads.ai/use-gpuuuid", "mthreads.com/request-gpu-num"),
    *("metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class", "metax-tech.com/use-gpuuuid"),
    *("volcano.sh/vgpu-mode", "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-podgroup-policy"),
    *("scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/gpu-partition-spec"),
    *("scheduling.koordinator.sh/device-joint-allocate", "kubectl.kubernetes.io/last-applied-configuration"),
}
TOLD = {
    *("metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"),
    *("volcano.sh/vgpu-podgroup-policy", *VOLCANO_NAMES),
}
"""Wishes that are read back too: they say whom a pod tolerates on its card, not what it holds."""


class Heard(dict[str, str]):
    """Annotations that remember who was asked for."""

    def __init__(self, annotations: dict[str, str]) -> None:
        super().__init__(annotations)
        self.asked: set[object] = set()

    def __contains__(self, key: object) -> bool:
        self.asked.add(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> str:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)


@examples(30, 500)
@given(pods())
def test_what_a_placement_is_written_to_and_read_from_belongs_to_the_scheduler(pod: manifest.Pod) -> None:
    try:
        complete = INTERPRETER.admit(pod)
    except Refusal:
        assume(False)
    nodes = {f"node-{kind}": make(kind, f"node-{kind}") for kind in range(KINDS)}
    snapshot = Snapshot()
    snapshot.put(nodes.values())
    placement = place(snapshot, INTERPRETER.request(complete))
    assume(placement is not None)
    assert placement is not None
    node = nodes[placement.node]
    written = INTERPRETER.annotations(complete, placement, node, 10**18)
    assert INTERPRETER.owned_among(written) == written
    heard = Heard({**complete.annotations, **written})
    metadata = msgspec.structs.replace(complete.metadata, annotations=heard)
    assert INTERPRETER.placement(msgspec.structs.replace(complete, metadata=metadata), node) == placement
    asked = {key: "" for key in heard.asked if isinstance(key, str)}
    assert asked.keys() - INTERPRETER.owned_among(asked).keys() <= TOLD


def test_wishes_are_no_records() -> None:
    assert INTERPRETER.owned_among(dict.fromkeys(WISHES, "")) == {}


def test_an_index_for_any_container_is_a_record_of_iluvatars() -> None:
    indices = {f"iluvatar.ai/predicate-gpu-idx-{place}": "0" for place in (0, 9, 100)}
    assert INTERPRETER.owned_among({**indices, "iluvatar.ai/predicate-gpu": "x"}) == indices
