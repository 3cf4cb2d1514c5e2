"""What a client may send that nobody has thought of: values, objects that are nearly right, bytes of protocols."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

TEXTS = st.sampled_from([
    "", " ", "a", "A", "-", "a/b", "a.b/c", "x" * 300, "\u0000", "\n", "ü", "\ud7ff", "𐏿", "null", "true", "1", "-1",
    "0", "1Gi", "1e999999999", "-5m", "99999999999999999999Ei", "0x10", "2024-01-01T00:00:00Z", "9999-99-99T99:99:99Z",
    "1970-01-01T00:00:00.000000Z", "f:metadata", "k:{", "$patch", "$(VAR)", "*", "10.0.0.1", "::", "a=b,c in (d)",
    "9" * 5000, "9" * 400 + "%", "a>" + "9" * 5000, "/spec/containers/" + "9" * 5000, "i:" + "9" * 5000,
])  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 65536, 2**31, -(2**31) - 1, 2**53, 2**63, -(2**63) - 1, 2**64, 10**400])
    | st.sampled_from([0.5, -0.0, 1e308, 5e-324])
    | TEXTS
)
_DEEPER = SCALARS | st.lists(SCALARS, max_size=2)
VALUES = _DEEPER | st.lists(_DEEPER, max_size=3) | st.dictionaries(TEXTS, _DEEPER, max_size=3)


@st.composite
def nearly(draw: st.DrawFn, object: Json) -> Any:
    """An object in which something is replaced, added or missing."""
    made = copy.deepcopy(object)
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(_places(made)) or [(made, "metadata")]))
        if draw(st.integers(0, 3)):
            parent[key] = draw(VALUES)
        elif isinstance(parent, dict):
            parent[draw(TEXTS)] = parent.pop(key)
        else:
            parent += [parent[key], draw(VALUES)]
    return made


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@contextmanager
def nothing_logged(level: int = logging.WARNING) -> Iterator[None]:
    """Fail if the log gets a warning or worse."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Listening(level)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert said == []
