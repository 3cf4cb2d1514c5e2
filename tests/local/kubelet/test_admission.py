from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.admission import Account, OutOfResource, asked
from subak.model import manifest
from tests.support.kubelet.pods import container, pod_object

NODE: dict[str, Any] = {"cpu": "4", "memory": "8Gi", "pods": "3", "nvidia.com/gpu": "2"}


def wants(**requests: str) -> dict[str, int]:
    names = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    return asked(msgspec.convert(pod_object(container(resources={"requests": names})), manifest.Pod))


@pytest.mark.parametrize(
    ("requests", "reason", "message"),
    [
        ({"cpu": "5"}, "OutOfcpu", "cpu, requested: 5000, used: 1000, capacity: 4000"),
        ({"memory": "9Gi"}, "OutOfmemory", "memory, requested: 9663676416, used: 0, capacity: 8589934592"),
        (
            {"nvidia_com__gpu": "3"},
            "OutOfnvidia.com/gpu",
            "nvidia.com/gpu, requested: 3, used: 0, capacity: 2",
        ),
    ],
)
def test_a_pod_beyond_the_node_is_refused_with_numbers(requests: dict[str, str], reason: str, message: str) -> None:
    account = Account()
    account.take("a", wants(cpu="1"), NODE)
    with pytest.raises(OutOfResource) as caught:
        account.take("b", wants(**requests), NODE)
    assert caught.value.reason == reason
    assert caught.value.message == f"Node didn't have enough resource: {message}"


def test_a_node_takes_so_many_pods_and_no_more() -> None:
    account = Account()
    for uid in "abc":
        account.take(uid, wants(), NODE)
    with pytest.raises(OutOfResource) as caught:
        account.take("d", wants(), NODE)
    assert caught.value.reason == "OutOfpods"
    account.give_back("a")
    account.take("d", wants(), NODE)


def test_a_resource_that_the_node_does_not_know_limits_nothing() -> None:
    Account().take("a", wants(example_com__licence="7"), NODE)


def test_the_same_pod_again_is_booked_once() -> None:
    account = Account()
    for _ in range(5):
        account.take("a", wants(cpu="3"), NODE)
    account.take("b", wants(cpu="1"), NODE)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(0, 4))))
def test_no_node_ever_holds_more_than_it_has(steps: list[tuple[str, bool, int]]) -> None:
    account, held = Account(), dict[str, int]()
    for uid, comes, cpu in steps:
        if not comes:
            account.give_back(uid)
            held.pop(uid, None)
            continue
        fits = sum(held.values()) + cpu <= 4 and len(held) < 3
        try:
            account.take(uid, wants(cpu=str(cpu)), NODE)
        except OutOfResource:
            assert not fits
            assert uid not in held
        else:
            assert fits or uid in held
            held.setdefault(uid, cpu)
