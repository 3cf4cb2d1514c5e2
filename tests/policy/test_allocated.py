"""Koordinator's scores, by its own cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.model.card import CardState
from subak.model.device import RDMA, Device
from subak.model.node import Node
from subak.model.placement import Charge, Grant, Placement, Share
from subak.model.request import LEAST_ALLOCATED, MOST_ALLOCATED, Claim
from subak.policy.allocated import allocated_score, card_score, node_score, node_scores, ratio_of, sums
from subak.snapshot.cluster import Snapshot

GI = 1 << 30


def card(used_percent: int = 0, memory: int = 16 * GI) -> CardState:
    state = CardState.of(Device("GPU-0", 0, "nvidia", memory_bytes=memory))
    if used_percent:
        state.take(Charge(1, 0, memory * used_percent // 100, used_percent))
    return state


def claim(percent: int = 0, memory: int = 0, cores: int = 50, family: str = "nvidia") -> Claim:
    families = frozenset({family})
    return Claim("koordinator", families, (0,), memory_percent=percent, memory_bytes=memory, cores=cores, granule=1)


def test_half_a_card_on_a_node_of_two_idle_ones() -> None:
    assert node_score([card(), card()], claim(50), LEAST_ALLOCATED) == 87


@pytest.mark.parametrize("strategy", [LEAST_ALLOCATED, MOST_ALLOCATED])
@pytest.mark.parametrize("asked", [claim(50), claim(memory=8 * GI)])
def test_half_a_card_on_one_that_is_a_quarter_used(asked: Claim, strategy: str) -> None:
    assert node_score([card(25)], asked, strategy) == 50


def test_a_whole_idle_card() -> None:
    assert card_score(card(), claim(100), LEAST_ALLOCATED) == 50


def test_half_an_idle_card() -> None:
    assert card_score(card(), claim(50), LEAST_ALLOCATED) == 75


@pytest.mark.parametrize(
    ("free", "ask", "strategy", "score"),
    [
        (100, 50, LEAST_ALLOCATED, 50),
        (0, 50, LEAST_ALLOCATED, 0),
        (0, 50, MOST_ALLOCATED, 100),
        (50, 30, LEAST_ALLOCATED, 20),
        (50, 30, MOST_ALLOCATED, 80),
    ],
)
def test_one_resource(free: int, ask: int, strategy: str, score: int) -> None:
    found = allocated_score(
        total_ratio=100,
        free_ratio=free,
        total_memory=0,
        free_memory=0,
        ask_ratio=ask,
        ask_memory=0,
        strategy=strategy,
    )
    assert found == score


def test_nothing_scores_nothing() -> None:
    assert node_score([], claim(50), LEAST_ALLOCATED) == 0
    assert node_score([card()], claim(50, family="amd"), MOST_ALLOCATED) == 0


def test_rdma_is_scored_by_its_percentage() -> None:
    nic = CardState.of(Device("0000:1f:00.0", 1, "rdma", kind=RDMA))
    assert card_score(nic, claim(cores=30, family="rdma"), LEAST_ALLOCATED) == 70


def test_broken_cards_do_not_count() -> None:
    broken = CardState.of(Device("GPU-1", 1, "nvidia", memory_bytes=16 * GI, healthy=False))
    assert node_score([card(25), broken], claim(50), LEAST_ALLOCATED) == 50


@given(st.integers(100, 2**42), st.integers(0, 100))
def test_a_percentage_survives_being_kept_in_bytes(total: int, percent: int) -> None:
    assert ratio_of(total * percent // 100, total) == percent


shares = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 100), st.booleans()), min_size=3, max_size=3)


@given(
    nodes=st.lists(shares, min_size=1, max_size=4),
    memory=st.integers(0, 2**40),
    asked=st.sampled_from([claim(50), claim(100), claim(memory=8 * GI), claim(cores=30, family="rdma")]),
    strategy=st.sampled_from([LEAST_ALLOCATED, MOST_ALLOCATED]),
)
def test_columns_score_as_single_nodes_do(
    nodes: list[list[tuple[int, int, bool]]], memory: int, asked: Claim, strategy: str
) -> None:
    snapshot = Snapshot()
    for number, held in enumerate(nodes):
        devices = [
            Device(f"{number}-{i}", i, "nvidia", memory_bytes=memory, healthy=healthy)
            for i, (_, _, healthy) in enumerate(held)
        ]
        node = Node(f"node-{number}", (*devices, Device(f"nic-{number}", 9, "rdma", kind=RDMA)))
        snapshot.put([node])
        taken = [Share(card.id, card.index, used, cores) for card, (used, cores, _) in zip(devices, held, strict=True)]
        taken.append(Share(f"nic-{number}", 9, 0, held[0][1]))
        # `restore` books what runs, even more than there is.
        snapshot.restore(f"pod-{number}", Placement(node.name, (Grant("koordinator", (0,), asked.role, tuple(taken)),)))
    (pool,) = snapshot.pools
    fast = node_scores(sums(pool, asked).refresh()[:, : pool.size], asked, strategy)
    assert fast.tolist() == [node_score(snapshot.cards(node.name), asked, strategy) for node in pool.nodes]
