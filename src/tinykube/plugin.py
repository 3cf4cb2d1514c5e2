"""Credentials that a program gives: the `exec` of a kubeconfig, as cloud providers use it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from tinykube.endpoint import CredentialsError, Identity

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PATIENCE = 120.0
"""A program may send its user to a browser; after so many seconds it is given up."""


class Given(msgspec.Struct, rename="camel"):
    """`status` of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(msgspec.Struct):
    """What the program prints."""

    status: Given | None = None


@dataclass(slots=True)
class Plugin:
    """Runs the program when its last answer has expired, or was not believed."""

    argv: Sequence[str]
    version: str
    env: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    interactive: bool = True
    cluster: Mapping[str, Any] | None = None
    _known: Given | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def identity(self, refused: bool = False) -> Identity:
        before = self._known
        async with self._lock:
            # Many requests may find at once that the answer is too old: the first asks, the others take what it got.
            if self._known is None or _expired(self._known) or (refused and self._known is before):
                self._known = await self._run()
            given = self._known
        headers = {"authorization": f"Bearer {given.token}"} if given.token else {}
        return Identity(headers, given.client_certificate_data.encode(), given.client_key_data.encode())

    async def _run(self) -> Given:
        spec: dict[str, Any] = {"interactive": self.interactive and sys.stdin.isatty()}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = msgspec.json.encode({"apiVersion": self.version, "kind": "ExecCredential", "spec": spec}).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                *self.argv,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": info},
                stdin=None if spec["interactive"] else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{self.hint}" if self.hint else ""
            raise CredentialsError(f"credential program {self.argv[0]}: {error.strerror}{hint}") from None
        try:
            async with asyncio.timeout(PATIENCE):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CredentialsError(
                f"credential program {self.argv[0]} gave no answer within {PATIENCE:.0f} s"
            ) from None
        if process.returncode:
            raise CredentialsError(f"credential program {self.argv[0]} failed with exit code {process.returncode}")
        return self._read(output)

    def _read(self, output: bytes) -> Given:
        try:
            given = msgspec.json.decode(output, type=ExecCredential).status
        except msgspec.DecodeError as error:
            raise CredentialsError(f"credential program {self.argv[0]} printed no ExecCredential: {error}") from None
        if given is None or not (given.token or given.client_certificate_data):
            raise CredentialsError(f"credential program {self.argv[0]} gave neither a token nor a certificate")
        return given


def _expired(given: Given) -> bool:
    return given.expiration_timestamp is not None and given.expiration_timestamp <= datetime.now(UTC)
