"""Logs as JSON lines for machines, or as text for a terminal.

Modules log as ever, with `logging`; what they give as `extra` (the pod, the node) becomes fields of the line.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger


def set_up(form: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Send all logs to `stream`, as `json` or as `text`."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "json":
        last += [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer()]
    else:
        last.append(structlog.dev.ConsoleRenderer(colors=stream.isatty(), timestamp_key="time"))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def _ordered(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """Time, level and event first, so that people can read it too."""
    first = {key: line[key] for key in ("time", "level", "event") if key in line}
    return {**first, **line}
