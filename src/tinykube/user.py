"""A user of an API server: the name and the groups under which the server knows them."""

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
        """Whether the user or one of the groups is named."""
        return self.name in names or any(group in names for group in self.groups)

    def info(self) -> dict[str, Any]:
        """As a `UserInfo`, which an API server sends to webhooks."""
        known = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        return {key: value for key, value in known.items() if value}
