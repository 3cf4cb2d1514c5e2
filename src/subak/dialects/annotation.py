"""JSON inside annotations: decoded into types, with one kind of error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(text: str, type: type[T]) -> T:
    """The value in an annotation.  Raises ValueError that says what is wrong and where."""
    try:
        return msgspec.json.decode(text, type=type)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("the JSON has too many levels") from None


def encode(value: object) -> str:
    """The value as an annotation holds it: JSON without blanks."""
    return msgspec.json.encode(value).decode()
