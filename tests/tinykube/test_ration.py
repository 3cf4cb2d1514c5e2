"""How much a log may grow."""

from __future__ import annotations

import io
import logging

import pytest

from tinykube.ration import MINUTE, Ration


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(written: io.StringIO, now: list[float]) -> logging.Logger:
    log = logging.Logger("test")
    handler = logging.StreamHandler(written)
    handler.addFilter(Ration(lines=2, clock=lambda: now[0]))
    log.addHandler(handler)
    return log


def complain(log: logging.Logger, count: int) -> None:
    for number in range(count):
        log.warning("client %d is odd", number)


def test_a_complaint_is_written_a_few_times_a_minute(
    log: logging.Logger, written: io.StringIO, now: list[float]
) -> None:
    complain(log, 1_000)
    now[0] = MINUTE
    complain(log, 1)
    assert written.getvalue().splitlines() == [
        "client 0 is odd", "client 1 is odd", "client 0 is odd (998 more like this were left out)",
    ]  # fmt: skip


def test_another_complaint_is_not_left_out_for_it(log: logging.Logger, written: io.StringIO) -> None:
    complain(log, 1_000)
    log.error("the disk is full: %s", "/")
    assert written.getvalue().splitlines()[-1] == "the disk is full: /"
