"""Spans of time as people write them."""

from __future__ import annotations

import click
import pytest

from subak.cli.durations import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("90", 90), ("0.5", 0.5), (".5", 0.5), ("90s", 90), ("5m", 300), ("1h", 3600), ("1h30m", 5400),
        ("1h30m15s", 5415), ("500ms", 0.5), ("1.5h", 5400), ("2d", 172_800), ("0s", 0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "s", "1 h", "h1", "1y", "-1s", "+1s", "1h30", "1e3s", "٣s", "nan", "inf", "9" * 30]
)
def test_what_is_no_duration_is_told_with_the_remedy(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration: write|is longer than"):
        duration(text)
