"""The server's certificate, the authority that signed it, and the token that clients must show.

Kept in a directory, they stay the same over restarts, so that a kubeconfig that was written once stays valid.  It holds
the authority and the token, which both outlive the certificate:

    certificate   signed anew when two thirds of its life are over, or when it has not begun by today's clock
    authority     the same, but with the key that it had: whoever trusts the old one trusts what the new one signs
    token         stays

What is missing, or does not belong together, is made anew; the rest stays.
"""

from __future__ import annotations

import logging
import re
import secrets
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tinykube import certificates, private
from tinykube.server.state import StateError

HOSTS = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""By which names and addresses clients may know the server."""
_FILES = {
    "authority_key": "ca.key",
    "authority": "ca.crt",
    "key": "tls.key",
    "certificate": "tls.crt",
    "token": "token",
}
_TOKEN = re.compile(r"[!-~]{16,}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long an authority and a certificate are valid."""

    authority: timedelta = timedelta(days=3_650)
    certificate: timedelta = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """PEM texts, and the token that clients must show.  Earlier versions forgot the key of the authority."""

    authority_key: str = ""
    authority: str = ""
    key: str = ""
    certificate: str = ""
    token: str = ""

    def context(self) -> ssl.SSLContext:
        """For a server that listens."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Show this certificate to all who connect from now on."""
        # The ssl module reads keys from files only.
        with tempfile.TemporaryDirectory() as directory:
            chain = Path(directory) / "chain.pem"
            chain.touch(0o600)
            chain.write_text(self.key + self.certificate)
            context.load_cert_chain(chain)

    def renewed(self, name: str, now: datetime, lifetimes: Lifetimes) -> ServerIdentity:
        """The same, with what is missing, wrong or old made anew; new certificates show the name."""
        issuer_key, key = certificates.read_key(self.authority_key), certificates.read_key(self.key)
        issuer, leaf = certificates.read(self.authority), certificates.read(self.certificate)
        if issuer and not certificates.is_authority(issuer, issuer_key):
            issuer = None
        if issuer_key and not (
            issuer and certificates.says_that_it_signs(issuer) and not certificates.is_due(issuer, now)
        ):
            subject = issuer.subject if issuer else certificates.common_name(f"{name}-ca")
            issuer = certificates.authority(issuer_key, subject, now, lifetimes.authority)
        if not (
            issuer
            and leaf
            and key
            and certificates.serves(leaf, key, HOSTS, issuer)
            and not certificates.is_due(leaf, now)
        ):
            if not (issuer and issuer_key):
                issuer_key = certificates.new_key()
                subject = certificates.common_name(f"{name}-ca")
                issuer = certificates.authority(issuer_key, subject, now, lifetimes.authority)
            key = certificates.new_key()
            leaf = certificates.signed(key, name, HOSTS, issuer, issuer_key, now, lifetimes.certificate)
        return ServerIdentity(
            certificates.key_pem(issuer_key) if issuer_key else "",
            certificates.pem(issuer),
            certificates.key_pem(key),
            certificates.pem(leaf),
            self.token if _TOKEN.fullmatch(self.token) else secrets.token_urlsafe(32),
        )


class KeptIdentity:
    """The identity that is kept in a directory, if one is given.  `current` is to be shown now.

    Raises StateError if the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path | None = None,
        name: str = "tinykube",
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 (it is frozen)
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._directory = directory
        self._name = name
        self._lifetimes = lifetimes
        self._clock = clock
        self._saved = ServerIdentity() if directory is None else _read(directory)
        self.current = self._saved.renewed(name, clock(), lifetimes)
        try:
            self._save()
        except OSError as error:
            raise StateError(f"{directory}: cannot be written: {error.strerror}") from error

    def renew(self) -> None:
        """Make anew what is due."""
        self.current = self.current.renewed(self._name, self._clock(), self._lifetimes)
        try:
            self._save()
        except OSError as error:  # as on a full disk
            log.warning("%s: what was renewed cannot be kept: %s", self._directory, error.strerror)

    def rest(self) -> timedelta:
        """How long nothing is due, if nobody sets the clock."""
        shown = [self.current.certificate, *([self.current.authority] if self.current.authority_key else [])]
        dates = [certificates.ages(found) for found in map(certificates.read, shown) if found]
        return min(dates) - self._clock()

    def _save(self) -> None:
        """Write what has changed; keys come before their certificates, which can be made of them."""
        if self._directory is None:
            return
        before, now = asdict(self._saved), asdict(self.current)
        for field, name in _FILES.items():
            if now[field] != before[field]:
                private.write(self._directory / name, now[field].encode())
        self._saved = self.current


def identity(directory: Path | None = None, name: str = "tinykube") -> ServerIdentity:
    """A new identity, or the one that is kept in a directory.  Raises StateError."""
    return KeptIdentity(directory, name).current


def _read(directory: Path) -> ServerIdentity:
    found = {}
    try:
        private.directory(directory)
        for field, name in _FILES.items():
            try:
                found[field] = private.read(directory / name).strip()
            except (FileNotFoundError, ValueError):
                continue
    except OSError as error:
        message = f"cannot be used: {error.strerror}; remove it, and it is made anew"
        raise StateError(f"{error.filename}: {message}") from error
    texts = {field: text if field == "token" else f"{text}\n" for field, text in found.items()}
    return ServerIdentity(**texts)
