"""Who is who in a test cluster: one authority, a certificate per program, a token for the tests."""

from __future__ import annotations

import datetime
import ipaddress
import json
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tinykube import certificates

TOKEN = "token-of-the-tests"
PASSING_TOKEN = "token-that-becomes-void"
USER = "admin"
MASTERS = "system:masters"
LIFE = datetime.timedelta(days=2)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass
class Identities:
    """Keys and certificates in one directory."""

    directory: Path
    authority: str = "tests"
    _key: ec.EllipticCurvePrivateKey = field(init=False)
    _name: x509.Name = field(init=False)

    def __post_init__(self) -> None:
        """Make the authority, the key of service accounts and the file of tokens."""
        self.directory.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.authority)])
        now = datetime.datetime.now(datetime.UTC)
        self._write("ca", self._key, certificates.authority(self._key, self._name, now, LIFE))
        self._write("service-accounts", rsa.generate_private_key(public_exponent=65537, key_size=2048))
        self.know_tokens(TOKEN, PASSING_TOKEN)

    def know_tokens(self, *tokens: str) -> None:
        """The tokens of the tests, which an API server reads when it starts."""
        (self.directory / "tokens.csv").write_text("".join(f'{each},{USER},{USER},"{MASTERS}"\n' for each in tokens))

    def certificate(self, name: str) -> Path:
        """Where a certificate is; its key lies beside it."""
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Where a private key is."""
        return self.directory / f"{name}.key"

    def server(self, name: str, addresses: list[str]) -> None:
        """A certificate for a server at some addresses."""
        names = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        self._sign(name, name, "", ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names))

    def client(self, name: str, user: str, group: str) -> None:
        """A certificate by which an API server knows its holder as a user in a group."""
        self._sign(name, user, group, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def kubeconfig(self, name: str, address: str) -> Path:
        """A file with which the holder of a client's certificate finds the API server."""
        path = self.directory / f"{name}.kubeconfig"
        server = {"server": address, "certificate-authority": str(self.certificate("ca"))}
        user = {"client-certificate": str(self.certificate(name)), "client-key": str(self.key(name))}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "tests", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }
        path.write_text(json.dumps(content))
        return path

    def _sign(
        self, name: str, user: str, group: str, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        made = _certificate(x509.Name(subject), self._name, key.public_key())
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = made.add_extension(issuer, critical=False)
        if names is not None:
            made = made.add_extension(names, critical=False)
        self._write(name, key, made.sign(self._key, hashes.SHA256()))

    def _write(self, name: str, key: PrivateKey, certificate: x509.Certificate | None = None) -> None:
        form = serialization.PrivateFormat.TraditionalOpenSSL
        pem = serialization.Encoding.PEM
        self.key(name).write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        if certificate is not None:
            self.certificate(name).write_bytes(certificate.public_bytes(pem))


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
    )
