"""Addresses and ports that services get."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tinykube.server.rules.objects import changed, service
from tests.tinykube.server.rules.world import World, with_system_fields
from tinykube.server import kinds, rules
from tinykube.server.rules.service import NETWORK, PORTS
from tinykube.status import ApiError

Json = dict[str, Any]


def add(world: World, name: str, changes: Json | None = None) -> Json:
    given, _ = rules.read(kinds.SERVICE, service({"metadata.name": name} | (changes or {})), "Strict")
    made = rules.create(kinds.SERVICE, with_system_fields(given, kinds.SERVICE), world)
    made["metadata"]["resourceVersion"] = "1"
    world.put(kinds.SERVICE, made)
    return made


def update(world: World, old: Json, changes: Json) -> Json:
    given, _ = rules.read(kinds.SERVICE, changed(old, changes), "Strict")
    made = rules.update(kinds.SERVICE, given, old, world)
    world.put(kinds.SERVICE, made)
    return made


def test_no_address_is_given_out_twice() -> None:
    world = World()
    found = [add(world, f"s{index}")["spec"]["clusterIP"] for index in range(20)]
    assert len({*found}) == 20
    assert all(any(each == str(address) for address in NETWORK) for each in found)


def test_an_address_is_free_again_when_its_service_is_gone() -> None:
    world = World()
    first = add(world, "a")["spec"]["clusterIP"]
    with pytest.raises(ApiError, match="provided IP is already allocated"):
        add(world, "b", {"spec.clusterIP": first})
    del world.objects[kinds.SERVICE, "default", "a"]
    assert add(world, "b", {"spec.clusterIP": first})["spec"]["clusterIPs"] == [first]


def test_a_manifest_may_be_written_again_without_what_was_given() -> None:
    world = World()
    old = add(world, "a", {"spec.type": "NodePort"})
    again = service({"metadata.name": "a", "spec.type": "NodePort", "spec.ports[0].port": 81})
    given, _ = rules.read(kinds.SERVICE, again, "Strict")
    new = rules.update(kinds.SERVICE, given, old, world)
    assert new["spec"]["clusterIP"] == old["spec"]["clusterIP"]
    assert new["spec"]["ports"][0]["nodePort"] == old["spec"]["ports"][0]["nodePort"]
    assert new["spec"]["ports"][0]["port"] == 81


def test_ports_of_nodes_come_and_go_with_the_type() -> None:
    world = World()
    plain = add(world, "a")
    open_to_all = update(world, plain, {"spec.type": "NodePort"})
    port = open_to_all["spec"]["ports"][0]["nodePort"]
    assert port in PORTS
    assert open_to_all["spec"]["externalTrafficPolicy"] == "Cluster"
    with pytest.raises(ApiError, match="provided port is already allocated"):
        add(world, "b", {"spec.type": "NodePort", "spec.ports[0].nodePort": port})
    closed = update(world, open_to_all, {"spec.type": "ClusterIP"})
    assert closed["spec"] == plain["spec"]
    assert add(world, "b", {"spec.type": "NodePort", "spec.ports[0].nodePort": port})


def test_a_port_for_tcp_and_udp_is_one_port_of_the_nodes() -> None:
    both = [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]
    ports = add(World(), "dns", {"spec.type": "NodePort", "spec.ports": both})["spec"]["ports"]
    assert ports[0]["nodePort"] == ports[1]["nodePort"]


def test_a_dry_run_takes_no_address() -> None:
    world = World()
    given, _ = rules.read(kinds.SERVICE, service(), "Strict")
    made = rules.create(kinds.SERVICE, with_system_fields(given, kinds.SERVICE), world, dry_run=True)
    assert made["spec"]["clusterIP"] == str(NETWORK.network_address)
