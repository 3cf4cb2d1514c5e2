"""Whether a vendor's own agent serves cards here, by what the node says that we did not write."""

from __future__ import annotations

from subak.dialects import Dialect
from subak.model import manifest
from subak.model.manifest import DeviceInfo, DeviceSpec, Metadata, NodeStatus
from subak.node import others
from subak.node.advertisement import Written
from tests.support.machines import machine

A10 = machine("shared")


def node(annotations: dict[str, str] | None = None, **amounts: str) -> manifest.Node:
    capacity: manifest.Amounts = {name.replace("__", "/").replace("_", "."): text for name, text in amounts.items()}
    return manifest.Node(
        metadata=Metadata(name="n", annotations=annotations or {}), status=NodeStatus(capacity=capacity)
    )


def names(found: dict[Dialect, str]) -> set[str]:
    return {each.name for each in found}


def device(**annotations: str) -> manifest.Device:
    return manifest.Device(
        metadata=Metadata(name="n", annotations=annotations), spec=DeviceSpec(devices=[DeviceInfo(id="GPU-1")])
    )


def test_nobody_serves_an_empty_node() -> None:
    assert not others.serving(A10, node(cpu="4"), None, Written())


def test_an_amount_that_we_did_not_write_is_anothers() -> None:
    busy = node(nvidia_com__gpu="8")
    assert "hami-nvidia" in names(others.serving(A10, busy, None, Written()))
    assert not others.serving(A10, busy, None, Written(amounts=frozenset({"nvidia.com/gpu"})))


def test_the_zero_that_kubelet_leaves_behind_is_nobodys() -> None:
    assert not others.serving(A10, node(nvidia_com__gpu="0"), None, Written())


def test_a_register_alone_outlives_its_agent() -> None:
    stale = node({"hami.io/node-nvidia-register": '[{"id":"GPU-1","count":10}]'})
    assert not others.serving(A10, stale, None, Written())


def test_a_device_object_is_koordinators_unless_it_has_our_mark() -> None:
    assert names(others.serving(A10, node(), device(), Written())) == {"koordinator"}
    assert not others.serving(A10, node(), device(**{"subak.io/agent": "nri"}), Written())


def test_cards_that_one_agent_serves_are_left_to_it_in_every_dialect() -> None:
    taken = others.serving(A10, node(), device(), Written())
    assert others.without(A10, taken).devices == ()
    assert others.without(A10, {}) is A10


def test_an_administrator_is_told_what_was_seen_and_what_to_do() -> None:
    ((dialect, evidence),) = others.serving(A10, node(), device(), Written()).items()
    assert others.sentence(dialect, evidence, "n") == (
        "node n: there is a Device object with 1 devices, which this agent did not write: koordinator's own agent "
        "serves the cards there, and they are left to it; remove that agent from the node to have them served by this "
        "one"
    )
