"""Aligned columns, as kubectl prints them."""

from __future__ import annotations


def aligned(rows: list[list[str]], gap: int = 3) -> list[str]:
    """The rows as lines, with `gap` blanks between columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    between = " " * gap
    return [between.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
