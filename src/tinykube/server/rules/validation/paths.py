"""What paths inside of volumes may look like."""

from __future__ import annotations

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems


def no_way_up(problems: Problems, path: str, text: str) -> None:
    """It must not lead to a parent directory."""
    if ".." in text.split("/"):
        problems.append(problem.invalid(path, text, "must not contain '..'"))


def downward(problems: Problems, path: str, text: str) -> None:
    """It must be relative and stay below where it starts."""
    if text.startswith("/"):
        problems.append(problem.invalid(path, text, "must be a relative path"))
    no_way_up(problems, path, text)


def not_reserved(problems: Problems, path: str, text: str) -> None:
    """It must go downward and not start as the names that the kubelet uses itself."""
    downward(problems, path, text)
    if text.startswith("..") and not text.startswith("../"):
        problems.append(problem.invalid(path, text, "must not start with '..'"))


def mode(problems: Problems, path: str, bits: int | None) -> None:
    """Permission bits of a file."""
    if bits is not None and not 0 <= bits <= 0o777:
        words = "must be a number between 0 and 0777 (octal), both inclusive"
        problems.append(problem.invalid(path, bits, words))
