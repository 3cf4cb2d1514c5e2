"""Where an API server is, how it proves who it is, and how we prove who we are."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

REREAD = 60.0
"""Tokens of service accounts are replaced while we run: a token file is read again after so many seconds."""


class ConfigError(ValueError):
    """The way to the API server is not described, or badly: which file, what is wrong and what would be right."""


class CredentialsError(ConfigError, ConnectionError):
    """We cannot prove who we are now.  It may pass, as when a token is being replaced."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are: headers to send, and a client certificate with its key in PEM."""

    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: bytes = b""
    key: bytes = b""

    @classmethod
    def bearer(cls, token: str) -> Identity:
        """The user of a token."""
        return cls({"authorization": f"Bearer {token}"})

    @classmethod
    def basic(cls, user: str, password: str) -> Identity:
        """A user with a password."""
        return cls({"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()})


class Credentials(Protocol):
    """A source of identities."""

    async def identity(self, refused: bool = False) -> Identity:
        """Who we are now.  `refused`: the server did not believe the last one (401).  Raises CredentialsError."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that stay the same."""

    known: Identity = field(default_factory=Identity)

    async def identity(self, refused: bool = False) -> Identity:
        return self.known


class TokenFile:
    """A token in a file that another program renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: Identity | None = None
        self._read_at = 0.0

    async def identity(self, refused: bool = False) -> Identity:
        now = time.monotonic()
        if self._known is None or refused or now - self._read_at > REREAD:
            try:
                token = self._path.read_text().strip()
            except OSError as error:
                raise CredentialsError(f"token file {self._path}: {error.strerror}") from None
            self._known, self._read_at = Identity.bearer(token), now
        return self._known


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API server.  `impersonate` are headers to add.

    `authority` is a PEM bundle, empty for the system's.  If there is an `authority_file`, what stands there now counts:
    it may be replaced while we run.
    """

    server: str
    credentials: Credentials = field(default_factory=Fixed)
    namespace: str = "default"
    authority: bytes = b""
    authority_file: Path | None = None
    verify: bool = True
    server_name: str = ""
    impersonate: tuple[tuple[str, str], ...] = ()

    def tls(self, identity: Identity) -> ssl.SSLContext:
        """How to speak TLS with it.  Raises ConfigError for certificates that cannot be used."""
        try:
            context = ssl.create_default_context(cadata=self._trusted().decode() or None)
            # Authorities that kubeadm and others made lack extensions that newer versions of Python insist on.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if identity.certificate:
                _load_certificate(context, identity)
        except (ssl.SSLError, ValueError) as error:
            kind = CredentialsError if self.authority_file else ConfigError  # a file may be half written
            raise kind(f"the certificates for {self.server} cannot be used: {error}") from None
        return context

    def _trusted(self) -> bytes:
        try:
            return self.authority_file.read_bytes() if self.authority_file else self.authority
        except OSError:  # it is being replaced
            return self.authority


def _load_certificate(context: ssl.SSLContext, identity: Identity) -> None:
    """The ssl module reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.pem"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(identity.certificate + b"\n" + identity.key)
        context.load_cert_chain(path)
