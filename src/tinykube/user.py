"""Who asks: a user of an API server, by the name and the groups under which the server knows him."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
NODES = "system:nodes"


@dataclass(frozen=True, slots=True)
class User:
    """A person, a program or a service account."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""

    def is_among(self, names: Container[str]) -> bool:
        """Whether he or one of his groups is named."""
        return self.name in names or any(group in names for group in self.groups)

    def info(self) -> dict[str, Any]:
        """As a `UserInfo`, by which an API server tells others who asks."""
        known = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        return {key: value for key, value in known.items() if value}
