"""Columns under each other, three blanks apart, as kubectl prints them."""

from __future__ import annotations


def aligned(rows: list[list[str]]) -> list[str]:
    """The rows as lines."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
