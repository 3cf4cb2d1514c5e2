"""What is wrong with a cluster or a node, and what to do about it.

    subject ── Check ──> Findings: ok, warning, failed or not known; what was seen; what to do

A subject is what is looked at: a `cluster.Cluster` through its API server, or the `node.Computer` on which we run.  A
check is one question about it, one function.  `registry` lists all of them, in groups; `examine` asks them all at once.
A check only looks: nothing is written, on no API server and on no disk.  What it may not look at it says so.

A new check is a function in `cluster/` or `node/` and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)


class Level(StrEnum):
    """How serious it is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, and what to do about it; nothing if it is as it should be."""

    level: Level
    seen: str
    remedy: str = ""


def ok(seen: str) -> Finding:
    """It is as it should be."""
    return Finding(Level.OK, seen)


def warning(seen: str, remedy: str) -> Finding:
    """It works, but somebody should look at it."""
    return Finding(Level.WARNING, seen, remedy)


def failed(seen: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(Level.FAILED, seen, remedy)


def unknown(seen: str, remedy: str = "") -> Finding:
    """It could not be found out."""
    return Finding(Level.UNKNOWN, seen, remedy)


class CannotTell(Exception):
    """What a check needs to know could not be found out; the text says why, `remedy` what would help."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


class Check(Protocol[S_contra]):
    """One question about a subject."""

    async def __call__(self, subject: S_contra, /) -> Sequence[Finding]:
        """The answer; several findings if several things are wrong, none if the question does not arise.

        It may raise CannotTell, OSError, TimeoutError and what a client raises: `examine` knows what these mean.
        """


Checks = Mapping[str, Mapping[str, Check[S_contra]]]
"""Checks by group and name."""


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in one line; of many, the first few and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
