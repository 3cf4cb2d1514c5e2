"""The webhook's certificates, generation by generation.  No I/O; time is an argument.

A generation is an authority, the one certificate that it has signed, and that certificate's key.  The authority's own
key is forgotten at once, so nobody can sign another.  The API server trusts all authorities of the bundle; each replica
presents one certificate.  A new generation comes when two thirds of the latest one's life are over:

    made        it enters the Secret, which all replicas share
    trusted     its authority enters the bundle of both webhooks, beside the old one
    presented   once a replica has seen it trusted for some time, in which API servers learn of it
    expired     it leaves the Secret when the next one is made

So at any moment the API server trusts what any replica presents.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = timedelta(hours=1)
"""Certificates begin so long before they are made, for clocks that are late."""
MOST = 4
"""More generations than that are never needed at once."""
_PARTS = ("ca.crt", "tls.crt", "tls.key")


class BadSecret(ValueError):
    """A Secret that does not hold what we keep there."""


@dataclass(frozen=True, slots=True)
class Generation:
    """PEM texts, and what they say; `names` are host names and addresses."""

    authority: str
    certificate: str
    key: str
    made: datetime
    expires: datetime
    names: frozenset[str]

    def ages(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.made + (self.expires - self.made) * 2 / 3


def renewed(
    known: Sequence[Generation], names: frozenset[str], now: datetime, lifetime: timedelta
) -> list[Generation] | None:
    """The generations with a new one, or None if none is due.

    If only names are missing, the new one also has those of the latest: replicas with other names must not displace
    each other's for ever.
    """
    latest = known[-1] if known else None
    if latest is not None and not latest.ages(now):
        if names <= latest.names:
            return None
        names |= latest.names
    living = [each for each in known if each.expires > now]
    return [*living, make(names, now, lifetime)][-MOST:]


def presented(
    known: Sequence[Generation], trusted: Mapping[str, datetime], now: datetime, settling: timedelta
) -> Generation:
    """The generation to present: the latest whose authority has been trusted long enough, if need be another.

    `trusted` says since when we have seen each authority in the bundle.
    """
    living = [each for each in known if each.expires > now] or [known[-1]]
    settled = [each for each in living if each.authority in trusted and now >= trusted[each.authority] + settling]
    if settled:
        return settled[-1]
    return next((each for each in living if each.authority in trusted), living[0])


def bundle(known: Sequence[Generation]) -> str:
    """All authorities, as a `caBundle`."""
    return b64encode("".join(each.authority for each in known).encode()).decode()


def make(names: frozenset[str], now: datetime, lifetime: timedelta) -> Generation:
    """A new generation."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made = now.replace(microsecond=0)
    issuer = _named(f"subak-webhook-ca {made:%Y-%m-%d %H:%M:%S}")
    authority = (
        _begun(issuer, issuer, authority_key, made, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _begun(_named("subak-webhook"), issuer, key, made, lifetime)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Generation(_pem(authority), _pem(certificate), private.decode(), made, made + lifetime, names)


def written(known: Sequence[Generation]) -> dict[str, str]:
    """The `data` of the Secret."""
    texts = {
        f"{number}.{part}": text
        for number, each in enumerate(known, 1)
        for part, text in zip(_PARTS, (each.authority, each.certificate, each.key), strict=True)
    }
    return {name: b64encode(text.encode()).decode() for name, text in texts.items()}


def read(data: Mapping[str, str] | None) -> list[Generation]:
    """The generations in the `data` of a Secret, the latest last.  Raises BadSecret."""
    data = data or {}
    numbers = range(1, len(data) // len(_PARTS) + 1)
    names = [[f"{number}.{part}" for part in _PARTS] for number in numbers]
    if data.keys() != {name for each in names for name in each} or not data:
        raise BadSecret(f"its data are {', '.join(sorted(data)) or 'empty'}, not {', '.join(f'1.{p}' for p in _PARTS)}")
    return [_generation(each, *(_text(data, name) for name in each)) for each in names]


def _text(data: Mapping[str, str], name: str) -> str:
    try:
        return b64decode(data[name], validate=True).decode()
    except ValueError as error:
        raise BadSecret(f"data[{name}] cannot be read: {error}") from None


def _generation(fields: Sequence[str], authority: str, certificate: str, key: str) -> Generation:
    try:
        issuer = x509.load_pem_x509_certificate(authority.encode())
        leaf = x509.load_pem_x509_certificate(certificate.encode())
        private = serialization.load_pem_private_key(key.encode(), None)
        leaf.verify_directly_issued_by(issuer)
        if private.public_key() != leaf.public_key():
            raise ValueError("the key is not that of the certificate")
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:  # cryptography raises many kinds
        raise BadSecret(f"data[{fields[1]}] is no certificate of ours: {error}") from None
    made, expires = leaf.not_valid_before_utc + SKEW, leaf.not_valid_after_utc
    return Generation(authority, certificate, key, made, expires, frozenset(str(each.value) for each in names))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, made: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - SKEW)
        .not_valid_after(made + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
