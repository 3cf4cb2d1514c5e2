"""Which words of a refusal tests compare with those of a real server.

Users read why an object is refused, so those words are compared.  Nobody reads how Go describes a body that is no JSON,
or a patch that makes no sense: kubectl does not send such.  Of these only code, reason and fields are compared.
Objects in a message have the names of Go's structs on a real server, and those of JSON here.
"""

from __future__ import annotations

import re

_UNREAD = tuple(
    (re.compile(pattern, re.DOTALL), stands_for)
    for pattern, stands_for in (
        (r"(json parse error: ).*", r"\1WORDS"),
        (r"(continue key is not valid: ).*", r"\1WORDS"),
        (
            r"^(error decoding patch: )?(invalid character|unexpected end|JSON is malformed|Input data was).*",
            "WORDS",
        ),
        (r"(<secret contents redacted>\": ).*", r"\1WORDS"),
        (r"(unable to convert unstructured object to [^:]*: ).*", r"\1WORDS"),
        (r"(patch: Invalid value: ).*", r"\1WORDS"),
        (r"(pod updates may not change fields other than [^\n]*)\n.*", r"\1"),
        (r"((?:Invalid|Duplicate) value: )\[?\{.*\}\]?", r"\1OBJECT"),
    )
)
_REPORTED = re.compile(r'299 - "(json patch )?(unknown field|duplicate field|line [0-9]+: key|child pods)')


def compared(text: str) -> str:
    """A message with WORDS instead of what is not compared."""
    for pattern, stands_for in _UNREAD:
        text = pattern.sub(stands_for, text)
    return text


def reported(warnings: list[str]) -> list[str]:
    """Warnings about fields of the request, and about what a deletion leaves behind.  We give no others."""
    return [each for each in warnings if _REPORTED.match(each)]
