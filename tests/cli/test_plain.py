from __future__ import annotations

import io
import logging

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from subak.cli import cards, get
from subak.cli.columns import aligned
from subak.cli.plain import one_line, plain
from subak.cli.say import complain
from subak.cli.up import PlainFormatter

TITLE = "\x1b]0;owned\x07"


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert plain(f"{TITLE}\x9b2J\r\N{RIGHT-TO-LEFT OVERRIDE}") == r"\x1b]0;owned\x07\x9b2J\r\u202e"
    assert plain("two\n\tlines, größer als 茶 ✓") == "two\n\tlines, größer als 茶 ✓"
    assert one_line("two\n\tlines") == r"two\n\tlines"


@given(st.text())
def test_nothing_else_is_changed(text: str) -> None:
    assert all(character.isprintable() or character.isspace() or ord(character) > 0xA0 for character in one_line(text))
    assert "\x1b" not in plain(text)
    if text.isprintable():
        assert plain(text) == one_line(text) == text


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_objects_say_the_same_without_what_a_terminal_would_obey(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{TITLE}\x7f\x9b2J\n\N{RIGHT-TO-LEFT OVERRIDE} größer als 茶"
    object = {"metadata": {"name": "a"}, "data": {"x": text}}
    get._print_whole([object], output, single=True)
    shown = capsys.readouterr().out
    assert plain(shown) == shown
    assert yaml.safe_load(shown) == object


def test_a_table_has_one_line_for_each_row() -> None:
    assert aligned([["NAME", "MESSAGE"], ["a", f"{TITLE}\nb   fake"]]) == [
        "NAME   MESSAGE",
        r"a      \x1b]0;owned\x07\nb   fake",
    ]


def test_so_is_what_is_drawn_and_what_is_complained_of(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = io.StringIO()
    cards.line(Console(file=drawn, force_terminal=True, color_system=None), f"{TITLE} ", (TITLE, "green"))
    assert drawn.getvalue() == "\\x1b]0;owned\\x07 \\x1b]0;owned\\x07\n"
    complain([TITLE])
    assert capsys.readouterr().err == "error: \\x1b]0;owned\\x07\n"


def test_so_is_what_the_cluster_complains_of() -> None:
    record = logging.LogRecord("a", logging.WARNING, "", 0, "%s is left in a volume", (f"{TITLE}\nERROR: all",), None)
    assert PlainFormatter().format(record) == r"\x1b]0;owned\x07\nERROR: all is left in a volume"


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError(TITLE)
    except ValueError as error:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "no", (), (ValueError, error, error.__traceback__))
    first, *_, last = PlainFormatter().format(record).splitlines()
    assert (first, last) == ("no", r"ValueError: \x1b]0;owned\x07")
