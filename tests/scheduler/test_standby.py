"""A core that stands by keeps up, asks for nothing, and when it takes over asks for what may have been left undone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.model import manifest
from subak.scheduler.messages import Bind, Instruction, PodGone, PodSeen, Report, Restore, Warn
from subak.scheduler.waiting import TIDY
from tests.scheduler.history import History

SMALL = {"volcano.sh/gpu-memory": 1_000}
NONSENSE = {"koordinator.sh/gpu-core": "50"}


def told(history: History) -> None:
    """Tell the core everything."""
    for key in list(history.untold):
        history.see(key, everything=True)


def start() -> History:
    history = History(("n0",))
    history.describe("n0")
    told(history)
    return history


def kinds(instructions: list[Instruction]) -> list[type[Instruction]]:
    return [type(each) for each in instructions if not isinstance(each, Warn)]


def test_nothing_is_decided_until_the_takeover() -> None:
    history = start()
    history.create(SMALL)
    told(history)
    assert kinds(history.core.stand_by(1.0)) == []
    history.core.take_over()
    assert kinds(history.core.cycle(2.0)) == [Bind]


def test_a_record_that_was_changed_is_put_back_after_the_takeover() -> None:
    history = start()
    key = history.create(SMALL)
    history.settle()
    history.forge(key, "1")
    told(history)
    out = history.core.stand_by(1.0)
    assert kinds(out) == []
    assert any("somebody changed" in each.text for each in out if isinstance(each, Warn))
    history.core.take_over()
    assert kinds(history.core.cycle(2.0)) == [Restore]


def test_a_record_that_the_leader_has_put_back_is_left_alone() -> None:
    history = start()
    key = history.create(SMALL)
    history.settle()
    right = history.pods[key]
    history.forge(key, "1")
    told(history)
    history.core.stand_by(1.0)
    history.core.handle(PodSeen(right))
    history.core.take_over()
    assert kinds(history.core.cycle(2.0)) == []


def test_a_request_that_means_nothing_is_reported_after_the_takeover() -> None:
    history = start()
    pod = history.pods[history.create(SMALL)]
    spec = {"containers": [{"name": "c", "resources": {"limits": NONSENSE}}]}
    history.core.handle(PodSeen(_with_spec(pod, spec)))
    assert kinds(history.core.stand_by(1.0)) == []
    history.core.take_over()
    assert kinds(history.core.cycle(2.0)) == [Report]


@pytest.mark.long
def test_pods_that_others_bind_leave_nothing_behind() -> None:
    history = start()
    for _ in range(3 * TIDY):
        key = history.create(SMALL)
        told(history)
        history.core.handle(PodGone(key))
        history.core.stand_by(1.0)
    assert len(history.core._line._ready) <= TIDY + 1


def _with_spec(pod: manifest.Pod, spec: dict[str, Any]) -> manifest.Pod:
    return msgspec.structs.replace(pod, spec=msgspec.convert(spec, manifest.PodSpec))
