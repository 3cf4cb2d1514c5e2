"""Aligned columns, as kubectl prints them."""

from __future__ import annotations

from subak.cli.plain import one_line


def aligned(rows: list[list[str]], gap: int = 3) -> list[str]:
    """The rows as lines, with `gap` blanks between columns."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    between = " " * gap
    return [between.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
