"""Log lines: JSON with time, level, event and the fields of whoever logs; text for people."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from subak.scheduler import logbook

log = logging.getLogger("subak.somewhere")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level


def test_a_line_is_json_with_the_fields_of_whoever_logs() -> None:
    stream = io.StringIO()
    logbook.set_up("json", "info", stream)
    log.debug("unseen")
    log.warning("pod %s waits", "a/b", extra={"pod": "a/b", "node": "n1"})
    (line,) = stream.getvalue().splitlines()
    content = json.loads(line)
    assert list(content)[:3] == ["time", "level", "event"]
    assert content.pop("time").endswith("Z")
    assert content == {
        "level": "warning",
        "event": "pod a/b waits",
        "logger": "subak.somewhere",
        "pod": "a/b",
        "node": "n1",
    }


def test_an_exception_is_one_line_too() -> None:
    stream = io.StringIO()
    logbook.set_up("json", "info", stream)
    try:
        raise ValueError("bad")
    except ValueError:
        log.exception("something is wrong")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: bad" in json.loads(line)["exception"]


def test_text_is_for_people() -> None:
    stream = io.StringIO()
    logbook.set_up("text", "warning", stream)
    log.info("unseen")
    log.warning("pod waits", extra={"pod": "a/b"})
    (line,) = stream.getvalue().splitlines()
    assert "pod waits" in line
    assert "pod=a/b" in line
