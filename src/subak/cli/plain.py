r"""Text of others on our user's terminal: whatever a terminal would obey is shown, and not sent.

A container chooses its last message, what its probes print, and the names of its files.  Sent as they are, they could
clear the screen, change the title or pretend to be other lines.  So ESC becomes `\x1b`, as Python writes it.
"""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS = (0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They let a text be read in another order."""

_ONE_LINE = {code: chr(code).encode("unicode_escape").decode() for code in (*_CONTROLS, *_DIRECTIONS)}
_LINES = {code: shown for code, shown in _ONE_LINE.items() if chr(code) not in "\n\t"}
# JSON escapes the others by itself.
_IN_JSON = {code: f"\\u{code:04x}" for code in _ONE_LINE if code >= 0x7F}


def plain(text: str) -> str:
    """The text, in as many lines as it has."""
    return text.translate(_LINES)


def one_line(text: str) -> str:
    """The text in one line, as in a cell of a table."""
    return text.translate(_ONE_LINE)


def in_json(text: str) -> str:
    """JSON that says the same."""
    return text.translate(_IN_JSON)
