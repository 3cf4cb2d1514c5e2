"""Namespace quotas: units, the tightest of several, what counts when, and that charging is undone exactly."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import QuotaUnit
from subak.dialects.interpreter import Interpreter
from subak.model.manifest import Amount, Metadata, QuotaSpec, ResourceQuota, Role
from subak.model.placement import Grant, Placement
from subak.policy.quota import Quotas, fits, peak_memory_mib
from subak.snapshot.cluster import Snapshot
from tests.support.cards import DIALECT, claim, grant, placed, share

MEMORY, CORES, BLOCKS = "nvidia.com/gpumem", "nvidia.com/gpucores", "iluvatar.ai/vcuda-memory"
UNITS = {
    MEMORY: QuotaUnit(DIALECT, memory=True),
    CORES: QuotaUnit(DIALECT, memory=False),
    BLOCKS: QuotaUnit("iluvatar", memory=True, factor=256),
}


def quota(hard: dict[str, Amount] | None, namespace: str = "team", name: str = "q") -> ResourceQuota:
    return ResourceQuota(metadata=Metadata(name=name, namespace=namespace), spec=QuotaSpec(hard=hard))


def limited(**limits: Amount) -> Quotas:
    """Quotas of the namespace `team`; `memory`, `cores` and `blocks` are the three resources."""
    names = {"memory": MEMORY, "cores": CORES, "blocks": BLOCKS}
    quotas = Quotas(UNITS)
    assert quotas.put(quota({f"limits.{names[word]}": amount for word, amount in limits.items()})) == []
    return quotas


def charge(quotas: Quotas, namespace: str, placement: Placement) -> None:
    """The namespace uses this, as when a snapshot books it."""
    snapshot = Snapshot(count=quotas.amounts)
    snapshot.restore(f"{namespace}/p", placement)
    quotas.used = snapshot.used


def holding(mib: int = 0, cores: int = 0) -> Placement:
    return placed("n", share("GPU-0", mib, cores))


@pytest.mark.parametrize(
    ("used", "asked", "limit", "factor", "room"),
    [
        (0, 10, None, 1, True),
        (10**9, 10**9, None, 256, True),
        (0, 1, 0, 1, False),
        (0, 0, 0, 1, True),
        (6, 4, 10, 1, True),
        (6, 5, 10, 1, False),
        (0, 2560, 10, 256, True),
        (0, 2561, 10, 256, False),
    ],
)
def test_used_and_asked_must_not_exceed_the_limit(
    used: int, asked: int, limit: int | None, factor: int, room: bool
) -> None:
    assert fits(used, asked, limit, factor) is room
    if factor == 1:
        assert fits(used, asked, limit) is room


def test_a_pod_may_use_the_quota_up_and_not_more() -> None:
    quotas = limited(memory="3k")
    charge(quotas, "team", holding(1_000))
    assert quotas.refuse("team", holding(2_000)) is None
    assert quotas.refuse("team", holding(2_001)) == (
        "namespace team: quota limits.nvidia.com/gpumem allows 3,000 MiB, 1,000 used, 2,001 asked"
    )


def test_cores_are_counted_in_cores() -> None:
    quotas = limited(cores=100)
    assert quotas.refuse("team", holding(cores=100)) is None
    assert quotas.refuse("team", holding(cores=101)) == (
        "namespace team: quota limits.nvidia.com/gpucores allows 100 cores, 0 used, 101 asked"
    )


def test_a_quota_is_read_in_the_unit_of_its_resource() -> None:
    quotas = limited(blocks=10)
    blocks = Grant("iluvatar", (0,), Role.APP, (share("IX-0", 2_561),))
    assert quotas.refuse("team", Placement("n", (blocks,))) == (
        "namespace team: quota limits.iluvatar.ai/vcuda-memory allows 2,560 MiB, 0 used, 2,561 asked"
    )
    exact = Grant("iluvatar", (0,), Role.APP, (share("IX-0", 2_560),))
    assert quotas.refuse("team", Placement("n", (exact,))) is None


def test_a_dialect_counts_only_against_its_own_resources() -> None:
    quotas = limited(blocks=0)
    assert quotas.refuse("team", holding(10_000, 100)) is None
    charge(quotas, "team", holding(10_000, 100))
    assert quotas.used == {("team", MEMORY): 10_000, ("team", CORES): 100}


def test_other_namespaces_are_not_limited() -> None:
    quotas = limited(memory=0)
    assert quotas.refuse("team", holding(1)) is not None
    assert quotas.refuse("default", holding(10**6)) is None


def test_a_quota_without_a_namespace_is_of_the_default_one() -> None:
    quotas = Quotas(UNITS)
    quotas.put(quota({f"limits.{MEMORY}": 0}, namespace=""))
    assert quotas.refuse("default", holding(1)) is not None


@pytest.mark.parametrize("amounts", [(10, 20), (20, 10), (20, 10, 30)])
def test_of_several_quotas_the_tightest_counts(amounts: tuple[int, ...]) -> None:
    quotas = Quotas(UNITS)
    for number, amount in enumerate(amounts):
        quotas.put(quota({f"limits.{MEMORY}": amount}, name=f"q{number}"))
    assert quotas.limits == {("team", MEMORY): 10}


def test_quotas_of_a_namespace_may_grow_shrink_and_go() -> None:
    quotas = limited(memory=10)
    quotas.put(quota({f"limits.{MEMORY}": 5}, namespace="other"))
    charge(quotas, "team", holding(8))
    assert quotas.replace("team", [quota({f"limits.{MEMORY}": 30}), quota({f"limits.{MEMORY}": 20})]) == []
    assert quotas.limits == {("team", MEMORY): 20, ("other", MEMORY): 5}
    assert quotas.used == {("team", MEMORY): 8}
    (warning,) = quotas.replace("team", [quota({f"limits.{CORES}": "many"})])
    assert "ignored" in warning
    assert quotas.limits == {("other", MEMORY): 5}


def test_other_keys_of_a_quota_are_kubernetes_own_business() -> None:
    quotas = Quotas(UNITS)
    hard: dict[str, Amount] = {f"requests.{MEMORY}": 0, MEMORY: 0, "limits.cpu": 0, "requests.nvidia.com/gpu": 0}
    assert quotas.put(quota(hard)) == []
    assert quotas.put(quota(None)) == []
    assert quotas.limits == {}


@pytest.mark.parametrize("amount", ["2gb", "1.5", "500m"])
def test_a_limit_that_cannot_be_read_is_told_and_left_out(amount: str) -> None:
    quotas = Quotas(UNITS)
    (warning,) = quotas.put(quota({f"limits.{MEMORY}": amount, f"limits.{CORES}": 50}))
    assert warning.startswith("ResourceQuota team/q: limits.nvidia.com/gpumem: ")
    assert warning.endswith("; ignored")
    assert quotas.limits == {("team", CORES): 50}


def test_zero_blocks_all_memory_but_no_pod_that_asks_for_none() -> None:
    quotas = limited(memory=0, cores=0)
    assert quotas.refuse("team", holding(1)) is not None
    assert quotas.refuse("team", holding(cores=1)) is not None
    assert quotas.refuse("team", holding()) is None
    assert quotas.refuse("team", Placement("n")) is None


def test_percentages_count_once_they_are_placed() -> None:
    quotas = limited(memory=7_999)
    assert quotas.refuse_claims("team", [claim(memory_percent=50)]) is None
    assert quotas.refuse("team", holding(8_000)) is not None


def test_amounts_count_before_a_node_is_sought() -> None:
    quotas = limited(memory=2_000)
    assert quotas.refuse_claims("team", [claim(1_000, count=2)]) is None
    refusal = quotas.refuse_claims("team", [claim(1_000, count=2), claim(1, container=1)])
    assert refusal is not None
    assert "allows 2,000 MiB, 0 used, 2,001 asked" in refusal
    assert quotas.refuse_claims("team", [claim(3_000, dialect="iluvatar")]) is None


def test_cores_count_only_once_they_are_placed() -> None:
    assert limited(cores=0).refuse_claims("team", [claim(1, cores=50)]) is None


def test_the_peak_is_that_of_app_containers_or_of_the_largest_init_container() -> None:
    apps = [claim(1_000, container=2), claim(500, container=3, count=2)]
    assert peak_memory_mib(apps) == 2_000
    assert peak_memory_mib([claim(1_900, role=Role.INIT), *apps]) == 2_000
    assert peak_memory_mib([claim(1_100, role=Role.INIT, count=2), claim(2_100, role=Role.INIT), *apps]) == 2_200
    assert peak_memory_mib([claim(100, role=Role.SIDECAR), *apps]) == 2_100
    assert peak_memory_mib([]) == 0


def test_a_placed_pod_counts_at_its_peak() -> None:
    """An init container's share is used again by the app container on the same card."""
    pod = Placement("n", (grant(share("GPU-0", 1_500), role=Role.INIT), grant(share("GPU-0", 1_000, 10), container=1)))
    quotas = limited(memory=1_500)
    assert quotas.refuse("team", pod) is None
    charge(quotas, "team", pod)
    assert quotas.used == {("team", MEMORY): 1_500, ("team", CORES): 10}


def test_every_card_of_a_pod_counts() -> None:
    pod = placed("n", share("GPU-0", 1_000, 30), share("GPU-1", 1_000, 30))
    quotas = limited(memory=2_000, cores=59)
    refusal = quotas.refuse("team", pod)
    assert refusal is not None
    assert "allows 59 cores, 0 used, 60 asked" in refusal


def test_an_overdrawn_quota_does_not_stop_pods_that_ask_for_none() -> None:
    quotas = limited(memory=100)
    charge(quotas, "team", holding(500))
    assert quotas.refuse("team", holding(cores=50)) is None
    assert quotas.refuse("team", holding(1)) is not None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 500), st.integers(0, 100)), max_size=8), st.randoms())
def test_what_is_used_is_the_sum_of_the_bookings(pods: list[tuple[str, int, int]], random: Random) -> None:
    snapshot = Snapshot(count=Quotas(UNITS).amounts)
    keys = [f"{namespace}/{number}" for number, (namespace, _, _) in enumerate(pods)]
    for key, (_, mib, cores) in zip(keys, pods, strict=True):
        snapshot.restore(key, holding(mib, cores))
    for namespace, (name, column) in product("ab", ((MEMORY, 1), (CORES, 2))):
        total = sum(int(pod[column]) for pod in pods if pod[0] == namespace)
        assert snapshot.used.get((namespace, name), 0) == total
    random.shuffle(keys)
    for key in keys:
        snapshot.forget(key)
    assert snapshot.used == {}


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("nvidia.com/gpumem", 1),
        ("iluvatar.ai/vcuda-memory", 256),
        ("mthreads.com/sgpu-memory", 512),
        ("metax-tech.com/vmemory", 1024),
    ],
)
def test_units_are_those_of_hamis_users(name: str, factor: int) -> None:
    unit = Interpreter().quota_units[name]
    assert unit.memory
    assert unit.factor == factor
