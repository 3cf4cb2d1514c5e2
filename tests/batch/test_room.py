from __future__ import annotations

from subak.batch.world import Status
from tests.batch.worlds import Stage, configuration

PREEMPT = configuration("preempt", tiers=[["conformance", "gang", "priority", "proportion"]])
RUNNING = Status.RUNNING


def test_a_gang_takes_room_as_a_whole() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000, 16_000])
    stage.group("low", 0, priority=1)
    for i in range(4):
        stage.pod(f"low-{i}", "low", limits={"volcano.sh/gpu-memory": 8_000}, node="n1", status=RUNNING)
    stage.group("high", 2, priority=10)
    for i in range(2):
        stage.pod(f"high-{i}", "high", limits={"volcano.sh/gpu-memory": 8_000})
    stage.run(PREEMPT)
    assert len(stage.evicted) == 2
    assert set(stage.kept) == {"high-0", "high-1"}
    stage.run(PREEMPT)
    assert len(stage.evicted) == 2
