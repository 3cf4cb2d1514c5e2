"""A certificate authority and the certificate that it signs for a server.  No I/O; time is an argument."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = timedelta(hours=1)
"""Certificates begin so long before they are made, for clocks that are late."""
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)

_UNREADABLE = (
    ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)  # fmt: skip

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def authority(key: Key, subject: x509.Name, now: datetime, lifetime: timedelta) -> x509.Certificate:
    """An authority, which signs itself."""
    return (
        _begun(subject, subject, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS, critical=True)
        .sign(key, hashes.SHA256())
    )


def signed(
    key: Key,
    name: str,
    hosts: Collection[str],
    issuer: x509.Certificate,
    issuer_key: Key,
    now: datetime,
    lifetime: timedelta,
) -> x509.Certificate:
    """The certificate of a server with these host names and addresses; it does not outlive the authority."""
    alternatives = [_alternative(each) for each in sorted(hosts)]
    expires = min(now + lifetime, issuer.not_valid_after_utc)
    return (
        _begun(common_name(name), issuer.subject, key, now, expires)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def ages(certificate: x509.Certificate) -> datetime:
    """When two thirds of its life are over."""
    made, expires = certificate.not_valid_before_utc + SKEW, certificate.not_valid_after_utc
    return made + (expires - made) * 2 / 3


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether it is time for another: it is old, or made by a clock that was ahead."""
    return not certificate.not_valid_before_utc <= now < ages(certificate)


def is_authority(certificate: x509.Certificate, key: Key | None) -> bool:
    """Whether it is an authority, and the key, if there is one, is its own."""
    try:
        certificate.verify_directly_issued_by(certificate)  # else it was damaged
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (*_UNREADABLE, InvalidSignature, x509.ExtensionNotFound):
        return False
    return constraints.ca and (key is None or certificate.public_key() == key.public_key())


def says_that_it_signs(certificate: x509.Certificate) -> bool:
    """Whether clients that insist on RFC 5280 take it for an authority, as those in Python do from 3.13 on."""
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except (x509.ExtensionNotFound, ValueError):
        return False


def serves(certificate: x509.Certificate, key: Key, hosts: Collection[str], issuer: x509.Certificate) -> bool:
    """Whether a certificate is for a server with these host names and addresses, and key and authority are its own."""
    try:
        certificate.verify_directly_issued_by(issuer)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (*_UNREADABLE, InvalidSignature, x509.ExtensionNotFound):
        return False
    return {str(each.value) for each in found}.issuperset(hosts) and certificate.public_key() == key.public_key()


def read(text: str) -> x509.Certificate | None:
    """The certificate of a PEM text, if it is one and all of it can be read."""
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        # They are parsed when they are asked for.
        _ = (found.subject, found.issuer, found.not_valid_before_utc, found.not_valid_after_utc, found.extensions)
        found.public_key()
    except _UNREADABLE:
        return None
    return found


def read_key(text: str) -> Key | None:
    """The key of a PEM text, if it is one of ours."""
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Key) else None


def pem(certificate: x509.Certificate) -> str:
    """As text."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: Key) -> str:
    """As text."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


def common_name(name: str) -> x509.Name:
    """A subject that says no more."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: Key, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
