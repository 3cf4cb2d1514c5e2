"""The server's certificate, the authority that signed it, and the token that clients must show.

Kept in a directory, they stay the same over restarts, so that a kubeconfig that was written once stays valid.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tinykube import private

LIFETIME = timedelta(days=365)
ADDRESSES = ("127.0.0.1", "::1")
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

_FILES = {"authority": "ca.crt", "certificate": "tls.crt", "key": "tls.key", "token": "token"}


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """PEM texts, and the token that clients must show."""

    authority: str
    certificate: str
    key: str
    token: str

    def context(self) -> ssl.SSLContext:
        """For a server that listens."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The ssl module reads keys from files only.
        with tempfile.TemporaryDirectory() as directory:
            chain = Path(directory) / "chain.pem"
            chain.touch(0o600)
            chain.write_text(self.key + self.certificate)
            context.load_cert_chain(chain)
        return context


def identity(directory: Path | None = None, name: str = "tinykube") -> ServerIdentity:
    """A new identity, or the one that is kept in a directory while it is valid; certificates show the name."""
    if directory is None:
        return _made(name)
    private.directory(directory)
    for name in _FILES.values():
        private.close(directory / name)
    try:
        kept = ServerIdentity(**{field: (directory / name).read_text() for field, name in _FILES.items()})
        if _is_valid(kept):
            return kept
    except (OSError, ValueError):
        pass
    made = _made(name)
    for field, name in _FILES.items():
        file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w") as text:
            text.write(getattr(made, field))
    return made


def _is_valid(kept: ServerIdentity) -> bool:
    certificate = x509.load_pem_x509_certificate(kept.certificate.encode())
    return bool(kept.token) and certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=1)


def _made(name: str) -> ServerIdentity:
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-ca")])
    authority = (
        _begun(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [*(x509.DNSName(each) for each in NAMES), *(x509.IPAddress(ip_address(each)) for each in ADDRESSES)]
    certificate = (
        _begun(subject, issuer, key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ServerIdentity(_pem(authority), _pem(certificate), private.decode(), secrets.token_urlsafe(32))


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
