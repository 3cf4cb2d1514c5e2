"""Addresses and ports of services are given out once."""

from __future__ import annotations

import ipaddress
from typing import Any

from tests.contracts.client import Answer, eventually
from tests.contracts.space import Space

RANGE = ipaddress.ip_network("10.96.0.0/16")


def service(space: Space, name: str, **spec: Any) -> Answer:
    return space.post("services", {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}})


def address(space: Space, name: str) -> str:
    return str(space.get(f"services/{name}").must(200)["spec"]["clusterIP"])


def test_each_service_gets_an_address_of_its_own(space: Space) -> None:
    for index in range(20):
        service(space, f"s-{index}").must(201)
    found = {address(space, f"s-{index}") for index in range(20)}
    assert len(found) == 20
    assert all(ipaddress.ip_address(each) in RANGE for each in found)


def test_an_address_stays_with_its_service(space: Space) -> None:
    service(space, "a").must(201)
    before = address(space, "a")
    space.put("services/a", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 81}]}}).must(200)
    assert address(space, "a") == before


def test_an_address_that_is_taken_is_refused(space: Space) -> None:
    service(space, "a").must(201)
    answer = service(space, "b", clusterIP=address(space, "a"))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message == (
        f'Service "b" is invalid: spec.clusterIPs: Invalid value: ["{address(space, "a")}"]: '
        "failed to allocate IP " + address(space, "a") + ": provided IP is already allocated"
    )


def test_an_address_is_free_again_when_its_service_is_gone(space: Space) -> None:
    service(space, "a").must(201)
    mine = address(space, "a")
    space.delete("services/a").must(200)
    eventually(lambda: service(space, "b", clusterIP=mine).code == 201)


def test_a_dry_run_takes_no_address(space: Space) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    tried = space.post("services", body, dryRun="All").must(201)["spec"]["clusterIP"]
    assert tried == str(RANGE.network_address), "an address that nobody can have"


def test_ports_of_nodes_are_given_out(space: Space) -> None:
    first = service(space, "a", type="NodePort").must(201)["spec"]["ports"][0]["nodePort"]
    second = service(space, "b", type="NodePort").must(201)["spec"]["ports"][0]["nodePort"]
    assert first != second
    assert all(30000 <= each <= 32767 for each in (first, second))
    taken = service(space, "c", type="NodePort", ports=[{"port": 80, "nodePort": first}])
    assert taken.code == 422
    assert taken.message == (
        f'Service "c" is invalid: spec.ports[0].nodePort: Invalid value: {first}: provided port is already allocated'
    )


def test_a_port_of_nodes_outside_the_range_is_refused(space: Space) -> None:
    answer = service(space, "a", type="NodePort", ports=[{"port": 80, "nodePort": 80}])
    assert answer.message == (
        'Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. '
        "The range of valid ports is 30000-32767"
    )
