"""The tag of an image's name, which decides how often it is pulled."""

from __future__ import annotations

import re

from tinykube.server.memo import remembered

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_NAME = re.compile(
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile("[a-f0-9]{64}")
_LONGEST = 255


@remembered(4096)
def pull_policy(image: str) -> str:
    """The default pull policy: always for an image that may change under its name."""
    domain, name = _split(image)
    found = _NAME.fullmatch(name)
    if found is None or len(found["path"]) > _LONGEST or not _DOMAIN.fullmatch(domain) or _IDENTIFIER.fullmatch(image):
        return "IfNotPresent"  # it is no name at all
    newest = found["tag"] == "latest" or (found["tag"] is None and found["digest"] is None)
    return "Always" if newest else "IfNotPresent"


def _split(image: str) -> tuple[str, str]:
    """The registry and the name there."""
    first, slash, rest = image.partition("/")
    if slash and first not in ("docker.io", "index.docker.io"):
        if first == "localhost" or "." in first or ":" in first or first.lower() != first:
            return first, rest
        rest = image
    elif not slash:
        rest = image
    return "docker.io", rest if "/" in rest else f"library/{rest}"
