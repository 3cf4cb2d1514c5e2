"""The tag of an image's name, which decides how often it is pulled."""

from __future__ import annotations

import re
from functools import lru_cache

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN = (
    r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*"
)
_REFERENCE = re.compile(
    rf"(?:(?P<domain>{_DOMAIN}(?::[0-9]+)?|\[[a-fA-F0-9:]+\](?::[0-9]+)?)/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
)
_IDENTIFIER = re.compile("[a-f0-9]{64}")


@lru_cache(maxsize=4096)
def pull_policy(image: str) -> str:
    """How often an image is pulled if nobody says: an image that may change under its name always."""
    found = None if _IDENTIFIER.fullmatch(image) else _REFERENCE.fullmatch(image)
    if found is None:
        return "IfNotPresent"
    newest = found["tag"] == "latest" or (found["tag"] is None and found["digest"] is None)
    return "Always" if newest else "IfNotPresent"
