"""A user of an API server: the name and the groups under which the server knows them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Self

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""In the `extra` of a service account: the node of the pod for which its token was made."""


@dataclass(frozen=True, slots=True)
class User:
    """A person, a program or a service account; `node` is where its pod runs, if its token tells."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    node: str = ""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """From a `UserInfo`."""
        node = (info.get("extra") or {}).get(NODE_OF_TOKEN) or [""]
        return cls(info.get("username") or "", tuple(info.get("groups") or ()), info.get("uid") or "", node[0])

    def is_among(self, names: Container[str]) -> bool:
        """Whether the user or one of the groups is named."""
        return self.name in names or any(group in names for group in self.groups)

    def info(self) -> dict[str, Any]:
        """As a `UserInfo`, which an API server sends to webhooks."""
        extra = {NODE_OF_TOKEN: [self.node]} if self.node else {}
        known = {"username": self.name, "uid": self.uid, "groups": list(self.groups), "extra": extra}
        return {key: value for key, value in known.items() if value}
