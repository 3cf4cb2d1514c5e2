"""Where a text ceases to be JSON that can be read, in Go's words."""

from __future__ import annotations

import re

from tinykube.depth import too_deep
from tinykube.server.rules.problem import quote

_END = "unexpected end of JSON input"
_BLANKS = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+')
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_VALUE = "looking for beginning of value"


class _Wrong(Exception):
    pass


def excess(content: bytes) -> str:
    """What to say of a text that has too many levels to be read; empty if it has not."""
    bracket = too_deep(content)
    return f"invalid character '{bracket}' exceeded max depth" if bracket else ""


def fault(content: bytes) -> str:
    """What is wrong with a text that is not JSON: it is walked again, as Go's scanner does, until that cannot go on."""
    deep = excess(content)
    if deep:
        return deep
    scan = _Scan(content.decode("latin-1"))
    try:
        scan.value()
        scan.blanks()
        if scan.place < len(scan.text):
            scan.refuse("after top-level value")
    except _Wrong as wrong:
        return str(wrong)
    return _END


class _Scan:
    """How far a text is JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def refuse(self, why: str) -> None:
        """The next letter cannot be."""
        letter = self.letter()
        told = "'\\''" if letter == "'" else "'\"'" if letter == '"' else f"'{quote(letter)[1:-1]}'"
        raise _Wrong(f"invalid character {told} {why}")

    def letter(self) -> str:
        """The next letter; there must be one."""
        if self.place >= len(self.text):
            raise _Wrong(_END)
        return self.text[self.place]

    def blanks(self) -> None:
        """Skip blanks."""
        while self.place < len(self.text) and self.text[self.place] in _BLANKS:
            self.place += 1

    def value(self) -> None:
        """Skip a value."""
        self.blanks()
        letter = self.letter()
        if letter == "{":
            self._members()
        elif letter == "[":
            self._items()
        elif letter == '"':
            self._string()
        elif letter in _LITERALS:
            self._literal(_LITERALS[letter])
        else:
            self._number()

    def _members(self) -> None:
        self.place += 1
        self.blanks()
        if self.letter() == "}":
            self.place += 1
            return
        while True:
            self.blanks()
            if self.letter() != '"':
                self.refuse("looking for beginning of object key string")
            self._string()
            self.blanks()
            if self.letter() != ":":
                self.refuse("after object key")
            self.place += 1
            self.value()
            self.blanks()
            if self.letter() == "}":
                self.place += 1
                return
            if self.letter() != ",":
                self.refuse("after object key:value pair")
            self.place += 1

    def _items(self) -> None:
        self.place += 1
        self.blanks()
        if self.letter() == "]":
            self.place += 1
            return
        while True:
            self.value()
            self.blanks()
            if self.letter() == "]":
                self.place += 1
                return
            if self.letter() != ",":
                self.refuse("after array element")
            self.place += 1

    def _string(self) -> None:
        self.place += 1
        while True:
            plain = _PLAIN.match(self.text, self.place)
            assert plain is not None, "it matches nothing at least"
            self.place = plain.end()
            if self.letter() == '"':
                break
            if self.letter() < " ":
                self.refuse("in string literal")
            if self.letter() == "\\":
                self._escape()
            self.place += 1
        self.place += 1

    def _escape(self) -> None:
        self.place += 1
        if self.letter() not in 'bfnrtu"\\/':
            self.refuse("in string escape code")
        if self.letter() == "u":
            for _ in range(4):
                self.place += 1
                if self.letter() not in "0123456789abcdefABCDEF":
                    self.refuse("in \\u hexadecimal character escape")

    def _literal(self, word: str) -> None:
        for expected in word:
            if self.place >= len(self.text):
                raise _Wrong(f"invalid character ' ' in literal {word} (expecting '{expected}')")
            if self.letter() != expected:
                self.refuse(f"in literal {word} (expecting '{expected}')")
            self.place += 1

    def _number(self) -> None:
        found = _NUMBER.match(self.text, self.place)
        if found is None:
            if self.letter() == "-":
                self.place += 1
                self.refuse("in numeric literal")
            self.refuse(_VALUE)
        else:
            self.place = found.end()
