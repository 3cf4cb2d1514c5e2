"""What vendors' agents wait for: the lock that names their pod, and the label by which a monitor finds it."""

from __future__ import annotations

import msgspec
import pytest

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import Device
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share
from tests.dialects.manifests import pod

INTERPRETER = Interpreter()
HAMI, VOLCANO, CAMBRICON = "hami.io/mutex.lock", "hamivgpu", "cambricon.com/dsmlu.lock"


def placed(dialect: str, family: str, name: str = "n1") -> tuple[Placement, Node]:
    """A pod that holds the only card of a node."""
    node = Node(name, (Device(id="card", index=0, family=family, memory_bytes=1 << 30),))
    return Placement(name, (Grant(dialect, (0,), Role.APP, (Share("card", 0, 1 << 20, 0),)),)), node


@pytest.mark.parametrize(
    ("dialect", "family", "locks"),
    [
        ("hami-nvidia", "nvidia", (HAMI,)),
        ("hami-metax-sgpu", "metax", (HAMI,)),
        ("hami-iluvatar-MR-V100", "iluvatar", (HAMI,)),
        ("hami-iluvatar", "iluvatar", ()),
        ("hami-mthreads", "mthreads", ()),
        ("volcano-vgpu", "nvidia", (VOLCANO,)),
        ("volcano-share", "nvidia", ()),
        ("koordinator", "nvidia", ()),
        ("koordinator", "metax", (HAMI,)),
        ("koordinator", "cambricon", (CAMBRICON,)),
    ],
)
def test_a_lock_is_needed_where_the_agent_of_the_card_guesses(
    dialect: str, family: str, locks: tuple[str, ...]
) -> None:
    assert INTERPRETER.locks(*placed(dialect, family)) == locks


@pytest.mark.parametrize(
    ("dialect", "labelled"), [("hami-nvidia", True), ("koordinator", True), ("volcano-vgpu", False)]
)
def test_hamis_monitor_finds_pods_by_a_label(dialect: str, labelled: bool) -> None:
    placement, _ = placed(dialect, "nvidia")
    assert INTERPRETER.labels(placement) == ({"hami.io/vgpu-node": "n1"} if labelled else {})


@pytest.mark.parametrize(("length", "written"), [(63, True), (64, False)])
def test_a_label_holds_63_letters(length: int, written: bool) -> None:
    placement, _ = placed("hami-nvidia", "nvidia", "n" * length)
    assert bool(INTERPRETER.labels(placement)) is written


def labelled_pod(**labels: str) -> manifest.Pod:
    plain = pod({"nvidia.com/gpu": 1})
    return msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, labels=labels))


def test_the_label_of_a_binding_changes_nothing_that_a_pod_asks_for() -> None:
    plain, bound = labelled_pod(app="web"), labelled_pod(app="web", **{"hami.io/vgpu-node": "n1"})
    assert INTERPRETER.same_labels(plain, bound)
    assert INTERPRETER.request(plain) is INTERPRETER.request(bound)
    assert not INTERPRETER.same_labels(plain, labelled_pod(app="other"))
