"""ConfigMaps and Secrets as variables and as files."""

from __future__ import annotations

from collections.abc import Mapping

from subak.model.manifest import Object


class ConfigMap(Object, frozen=True, gc=False, kw_only=True):
    """A ConfigMap; binary data can only be files."""

    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Its keys as variables."""
        return self.data or {}

    @property
    def files(self) -> dict[str, bytes]:
        """Its keys as files."""
        return {key: text.encode() for key, text in (self.data or {}).items()} | (self.binary_data or {})


class Secret(Object, frozen=True, gc=False, kw_only=True):
    """A Secret."""

    data: dict[str, bytes] | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Its keys as variables; values that are not UTF-8 keep their bytes."""
        return {key: value.decode(errors="surrogateescape") for key, value in (self.data or {}).items()}

    @property
    def files(self) -> dict[str, bytes]:
        """Its keys as files."""
        return self.data or {}


Reference = tuple[type[ConfigMap] | type[Secret], str]
"""Kind and name of an object in the pod's namespace."""

Contents = Mapping[Reference, ConfigMap | Secret | None]
"""The objects that references name; None for those that do not exist."""


def not_found(reference: Reference) -> str:
    """The API server's message for a missing object."""
    kind, name = reference
    return f'{kind.__name__.lower()} "{name}" not found'
