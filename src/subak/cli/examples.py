"""The examples that come with Subak."""

from __future__ import annotations

from pathlib import Path


def examples() -> Path:
    """Where the examples are: in the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent.parent / "examples"
